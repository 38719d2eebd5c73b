"""Writes synthetic data for CosmoFlow, TFRecord or HDF5: of the real size, layout and decoding cost, and learnable.

A sample is a cube of counts of particles at four redshifts. Their density is log-normal in a Gaussian random field with
about the spectrum k^-2, the contrast falls with the redshift as structures grow, and the counts are Poisson's, on
average one in a cell. By zlib's level 6 that is 2.83 MB at 128^3, as in the real set (MLPerf Storage: 2,828,486 +-
71,311 bytes). Four targets steer it; they lie off zero, so that a net's first steps, to their mean, show in its loss.
"""

from __future__ import annotations

import functools
import io
import math
import os
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from models.data import tfrecord
from models.data.synthetic import Recipe
from models.errors import ImpossibleRequest
from models.settings import Shape

VERSION = 1  # of the generator: raise it with each change of a byte
FORMATS = ("tfrecord", "hdf5")
SAMPLES = {"smoke": 64, "quick": 32, "subset": 2048}
SHAPES: Dict[str, Shape] = {"smoke": (32, 32, 32), "quick": (128, 128, 128), "subset": (128, 128, 128)}
REDSHIFTS = 4
TARGETS = 4

Array = Any  # a numpy array

POWERS = (2.4, 1.6)  # of the two fields of which a sample is mixed; half of each has about k^-2
FIELDS = 2  # of each power; each sample has them shifted and mirrored
GROWTH = (1.0, 0.8, 0.6, 0.45)  # of the contrast from redshift to redshift, the nearest first
CONTRAST = 2.04  # of the logarithm of the density
MEAN = 1.0  # particles in a cell
# The range of the targets, and by how much each changes what it steers.
LOWEST = 0.2
LARGEST = 1.0
CONTRAST_BY = 0.1
MIX_BY = 0.2
GROWTH_BY = 0.2
MEAN_BY = 0.05

LEVELS = 1024  # to which a field is rounded
HIGHEST = 6.0  # of them, in deviations
DENSITIES = np.linspace(-12, 9, 256)  # logarithms of densities for which counts are drawn in advance
DRAWS = 4096  # counts for each of them, by Poisson's law
CUBES_PER_FILE = 64  # of the reference's prepare.py


# --- one sample ------------------------------------------------------------------------------------------------------


def sample(seed: int, index: int, shape: Shape) -> Tuple[Array, Array]:
    """Return counts of D x H x W x 4, int16, and their targets, four float32.

    They depend only on seed, index and shape. The targets steer, in this order: the contrast, the share of the rougher
    field, how fast structures grow, and the mean.
    """
    rng = np.random.default_rng((seed, index))
    steer = rng.uniform(-1, 1, TARGETS)
    contrast, mix, growth, mean = steer
    levels = _levels(rng, _fields(seed, shape), 0.5 + MIX_BY * mix)
    shares = np.bincount(levels.ravel(), minlength=LEVELS) / levels.size
    counts = np.empty((*shape, REDSHIFTS), np.int16)
    for channel, grown in enumerate(GROWTH):
        logarithms = np.linspace(-HIGHEST, HIGHEST, LEVELS) * (
            CONTRAST * (1 + CONTRAST_BY * contrast) * grown ** (1 + GROWTH_BY * growth)
        )
        logarithms += math.log(MEAN * (1 + MEAN_BY * mean) / (shares @ np.exp(logarithms)))
        counts[..., channel] = _poisson(rng, logarithms, levels)
    targets = LOWEST + (LARGEST - LOWEST) * (steer + 1) / 2
    return counts, targets.astype(np.float32)


def _poisson(rng: np.random.Generator, logarithms: Array, levels: Array) -> Array:
    """Return counts for the logarithm of the density at each level.

    Each is one of the draws made in advance for that density, which is eight times as fast as new draws.
    """
    rows = np.rint((logarithms - DENSITIES[0]) / (DENSITIES[1] - DENSITIES[0])).clip(0, len(DENSITIES) - 1)
    positions = (rows.astype(np.int32) * DRAWS).take(levels)
    positions += np.frombuffer(rng.bytes(2 * levels.size), "<u2").reshape(levels.shape) % DRAWS
    return _draws().take(positions)


@functools.lru_cache(maxsize=1)
def _draws() -> Array:
    drawn = np.random.default_rng(0).poisson(np.exp(DENSITIES)[:, None], (len(DENSITIES), DRAWS))
    return drawn.astype(np.int16).ravel()


def _levels(rng: np.random.Generator, fields: Tuple[List[Array], ...], share: float) -> Array:
    """Mix a field of deviation 1 of one field of each power, and round it to the numbers from 0 to LEVELS - 1."""
    smooth, rough = (_moved(rng, of_power[int(rng.integers(FIELDS))]) for of_power in fields)
    field = smooth * np.float32(math.sqrt(1 - share)) + rough * np.float32(math.sqrt(share))
    field *= np.float32((LEVELS - 1) / (2 * HIGHEST))
    field += np.float32((LEVELS - 1) / 2)
    return field.clip(0, LEVELS - 1, out=field).astype(np.uint16)


def _moved(rng: np.random.Generator, field: Array) -> Array:
    """Return the periodic field shifted and mirrored at random."""
    shifted = np.roll(field, [int(rng.integers(side)) for side in field.shape], range(field.ndim))
    return shifted[tuple(slice(None, None, int(step)) for step in rng.choice((-1, 1), field.ndim))]


@functools.lru_cache(maxsize=1)
def _fields(seed: int, shape: Shape) -> Tuple[List[Array], ...]:
    """Return periodic Gaussian random fields of deviation 1, FIELDS for each power."""
    rng = np.random.default_rng(seed)
    return tuple([_field(rng, shape, power) for _ in range(FIELDS)] for power in POWERS)


def _field(rng: np.random.Generator, shape: Shape, power: float) -> Array:
    axes = [np.fft.fftfreq(side) for side in shape[:-1]] + [np.fft.rfftfreq(shape[-1])]
    square = sum(frequencies**2 for frequencies in np.meshgrid(*axes, indexing="ij", sparse=True))
    square[0, 0, 0] = np.inf  # no mean
    spectrum = np.fft.rfftn(rng.standard_normal(shape)) * square ** (-power / 4)
    field = np.fft.irfftn(spectrum, s=shape, axes=range(len(shape)))
    return (field / field.std()).astype(np.float32)


# --- a whole set -----------------------------------------------------------------------------------------------------


def recipe(size: str, samples: Optional[int], seed: int, file_format: str = FORMATS[0]) -> Recipe:
    """Return the recipe of the set of a size, or of `samples` samples of its shape."""
    shape = SHAPES[size]
    cells = math.prod(shape)
    return Recipe(
        benchmark="cosmoflow",
        version=VERSION,
        format=file_format,
        shape=shape,
        classes=None,
        samples=SAMPLES[size] if samples is None else samples,
        seed=seed,
        bytes_per_sample=cells * 3 // 2 if file_format == "tfrecord" else cells * 8 + 8192,
        files_per_process=max(4, 2**21 // cells),  # a process needs one or two seconds until it writes
        name=functools.partial(file_name, suffix=file_format),
        write=functools.partial(_write, seed, shape, file_format),
        size=size,
    )


def file_name(index: int, suffix: str) -> str:
    """Return where sample `index` lies below the set's folder; the reference cuts each simulation into 64 cubes."""
    simulation, cube = divmod(index, CUBES_PER_FILE)
    return f"train/univ_ics_synthetic_a{simulation:08d}_{cube:03d}.{suffix}"


def _write(seed: int, shape: Shape, file_format: str, part: str, index: int) -> int:
    counts, targets = sample(seed, index, shape)
    path = os.path.join(part, file_name(index, file_format))
    if file_format == "tfrecord":
        return tfrecord.write(path, counts.tobytes(), targets.tolist())
    with open(path, "wb") as file:
        return file.write(_hdf5(counts, targets))


def _hdf5(counts: Array, targets: Array) -> memoryview:
    """Return a file as the reference's prepare.py writes it.

    HDF5 does not write to the disk itself, because its error for a full disk is not clear.
    """
    try:
        import h5py
    except ImportError as error:
        raise ImpossibleRequest(
            f"HDF5 files are written with h5py, which cannot be imported ({error}): pip install "
            "h5py, or give --format tfrecord"
        ) from None
    image = io.BytesIO()
    with h5py.File(image, "w") as file:
        file["x"], file["y"] = counts, targets
    return image.getbuffer()
