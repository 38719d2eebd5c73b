"""Errors for a folder that holds no data set of a benchmark, or another one: they say what to type next."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from typing import Dict, Mapping

from models.data.file_list import printable
from models.data.manifest import how_to_make
from models.errors import DataMissing
from models.settings import Shape, shape_text


@dataclass(frozen=True)
class Advice:
    """For one benchmark. name: its data set with an article, as in "an ImageNet"; holds: the files in its folder."""

    benchmark: str
    name: str
    holds: str

    def another(self, folder: str, options: str = "") -> str:
        """Say how to make a synthetic set beside `folder`; options: of the command, instead of a size."""
        command = how_to_make(self.benchmark, folder.rstrip("/") + "-synthetic", options)
        return f"or make a synthetic set elsewhere: {command}"

    def use(self, folder: str) -> str:
        return f"give --data-dir the folder of {self.name}, {self.another(folder)}"

    def unreadable_set(self, folder: str, error: OSError) -> DataMissing:
        """Return the error for a folder whose train/ cannot be listed."""
        if not os.path.lexists(folder):
            command = how_to_make(self.benchmark, folder)
            return DataMissing(f"there is no data set at {printable(folder)}. Make a synthetic one: {command}")
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return DataMissing(f"{printable(error.filename or folder)} cannot be read: {error.strerror}")
        parent, name = os.path.split(os.path.abspath(folder))
        if name == "train":
            use_parent = f"give the folder above, --data-dir {shlex.quote(printable(parent))}"
            return DataMissing(f"{printable(folder)} holds no folder train/: {use_parent}")
        return DataMissing(f"{printable(folder)} is not {self.name}, it holds no {self.holds}: {self.use(folder)}")

    def other_shape(
        self, folder: str, path: bytes, found: str, shape: Shape, shapes: Mapping[str, Shape]
    ) -> DataMissing:
        """Return the error for a sample of shape `found` where `shape` is asked for; shapes: by the words of --size."""
        sizes: Dict[str, str] = {}  # the first size that has a shape
        for size, size_shape in shapes.items():
            sizes.setdefault(shape_text(size_shape), size)
        wanted = shape_text(shape)
        train_on_them = f"train on them with --size {sizes[found]}, " if found in sizes else ""
        options = f"--size {sizes[wanted]}" if wanted in sizes else ""
        return DataMissing(
            f"{printable(path)} holds a sample of {found} and {wanted} is asked for: {train_on_them}"
            f"{self.another(folder, options)}"
        )
