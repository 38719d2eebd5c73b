"""Copies what a run leaves into the folder of artifacts, and bounds its size.

A CI server refuses an archive that is too large, and then nothing of it is kept.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

FILE_BYTES = 2_000_000
RUN_BYTES = 40_000_000
LEFT_OUT = "LEFT_OUT.txt"
_NOT_EVIDENCE = ("work",)


def copy_evidence(run_folder: Path, target: Path) -> None:
    """Copy a run's folder: records, scripts, logs. An earlier copy of it is replaced.

    Of a file above 2 MB the last 2 MB are copied. Small files come first, and what would exceed 40 MB is left out. The
    file LEFT_OUT.txt names both.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    room = RUN_BYTES
    left_out = []
    for path in sorted(_files(run_folder), key=lambda path: (path.stat().st_size, str(path))):
        name = path.relative_to(run_folder)
        size = path.stat().st_size
        copied = min(size, FILE_BYTES)
        if copied > room:
            left_out.append(f"{name}: {size} bytes, none of them is here")
            continue
        if copied < size:
            left_out.append(f"{name}: {size} bytes, the last {copied} are here")
        room -= copied
        _copy_end(path, target / name, copied)
    if left_out:
        (target / LEFT_OUT).write_text("\n".join([f"the whole run is in {run_folder}", *left_out, ""]))


def _files(run_folder: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(run_folder):
        names[:] = [name for name in names if name not in _NOT_EVIDENCE]
        for name in files:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _copy_end(path: Path, copy: Path, count: int) -> None:
    """Copy the last `count` bytes of a file that may grow meanwhile."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    with path.open("rb") as source, copy.open("wb") as file:
        source.seek(-count, 2)
        file.write(source.read(count))
