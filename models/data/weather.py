"""Synthetic weather for DeepCAM: CAM5's 16 variables with labelled cyclones and atmospheric rivers.

A sample is a climate mean with random weather (power spectrum k^-3) and noise. Cyclones (a low with winds around a
warm, wet core) and atmospheric rivers (bands of water vapour, with wind along them) are added. The pixels where these
are strongest are labelled, exactly as many as the classes' shares of the real set.
"""

from __future__ import annotations

import functools
import math
from typing import Any, List, NamedTuple, Optional, Tuple

import numpy as np

from models.settings import Shape

Array = Any  # a numpy array, of float32 unless another dtype is named

# Shares of all pixels, by which the reference weighs its classes.
CYCLONES = 0.000457871
RIVERS = 0.0132743
RELAXED = 2  # labels_1 comes from relaxed thresholds: twice as many pixels
POWER = 3  # of the frequency, with which the weather's power falls
BLOCK = 8192  # pixels worked on at a time: half a megabyte, which a core's cache holds


class Channel(NamedTuple):
    """A variable of CAM5 in its own unit.

    low, high        the smallest and the largest value
    pole, equator    the mean there
    land             the deviation from place to place
    field, swing     the weather field that it follows, and the deviation of that
    noise            the deviation from pixel to pixel
    cyclone, river   the change in the centre of a cyclone, and on the crest of a river
    """

    name: str
    low: float
    high: float
    pole: float
    equator: float
    land: float
    field: str
    swing: float
    noise: float
    cyclone: float = 0
    river: float = 0


CHANNELS = (
    Channel("TMQ", 0, 90, 8, 42, 1.5, "moisture", 5, 0.3, 22, 26),  # kg/m2
    Channel("U850", -60, 60, 2, -4, 1, "u", 9, 0.3),  # m/s
    Channel("V850", -60, 60, 0, 0, 1, "v", 7, 0.3),
    Channel("UBOT", -45, 45, 1, -4, 1, "u", 6, 0.3),
    Channel("VBOT", -45, 45, 0, 0, 1, "v", 5, 0.3),
    Channel("QREFHT", 0, 0.026, 0.003, 0.017, 0.0006, "moisture", 0.0013, 6e-5, 0.002, 0.002),  # kg/kg
    Channel("PS", 51_000, 105_000, 98_500, 100_500, -900, "pressure", 800, 9, -4_500),  # Pa
    Channel("PSL", 93_000, 106_000, 100_900, 101_200, 150, "pressure", 900, 9, -5_000),
    Channel("T200", 180, 240, 222, 219, 0.5, "t200", 3, 0.06, 4),  # K
    Channel("T500", 210, 278, 238, 267, 0.5, "t500", 3.5, 0.06, 4, 2),
    Channel("PRECT", 0, 1.2e-6, 0, 0, 0, "rain", 2e-8, 2e-10, 6e-7, 1.5e-7),  # m/s
    Channel("TS", 195, 335, 252, 300, 4, "surface", 4, 0.08),
    Channel("TREFHT", 195, 320, 252, 299, 3, "surface", 4, 0.08),
    Channel("Z1000", -750, 650, 80, 105, 12, "pressure", 75, 0.8, -420),  # m
    Channel("Z200", 10_300, 12_700, 11_050, 12_400, 10, "t500", 110, 2, 60),
    Channel("ZBOT", 46, 78, 53, 66, 0.8, "surface", 0.9, 0.02),
)
NUMBER = {channel.name: number for number, channel in enumerate(CHANNELS)}
CYCLONE_WIND = 42.0  # m/s at 850 hPa
RIVER_WIND = 24.0
NEAR_GROUND = 0.75  # times the wind at 850 hPa is the wind at the lowest level


def _column(field: str) -> Array:
    return np.array([getattr(channel, field) for channel in CHANNELS], np.float32)


# --- what all samples share ------------------------------------------------------------------------------------------


class Climate(NamedTuple):
    """Arrays of pixels x 16. Pieces of `weather` and `noise` begin at any pixel; `weather` is periodic."""

    mean: Array
    weather: Array
    noise: Array
    low: Array
    high: Array


@functools.lru_cache(maxsize=1)
def climate(seed: int, shape: Shape) -> Climate:
    """Compute what all samples share: one or two seconds and 130 MB at the real size, once in a process."""
    rng = np.random.default_rng(seed)
    height, width = shape
    pixels = height * width
    latitude = np.linspace(-math.pi / 2, math.pi / 2, height)[:, None]
    place = _field(rng, shape)
    fields = {name: _field(rng, shape) for name in sorted({channel.field for channel in CHANNELS})}
    fields["rain"] = np.exp(1.2 * fields["rain"])
    mean, weather = np.empty((2, height, width, len(CHANNELS)), np.float32)
    for number, channel in enumerate(CHANNELS):
        zonal = channel.pole + (channel.equator - channel.pole) * np.cos(latitude) ** 2
        mean[..., number] = zonal + channel.land * place
        weather[..., number] = channel.swing * fields[channel.field]
    mean[..., NUMBER["PS"]] -= 14_000 * np.maximum(place - 0.9, 0)  # mountains
    noise = rng.standard_normal((2 * BLOCK, len(CHANNELS)), dtype=np.float32) * _column("noise")
    noise[:, NUMBER["PRECT"]] = np.abs(noise[:, NUMBER["PRECT"]])  # no rain is less than none
    weather = weather.reshape(pixels, -1)
    low, high = (np.tile(_column(end), (BLOCK, 1)) for end in ("low", "high"))
    return Climate(mean.reshape(pixels, -1), np.concatenate([weather, weather[:BLOCK]]), noise, low, high)


def _field(rng: np.random.Generator, shape: Shape) -> Array:
    """Return a periodic random field of mean 0 and deviation 1 whose power falls with the frequency as k^-3."""
    height, width = shape
    square = np.fft.fftfreq(height)[:, None] ** 2 + np.fft.rfftfreq(width)[None, :] ** 2
    square[0, 0] = 1
    spectrum = rng.standard_normal((*square.shape, 2)) @ np.array([1, 1j]) * square ** (-POWER / 4)
    field = np.fft.irfft2(spectrum, s=shape)
    return (field - field.mean()) / field.std()


# --- one sample ------------------------------------------------------------------------------------------------------


def sample(seed: int, index: int, shape: Shape, out: Optional[Array] = None) -> Tuple[Array, Array, Array]:
    """Return (values of height x width x 16, labels, labels from relaxed thresholds), the labels as int32.

    They depend only on seed, index and shape. out: memory for the values; None: new memory.
    """
    rng = np.random.default_rng((seed, index))
    height, width = shape
    data = np.empty((height, width, len(CHANNELS)), np.float32) if out is None else out
    _weather(climate(seed, shape), rng, data.reshape(height * width, -1))
    cyclones, rivers = np.zeros((2, height, width), np.float32)
    counts = (round(CYCLONES * height * width), round(RIVERS * height * width))
    _add_rivers(data, rivers, rng, counts[1])
    _add_cyclones(data, cyclones, rng, counts[0])
    strict, relaxed = (_labels((cyclones, rivers), [times * count for count in counts]) for times in (1, RELAXED))
    return data, strict, relaxed


def _weather(base: Climate, rng: np.random.Generator, out: Array) -> None:
    """Add the mean, two pieces of the weather from random pixels on, and noise; block by block, in the cache."""
    pixels = len(out)
    share = np.float32(rng.uniform(0.35, 0.65))
    starts = rng.integers(pixels, size=2).tolist()
    blocks = range(0, pixels, BLOCK)
    spare = np.empty((BLOCK, len(CHANNELS)), np.float32)
    for first, noise in zip(blocks, rng.integers(BLOCK, size=len(blocks)).tolist()):
        block = out[first : first + BLOCK]
        count = len(block)
        begin_1, begin_2 = ((first + start) % pixels for start in starts)
        np.multiply(base.weather[begin_1 : begin_1 + count], share, out=block)
        np.multiply(base.weather[begin_2 : begin_2 + count], 1 - share, out=spare[:count])
        block += spare[:count]
        block += base.mean[first : first + count]
        block += base.noise[noise : noise + count]
        np.maximum(block, base.low[:count], out=block)
        np.minimum(block, base.high[:count], out=block)


class MapSection(NamedTuple):
    """A part of the map around a point; `north` and `east` are each pixel's distances from the point, in pixels."""

    pixels: Tuple[slice, slice]
    north: Array
    east: Array


def _section(shape: Shape, row: float, column: float, reach: float) -> MapSection:
    rows, columns = (
        slice(max(0, math.floor(middle - reach)), min(length, math.ceil(middle + reach)))
        for middle, length in zip((row, column), shape)
    )
    north = np.arange(rows.start, rows.stop, dtype=np.float32)[:, None] - np.float32(row)
    east = np.arange(columns.start, columns.stop, dtype=np.float32)[None, :] - np.float32(column)
    return MapSection((rows, columns), north, east)


def _add(data: Array, section: MapSection, name: str, change: Array) -> None:
    channel = CHANNELS[NUMBER[name]]
    values = data[section.pixels][..., NUMBER[name]]
    values += change
    np.clip(values, np.float32(channel.low), np.float32(channel.high), out=values)


def _add_wind(data: Array, section: MapSection, east: Array, north: Array) -> None:
    for height, factor in (("850", 1.0), ("BOT", NEAR_GROUND)):
        _add(data, section, f"U{height}", np.float32(factor) * east)
        _add(data, section, f"V{height}", np.float32(factor) * north)


def _add_cyclones(data: Array, strength: Array, rng: np.random.Generator, pixels: int) -> None:
    """Add one to three cyclones in the tropics, of `pixels` pixels together; one if more would be too small to see."""
    height, width = strength.shape
    number = int(rng.integers(1, 4)) if pixels > 60 else 1
    for _ in range(number):
        latitude = rng.uniform(8, 30) * rng.choice((-1, 1))
        radius = 0.8 * math.sqrt(pixels / number / math.pi) * rng.uniform(0.9, 1.1)
        row, column = (0.5 + latitude / 180) * height, rng.uniform(0.05, 0.95) * width
        section = _section((height, width), row, column, 4 * radius)
        core = np.exp((section.north**2 + section.east**2) / np.float32(-2 * radius**2))
        np.maximum(strength[section.pixels], core, out=strength[section.pixels])
        for channel in CHANNELS:
            if channel.cyclone:
                _add(data, section, channel.name, np.float32(channel.cyclone) * core)
        spin = np.float32(math.copysign(CYCLONE_WIND, latitude) * math.exp(0.5) / radius) * core  # fastest at `radius`
        _add_wind(data, section, -section.north * spin, section.east * spin)


def _add_rivers(data: Array, strength: Array, rng: np.random.Generator, pixels: int) -> None:
    """Add two to four rivers between tropics and poles, eight times as long as wide; they blow east and poleward."""
    height, width = strength.shape
    number = int(rng.integers(2, 5))
    for _ in range(number):
        latitude = rng.uniform(28, 52) * rng.choice((-1, 1))
        turn = math.copysign(rng.uniform(0.3, 1.0), latitude)
        bend, power = rng.uniform(-0.25, 0.25), np.float32(rng.uniform(0.85, 1.15))
        breadth = math.sqrt(pixels / number / 8)
        length = 8 * breadth
        row, column = (0.5 + latitude / 180) * height, rng.uniform(0.12, 0.88) * width
        section = _section((height, width), row, column, 0.7 * length)
        along = np.float32(math.cos(turn)) * section.east + np.float32(math.sin(turn)) * section.north
        across = np.float32(math.cos(turn)) * section.north - np.float32(math.sin(turn)) * section.east
        across -= np.float32(bend / length) * along**2
        crest = power * np.exp(-((across / np.float32(0.8 * breadth)) ** 2) - (along / np.float32(length / 2)) ** 4)
        np.maximum(strength[section.pixels], crest, out=strength[section.pixels])
        for channel in CHANNELS:
            if channel.river:
                _add(data, section, channel.name, np.float32(channel.river) * crest)
        wind = np.float32(RIVER_WIND) * crest
        _add_wind(data, section, np.float32(math.cos(turn)) * wind, np.float32(math.sin(turn)) * wind)


def _labels(strengths: Tuple[Array, ...], counts: List[int]) -> Array:
    """Label the pixels where the first strength is largest with 1, then those of the second with 2.

    counts: how many pixels get each label.
    """
    labels = np.zeros(strengths[0].shape, np.int32)
    flat = labels.reshape(-1)
    for label, (strength, count) in enumerate(zip(strengths, counts), start=1):
        places = np.flatnonzero((strength > 0) & (labels == 0))
        order = np.argpartition(-strength.reshape(-1)[places], count - 1)
        flat[places[order[:count]]] = label
    return labels
