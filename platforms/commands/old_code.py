"""Code archives in runs/archives: which are old enough to go, since no run that stays needs them."""

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
# of a session that was killed while it wrote one, or of a prune while it removed one
_DRAFT = re.compile(rb"\.(?:models|node-report)-[0-9a-f]{12}\.pyz?\.(?:\d+|going)")


def look(runs: Path, keep: Retention, folders: Sequence[Path]) -> tuple[list[Leftover], str]:
    """Code archives that none of these runs needs; the others are not worth a line. Where nobody can tell,
    none, and why."""
    old, named, now_s = [], set[bytes](), time.time()
    try:
        for path in sorted((runs / ARCHIVES).iterdir()) if (runs / ARCHIVES).is_dir() else ():
            info, name = path.lstat(), os.fsencode(path.name)
            ours = CODE.fullmatch(name) or _DRAFT.fullmatch(name)
            if ours and stat.S_ISREG(info.st_mode) and not keep.young(now_s - info.st_mtime):
                old.append(Leftover(path.name, now_s - info.st_mtime, info.st_size))
        named.update(*(_named(folder) for folder in folders if old))
    except (OSError, RefusedError) as error:
        return [], str(error)
    return [each for each in old if os.fsencode(each.name) not in named], ""


def take(runs: Path, name: str) -> None:
    """Remove a code archive, unless a run has begun meanwhile that needs it. Raises RefusedError."""
    path, aside = runs / ARCHIVES / name, runs / ARCHIVES / f".{name}.going"
    try:
        path.rename(aside)
        try:
            if any(os.fsencode(name) in _named(folder) for folder in runs.iterdir() if may_be_run(folder)):
                raise RefusedError(f"{name} stays: a run that has just begun needs it")
        except BaseException:
            aside.rename(path)
            raise
        aside.unlink()
    except OSError as error:
        raise RefusedError(f"{path} cannot be removed: {error}") from None


def _named(folder: Path) -> set[bytes]:
    """The code archives that a run's files name. Raises RefusedError: what cannot be read may name any."""
    try:
        sessions = folder / session_history.FOLDER
        paths = [path for path in (sessions.iterdir() if sessions.exists() else ()) if path.suffix == ".jsonl"]
        paths += [job / name for job in jobs_of(folder) for name in TEXTS]
        return {name for path in paths if path.is_file() for name in CODE.findall(path.read_bytes())}
    except OSError as error:
        raise RefusedError(f"nobody can tell which code archives are needed: {error}") from None
