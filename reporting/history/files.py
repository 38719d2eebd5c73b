"""Which files of a history have envelopes. A session asks this at its start, so nothing else is loaded for it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

GROWING = 2  # months, the last ones, to which sessions may add

Files = Mapping[str, os.stat_result]


def files_of(folder: Path, problems: list[str]) -> Files:
    """The files with envelopes, by their paths below the folder, in order of months and sessions.

    Args:
        problems: gets a sentence for each part of the history that cannot be read.
    """
    found: dict[str, os.stat_result] = {}
    months = [each for each in _entries(folder, problems) if not each.name.startswith(".") and each.is_dir()]
    months.sort(key=lambda each: each.name)
    for month in months:
        for entry in _entries(Path(month.path), problems):
            if entry.name.endswith(".jsonl") and not entry.name.endswith(".runs.jsonl"):
                try:
                    found[f"{month.name}/{entry.name}"] = _state(entry, may_grow=month in months[-GROWING:])
                except OSError as error:
                    problems.append(unreadable(Path(entry.path), error))
    return dict(sorted(found.items()))


def _state(entry: os.DirEntry[str], *, may_grow: bool) -> os.stat_result:
    """The state of a file. NFS may tell an old one for a minute, unless the file is opened. Raises OSError."""
    if may_grow:
        with contextlib.suppress(PermissionError), Path(entry.path).open("rb") as file:
            return os.fstat(file.fileno())
    return entry.stat()


def _entries(folder: Path, problems: list[str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"{folder}: this part of the history cannot be read: {error.strerror}")
        return []


def unreadable(path: Path, error: OSError) -> str:
    return f"{path}: this file of the history cannot be read: {error.strerror}"


def is_empty(folder: Path) -> bool:
    """Whether no session has written to the history. A part that cannot be read may hold lines."""
    problems: list[str] = []
    return not any(found.st_size for found in files_of(folder, problems).values()) and not problems
