"""Writes an ImageNet-like set of JPEGs: sizes, shapes and decoding cost of the real one, classes that can be learned.

A picture is a crop of random fields with the spectrum of photographs plus noise, 500 pixels wide and 333 to 500 high,
saved with quality 88 to 94: 121 kB on average, as ImageNet's. Its class shows in a tint and in a faint grating.
"""

from __future__ import annotations

import functools
import hashlib
import io
import math
import os
from typing import Any, Callable, Optional, Tuple

import numpy as np
from PIL import Image

from models.data import publish
from models.data.folder import MOST_CLASSES, Manifest, check_against, find_files, how_to_make, read_manifest, show
from models.errors import DataCorrupt, DataMissing, Impossible

VERSION = 1  # of the generator: raised by whoever changes a pixel
SAMPLES = {"smoke": 64, "quick": 2048, "subset": 2048}
SAMPLES_PER_CLASS = 8
BYTES_PER_SAMPLE = 130_000  # what the check of the disk counts with; the mean is less

Field = Any  # a numpy array of float32

SIDE = 768
WIDTH, HEIGHTS = 500, (333, 500)
POWER = 2.2  # the power of a photograph falls with the frequency to about this
QUALITIES = (88, 94)
NOISE = (3.0, 15.0)
GOLDEN, SECOND, THIRD = 0.6180339887, 0.754877666, 0.569840291  # irrational steps: neighbouring classes lie far apart


# --- one picture -----------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def fields(seed: int) -> Tuple[Field, ...]:
    """Six periodic fields with the spectrum k^-2.2 and one of white noise, each of mean 0 and deviation 1."""
    rng = np.random.default_rng(seed)
    square = np.fft.fftfreq(SIDE)[:, None] ** 2 + np.fft.rfftfreq(SIDE)[None, :] ** 2
    square[0, 0] = 1
    found = []
    for _ in range(6):
        shape = (SIDE, SIDE // 2 + 1)
        spectrum = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) * square ** (-POWER / 4)
        field = np.fft.irfft2(spectrum, s=(SIDE, SIDE))
        found.append(((field - field.mean()) / field.std()).astype(np.float32))
    return (*found, rng.standard_normal((SIDE, SIDE), dtype=np.float32))


def picture(seed: int, index: int, label: int) -> bytes:
    """The JPEG of sample `index` of class `label`: the same bytes for the same three numbers."""
    rng = np.random.default_rng((seed, index))
    height = int(rng.integers(HEIGHTS[0], HEIGHTS[1] + 1))
    *base, noise = fields(seed)
    light, blue, red = (_window(base[number], rng, height) for number in rng.permutation(len(base))[:3])
    luma = light * rng.uniform(28, 55) + rng.uniform(100, 150)
    luma += 12 * _grating(label, rng.uniform(0, math.tau), height)
    luma += _window(noise, rng, height) * rng.uniform(*NOISE)
    turn, strength = math.tau * (label * GOLDEN % 1), 30 + 20 * (label * THIRD % 1)
    planes = (luma, blue * 6 + (128 + strength * math.cos(turn)), red * 6 + (128 + strength * math.sin(turn)))
    pixels = np.empty((height, WIDTH, 3), np.uint8)
    for channel, plane in enumerate(planes):
        pixels[..., channel] = np.clip(plane, 0, 255)
    buffer = io.BytesIO()
    # in JPEG's own colours, which saves a conversion and two thirds of the noise
    image = Image.frombytes("YCbCr", (WIDTH, height), pixels.tobytes())
    image.save(buffer, "JPEG", quality=int(rng.integers(QUALITIES[0], QUALITIES[1] + 1)))
    return buffer.getvalue()


def _window(field: Field, rng: np.random.Generator, height: int) -> Field:
    top, left = int(rng.integers(SIDE - height + 1)), int(rng.integers(SIDE - WIDTH + 1))
    up, mirrored = (1, -1)[int(rng.integers(2))], (1, -1)[int(rng.integers(2))]
    return field[top : top + height, left : left + WIDTH][::up, ::mirrored]


def _grating(label: int, phase: float, height: int) -> Field:
    """Stripes whose direction and width are those of the class."""
    turn, cycles = math.pi * (label * SECOND % 1), (3 + label * 7 % 11) / 250
    x, y = np.arange(WIDTH, dtype=np.float32)[None, :], np.arange(height, dtype=np.float32)[:, None]
    return np.sin(np.float32(math.tau * cycles) * (math.cos(turn) * x + math.sin(turn) * y) + np.float32(phase))


# --- a whole set -----------------------------------------------------------------------------------------------------


def make(
    folder: str,
    size: str = "quick",
    samples: Optional[int] = None,
    processes: Optional[int] = None,
    seed: int = 0,
    progress: Optional[Callable[[int, int], None]] = None,
    say: Optional[Callable[[str], None]] = None,
) -> Manifest:
    """What `models data resnet50` does: the set of a size (SAMPLES), or of `samples` pictures, eight to a class.

    processes: None, one per core that this process may use. progress(done, total) is called after each picture,
    say(line) once with the space it takes. Returns the manifest, also of a set that was there already. Raises as
    write_synthetic.
    """
    if samples is None and size not in SAMPLES:
        raise Impossible(
            f"there is no synthetic set of size {size}: full is the real ImageNet, the folder that holds train/; "
            f"--size {'|'.join(SAMPLES)} or --samples N can be written"
        )
    samples = SAMPLES[size] if samples is None else samples
    return write_synthetic(
        folder,
        samples=samples,
        classes=max(1, min(MOST_CLASSES, samples // SAMPLES_PER_CLASS)),
        seed=seed,
        processes=_cores() if processes is None else processes,
        progress=progress,
        say=say,
    )


def write_synthetic(
    folder: str,
    *,
    samples: int,
    classes: int,
    seed: int,
    processes: int,
    progress: Optional[Callable[[int, int], None]] = None,
    say: Optional[Callable[[str], None]] = None,
) -> Manifest:
    """Write `samples` JPEGs of `classes` classes to `folder`, which appears complete or not at all.

    The bytes depend on (seed, index) only, not on `processes`. A set that answers the same request is left alone; two
    writers at once end with one good set. Raises Impossible when the folder holds anything else or the disk is too
    small, DataMissing or DataCorrupt when the set that is there was changed, JobError when a process died.
    """
    if not 1 <= classes <= min(samples, MOST_CLASSES) or seed < 0 or processes < 1:
        raise Impossible(
            f"{samples} samples in {classes} classes with seed {seed} by {processes} processes make no set: give at "
            f"least a sample a class, {MOST_CLASSES} classes at most, a seed of 0 or more and a process or more"
        )
    folder = os.path.realpath(folder)
    publish.remove_leftovers(folder)
    there = _existing(folder, samples, classes, seed)
    if there:
        return there
    line = publish.check_space(folder, samples, BYTES_PER_SAMPLE)
    if say:
        say(line)
    publish.publish(folder, lambda part: _fill(part, samples, classes, seed, processes, progress or _silent))
    made = _existing(folder, samples, classes, seed)  # ours, or that of another writer who was faster
    if made is None:
        raise DataMissing(f"{show(folder)} was written and then removed by somebody else: look who uses that folder")
    return made


def file_name(index: int, classes: int) -> str:
    """Where sample `index` lies below the set's folder; its class is index modulo classes."""
    return f"train/n{index % classes:08d}/n{index % classes:08d}_{index}.JPEG"


def _fill(
    part: str, samples: int, classes: int, seed: int, processes: int, progress: Callable[[int, int], None]
) -> None:
    for label in range(classes):
        os.makedirs(os.path.join(part, os.path.dirname(file_name(label, classes))))
    write = functools.partial(_write, classes, seed)
    total = publish.write_files(part, write, samples, processes, progress)
    first = file_name(0, classes)
    with open(os.path.join(part, first), "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    Manifest("resnet50", "synthetic", VERSION, samples, classes, seed, total, first, digest).write(part)


def _write(classes: int, seed: int, part: str, index: int) -> int:
    data = picture(seed, index, index % classes)
    with open(os.path.join(part, file_name(index, classes)), "wb") as file:
        return file.write(data)


def _existing(folder: str, samples: int, classes: int, seed: int) -> Optional[Manifest]:
    """The set that is there already, None when there is nothing. Raises Impossible for anything else."""
    if not os.path.lexists(folder) or (os.path.isdir(folder) and not os.listdir(folder)):
        return None
    command = how_to_make(f"{folder}-{samples}", f"--samples {samples} --seed {seed}")
    elsewhere = f"nothing is overwritten; write it elsewhere: {command}"
    try:
        manifest = read_manifest(folder)
    except (DataMissing, DataCorrupt):
        manifest = None
    if manifest is None:
        raise Impossible(f"{show(folder)} holds something that is no synthetic set of resnet50: {elsewhere}")
    if manifest.request != (VERSION, samples, classes, seed):
        raise Impossible(
            f"{show(folder)} holds another set ({manifest.samples:,} samples in {manifest.classes} classes, seed "
            f"{manifest.seed}, generator {manifest.version}) than is asked for ({samples:,} in {classes}, seed {seed}, "
            f"generator {VERSION}): {elsewhere}"
        )
    check_against(manifest, find_files(folder), folder)
    return manifest


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _silent(done: int, total: int) -> None:
    pass
