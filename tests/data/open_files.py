"""Which files this process holds open, whatever else its other threads open and close meanwhile."""

from __future__ import annotations

import os
from pathlib import Path


def open_below(folder: Path) -> list[str]:
    """The open files below a folder, one for each descriptor."""
    found = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return [path for path in found if path.startswith(f"{os.path.realpath(folder)}/")]
