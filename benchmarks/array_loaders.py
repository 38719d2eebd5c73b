"""What it costs to bring arrays from the page cache into batches: our threads beside torch's loader with processes.

    python benchmarks/array_loaders.py [--workers 2] [--batch 2] [--files 16] [--rounds 3] [--seconds 3]

Samples of 63.7 MB (768 x 1152 x 18 float32), as files that one os.preadv reads. Each kind runs in a process of its own,
its first batches not counted; all kinds take turns, round by round, so that a busy machine slows all of them, and each
figure is that of its best round. Processor time and page faults are those of the process and its workers together. The
consumer touches each page of a batch and computes nothing.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from models.accelerators.cpu import keep_memory
from models.data.sampling import StepSampler
from models.data.thread_loader import ThreadLoader, sample

SHAPE = (768, 1152, 18)
BYTES = 4 * SHAPE[0] * SHAPE[1] * SHAPE[2]
WARM = 6  # batches before the measured ones: each place in memory has been written once, each worker runs

Kind = Callable[[], Iterable[Any]]


class Arrays(torch.utils.data.Dataset):
    """One array a file, and nothing else."""

    blank = ((SHAPE, torch.float32), ((), torch.int64))

    def __init__(self, folder: str, files: int) -> None:
        self.paths = [f"{folder}/{index}" for index in range(files)]
        content = np.random.default_rng(0).random(SHAPE, dtype=np.float32)
        for path in self.paths:
            content.tofile(path)

    def __getitem__(self, key: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
        return sample(self, key[1])

    def fill(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None:
        descriptor = os.open(self.paths[index], os.O_RDONLY)
        if os.preadv(descriptor, [x.numpy().reshape(-1).view(np.uint8)], 0) != BYTES:
            raise OSError(f"{self.paths[index]} is cut off")
        os.close(descriptor)
        y.numpy()[...] = index


class Cost(NamedTuple):
    """Per sample. A best round is one in which the machine did little else, so each figure may be of another one."""

    wall_ms: float
    cpu_ms: float
    faults: float

    def best(self, other: Cost) -> Cost:
        return Cost(*map(min, self, other))


def kinds_of(data: Arrays, options: argparse.Namespace) -> dict[str, Kind]:
    def keys() -> StepSampler:
        return StepSampler(len(data.paths), local_batch=options.batch, rank=0, world=1, accumulation=1, seed=0)

    def one_buffer() -> Iterator[tuple[torch.Tensor]]:
        x, y = sample(data, 0)
        for index in itertools.cycle(range(len(data.paths))):
            data.fill(index, x, y)
            yield (x[None],)

    def threads(workers: int, kept: bool = True) -> Kind:
        def make() -> ThreadLoader:
            if kept:
                keep_memory()
            return ThreadLoader(data, keys(), workers=workers, pinned=False)

        return make

    def processes(workers: int) -> Kind:
        def make() -> torch.utils.data.DataLoader:
            keep_memory()
            return torch.utils.data.DataLoader(
                data, batch_sampler=keys(), num_workers=workers, multiprocessing_context="fork" if workers else None
            )

        return make

    workers = options.workers
    return {
        "read into one buffer": one_buffer,
        "ours, in the consumer's thread": threads(0),
        f"ours, {workers} threads": threads(workers),
        f"ours, {workers} threads, malloc as it is": threads(workers, kept=False),
        "torch, in the consumer's process": processes(0),
        f"torch, {workers} processes": processes(workers),
    }


# --- measuring -------------------------------------------------------------------------------------------------------


def spent() -> tuple[float, int]:
    """(CPU seconds, page faults) of this process and its children, so far."""
    cpu_s, faults = 0.0, 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if os.getpid() in (int(stat.parent.name), int(words[1])):
            cpu_s += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
            faults += int(words[7])
    return cpu_s, faults


def consume(batches: Iterator[Any], enough: Callable[[int], bool]) -> int:
    """How many samples came until it was enough batches."""
    samples = 0
    for number in itertools.count(1):
        inputs = next(batches)[0]
        inputs.reshape(-1)[:: os.sysconf("SC_PAGE_SIZE") // 4].sum()
        samples += len(inputs)
        if enough(number):
            return samples
    raise AssertionError


def cost(make: Kind, seconds: float) -> Cost:
    batches = iter(make())
    consume(batches, lambda number: number == WARM)
    (cpu_s, faults), begin_s = spent(), time.perf_counter()
    samples = consume(batches, lambda _: time.perf_counter() > begin_s + seconds)
    wall_s, (cpu_end_s, faults_end) = time.perf_counter() - begin_s, spent()
    return Cost(1e3 * wall_s / samples, 1e3 * (cpu_end_s - cpu_s) / samples, (faults_end - faults) / samples)


def in_a_process(make: Kind, seconds: float) -> Cost:
    """What a kind does to memory stays in its process."""
    context = multiprocessing.get_context("fork")
    ours, its = context.Pipe(duplex=False)
    process = context.Process(target=lambda: its.send(cost(make, seconds)))
    process.start()
    its.close()
    try:
        found: Cost = ours.recv()
    finally:
        process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2, help="samples of a batch")
    parser.add_argument("--files", type=int, default=16, help="all of them have to fit into the page cache")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each kind in each round")
    options = parser.parse_args()
    torch.set_num_threads(1)
    best: dict[str, Cost] = {}
    with tempfile.TemporaryDirectory() as folder:
        kinds = kinds_of(Arrays(folder, options.files), options)
        for _ in range(options.rounds):
            for name, make in kinds.items():
                print(f"\r{name:60}", end="", file=sys.stderr)
                found = in_a_process(make, options.seconds)
                best[name] = best.get(name, found).best(found)
    print(f"\r{'':60}\r", end="", file=sys.stderr)
    load = os.getloadavg()[0]
    print(f"{BYTES / 1e6:.1f} MB a sample, {options.batch} a batch; torch {torch.__version__}, load {load:.1f}")
    print(f"{'':44} {'CPU ms':>8} {'wall ms':>8} {'faults':>8} {'of reading':>11}")
    reading = best["read into one buffer"].cpu_ms
    for name, found in best.items():
        print(f"{name:44} {found.cpu_ms:8.1f} {found.wall_ms:8.1f} {found.faults:8.0f} {found.cpu_ms / reading:11.2f}")


if __name__ == "__main__":
    main()
