"""The manifest of a synthetic data set, and whether the files that are there are that set."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from dataclasses import MISSING, asdict, dataclass, fields
from typing import List, Optional, Tuple

from models.data.file_list import printable
from models.errors import DataCorrupt, DataMissing

MANIFEST = "manifest.json"


def how_to_make(benchmark: str, folder: str, options: str = "") -> str:
    """Return the command that writes a synthetic set into `folder`.

    options: of the command; by default the size at the end of the folder's name, as the suite names its folders.
    """
    if not options:
        ending = os.path.basename(os.path.normpath(folder)).rpartition("-")[2]
        size = ending if ending in ("smoke", "subset") else "quick"
        options = f"--size {size}"
    return f"python -m models data {benchmark} --data-dir {shlex.quote(printable(folder))} {options}"


@dataclass(frozen=True)
class Manifest:
    """How a synthetic set was asked for, and what was written.

    version   of the generator
    bytes     sum of the samples' files
    first     the first sample's file, below the set's folder; sha256: its hash
    shape     of a sample, without channels; None where samples differ
    classes   how many there are; None where there are none
    size      the size that was asked for
    """

    benchmark: str
    kind: str
    version: int
    samples: int
    seed: int
    bytes: int
    first: str
    sha256: str
    format: str = "jpeg"
    shape: Optional[List[int]] = None
    classes: Optional[int] = None
    size: str = "quick"

    @property
    def request(self) -> Tuple[object, ...]:
        return (self.version, self.samples, self.seed, self.format, self.shape, self.classes)

    @property
    def options(self) -> str:
        """The options of the command that writes this set again."""
        return f"--size {self.size} --samples {self.samples} --seed {self.seed} --format {self.format}"

    def write(self, folder: str) -> None:
        with open(os.path.join(folder, MANIFEST), "w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(self), indent=2) + "\n")

    def __str__(self) -> str:
        shape = f" of {'x'.join(map(str, self.shape))}" if self.shape else ""
        amount = f"{_count(self.samples, self.classes)}{shape}"
        return f"{amount}, {self.format}, seed {self.seed}, generator {self.version}"


def _count(samples: int, classes: Optional[int]) -> str:
    return f"{samples:,} samples" + (f" in {classes} classes" if classes else "")


def read_manifest(folder: str, benchmark: str) -> Optional[Manifest]:
    """Return the manifest of a synthetic set of this benchmark; None if there is no manifest.

    Raises DataMissing when it describes another benchmark's data, DataCorrupt when it cannot be read.
    """
    path = os.path.join(folder, MANIFEST)
    make = how_to_make(benchmark, folder.rstrip("/") + "-synthetic")
    use = f"give --data-dir another folder, or make a set: {make}"
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
        owner = values.get("benchmark")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise DataCorrupt(f"{printable(path)} cannot be read ({error}): {use}") from None
    if owner != benchmark:
        raise DataMissing(f"{printable(folder)} is a data set of benchmark {owner!r}, not of {benchmark}: {use}")
    # Newer fields have defaults, so that older manifests can be read; a newer manifest's other keys are ignored.
    present = [field for field in fields(Manifest) if field.name in values or field.default is MISSING]
    try:
        return Manifest(**{field.name: values[field.name] for field in present})
    except KeyError as error:
        raise DataCorrupt(f"{printable(path)} lacks the key {error}: {use}") from None


def check_against(manifest: Manifest, files: int, folder: str, classes: Optional[int] = None) -> None:
    """Check that a folder holds the set of its manifest, by the numbers of files and classes and by the first file.

    Raises DataMissing for a partial set and DataCorrupt for a changed one.
    """
    command = how_to_make(manifest.benchmark, folder, manifest.options)
    again = f"write it again: rm -r {shlex.quote(printable(folder))} && {command}"
    if (files, classes) != (manifest.samples, manifest.classes):
        raise DataMissing(
            f"{printable(folder)} holds {_count(files, classes)} and its {MANIFEST} says "
            f"{_count(manifest.samples, manifest.classes)}: the set is not complete or was changed; {again}"
        )
    path = os.path.join(folder, manifest.first)
    try:
        digest = sha256_of(path)
    except OSError as error:
        raise DataMissing(f"{printable(path)} cannot be read ({error.strerror}); {again}") from None
    if digest != manifest.sha256:
        raise DataCorrupt(f"{printable(path)} is not the file that {MANIFEST} describes (sha256 differs); {again}")


def sha256_of(path: str) -> str:
    """Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        part = file.read(1 << 20)
        while part:
            digest.update(part)
            part = file.read(1 << 20)
    return digest.hexdigest()
