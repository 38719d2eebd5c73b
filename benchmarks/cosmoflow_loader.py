"""How many CosmoFlow samples one core reads: ours beside bare decompression, a plain reader, and the paper's way.

    python benchmarks/cosmoflow_loader.py [--samples 4] [--seconds 3] [--folder a/cosmoflow] [--size quick]

One process, one thread, files in the page cache. All kinds take turns, a sample each, so that a busy machine slows all
of them; each figure is that of its best turn, page faults the median of all. CPU time is the process's own; a virtual
machine may not count all of it when a file is read, so the rate is that of the wall time. All is measured twice: with
malloc as it is, and with malloc keeping what is freed (models/accelerators/cpu.py), as in a job on processors. The HDF5
files hold the same samples. The row of the package tfrecord needs it: pip install tfrecord==1.14.6
"""

from __future__ import annotations

import argparse
import gzip
import os
import resource
import statistics
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import deflate
import h5py
import numpy as np
import torch

from models.accelerators.cpu import keep_memory
from models.data import crc32c, tfrecord
from models.data.cosmoflow import CosmoFlowData, open_folder
from models.data.file_list import read_file
from models.data.synthetic import write_set
from models.data.synthetic_cosmoflow import REDSHIFTS, SHAPES, recipe
from models.data.tf_example import Example
from models.settings import Shape

try:
    from tfrecord import tfrecord_loader
except ImportError:
    tfrecord_loader = None

BATCH = 2
READ, BARE = "read the file", "read, gunzip by deflate in one call"
READ_HDF5 = "read the HDF5 file"
PLAIN = "plain reader: gzip, float32, log"

Take = Callable[[int], object]


@dataclass
class Cost:
    """Of a sample: CPU and wall seconds in the best turn, page faults of each turn."""

    cpu_s: float = float("inf")
    wall_s: float = float("inf")
    faults: list[int] = field(default_factory=list)


# --- what others do --------------------------------------------------------------------------------------------------


def floats(x: bytes | memoryview, shape: Shape) -> torch.Tensor:
    """As the paper's code goes on: float32, channels first, logarithm."""
    counts = torch.frombuffer(bytearray(x), dtype=torch.int16).view(*shape, REDSHIFTS)
    return torch.log(counts.to(torch.float32).permute(3, 0, 1, 2) + 1)


def plain(path: str, shape: Shape) -> torch.Tensor:
    """What anybody writes with the standard library; the checksums are not looked at."""
    with gzip.open(path) as file:
        (length,) = struct.unpack("<Q", file.read(8))
        file.read(4)
        data = file.read(length)
        file.read(4)
    start, stop = Example(data, length, (length, length)).find_array()
    return floats(memoryview(data)[start:stop], shape)


def papers(path: str, shape: Shape) -> torch.Tensor:
    """The package that the paper's code reads with; it looks at no checksum either."""
    (record,) = tfrecord_loader(path, None, {"x": "byte", "y": "float"}, compression_type="gzip")
    return floats(record["x"], shape)


def h5pys(path: str) -> tuple[np.ndarray, np.ndarray]:
    with h5py.File(path, "r") as file:
        return file["x"][...], file["y"][...]


# --- measuring -------------------------------------------------------------------------------------------------------


def into_a_batch(data: CosmoFlowData) -> Take:
    """As a loader thread does: into the next place of a batch that is there already."""
    x, y = (torch.zeros((BATCH, *shape), dtype=dtype) for shape, dtype in data.blank)
    return lambda index: data.fill(index, x[index % BATCH], y[index % BATCH])


def kept(take: Take) -> Take:
    """Keeps as many results as ours has places, so that both write to memory and not to the cache again and again."""
    results: dict[int, object] = {}

    def take_and_keep(index: int) -> None:
        results[index % BATCH] = take(index)

    return take_and_keep


def kinds_of(records: str, hdf5: str, shape: Shape) -> dict[str, Take]:
    def ours(gunzip: str, checksum: str) -> Take:
        return into_a_batch(open_folder(records, shape=shape, reader=tfrecord.TfRecordReader(gunzip, checksum)))

    data, other = open_folder(records, shape=shape), open_folder(hdf5, shape=shape)
    paths = [data.path(index) for index in range(len(data))]
    files = [read_file(os.fsencode(path)) for path in paths]
    size = 8 * int(np.prod(shape)) + 128
    whole = zlib.decompress(files[0], 31)
    others = [other.path(index) for index in range(len(other))]
    kinds: dict[str, Take] = {
        READ: lambda index: read_file(os.fsencode(paths[index])),
        "gunzip by zlib in one call": lambda index: zlib.decompress(files[index], 31, size),
        "gunzip by deflate in one call": lambda index: deflate.gzip_decompress(files[index], size),
        BARE: kept(lambda index: deflate.gzip_decompress(read_file(os.fsencode(paths[index])), size)),
        "CRC32C by google-crc32c": lambda _: crc32c.google().extend(0, whole),
        "CRC32C by numpy": lambda _: crc32c.by_numpy(0, whole),
        "ours, TFRecord: deflate, google-crc32c": ours("deflate", "google-crc32c"),
        "ours, TFRecord: deflate, numpy": ours("deflate", "numpy"),
        "ours, TFRecord: zlib, google-crc32c": ours("zlib", "google-crc32c"),
        "ours, TFRecord: zlib, numpy": ours("zlib", "numpy"),
        PLAIN: lambda index: plain(paths[index], shape),
    }
    if tfrecord_loader:
        kinds["the paper's: package tfrecord, float32, log"] = lambda index: papers(paths[index], shape)
    kinds[READ_HDF5] = kept(lambda index: read_file(os.fsencode(others[index])))
    kinds["ours, HDF5"] = into_a_batch(other)
    kinds["h5py: file['x'][...]"] = lambda index: h5pys(others[index])
    return kinds


def measure(kinds: dict[str, Take], samples: int, seconds: float) -> dict[str, Cost]:
    costs = {name: Cost() for name in kinds}
    for take in kinds.values():  # once for imports and the page cache, not counted
        take(0)
    deadline, index = time.perf_counter() + seconds * len(kinds), 0
    while time.perf_counter() < deadline or index < samples:
        for name, take in kinds.items():
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            cpu, wall = time.process_time(), time.perf_counter()
            take(index % samples)
            cost = costs[name]
            cost.cpu_s = min(cost.cpu_s, time.process_time() - cpu)
            cost.wall_s = min(cost.wall_s, time.perf_counter() - wall)
            cost.faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults)
        index += 1
    return costs


def show(costs: dict[str, Cost]) -> None:
    heads = ("CPU ms", "wall ms", "/s/core", "of bare", "(wall)", "of plain", "faults")
    print(" " * 44 + "".join(f"{head:>9}" for head in heads))
    names = list(costs)
    for name, cost in costs.items():
        bare = costs[READ_HDF5 if names.index(name) >= names.index(READ_HDF5) else BARE]
        ratios = (bare.cpu_s / cost.cpu_s, bare.wall_s / cost.wall_s, costs[PLAIN].cpu_s / cost.cpu_s)
        times = f"{cost.cpu_s * 1e3:9.3f}{cost.wall_s * 1e3:9.3f}{1 / cost.wall_s:9.1f}"
        print(f"{name:44}{times}{''.join(f'{ratio:9.2f}' for ratio in ratios)}{statistics.median(cost.faults):9.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each kind, with and without kept memory")
    parser.add_argument("--folder", help="a CosmoFlow folder of TFRecords in gzip; a synthetic one is made otherwise")
    parser.add_argument("--size", choices=tuple(SHAPES), default="quick")
    options = parser.parse_args()
    torch.set_num_threads(1)
    shape = SHAPES[options.size]
    with tempfile.TemporaryDirectory() as temporary:
        records, hdf5 = options.folder or f"{temporary}/tfrecord", f"{temporary}/hdf5"
        if not options.folder:
            write_set(records, recipe(options.size, options.samples, 0))
        write_set(hdf5, recipe(options.size, options.samples, 0, "hdf5"))
        samples = min(options.samples, len(open_folder(records, shape=shape)))
        kinds = kinds_of(records, hdf5, shape)
        print(
            f"{samples} samples of {'x'.join(map(str, shape))}; {tfrecord.fastest().decoder}, torch {torch.__version__}"
        )
        for kept in (False, True):
            if kept and not keep_memory():
                print("This C library does not keep memory, or MALLOC_* is set.")
                break
            costs = measure(kinds, samples, options.seconds)
            print(f"\nmalloc keeps {'what is freed' if kept else 'little'}, load {os.getloadavg()[0]:.1f}")
            show(costs)
    print(
        "\nof bare: of the rate of reading and decompressing alone, with HDF5 of reading; of plain: of the plain reader"
    )
    if not tfrecord_loader:
        print("The package tfrecord is not installed: pip install tfrecord==1.14.6")


if __name__ == "__main__":
    main()
