"""Writes synthetic data for DeepCAM: HDF5 files of the real size and layout, with weather that can be learned."""

from __future__ import annotations

import datetime
import functools
import os
import shutil
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from models.data.synthetic import Recipe
from models.data.weather import BLOCK, CHANNELS, sample
from models.errors import ImpossibleRequest
from models.settings import Shape

VERSION = 1  # of the generator, with models/data/weather.py: raise it with each change of a value
SAMPLES = {"smoke": 64, "quick": 12, "subset": 512}
SHAPES: Dict[str, Shape] = {"smoke": (96, 144), "quick": (768, 1152), "subset": (768, 1152)}
FORMATS = ("hdf5",)

Array = Any  # a numpy array

FIRST_DAY = datetime.date(1996, 1, 1)
STEPS_PER_DAY = 8
SUMMARIES = "summaries"  # folder of each sample's summary, until `finish` makes the set's stats.h5 of them


def recipe(size: str, samples: Optional[int], seed: int, file_format: str = FORMATS[0]) -> Recipe:
    """Return the recipe of the set of a size, or of `samples` samples of its shape."""
    shape = SHAPES[size]
    pixels = shape[0] * shape[1]
    return Recipe(
        benchmark="deepcam",
        version=VERSION,
        format=file_format,
        shape=shape,
        classes=None,
        samples=SAMPLES[size] if samples is None else samples,
        seed=seed,
        bytes_per_sample=pixels * (len(CHANNELS) + 2) * 4 + 8192,
        files_per_process=max(24, 10**7 // pixels),  # a process takes as long to start as to write these
        name=file_name,
        write=functools.partial(_write, seed, shape),
        finish=finish,
    )


def file_name(index: int) -> str:
    """Return where sample `index` lies below the set's folder; named by day, time step and run of the simulation."""
    day = FIRST_DAY + datetime.timedelta(index // STEPS_PER_DAY)
    return f"train/data-{day:%Y-%m-%d}-{index % STEPS_PER_DAY:02d}-1.h5"


def finish(part: str) -> None:
    """Write stats.h5, by which the reference normalises, from the summaries of all samples."""
    folder = os.path.join(part, SUMMARIES)
    summaries = np.stack([np.load(os.path.join(folder, name)) for name in sorted(os.listdir(folder))])
    stats = {
        "climate/count": np.int64(len(summaries)),
        "climate/mean": summaries[:, 0].mean(0).astype(np.float32),
        "climate/sqmean": summaries[:, 1].mean(0).astype(np.float32),
        "climate/minval": summaries[:, 2].min(0).astype(np.float32),
        "climate/maxval": summaries[:, 3].max(0).astype(np.float32),
    }
    with open(os.path.join(part, "stats.h5"), "wb") as file:
        file.write(_image(stats)[0])
    shutil.rmtree(folder)


def summary(data: Array) -> Array:
    """Return the mean, mean square, minimum and maximum of each channel: 4 x 16, float64."""
    height, width, channels = data.shape
    rows = data.reshape(height, -1)
    total, square = np.zeros((2, rows.shape[1]))
    low = rows[0].copy()
    high = rows[0].copy()
    step = max(1, BLOCK // width)
    for first in range(0, height, step):
        block = rows[first : first + step]
        np.minimum(low, block.min(0), out=low)
        np.maximum(high, block.max(0), out=high)
        total += block.sum(0)
        square += np.einsum("ij,ij->j", block, block)
    each = [values.reshape(width, channels) for values in (total, square, low, high)]
    return np.stack([each[0].mean(0) / height, each[1].mean(0) / height, each[2].min(0), each[3].max(0)])


def _write(seed: int, shape: Shape, part: str, index: int) -> int:
    """Write one file, whose bytes differ from the first file's only in the values.

    HDF5 makes the first one in memory and does not write to the disk, so that a full disk is a plain OSError.
    """
    between = _between(shape)
    arrays = sample(seed, index, shape, out=_buffer(shape))
    os.makedirs(os.path.join(part, SUMMARIES), exist_ok=True)
    np.save(os.path.join(part, SUMMARIES, f"{index:09d}.npy"), summary(arrays[0]))
    with open(os.path.join(part, file_name(index)), "wb") as file:
        file.write(between[0])
        for array, after in zip(arrays, between[1:]):
            file.write(memoryview(array).cast("B"))
            file.write(after)
        return file.tell()


@functools.lru_cache(maxsize=1)
def _buffer(shape: Shape) -> Array:
    return np.empty((*shape, len(CHANNELS)), np.float32)


@functools.lru_cache(maxsize=1)
def _between(shape: Shape) -> Tuple[bytes, ...]:
    """Return the bytes of a sample's file before, between and after the values of its three arrays."""
    arrays = {
        "climate/data": np.zeros((*shape, len(CHANNELS)), np.float32),
        "climate/labels_0": np.zeros(shape, np.int32),
        "climate/labels_1": np.zeros(shape, np.int32),
    }
    image, offsets = _image(arrays)
    ends = [0, *(offset + array.nbytes for offset, array in zip(offsets, arrays.values()))]
    return tuple(image[end:start] for end, start in zip(ends, [*offsets, len(image)]))


def _image(arrays: Dict[str, Array]) -> Tuple[bytes, List[int]]:
    """Return the bytes of an HDF5 file of these arrays, and where the values of each begin."""
    try:
        import h5py
    except ImportError as error:
        raise ImpossibleRequest(
            f"DeepCAM's files are HDF5, and h5py cannot be imported ({error}): pip install h5py"
        ) from None
    with h5py.File("in memory", "w", driver="core", backing_store=False) as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, track_times=False)
        file.flush()
        return file.id.get_file_image(), [file[name].id.get_offset() for name in arrays]
