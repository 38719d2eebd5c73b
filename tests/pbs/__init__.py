"""A scheduler that is not part of the suite: a small OpenPBS, and commands that act as its server (see fake.py)."""

from __future__ import annotations

import sys
from pathlib import Path


def fake_path(folder: Path) -> Path:
    """A folder with the commands of a fake PBS, for PATH."""
    folder.mkdir()
    fake = Path(__file__).with_name("fake.py")
    for name in ("qsub", "qstat", "qdel"):
        command = folder / name
        command.write_text(f"#!{sys.executable}\n{fake.read_text()}")
        command.chmod(0o755)
    return folder
