"""What the loop costs: training as the suite does it, beside the same step in a bare loop and the loader alone.

    python benchmarks/end_to_end.py --data-dir data/resnet50-quick [--batch 32] [--steps 4] [--rounds 3]

Three rates in one process, taking turns: C, the step on one batch that is already there, without loader and meter; L,
the loader without any training; E, both together under the meter. Prints E / min(C, L); exit code 1 below 0.95.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from models.accelerators import choose
from models.benchmarks import resnet50
from models.data.process_loader import AHEAD, ProcessLoader
from models.data.sampling import StepSampler
from models.meter import Meter, Wire

REFILL_S = 3.0
TORCH = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def main() -> int:
    options = arguments()
    accelerator = choose("auto")
    dtype = accelerator.dtypes()[0]
    accelerator.settle(dtype)
    batches = iter(loader(options, accelerator.pinned))
    step = training_step(accelerator, dtype)
    first = accelerator.to_device(next(batches))
    for _ in range(2):
        step(first)

    rates: dict[str, list[float]] = {"C": [], "L": [], "E": []}
    for _ in range(options.rounds):
        rates["C"].append(rate(options, lambda: step(first), accelerator.synchronize))
        for _ in range(AHEAD + 2):  # what lies ready says nothing about the loader
            next(batches)
        rates["L"].append(rate(options, lambda: next(batches), lambda: None))
        time.sleep(REFILL_S)  # or the workers would decode beside the next rate's steps
        rates["E"].append(end_to_end(options, batches, step, accelerator))
    best = {name: max(values) for name, values in rates.items()}  # what comes from outside only ever slows
    ratio = best["E"] / min(best["C"], best["L"])
    what = {"C": "step alone, bare loop", "L": f"loader alone, {options.workers} worker(s)", "E": "together, metered"}
    for name, values in rates.items():
        shown = ", ".join(f"{value:.2f}" for value in values)
        print(f"{name}  {what[name]:28} {best[name]:9.2f} samples/s   ({shown})")
    print(f"E / min(C, L) = {ratio:.3f}   (batch {options.batch}, {dtype}, channels_last)")
    return 0 if ratio >= 0.95 else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    for name, default in (("batch", 32), ("steps", 4), ("rounds", 3), ("workers", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def loader(options: argparse.Namespace, pinned: bool) -> ProcessLoader:
    data = resnet50.open_data(options.data_dir, variant="v1.5", shape=(224, 224), augment=True, seed=1)
    sampler = StepSampler(len(data), local_batch=options.batch, rank=0, world=1, accumulation=1, seed=1)
    batch, workers = options.batch, options.workers
    return ProcessLoader(data, sampler, local_batch=batch, workers=workers, start="fork", pinned=pinned)


def training_step(accelerator: Any, dtype: str) -> Callable[[Any], torch.Tensor]:
    """Forward, backward and optimiser, written out once more without anything of train.py around it."""
    model = resnet50.build("v1.5", (224, 224)).to(accelerator.device).to(memory_format=torch.channels_last)
    optimizer = resnet50.make_optimizer(model)
    prepare = resnet50.Prepare(None, accelerator.device, TORCH[dtype], True)

    def step(batch: Any) -> torch.Tensor:
        pixels, labels = batch
        with accelerator.autocast(dtype):
            loss = resnet50.criterion(model(prepare(pixels)), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def rate(options: argparse.Namespace, work: Callable[[], object], synchronize: Callable[[], None]) -> float:
    synchronize()
    begin = time.perf_counter()
    for _ in range(options.steps):
        work()
    synchronize()
    return options.steps * options.batch / (time.perf_counter() - begin)


def end_to_end(options: argparse.Namespace, batches: Iterator[Any], step: Callable[[Any], Any], device: Any) -> float:
    with Path("/dev/null").open("wb") as nowhere:
        windows = {"warmup_steps": 0, "windows": 1, "steps_per_window": options.steps}
        clock, wire = device.clock(), Wire(fd=nowhere.fileno())
        meter = Meter(samples=options.batch, clock=clock, wire=wire, folder=None, **windows)
        device.synchronize()
        begin = time.perf_counter()
        for batch in meter.steps(device.ahead(itertools.islice(batches, options.steps))):
            with meter.h2d():
                there = device.to_device(batch)
            meter.loss(step(there))
        device.synchronize()
        return options.steps * options.batch / (time.perf_counter() - begin)


if __name__ == "__main__":
    sys.exit(main())
