"""The FLOP/s that a processor reaches in plain kernels: a measured bound, because the computed one is much too high.

A matrix product alone is no bound for a net of convolutions: on AMD's Zen 5, in fp32, torch's product (MKL) uses half
of the vector units and its convolution (oneDNN) all of them, so that it is twice as fast.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import Any, Callable, Iterator, List, NamedTuple

import torch

LEAST_REPETITIONS = 3  # of a kernel
KERNEL_S = 0.05  # how long each kernel is repeated
PRODUCT_S = 0.1  # how long a product of all threads is repeated
SMALL_PRODUCT, LARGE_PRODUCT = 1024, 4096  # rows of its matrices: enough work for few threads, and for many
# bf16 is measured in fp32 too: where bf16 is emulated, the parts that autocast leaves in fp32 may be faster.
DTYPES = {"bf16": (torch.bfloat16, torch.float32)}


def attainable_flops(dtype: str, threads: int, kernel_s: float = KERNEL_S) -> float:
    """Return the FLOP/s of `threads` cores that all repeat a product or a convolution, whichever is faster.

    Takes about `kernel_s` seconds for each of the two and each dtype that training in `dtype` computes in. A kernel is
    timed by its thread's own processor time, and its fastest repetition counts: a bound must not be too low, and other
    processes can only make a repetition slower.
    """
    rates: List[float] = []
    threads_before = torch.get_num_threads()

    def compute() -> None:
        torch.set_num_threads(1)  # this thread starts no others
        with torch.no_grad():
            rates.append(max(_rate(kernel, kernel_s) for kernel in _kernels(dtype)))

    workers = [threading.Thread(target=compute, name="attainable") for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    torch.set_num_threads(threads_before)
    return sum(rates)


def product_flops(dtype: str, threads: int, product_s: float = PRODUCT_S) -> float:
    """Return the FLOP/s of all threads together in one large matrix product after the other, by the clock on the wall.

    That is how a training step computes and is timed, so its FLOP/s are compared with these. They are no bound.
    """
    compute, flop = _product(DTYPES.get(dtype, (torch.float32,))[0], SMALL_PRODUCT if threads < 16 else LARGE_PRODUCT)
    with torch.no_grad():
        compute()  # the first one also gets memory
        begin_s = time.perf_counter()
        products = 0
        while not products or time.perf_counter() - begin_s < product_s:
            compute()
            products += 1
        return products * flop / (time.perf_counter() - begin_s)


class Kernel(NamedTuple):
    """A function that computes, and its FLOP."""

    compute: Callable[[], Any]
    flop: float


def _kernels(dtype: str) -> Iterator[Kernel]:
    for torch_dtype in DTYPES.get(dtype, (torch.float32,)):
        yield _product(torch_dtype)
        yield _convolution(torch_dtype)


def _product(dtype: torch.dtype, size: int = 512) -> Kernel:
    """Return a product of square matrices that fit into a core's own cache."""
    matrix = torch.full((size, size), 0.5, dtype=dtype)
    return Kernel(functools.partial(torch.mm, matrix, matrix), 2.0 * size**3)


def _convolution(dtype: torch.dtype, channels: int = 128, width: int = 28) -> Kernel:
    """Return a 3 x 3 convolution of ResNet-50."""
    image = torch.full((1, channels, width, width), 0.5, dtype=dtype).to(memory_format=torch.channels_last)
    weight = torch.full((channels, channels, 3, 3), 0.5, dtype=dtype).to(memory_format=torch.channels_last)
    compute = functools.partial(torch.nn.functional.conv2d, image, weight, padding=1)
    return Kernel(compute, 2.0 * channels**2 * 9 * width**2)


def _rate(kernel: Kernel, kernel_s: float) -> float:
    """Return the FLOP/s of the fastest repetition."""
    begin_s = time.perf_counter()
    fastest_s = float("inf")
    repetitions = 0
    while repetitions < LEAST_REPETITIONS or time.perf_counter() - begin_s < kernel_s:
        before_s = time.thread_time()
        kernel.compute()
        fastest_s = min(fastest_s, time.thread_time() - before_s)
        repetitions += 1
    return kernel.flop / fastest_s
