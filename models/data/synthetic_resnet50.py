"""Writes synthetic data for ResNet-50: JPEGs of ImageNet's sizes, shapes and decoding cost, with learnable classes.

A picture is a crop of random fields with the spectrum of photographs plus noise, 500 pixels wide and 333 to 500 high,
saved with quality 88 to 94: 121 kB on average, as ImageNet's. Its class shows in a tint and in a faint grating.
"""

from __future__ import annotations

import functools
import io
import math
import os
from typing import Any, Optional, Tuple

import numpy as np
from PIL import Image

from models.data.synthetic import Recipe
from models.errors import ImpossibleRequest

VERSION = 1  # of the generator: raise it with each change of a pixel
FORMATS = ("jpeg",)
SAMPLES = {"smoke": 64, "quick": 2048, "subset": 2048}
SAMPLES_PER_CLASS = 8
MOST_CLASSES = 1000  # of ImageNet-1k
BYTES_PER_SAMPLE = 130_000  # for the check of the disk; the mean is less

Field = Any  # a numpy array of float32

SIDE = 768  # of the fields, of which pictures are crops
WIDTH = 500
HEIGHTS = (333, 500)
POWER = 2.2  # the power of a photograph falls with the frequency to about this
QUALITIES = (88, 94)
NOISE = (3.0, 15.0)
# Irrational steps, so that neighbouring classes lie far apart.
GOLDEN = 0.6180339887
SECOND = 0.754877666
THIRD = 0.569840291


# --- one picture -----------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def fields(seed: int) -> Tuple[Field, ...]:
    """Return six periodic fields with the spectrum k^-2.2 and one of white noise, each of mean 0 and deviation 1."""
    rng = np.random.default_rng(seed)
    square = np.fft.fftfreq(SIDE)[:, None] ** 2 + np.fft.rfftfreq(SIDE)[None, :] ** 2
    square[0, 0] = 1
    periodic = []
    for _ in range(6):
        shape = (SIDE, SIDE // 2 + 1)
        spectrum = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) * square ** (-POWER / 4)
        field = np.fft.irfft2(spectrum, s=(SIDE, SIDE))
        periodic.append(((field - field.mean()) / field.std()).astype(np.float32))
    return (*periodic, rng.standard_normal((SIDE, SIDE), dtype=np.float32))


def picture(seed: int, index: int, label: int) -> bytes:
    """Return the JPEG of sample `index` of class `label`. Its bytes depend only on these three numbers."""
    rng = np.random.default_rng((seed, index))
    height = int(rng.integers(HEIGHTS[0], HEIGHTS[1] + 1))
    *base, noise = fields(seed)
    light, blue, red = (_crop(base[number], rng, height) for number in rng.permutation(len(base))[:3])
    luma = light * rng.uniform(28, 55) + rng.uniform(100, 150)
    luma += 12 * _grating(label, rng.uniform(0, math.tau), height)
    luma += _crop(noise, rng, height) * rng.uniform(*NOISE)
    turn = math.tau * (label * GOLDEN % 1)
    strength = 30 + 20 * (label * THIRD % 1)
    planes = (luma, blue * 6 + (128 + strength * math.cos(turn)), red * 6 + (128 + strength * math.sin(turn)))
    pixels = np.empty((height, WIDTH, 3), np.uint8)
    for channel, plane in enumerate(planes):
        pixels[..., channel] = np.clip(plane, 0, 255)
    buffer = io.BytesIO()
    # in JPEG's own colours, which saves a conversion and two thirds of the noise
    image = Image.frombytes("YCbCr", (WIDTH, height), pixels.tobytes())
    image.save(buffer, "JPEG", quality=int(rng.integers(QUALITIES[0], QUALITIES[1] + 1)))
    return buffer.getvalue()


def _crop(field: Field, rng: np.random.Generator, height: int) -> Field:
    """Return a random part of the field, mirrored at random."""
    top = int(rng.integers(SIDE - height + 1))
    left = int(rng.integers(SIDE - WIDTH + 1))
    vertical = (1, -1)[int(rng.integers(2))]
    horizontal = (1, -1)[int(rng.integers(2))]
    return field[top : top + height, left : left + WIDTH][::vertical, ::horizontal]


def _grating(label: int, phase: float, height: int) -> Field:
    """Return stripes of the class's direction and width."""
    turn = math.pi * (label * SECOND % 1)
    cycles = (3 + label * 7 % 11) / 250
    x = np.arange(WIDTH, dtype=np.float32)[None, :]
    y = np.arange(height, dtype=np.float32)[:, None]
    return np.sin(np.float32(math.tau * cycles) * (math.cos(turn) * x + math.sin(turn) * y) + np.float32(phase))


# --- a whole set -----------------------------------------------------------------------------------------------------


def recipe(size: str, samples: Optional[int], seed: int, file_format: str = FORMATS[0]) -> Recipe:
    """Return the recipe of the set of a size, or of `samples` pictures; eight to a class."""
    samples = SAMPLES[size] if samples is None else samples
    return recipe_of(samples, max(1, min(MOST_CLASSES, samples // SAMPLES_PER_CLASS)), seed, file_format)


def recipe_of(samples: int, classes: int, seed: int, file_format: str = FORMATS[0]) -> Recipe:
    """Return the recipe. Raises ImpossibleRequest for more classes than samples, or than ImageNet has."""
    if not 1 <= classes <= min(max(1, samples), MOST_CLASSES):
        raise ImpossibleRequest(
            f"{samples} samples in {classes} classes make no set: give a sample a class, {MOST_CLASSES} classes at most"
        )
    return Recipe(
        benchmark="resnet50",
        version=VERSION,
        format=file_format,
        shape=None,
        classes=classes,
        samples=samples,
        seed=seed,
        bytes_per_sample=BYTES_PER_SAMPLE,
        files_per_process=64,
        name=functools.partial(file_name, classes=classes),
        write=functools.partial(_write, classes, seed),
    )


def file_name(index: int, classes: int) -> str:
    """Return where sample `index` lies below the set's folder; its class is index modulo classes."""
    return f"train/n{index % classes:08d}/n{index % classes:08d}_{index}.JPEG"


def _write(classes: int, seed: int, part: str, index: int) -> int:
    data = picture(seed, index, index % classes)
    with open(os.path.join(part, file_name(index, classes)), "wb") as file:
        return file.write(data)
