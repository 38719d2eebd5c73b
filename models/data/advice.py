"""What to say, and to type next, where a folder holds no data set of a benchmark, or another one than is asked for."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from typing import Mapping

from models.data.files import show
from models.data.manifest import how_to_make
from models.errors import DataMissing
from models.settings import Shape, by


@dataclass(frozen=True)
class Advice:
    """For one benchmark. name: its set with an article, as in "an ImageNet"; holds: what lies in the set's folder."""

    benchmark: str
    name: str
    holds: str

    def another(self, folder: str, what: str = "") -> str:
        """How to make a synthetic set; `what`: options that stand for a size."""
        command = how_to_make(self.benchmark, folder.rstrip("/") + "-synthetic", what)
        return f"or make a synthetic set elsewhere: {command}"

    def use(self, folder: str) -> str:
        return f"give --data-dir the folder of {self.name}, {self.another(folder)}"

    def unreadable(self, folder: str, error: OSError) -> DataMissing:
        """Its train/ could not be listed."""
        if not os.path.lexists(folder):
            command = how_to_make(self.benchmark, folder)
            return DataMissing(f"there is no data set at {show(folder)}. Make a synthetic one: {command}")
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return DataMissing(f"{show(error.filename or folder)} cannot be read: {error.strerror}")
        above = os.path.dirname(os.path.abspath(folder))
        if os.path.basename(os.path.abspath(folder)) == "train":
            there = f"give the folder above, --data-dir {shlex.quote(show(above))}"
            return DataMissing(f"{show(folder)} holds no folder train/: {there}")
        return DataMissing(f"{show(folder)} is not {self.name}, it holds no {self.holds}: {self.use(folder)}")

    def other_shape(
        self, folder: str, path: bytes, found: str, shape: Shape, shapes: Mapping[str, Shape]
    ) -> DataMissing:
        """A sample is `found` and not of `shape`; `shapes` are those of the sizes."""
        sizes = {by(cube): size for size, cube in reversed(list(shapes.items()))}
        fits = f"train on them with --size {sizes[found]}, " if found in sizes else ""
        what = f"--size {sizes[by(shape)]}" if by(shape) in sizes else ""
        return DataMissing(
            f"{show(path)} holds a sample of {found} and {by(shape)} is asked for: {fits}{self.another(folder, what)}"
        )
