"""Token shards as nanoGPT and llm.c write them, as a data set of sequences and the tokens that follow.

A shard is a file of tokens, without documents' ends apart from what tokens say. nanoGPT: uint16 from the first byte on.
llm.c: a header of 256 int32 (magic, version, tokens), then uint16 for GPT-2's vocabulary or uint32 for Llama 3's
(llm.c: dev/data/data_common.py).
"""

from __future__ import annotations

import bisect
import os
import resource
import threading
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch

from models.data.advice import Advice
from models.data.file_list import names_in, printable, unreadable
from models.data.manifest import Manifest, check_against, read_manifest
from models.data.synthetic_gpt import HEADER_BYTES, HEADERS
from models.data.thread_loader import sample
from models.errors import DataCorrupt, DataMissing

MOST_FILES = 65536
ADVICE = Advice("gpt", "token shards", "train/*.bin")


@dataclass(frozen=True)
class Shard:
    """One file: the format's name, where the tokens begin, their dtype and how many there are."""

    path: bytes
    format: str
    begin: int
    dtype: Any
    tokens: int

    def sequences(self, length: int) -> int:
        return max(0, self.tokens - 1) // length


class TokenData:
    """A map-style data set indexed by (epoch, index): `sequence` tokens, and for each of them the next one.

    Sample i of a shard begins at its token i x sequence; no sample reaches into the next shard.

    kind                "synthetic" if there is a manifest, else "real"
    bytes               sum of the shards' files by the manifest; None for a real set
    origin              what a synthetic set was made of; None for a real set
    bytes_per_sample    that are read of a file
    tokens_per_sample   the length of a sequence
    decoder             None: tokens are read as they are
    transforms          None
    warnings            for the reader of the result
    blank               shape and dtype of a sequence and of its targets
    """

    decoder = None
    transforms = None

    def __init__(self, shards: Sequence[Shard], manifest: Optional[Manifest], sequence: int, vocabulary: int) -> None:
        self.kind = manifest.kind if manifest else "real"
        self.bytes = manifest.bytes if manifest else None
        self.origin = manifest and {name: getattr(manifest, name) for name in ("version", "samples", "seed", "format")}
        self.format = shards[0].format
        self.tokens_per_sample = sequence
        self.bytes_per_sample = float(sequence * shards[0].dtype.itemsize)
        self.blank = (((sequence,), torch.int32), ((sequence,), torch.int64))
        known = HEADERS[self.format].vocabulary if self.format in HEADERS else vocabulary
        few = f"tokens below {known:,} only, and the model knows {vocabulary:,}: --format llama3 writes all"
        self.warnings: Tuple[str, ...] = (few,) if known < vocabulary else ()
        self._vocabulary = vocabulary
        self._shards = shards
        self._ends: List[int] = np.cumsum([shard.sequences(sequence) for shard in shards]).tolist()
        self._open: Dict[int, int] = {}  # descriptors of the shards that were read
        self._opening = threading.Lock()

    def __len__(self) -> int:
        return self._ends[-1]

    def __getstate__(self) -> Dict[str, Any]:
        """A loader's process opens its own files."""
        return {**self.__dict__, "_open": {}, "_opening": None}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._opening = threading.Lock()

    def path(self, index: int) -> str:
        """Return the path of the shard of sample `index`."""
        return os.fsdecode(self._shards[bisect.bisect_right(self._ends, index)].path)

    def __getitem__(self, key: Tuple[int, int]) -> Tuple[torch.Tensor, torch.Tensor]:
        """Raises as fill."""
        return sample(self, key[1])

    def fill(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None:
        """Read sample `index` into two contiguous CPU tensors, as `blank` says. Several threads may do so at once.

        By pread and not by a map: where a file of a map is cut or its server is gone, the process is killed (SIGBUS).
        Raises DataMissing for a file that is gone, DataCorrupt for one that ends too early or for an unknown token.
        """
        number = bisect.bisect_right(self._ends, index)
        shard = self._shards[number]
        first = index - (self._ends[number - 1] if number else 0)
        size = (self.tokens_per_sample + 1) * shard.dtype.itemsize
        offset = shard.begin + first * self.tokens_per_sample * shard.dtype.itemsize
        try:
            content = os.pread(self._descriptor(number), size, offset)
        except OSError as error:
            raise unreadable(shard.path, error) from None
        if len(content) < size:
            raise DataCorrupt(f"{printable(shard.path)} ends before byte {offset + size}: copy the file again")
        tokens = np.frombuffer(content, shard.dtype)
        if tokens.max() >= self._vocabulary:
            raise DataCorrupt(
                f"{printable(shard.path)} has the token {tokens.max():,} after byte {offset}, and the model knows "
                f"{self._vocabulary:,}: another --variant, or a set of another tokenizer; {ADVICE.another('tokens')}"
            )
        x.numpy()[:] = tokens[:-1]
        y.numpy()[:] = tokens[1:]

    def _descriptor(self, number: int) -> int:
        with self._opening:
            if number not in self._open:
                self._open[number] = os.open(self._shards[number].path, os.O_RDONLY | os.O_CLOEXEC)
            return self._open[number]


def open_folder(folder: str, *, sequence: int, vocabulary: int) -> TokenData:
    """Open `folder`/train/*.bin, or as nanoGPT and llm.c lay them, `folder`/*train*.bin.

    vocabulary: the tokens that the model knows. Raises DataMissing or DataCorrupt; each says what to type.
    """
    folder = os.fspath(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # each shard that is read stays open
    if hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, MOST_FILES)), hard))
    manifest = read_manifest(folder, "gpt")
    shards = [_shard(path) for path in _find_files(folder)]
    formats = sorted({shard.format for shard in shards})
    if len(formats) > 1:
        raise DataMissing(f"{printable(folder)} holds shards of {' and '.join(formats)}: {ADVICE.use(folder)}")
    if manifest and manifest.shape:
        check_against(manifest, sum(shard.sequences(manifest.shape[0]) for shard in shards), folder)
    if not sum(shard.sequences(sequence) for shard in shards):
        most = max(shard.tokens for shard in shards)
        raise DataMissing(
            f"the longest shard in {printable(folder)} has {most:,} tokens, and a sequence of {sequence:,} needs one "
            f"more than that: give a smaller --shape, {ADVICE.another(folder, '--size subset')}"
        )
    if shards[0].format in HEADERS and HEADERS[shards[0].format].vocabulary > vocabulary:
        raise DataMissing(
            f"{printable(folder)} has tokens of {shards[0].format}, and the model knows only {vocabulary:,}: "
            f"{ADVICE.another(folder, '--format gpt2')}"
        )
    return TokenData(shards, manifest, sequence, vocabulary)


def _find_files(folder: str) -> List[bytes]:
    train = os.path.join(os.fsencode(folder), b"train")
    try:
        if os.path.isdir(train):
            paths = [os.path.join(train, name) for name in names_in(train, (b".bin",))]
        else:
            names = [name for name in names_in(os.fsencode(folder), (b".bin",)) if b"train" in name]
            paths = [os.path.join(os.fsencode(folder), name) for name in names]
    except OSError as error:
        raise ADVICE.unreadable_set(folder, error) from None
    if not paths:
        raise DataMissing(f"{printable(folder)} holds no train/*.bin and no *train*.bin: {ADVICE.use(folder)}")
    return paths


def _shard(path: bytes) -> Shard:
    """Read a shard's header. Raises DataMissing or DataCorrupt."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = np.frombuffer(file.read(HEADER_BYTES)[:12].ljust(12, b"\0"), "<i4")
    except OSError as error:
        raise unreadable(path, error) from None
    for name, known in HEADERS.items():
        if (int(header[0]), int(header[1])) == (known.magic, known.version):
            dtype = np.dtype(known.dtype)
            if size != HEADER_BYTES + int(header[2]) * dtype.itemsize:
                said = f"its header says {int(header[2]):,} tokens"
                raise DataCorrupt(f"{printable(path)} has {size:,} bytes, and {said}: copy it again")
            return Shard(path, name, HEADER_BYTES, dtype, int(header[2]))
    if size % 2:
        raise DataCorrupt(f"{printable(path)} has {size:,} bytes, which is no number of tokens of two: copy it again")
    return Shard(path, "nanogpt", 0, np.dtype("<u2"), size // 2)
