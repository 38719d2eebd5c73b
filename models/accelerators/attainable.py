"""What a processor reaches at best in plain kernels: a bound that is measured, where the computed one is far away.

A matrix product alone is no bound for a net of convolutions: on AMD's Zen 5, in fp32, torch's product (MKL) uses half
of the vector units and its convolution (oneDNN) all of them, so that it is twice as fast.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import Any, Callable, Iterator, List, NamedTuple

import torch

LEAST = 3  # repetitions of a kernel
KERNEL_S = 0.05  # how long each kernel is repeated
DTYPES = {
    "bf16": (torch.bfloat16, torch.float32)
}  # bf16: what autocast leaves in fp32 may be faster where it is emulated


def attainable_flops(dtype: str, threads: int, kernel_s: float = KERNEL_S) -> float:
    """FLOP/s of `threads` cores that all repeat kernels of their own, the fastest of a product and a convolution.

    Takes about `kernel_s` seconds for each of the two and each dtype that training in `dtype` computes in. A kernel is
    timed by its thread's own processor time, and its fastest repetition counts: a bound must not be too low, and what
    other processes do at that moment only makes it slower.
    """
    rates: List[float] = []
    chosen = torch.get_num_threads()

    def compute() -> None:
        torch.set_num_threads(1)  # of those that this thread would start itself
        with torch.no_grad():
            rates.append(max(_rate(kernel, kernel_s) for kernel in _kernels(dtype)))

    workers = [threading.Thread(target=compute, name="attainable") for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    torch.set_num_threads(chosen)
    return sum(rates)


class Kernel(NamedTuple):
    """Something to compute, and its FLOP."""

    compute: Callable[[], Any]
    flop: float


def _kernels(dtype: str) -> Iterator[Kernel]:
    for each in DTYPES.get(dtype, (torch.float32,)):
        yield _product(each)
        yield _convolution(each)


def _product(dtype: torch.dtype, size: int = 512) -> Kernel:
    """A product of square matrices that fit into a core's own cache."""
    matrix = torch.full((size, size), 0.5, dtype=dtype)
    return Kernel(functools.partial(torch.mm, matrix, matrix), 2.0 * size**3)


def _convolution(dtype: torch.dtype, channels: int = 128, width: int = 28) -> Kernel:
    """A 3 x 3 convolution of ResNet-50's."""
    image = torch.full((1, channels, width, width), 0.5, dtype=dtype).to(memory_format=torch.channels_last)
    weight = torch.full((channels, channels, 3, 3), 0.5, dtype=dtype).to(memory_format=torch.channels_last)
    compute = functools.partial(torch.nn.functional.conv2d, image, weight, padding=1)
    return Kernel(compute, 2.0 * channels**2 * 9 * width**2)


def _rate(kernel: Kernel, kernel_s: float) -> float:
    """FLOP/s of the fastest repetition."""
    begin_s, fastest_s, made = time.perf_counter(), float("inf"), 0
    while made < LEAST or time.perf_counter() - begin_s < kernel_s:
        before_s = time.thread_time()
        kernel.compute()
        fastest_s = min(fastest_s, time.thread_time() - before_s)
        made += 1
    return kernel.flop / fastest_s
