"""Folders of data sets: what their files hold, and which of them this process holds open."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def digests(folder: Path) -> dict[str, str]:
    """The sha256 of each file, by its path in the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def open_below(folder: Path) -> list[str]:
    """The open files below a folder, one for each descriptor, whatever other threads open and close meanwhile."""
    found = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return [path for path in found if path.startswith(f"{os.path.realpath(folder)}/")]
