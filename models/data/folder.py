"""Finds the files of an ImageNet folder (train/<wnid>/*.JPEG) and says what is wrong with one that cannot be used."""

from __future__ import annotations

import array
import bisect
import hashlib
import itertools
import json
import os
import shlex
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from typing import Dict, List, Optional, Tuple

from models.errors import DataCorrupt, DataMissing

MANIFEST = "manifest.json"
SUFFIXES = (b".jpeg", b".jpg")
MOST_CLASSES = 1000
SCAN_THREADS = 4  # they hide the latency of a parallel file system; a local one needs none


def show(path: bytes | str) -> str:
    """A path as text that can always be printed, also when its bytes are no UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def how_to_make(folder: str, what: str = "") -> str:
    """The command that writes a synthetic set into `folder`; of the size in the folder's name, as the suite has it."""
    if not what:
        size = os.path.basename(os.path.normpath(folder)).rpartition("-")[2]
        what = f"--size {size if size in ('smoke', 'subset') else 'quick'}"
    return f"python -m models data resnet50 --data-dir {shlex.quote(show(folder))} {what}"


@dataclass(frozen=True)
class Manifest:
    """What a synthetic set says about itself: how it was asked for, and how it came out.

    `version` is the generator's, `bytes` the sum of the JPEGs, `sha256` that of `first`, the first file below train/.
    """

    benchmark: str
    kind: str
    version: int
    samples: int
    classes: int
    seed: int
    bytes: int
    first: str
    sha256: str

    @property
    def request(self) -> Tuple[int, int, int, int]:
        return (self.version, self.samples, self.classes, self.seed)

    def write(self, folder: str) -> None:
        with open(os.path.join(folder, MANIFEST), "w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(self), indent=2) + "\n")


def read_manifest(folder: str) -> Optional[Manifest]:
    """The manifest of a synthetic set of this benchmark; None where there is no manifest.

    Raises DataMissing when it describes another data set, DataCorrupt when it cannot be read.
    """
    path = os.path.join(folder, MANIFEST)
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
        benchmark = values.get("benchmark")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise DataCorrupt(f"{show(path)} cannot be read ({error}): {_use(folder)}") from None
    if benchmark != "resnet50":
        raise DataMissing(f"{show(folder)} is a data set of benchmark {benchmark!r}: {_use(folder)}")
    try:
        return Manifest(**{field.name: values[field.name] for field in fields(Manifest)})
    except KeyError as error:
        raise DataCorrupt(f"{show(path)} lacks the key {error}: {_use(folder)}") from None


@dataclass(frozen=True)
class Listing:
    """Every file of a set, sorted by class and name, as one block of bytes.

    A list of 1.28 million strings would be copied page by page into each worker that touches their reference counts.
    """

    train: bytes
    classes: Tuple[bytes, ...]
    first: List[int]
    names: bytes
    ends: array.array[int]

    @classmethod
    def of(cls, train: bytes, files: Dict[bytes, List[bytes]]) -> Listing:
        names = [name for folder in files.values() for name in folder]
        first = list(itertools.accumulate((len(folder) for folder in files.values()), initial=0))
        ends = array.array("q", itertools.accumulate((len(name) for name in names), initial=0))
        return cls(train, tuple(files), first, b"".join(names), ends)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def label(self, index: int) -> int:
        """The class of a file: the position of its folder among the sorted class folders, as torchvision counts."""
        return bisect.bisect_right(self.first, index) - 1

    def path(self, index: int) -> bytes:
        name = self.names[self.ends[index] : self.ends[index + 1]]
        return b"/".join((self.train, self.classes[self.label(index)], name))


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
            files = dict(zip(classes, pool.map(_jpegs, (os.path.join(train, name) for name in classes))))
    except OSError as error:
        raise DataMissing(_unreadable(folder, error)) from None
    empty = [name for name in classes if not files[name]]
    if empty:
        raise DataMissing(
            f"{len(empty)} of {len(classes)} class folders hold no JPEG, the first is "
            f"{show(os.path.join(train, empty[0]))}: complete the copy, {_another(folder)}"
        )
    return Listing.of(train, files)


def check_against(manifest: Manifest, listing: Listing, folder: str) -> None:
    """Is it the set that the manifest describes? Counts the files and reads the first one.

    Raises DataMissing for a partial set and DataCorrupt for a changed one.
    """
    same = how_to_make(folder, f"--samples {manifest.samples} --seed {manifest.seed}")
    again = f"write it again: rm -r {shlex.quote(show(folder))} && {same}"
    if (len(listing), len(listing.classes)) != (manifest.samples, manifest.classes):
        raise DataMissing(
            f"{show(folder)} holds {len(listing):,} files in {len(listing.classes)} classes; its {MANIFEST} says "
            f"{manifest.samples:,} in {manifest.classes}: the set is not complete or was changed; {again}"
        )
    path = os.path.join(os.fsencode(folder), os.fsencode(manifest.first))
    try:
        with open(path, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
    except OSError as error:
        raise DataMissing(f"{show(path)} cannot be read ({error.strerror}); {again}") from None
    if digest != manifest.sha256:
        raise DataCorrupt(f"{show(path)} is not the file that {MANIFEST} describes (sha256 differs); {again}")


def _jpegs(folder: bytes) -> List[bytes]:
    with os.scandir(folder) as entries:
        names = (e.name for e in entries if e.name.lower().endswith(SUFFIXES) and e.name[:1] != b"." and not e.is_dir())
        return sorted(names)


def _another(folder: str) -> str:
    return f"or make a synthetic set elsewhere: {how_to_make(folder.rstrip('/') + '-synthetic')}"


def _use(folder: str) -> str:
    return f"give --data-dir the folder of an ImageNet, {_another(folder)}"


def _no_classes(folder: str, count: int) -> str:
    if count:
        return f"{show(folder)}/train holds {count:,} classes, ImageNet-1k has {MOST_CLASSES:,}: {_use(folder)}"
    return f"{show(folder)}/train holds no class folders, ImageNet lies in train/<wnid>/*.JPEG: {_use(folder)}"


def _unreadable(folder: str, error: OSError) -> str:
    if not os.path.lexists(folder):
        return f"there is no data set at {show(folder)}. Make a synthetic one: {how_to_make(folder)}"
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return f"{show(error.filename or folder)} cannot be read: {error.strerror}"
    above = os.path.dirname(os.path.abspath(folder))
    if os.path.basename(os.path.abspath(folder)) == "train":
        return f"{show(folder)} holds no folder train/: give the folder above, --data-dir {shlex.quote(show(above))}"
    return f"{show(folder)} is no ImageNet, it holds no train/<wnid>/*.JPEG: {_use(folder)}"
