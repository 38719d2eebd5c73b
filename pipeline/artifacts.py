"""Copies what a run leaves into the folder of artifacts."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

FILE_BYTES = 1_000_000
"""So much of a file: a CI server refuses an archive that is too large, and then keeps nothing of it."""


def copy_evidence(run_folder: Path, target: Path) -> None:
    """Copy a run's folder: records, scripts, of each log the end. An earlier copy is replaced."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(run_folder, target, ignore=_no_evidence, copy_function=_copy_end)


def _no_evidence(folder: str, names: Iterable[str]) -> set[str]:
    """What jobs have worked with, and links, which may lead out of the run."""
    return {name for name in names if name == "work" or Path(folder, name).is_symlink()}


def _copy_end(source: str, copy: str) -> None:
    """Copy the last bytes of a file that may grow meanwhile."""
    with Path(source).open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - FILE_BYTES))
        Path(copy).write_bytes(file.read(FILE_BYTES))
