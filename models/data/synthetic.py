"""Writes a synthetic set as its recipe says: checks the disk first, writes in parallel, and all appears at once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Callable, Optional

from models.data import publish
from models.data.files import show
from models.data.manifest import Manifest, check_against, how_to_make, read_manifest, sha256_of
from models.errors import DataCorrupt, DataMissing, Impossible
from models.host import own_cores
from models.settings import Shape

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Recipe:
    """A synthetic set that can be written. Its bytes depend on these values only, not on who writes how many at once.

    version            of the generator, raised by whoever changes a byte
    shape, classes     of the samples; None where they differ, and where there are none
    bytes_per_sample   what the check of the disk counts with: a little above the mean
    files_per_process  how many files are worth the half second in which one more process starts
    name(index)        where a sample lies below the set's folder
    write(part, index) writes that file below `part` and returns its bytes; survives pickling
    finish(part)       writes what describes the whole set, when all samples are there
    size               what was asked for; decides nothing that is not said above
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

    def manifest(self, total: int = 0, digest: str = "") -> Manifest:
        """The set's manifest, its samples being `total` bytes and `digest` the sha256 of the first."""
        return Manifest(
            benchmark=self.benchmark,
            kind="synthetic",
            version=self.version,
            samples=self.samples,
            seed=self.seed,
            bytes=total,
            first=self.name(0),
            sha256=digest,
            format=self.format,
            shape=list(self.shape) if self.shape else None,
            classes=self.classes,
            size=self.size,
        )


def write_set(
    folder: str,
    recipe: Recipe,
    *,
    processes: Optional[int] = None,
    progress: Optional[Progress] = None,
    say: Optional[Callable[[str], None]] = None,
) -> Manifest:
    """Write the recipe's set to `folder`, which appears complete or not at all. Returns its manifest.

    processes: None, one per core that this process may use. progress(done, total) is called after each sample,
    say(line) once with the space it takes. A set that answers the same request is left alone; two writers at once end
    with one good set. Raises Impossible when the folder holds anything else or the disk is too small, DataMissing or
    DataCorrupt when the set that is there was changed, JobError when a process died.
    """
    processes = own_cores() if processes is None else processes
    if recipe.samples < 1 or recipe.seed < 0 or processes < 1:
        raise Impossible(
            f"{recipe.samples} samples with seed {recipe.seed} by {processes} processes make no set: give a sample, a "
            f"process, and a seed of 0 or more"
        )
    folder = os.path.realpath(folder)
    publish.remove_leftovers(folder)
    there = _existing(folder, recipe)
    if there:
        return there
    line = publish.check_space(folder, recipe.samples, recipe.bytes_per_sample)
    if say:
        say(line)
    publish.publish(folder, lambda part: _fill(part, recipe, processes, progress or _silent))
    made = _existing(folder, recipe)  # ours, or that of another writer who was faster
    if made is None:
        raise DataMissing(f"{show(folder)} was written and then removed by somebody else: look who uses that folder")
    return made


def _fill(part: str, recipe: Recipe, processes: int, progress: Progress) -> None:
    for folder in sorted({os.path.dirname(recipe.name(index)) for index in range(recipe.samples)}):
        os.makedirs(os.path.join(part, folder), exist_ok=True)
    total = publish.write_files(
        part, recipe.write, recipe.samples, processes, progress, files_per_process=recipe.files_per_process
    )
    if recipe.finish:
        recipe.finish(part)
    digest = sha256_of(os.path.join(part, recipe.name(0)))
    if isinstance(digest, OSError):
        raise digest
    recipe.manifest(total, digest).write(part)


def _existing(folder: str, recipe: Recipe) -> Optional[Manifest]:
    """The set that is there already, None when there is nothing. Raises Impossible for anything else."""
    if not os.path.lexists(folder) or (os.path.isdir(folder) and not os.listdir(folder)):
        return None
    asked = recipe.manifest()
    command = how_to_make(recipe.benchmark, f"{folder}-{recipe.samples}", asked.options)
    elsewhere = f"nothing is overwritten; write it elsewhere: {command}"
    try:
        manifest = read_manifest(folder, recipe.benchmark)
    except (DataMissing, DataCorrupt):
        manifest = None
    if manifest is None:
        raise Impossible(f"{show(folder)} holds something that is no synthetic set of {recipe.benchmark}: {elsewhere}")
    if manifest.request != asked.request:
        raise Impossible(f"{show(folder)} holds another set ({manifest}) than is asked for ({asked}): {elsewhere}")
    names = (os.path.join(folder, recipe.name(index)) for index in range(recipe.samples))
    check_against(manifest, sum(map(os.path.isfile, names)), folder, recipe.classes)
    return manifest


def _silent(done: int, total: int) -> None:
    pass
