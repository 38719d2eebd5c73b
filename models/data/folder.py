"""Finds the files of an ImageNet folder (train/<wnid>/*.JPEG) and says what is wrong with one that cannot be used."""

from __future__ import annotations

import bisect
import functools
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Dict, List, Sequence, Tuple

from models.data.advice import Advice
from models.data.files import Files, names_in, show
from models.errors import DataMissing

ADVICE = Advice("resnet50", "an ImageNet", "train/<wnid>/*.JPEG")
SUFFIXES = (b".jpeg", b".jpg")
MOST_CLASSES = 1000
SCAN_THREADS = 4  # they hide the latency of a parallel file system; a local one needs none


@dataclass(frozen=True)
class Listing:
    """Every file of a set, sorted by class and name; `first` is where each class begins."""

    files: Files
    classes: Tuple[bytes, ...]
    first: List[int]

    @classmethod
    def of(cls, train: bytes, names: Dict[bytes, Sequence[bytes]]) -> Listing:
        below = [folder + b"/" + name for folder, inside in names.items() for name in inside]
        first = list(itertools.accumulate((len(inside) for inside in names.values()), initial=0))
        return cls(Files.of(train, below), tuple(names), first)

    def __len__(self) -> int:
        return len(self.files)

    def label(self, index: int) -> int:
        """The class of a file: the position of its folder among the sorted class folders, as torchvision counts."""
        return bisect.bisect_right(self.first, index) - 1

    def path(self, index: int) -> bytes:
        return self.files.path(index)


def find_files(folder: str) -> Listing:
    """List the training files of an ImageNet folder without a stat per file.

    Raises DataMissing, with the path and the command to type, for a folder that is missing or holds no ImageNet.
    """
    train = os.path.join(os.fsencode(folder), b"train")
    try:
        with os.scandir(train) as entries:
            classes = sorted(entry.name for entry in entries if entry.name[:1] != b"." and entry.is_dir())
        if not 0 < len(classes) <= MOST_CLASSES:
            raise DataMissing(_no_classes(folder, len(classes)))
        with ThreadPoolExecutor(SCAN_THREADS) as pool:
            list_class = functools.partial(names_in, suffixes=SUFFIXES)
            files = dict(zip(classes, pool.map(list_class, (os.path.join(train, name) for name in classes))))
    except OSError as error:
        raise ADVICE.unreadable(folder, error) from None
    empty = [name for name in classes if not files[name]]
    if empty:
        raise DataMissing(
            f"{len(empty)} of {len(classes)} class folders hold no JPEG, the first is "
            f"{show(os.path.join(train, empty[0]))}: complete the copy, {ADVICE.another(folder)}"
        )
    return Listing.of(train, files)


def _no_classes(folder: str, count: int) -> str:
    if count:
        return f"{show(folder)}/train holds {count:,} classes, ImageNet-1k has {MOST_CLASSES:,}: {ADVICE.use(folder)}"
    return f"{show(folder)}/train holds no class folders, ImageNet lies in {ADVICE.holds}: {ADVICE.use(folder)}"
