"""How many DeepCAM samples one core reads: ours beside the bare reading of the bytes, plain h5py and the reference.

    python benchmarks/deepcam_loader.py [--samples 4] [--seconds 3] [--folder a/deepcam] [--size quick]

One process, one thread, files in the page cache. All kinds take turns, a sample each, so that a busy machine slows all
of them; each figure is that of its best turn, page faults of its last. CPU time is the process's own. GB/s are of the
bytes that training needs, an image and its labels. All is measured twice: with malloc as it is, and with malloc keeping
what is freed (models/accelerators/cpu.py), as in a job on processors.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import h5py
import numpy as np
import torch

from models.accelerators.cpu import keep_memory
from models.data.deepcam import DATA, LABELS, DeepCamData, open_folder
from models.data.synthetic import write_set
from models.data.synthetic_deepcam import SHAPES, recipe

BATCH = 2

Take = Callable[[int], object]


@dataclass
class Cost:
    """Of a sample: CPU and wall seconds in the best turn, page faults in the last."""

    cpu_s: float = float("inf")
    wall_s: float = float("inf")
    faults: int = 0


# --- what is compared ------------------------------------------------------------------------------------------------


def plain(path: str) -> tuple[np.ndarray, np.ndarray]:
    """What anybody writes first."""
    with h5py.File(path, "r") as file:
        return file[DATA][...], file[LABELS][...]


def references(path: str, low: np.ndarray, scale: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """What the MLPerf HPC reference does with a sample: pick the channels, int64 labels, normalise, channels first; its
    loader's collation makes the image contiguous."""
    with h5py.File(path, "r") as file:
        data, labels = file[DATA][..., list(range(16))], file[LABELS][...].astype(np.int64)
    data = np.transpose(scale * (data - low), (2, 0, 1))
    return torch.from_numpy(data).contiguous(), torch.from_numpy(labels)


def bare(paths: list[str], needed: int) -> Take:
    """As many bytes as an image and its labels take, from each file's beginning, into memory that is kept."""
    kept = np.zeros(needed, np.uint8)

    def take(index: int) -> None:
        descriptor = os.open(paths[index], os.O_RDONLY)
        done = 0
        while done < needed:
            done += os.readv(descriptor, [memoryview(kept)[done:]])
        os.close(descriptor)

    return take


def memcpy(needed: int) -> Take:
    source, target = np.ones(needed, np.uint8), np.zeros(needed, np.uint8)
    return lambda index: np.copyto(target, source)


def into_a_kept_batch(data: DeepCamData) -> Take:
    (x_shape, x_dtype), (y_shape, y_dtype) = data.blank
    x, y = torch.zeros((BATCH, *x_shape), dtype=x_dtype), torch.zeros((BATCH, *y_shape), dtype=y_dtype)
    return lambda index: data.fill(index, x[index % BATCH], y[index % BATCH])


def kinds_of(data: DeepCamData, samples: int) -> dict[str, Take]:
    paths = [data.path(index) for index in range(samples)]
    low = data.minimum.numpy().reshape(1, 1, -1)
    scale = 1 / (data.maximum.numpy().reshape(1, 1, -1) - low)
    return {
        "read the bytes only, memory kept": bare(paths, needed_bytes(data)),
        "memcpy of as many bytes": memcpy(needed_bytes(data)),
        "ours: into a batch that is reused": into_a_kept_batch(data),
        "ours: into new memory": lambda index: data[(0, index)],
        "h5py: data[...], labels[...]": lambda index: plain(paths[index]),
        "the reference's: normalised, NCHW": lambda index: references(paths[index], low, scale),
    }


def needed_bytes(data: DeepCamData) -> int:
    """Bytes that must come from a file for one sample: an image, and labels of four bytes."""
    (x_shape, _), (y_shape, _) = data.blank
    return 4 * (int(np.prod(x_shape)) + int(np.prod(y_shape)))


# --- measuring -------------------------------------------------------------------------------------------------------


def measure(kinds: dict[str, Take], samples: int, seconds: float) -> dict[str, Cost]:
    best = {name: Cost() for name in kinds}
    for kind in kinds.values():  # once for imports and the page cache, not counted
        for index in range(samples):
            kind(index)
    deadline = time.perf_counter() + seconds * len(kinds)
    turn = 0
    while time.perf_counter() < deadline:
        for name, kind in kinds.items():
            before, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            kind(turn % samples)
            wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_SELF)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            cost = best[name]
            cost.cpu_s, cost.wall_s = min(cost.cpu_s, cpu), min(cost.wall_s, wall)
            cost.faults = after.ru_minflt - before.ru_minflt
        turn += 1
    return best


def show(best: dict[str, Cost], needed: int) -> None:
    bare_cpu = best["read the bytes only, memory kept"].cpu_s
    reference_cpu = best["the reference's: normalised, NCHW"].cpu_s
    columns = (
        f"{'CPU ms':>8} {'/s/core':>8} {'wall ms':>8} {'GB/s':>6} {'faults':>8} {'of bare':>8} {'of reference':>12}"
    )
    print(f"{'':36} {columns}")
    for name, cost in best.items():
        print(
            f"{name:36} {cost.cpu_s * 1e3:8.2f} {1 / cost.cpu_s:8.1f} {cost.wall_s * 1e3:8.2f} "
            f"{needed / cost.cpu_s / 1e9:6.2f} {cost.faults:8,} {bare_cpu / cost.cpu_s:8.2f} "
            f"{reference_cpu / cost.cpu_s:12.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each kind")
    parser.add_argument("--folder", help="a DeepCAM folder; a synthetic one is made otherwise")
    parser.add_argument("--size", default="quick", choices=sorted(SHAPES), help="the shape of its samples")
    parser.add_argument("--malloc", choices=["both", "plain", "kept"], default="both", help="in a process each")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or f"{temporary}/set"
        if not options.folder:
            write_set(folder, recipe(options.size, options.samples, seed=0))
        if options.malloc == "both":
            words = ["--samples", options.samples, "--seconds", options.seconds, "--size", options.size]
            for malloc in ("plain", "kept"):
                each = [*words, "--folder", folder, "--malloc", malloc]
                subprocess.run([sys.executable, __file__, *map(str, each)], check=True)
            return
        torch.set_num_threads(1)
        kept = options.malloc == "kept" and keep_memory()
        data = open_folder(folder, shape=SHAPES[options.size])
        samples = min(options.samples, len(data))
        best = measure(kinds_of(data, samples), samples, options.seconds)
    needed = needed_bytes(data)
    print(
        f"{samples} samples of {needed / 1e6:.1f} MB, malloc {'keeps memory' if kept else 'as it is'}; {data.decoder}, "
        f"torch {torch.__version__}, load {os.getloadavg()[0]:.1f}"
    )
    show(best, needed)


if __name__ == "__main__":
    main()
