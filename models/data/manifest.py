"""What a synthetic data set says about itself, and whether the files that are there are that set."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from dataclasses import MISSING, asdict, dataclass, fields
from typing import List, Optional, Tuple, Union

from models.data.files import show
from models.errors import DataCorrupt, DataMissing

MANIFEST = "manifest.json"


def how_to_make(benchmark: str, folder: str, what: str = "") -> str:
    """The command that writes a synthetic set into `folder`; of the size in the folder's name, as the suite has it."""
    if not what:
        size = os.path.basename(os.path.normpath(folder)).rpartition("-")[2]
        what = f"--size {size if size in ('smoke', 'subset') else 'quick'}"
    return f"python -m models data {benchmark} --data-dir {shlex.quote(show(folder))} {what}"


@dataclass(frozen=True)
class Manifest:
    """How a synthetic set was asked for, and how it came out.

    `version` is the generator's, `bytes` the sum of the samples' files, `sha256` that of `first`, the first of them;
    `shape` is a sample's without its channels, None where samples differ; `classes` None where there are none; `size`
    is the one that was asked for.
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
        """The words that ask for this set once more."""
        return f"--size {self.size} --samples {self.samples} --seed {self.seed} --format {self.format}"

    def write(self, folder: str) -> None:
        with open(os.path.join(folder, MANIFEST), "w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(self), indent=2) + "\n")

    def __str__(self) -> str:
        shape = f" of {'x'.join(map(str, self.shape))}" if self.shape else ""
        what = f"{_count(self.samples, self.classes)}{shape}"
        return f"{what}, {self.format}, seed {self.seed}, generator {self.version}"


def _count(samples: int, classes: Optional[int]) -> str:
    return f"{samples:,} samples" + (f" in {classes} classes" if classes else "")


def read_manifest(folder: str, benchmark: str) -> Optional[Manifest]:
    """The manifest of a synthetic set of this benchmark; None where there is no manifest.

    Raises DataMissing when it describes another benchmark's data, DataCorrupt when it cannot be read.
    """
    path = os.path.join(folder, MANIFEST)
    make = how_to_make(benchmark, folder.rstrip("/") + "-synthetic")
    use = f"give --data-dir another folder, or make a set: {make}"
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
        whose = values.get("benchmark")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise DataCorrupt(f"{show(path)} cannot be read ({error}): {use}") from None
    if whose != benchmark:
        raise DataMissing(f"{show(folder)} is a data set of benchmark {whose!r}, not of {benchmark}: {use}")
    known = [field for field in fields(Manifest) if field.name in values or field.default is MISSING]
    try:
        return Manifest(**{field.name: values[field.name] for field in known})
    except KeyError as error:
        raise DataCorrupt(f"{show(path)} lacks the key {error}: {use}") from None


def check_against(manifest: Manifest, files: int, folder: str, classes: Optional[int] = None) -> None:
    """Is it the set that the manifest describes? Compares the number of files and classes, and reads the first one.

    Raises DataMissing for a partial set and DataCorrupt for a changed one.
    """
    same = how_to_make(manifest.benchmark, folder, manifest.options)
    again = f"write it again: rm -r {shlex.quote(show(folder))} && {same}"
    if (files, classes) != (manifest.samples, manifest.classes):
        raise DataMissing(
            f"{show(folder)} holds {_count(files, classes)} and its {MANIFEST} says "
            f"{_count(manifest.samples, manifest.classes)}: the set is not complete or was changed; {again}"
        )
    path = os.path.join(folder, manifest.first)
    digest = sha256_of(path)
    if isinstance(digest, OSError):
        raise DataMissing(f"{show(path)} cannot be read ({digest.strerror}); {again}")
    if digest != manifest.sha256:
        raise DataCorrupt(f"{show(path)} is not the file that {MANIFEST} describes (sha256 differs); {again}")


def sha256_of(path: str) -> Union[str, OSError]:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while part := file.read(1 << 20):
                digest.update(part)
    except OSError as error:
        return error
    return digest.hexdigest()
