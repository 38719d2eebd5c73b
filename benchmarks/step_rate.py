"""How fast one training step is by itself, on one batch that stays, beside what the processor does at most.

    OMP_NUM_THREADS=1 python benchmarks/step_rate.py deepcam --data-dir data/deepcam-quick [--batch 1] [--steps 3]

A matrix product of 2048 x 2048 stands before each step, so that a busy machine slows both; each figure is that of the
best turn. GFLOP/s are those of `flop_per_sample`, the ratio is to the product in the same dtype.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from models import benchmarks
from models.accelerators.cpu import Cpu
from models.dtypes import TORCH_DTYPES

SIDE = 2048


def step_of(name: str, folder: str, size: str, batch: int, dtype: str, channels_last: bool) -> Callable[[], object]:
    """One training step as models/steps/eager.py makes it: prepare, forward, loss, backward, optimiser."""
    benchmark = benchmarks.load(name)
    cpu = Cpu()
    cpu.settle(dtype)
    shape = benchmark.SIZES[size]["cpu"].shape
    data = benchmark.open_data(folder, shape=shape, augment=benchmark.AUGMENTS, seed=1)
    read, targets = torch.utils.data.default_collate([data[(0, index % len(data))] for index in range(batch)])
    torch.manual_seed(1)
    model = benchmark.build(next(iter(benchmark.VARIANTS)), shape)
    if channels_last:
        model = model.to(memory_format=benchmark.CHANNELS_LAST)
    optimizer = benchmark.make_optimizer(model)
    prepare = benchmark.Prepare(data, cpu.device, TORCH_DTYPES[dtype], channels_last)

    def step() -> None:
        with cpu.autocast(dtype):
            loss = benchmark.criterion(model(prepare(read)), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=benchmarks.names())
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--size", default="quick", help="whose shape")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3, help="that are timed, after one that is not")
    parser.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
    options = parser.parse_args()
    module = benchmarks.load(options.benchmark)
    shape = module.SIZES[options.size]["cpu"].shape
    flop = module.flop_per_sample(next(iter(module.VARIANTS)), shape)[1]
    matrix = torch.randn(SIDE, SIDE, dtype=TORCH_DTYPES[options.dtype])
    print(f"{options.benchmark}, batch {options.batch}, {options.dtype}, {torch.get_num_threads()} thread(s)")
    for channels_last in (False, True):
        step = step_of(options.benchmark, options.data_dir, options.size, options.batch, options.dtype, channels_last)
        step()
        turns = [(seconds(lambda: matrix @ matrix), seconds(step)) for _ in range(options.steps)]
        product, best = (min(column) for column in zip(*turns, strict=True))
        rate, most = options.batch / best, 2 * SIDE**3 / product
        layout = "channels_last" if channels_last else "contiguous"
        print(
            f"{layout:14} {rate:8.4f} samples/s {rate * flop / 1e9:8.1f} GFLOP/s, product {most / 1e9:6.1f}: "
            f"{rate * flop / most:.2f} of it"
        )


if __name__ == "__main__":
    main()
