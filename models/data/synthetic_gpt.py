"""Writes synthetic token shards in llm.c's format, of tokens of a whole vocabulary that can be learned."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any, Dict, Optional

import numpy as np

from models.data.synthetic import Recipe
from models.settings import Shape

VERSION = 1  # of the generator: raise it with each change of a value
SAMPLES = {"smoke": 256, "quick": 4096, "subset": 65536}
SHAPES: Dict[str, Shape] = {"smoke": (64,), "quick": (1024,), "subset": (1024,)}
SEQUENCES_PER_FILE = 4096

HEADER_BYTES = 1024
REPEATED = 0.5  # of the tokens follow from the one before
ZIPF = 1.2  # the r-th most frequent of the others has a share of 1 / r^ZIPF
STEP = 7919  # a prime: token t is followed by STEP x t + 1, modulo the vocabulary, where it follows from it

Array = Any  # a numpy array


@dataclass(frozen=True)
class Header:
    """What llm.c's shards begin with, and what their tokens are."""

    magic: int
    version: int
    dtype: str
    vocabulary: int


HEADERS = {
    "gpt2": Header(20240520, 1, "<u2", 50257),
    "llama3": Header(20240801, 7, "<u4", 128256),
}
FORMATS = tuple(HEADERS)


def recipe(size: str, samples: Optional[int], seed: int, file_format: str = FORMATS[0]) -> Recipe:
    """Return the recipe of the set of a size, or of `samples` sequences of its shape."""
    shape = SHAPES[size]
    samples = SAMPLES[size] if samples is None else samples
    return Recipe(
        benchmark="gpt",
        version=VERSION,
        format=file_format,
        shape=shape,
        classes=None,
        samples=samples,
        seed=seed,
        bytes_per_sample=shape[0] * np.dtype(HEADERS[file_format].dtype).itemsize + HEADER_BYTES,
        files_per_process=1,
        name=file_name,
        write=functools.partial(_write, seed, shape[0], samples, file_format),
        size=size,
        samples_per_file=SEQUENCES_PER_FILE,
    )


def file_name(index: int) -> str:
    """Return where shard `index` lies below the set's folder, with a name as llm.c gives."""
    return f"train/synthetic_train_{index:06d}.bin"


def tokens(seed: int, index: int, count: int, vocabulary: int) -> Array:
    """Return the tokens of shard `index`, int64.

    A token is drawn by Zipf's law from the whole vocabulary, or follows from the one before by a rule that never
    changes. So a model learns at first how frequent tokens are, and then what follows what.
    """
    rng = np.random.default_rng((seed, index))
    ranks = np.searchsorted(_shares(vocabulary), rng.random(count))
    drawn = ranks.astype(np.int64) * STEP % vocabulary  # so that frequent tokens are not all small numbers
    follows = rng.random(count) < REPEATED
    follows[0] = False
    while follows.any():
        # in each round those whose predecessor is final
        ready = follows & ~np.concatenate(([False], follows[:-1]))
        at = np.flatnonzero(ready)
        drawn[at] = (drawn[at - 1] * STEP + 1) % vocabulary
        follows &= ~ready
    return drawn


@functools.lru_cache(maxsize=1)
def _shares(vocabulary: int) -> Array:
    shares = 1 / np.arange(1, vocabulary + 1) ** ZIPF
    cumulated = np.cumsum(shares) / shares.sum()
    cumulated[-1] = 1.0
    return cumulated


def _write(seed: int, sequence: int, samples: int, file_format: str, part: str, index: int) -> int:
    """Write one shard: so many sequences, and the token after the last one."""
    header = HEADERS[file_format]
    sequences = min(SEQUENCES_PER_FILE, samples - index * SEQUENCES_PER_FILE)
    count = sequences * sequence + 1
    begin = np.zeros(HEADER_BYTES // 4, "<i4")
    begin[:3] = header.magic, header.version, count
    content = tokens(seed, index, count, header.vocabulary).astype(header.dtype)
    with open(os.path.join(part, file_name(index)), "wb") as file:
        return file.write(begin.tobytes() + content.tobytes())
