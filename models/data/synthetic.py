"""Writes a synthetic data set by its recipe: checks the disk, writes in parallel, publishes the whole set at once."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import Callable, Mapping, Optional, Protocol, Tuple, cast

from models.data import publish
from models.data.file_list import printable
from models.data.manifest import Manifest, check_against, how_to_make, read_manifest, sha256_of
from models.errors import DataCorrupt, DataMissing, ImpossibleRequest
from models.host import own_cores
from models.settings import Shape

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Recipe:
    """A synthetic set that can be written. Its bytes depend only on these values, not on the number of processes.

    version            of the generator; raise it with each change of a byte
    shape              of the samples, without channels; None where they differ
    classes            how many there are; None where there are none
    bytes_per_sample   for the check of the disk: a little above the mean
    files_per_process  how many files are worth the half second in which one more process starts
    name(index)        returns where file `index` lies below the set's folder
    write(part, index) writes that file below the folder `part` and returns its bytes; must survive pickling
    finish(part)       writes what describes the whole set, when all samples are there
    size               the size that was asked for; has no influence on the bytes
    samples_per_file   how many samples a file holds; the last file may have fewer
    """

    benchmark: str
    version: int
    format: str
    shape: Optional[Shape]
    classes: Optional[int]
    samples: int
    seed: int
    bytes_per_sample: int
    files_per_process: int
    name: Callable[[int], str]
    write: Callable[[str, int], int]
    finish: Optional[Callable[[str], None]] = None
    size: str = "quick"
    samples_per_file: int = 1

    @property
    def files(self) -> int:
        return -(-self.samples // self.samples_per_file)

    def manifest(self, total_bytes: int = 0, digest: str = "") -> Manifest:
        """Return the set's manifest. total_bytes: of all samples; digest: the sha256 of the first."""
        return Manifest(
            benchmark=self.benchmark,
            kind="synthetic",
            version=self.version,
            samples=self.samples,
            seed=self.seed,
            bytes=total_bytes,
            first=self.name(0),
            sha256=digest,
            format=self.format,
            shape=list(self.shape) if self.shape else None,
            classes=self.classes,
            size=self.size,
        )


class Generator(Protocol):
    """What a module `models/data/synthetic_NAME.py` has. Importing it takes numpy and no torch."""

    SAMPLES: Mapping[str, int]
    """How many samples a set has, by the words of --size."""
    FORMATS: Tuple[str, ...]
    """The formats in which it can write; the first is the default."""

    def recipe(self, size: str, samples: Optional[int], seed: int, file_format: str) -> Recipe:
        """Return the recipe of the set of a size; samples: their number, None for SAMPLES[size]."""
        ...


def generator_of(benchmark: str) -> Generator:
    """Import the generator of a benchmark's synthetic data. Raises ImpossibleRequest if it has none."""
    module = f"models.data.synthetic_{benchmark}"
    try:
        return cast(Generator, importlib.import_module(module))
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ImpossibleRequest(
            f"{benchmark} has no synthetic data, because there is no {module.replace('.', '/')}.py; give the folder of "
            "its real data to `train` as --data-dir"
        ) from None


def write_set(
    folder: str,
    recipe: Recipe,
    *,
    processes: Optional[int] = None,
    progress: Optional[Progress] = None,
    on_space: Optional[Callable[[str], object]] = None,
) -> Manifest:
    """Write the recipe's set to `folder`, which appears complete or not at all. Return its manifest.

    processes: None, one per core that this process may use. progress(done, total) is called after each sample,
    on_space(line) once with the space that the set takes and what killed writers left. A set that is there and has the
    same recipe is left alone; two writers at once end with one good set. Raises ImpossibleRequest if the folder holds
    anything else or the disk is too small, DataMissing or DataCorrupt if the set that is there was changed,
    CommandError if a process died.
    """
    processes = own_cores() if processes is None else processes
    if recipe.samples < 1 or recipe.seed < 0 or processes < 1:
        raise ImpossibleRequest(
            f"{recipe.samples} samples with seed {recipe.seed} by {processes} processes make no set: give a sample, a "
            f"process, and a seed of 0 or more"
        )
    folder = os.path.realpath(folder)
    existing = _existing_set(folder, recipe)
    if existing:
        return existing
    space = publish.check_space(folder, recipe.files, recipe.samples * recipe.bytes_per_sample // recipe.files)
    if on_space:
        on_space(space)
    publish.publish(folder, lambda part: _fill(part, recipe, processes, progress or _no_progress))
    written = _existing_set(folder, recipe)  # this one, or that of another writer, which was faster
    if written is None:
        raise DataMissing(
            f"{printable(folder)} was written, and another process then removed it: find out which one uses that folder"
        )
    return written


def _fill(part: str, recipe: Recipe, processes: int, progress: Progress) -> None:
    for folder in sorted({os.path.dirname(recipe.name(index)) for index in range(recipe.files)}):
        os.makedirs(os.path.join(part, folder), exist_ok=True)
    total_bytes = publish.write_files(
        part, recipe.write, recipe.files, processes, progress, files_per_process=recipe.files_per_process
    )
    if recipe.finish:
        recipe.finish(part)
    digest = sha256_of(os.path.join(part, recipe.name(0)))
    recipe.manifest(total_bytes, digest).write(part)


def _existing_set(folder: str, recipe: Recipe) -> Optional[Manifest]:
    """Return the manifest of the set that is there already, None if there is none. Raises as write_set."""
    if not os.path.lexists(folder) or (os.path.isdir(folder) and not os.listdir(folder)):
        return None
    wanted = recipe.manifest()
    command = how_to_make(recipe.benchmark, f"{folder}-{recipe.samples}", wanted.options)
    elsewhere = f"nothing is overwritten; write it elsewhere: {command}"
    try:
        manifest = read_manifest(folder, recipe.benchmark)
    except (DataMissing, DataCorrupt):
        manifest = None
    if manifest is None:
        raise ImpossibleRequest(
            f"{printable(folder)} holds something that is no synthetic set of {recipe.benchmark}: {elsewhere}"
        )
    if manifest.request != wanted.request:
        raise ImpossibleRequest(
            f"{printable(folder)} holds another set ({manifest}) than is asked for ({wanted}): {elsewhere}"
        )
    files = sum(os.path.isfile(os.path.join(folder, recipe.name(index))) for index in range(recipe.files))
    check_against(manifest, min(recipe.samples, files * recipe.samples_per_file), folder, recipe.classes)
    return manifest


def _no_progress(done: int, total: int) -> None:
    pass
