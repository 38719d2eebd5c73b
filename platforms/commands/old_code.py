"""Decides which code archives in runs/archives are old and needed by no run, and removes them."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from platforms.commands.old_runs import ARCHIVES, TEXTS, jobs_of, may_be_run
from platforms.job import RefusedError
from platforms.rundir import session_history
from platforms.rundir.retention import Leftover, Retention

CODE = re.compile(rb"(?:models|node-report)-[0-9a-f]{12}\.pyz?")
# What a session leaves that is killed while it writes an archive, and a prune that is killed while it removes one.
_DRAFT = re.compile(rb"\.(?:models|node-report)-[0-9a-f]{12}\.pyz?\.(?:\d+|going)")


def look(runs: Path, retention: Retention, folders: Sequence[Path]) -> tuple[list[Leftover], str]:
    """The old code archives that none of these run folders needs.

    Returns them, or no archive and the reason why it is not known which ones are needed.
    """
    archives = runs / ARCHIVES
    old: list[Leftover] = []
    needed: set[bytes] = set()
    try:
        paths = sorted(archives.iterdir()) if archives.is_dir() else []
        for path in paths:
            name = os.fsencode(path.name)
            if not CODE.fullmatch(name) and not _DRAFT.fullmatch(name):
                continue
            info = path.lstat()
            age_s = time.time() - info.st_mtime
            if stat.S_ISREG(info.st_mode) and not retention.young(age_s):
                old.append(Leftover(path.name, age_s, info.st_size))
        if old:
            for folder in folders:
                needed |= _needed_by(folder)
    except (OSError, RefusedError) as error:
        return [], str(error)
    return [leftover for leftover in old if os.fsencode(leftover.name) not in needed], ""


def remove(runs: Path, name: str) -> None:
    """Remove a code archive. Raises RefusedError where a run that has begun meanwhile needs it.

    The archive is renamed before the runs are searched, so that no run can begin with it after that.
    """
    path = runs / ARCHIVES / name
    aside = runs / ARCHIVES / f".{name}.going"
    try:
        path.rename(aside)
        try:
            for folder in runs.iterdir():
                if may_be_run(folder) and os.fsencode(name) in _needed_by(folder):
                    raise RefusedError(f"{name} stays: a run that has just begun needs it")
        except BaseException:
            aside.rename(path)
            raise
        aside.unlink()
    except OSError as error:
        raise RefusedError(f"{path} cannot be removed: {error}") from None


def _needed_by(folder: Path) -> set[bytes]:
    """The code archives that a run's files name. Raises RefusedError: a file that cannot be read may name any."""
    try:
        sessions = folder / session_history.FOLDER
        paths = []
        if sessions.exists():  # glob() would pass over a folder that cannot be read
            paths += [path for path in sessions.iterdir() if path.suffix == ".jsonl"]
        for job in jobs_of(folder):
            paths += [job / name for name in TEXTS]
        names: set[bytes] = set()
        for path in paths:
            if path.is_file():
                names.update(CODE.findall(path.read_bytes()))
        return names
    except OSError as error:
        raise RefusedError(f"which code archives are needed is not known: {error}") from None
