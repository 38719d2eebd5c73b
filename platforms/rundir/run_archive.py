"""Packs the folder of an old run into runs/old/<run id>.tar.gz, and removes it. `prune` calls this.

A prune that is killed loses nothing. It writes a draft of the archive; then it moves the folder to runs/.going, where
no session finds it, gives the archive its name, and removes the folder. The folder lies in .going below the name of its
archive. So the next prune knows of a folder there whether an archive has it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from platforms import atomic_file
from platforms.job import BenchError, RefusedError
from platforms.printable import printable
from platforms.rundir import locks

OLD = "old"
GOING = ".going"


class Busy(BenchError):
    """A folder changed while it was being archived; it is still in its place."""


@contextlib.contextmanager
def exclusive(runs: Path) -> Iterator[str]:
    """Let one prune at a time work in the folder of all runs, and remove the drafts of one that was killed.

    Yields:
        Why the file system has no locks; empty if it has. Several prunes then lose nothing, but may disturb each other.

    Raises:
        RefusedError: another prune is at work, or no archive can be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            (runs / OLD).mkdir(parents=True, exist_ok=True)
            why_no_lock = stack.enter_context(locks.held(runs / OLD / ".lock"))
            if not why_no_lock:
                for draft in (runs / OLD).glob(".*.draft"):
                    draft.unlink()
        except locks.Taken as other:
            raise RefusedError(f"another prune is at work in {runs}, {other}; nothing was removed") from None
        except OSError as error:
            raise RefusedError(f"archives cannot be written there, so nothing was removed: {error}") from None
        yield why_no_lock
        with contextlib.suppress(OSError):
            (runs / GOING).rmdir()


def archive_run(runs: Path, name: str, why_needed: Callable[[Path], str]) -> Path:
    """Archive runs/<name> and remove the folder. Returns the archive.

    Args:
        why_needed: says why a run's folder must stay; empty if it may go. Called when no session can find it any more.

    Raises:
        RefusedError: the folder cannot be read, archived or removed; the message says where it is now.
        Busy: the folder was changed meanwhile, and stays.
    """
    archive = _unused_name(runs / OLD, name)
    going = runs / GOING / archive.name / name
    draft = runs / OLD / f".{name}.{os.getpid()}.draft"
    try:
        try:
            before = _snapshot(runs / name)
            _write(draft, runs / name)
            going.parent.mkdir(parents=True, exist_ok=True)
            (runs / name).rename(going)  # from now on no session can begin in it
        except (OSError, tarfile.TarError) as error:
            raise RefusedError(f"{printable(name)} stays as it is: {error}") from None
        change = why_needed(going)
        if _snapshot(going) != before:
            change = "its files have changed"
        if change:
            _put_back(runs, going)
            raise Busy(f"{printable(name)} stays: a process has begun to work on it ({change})")
        draft.rename(archive)
        atomic_file.sync_folder(runs / OLD)
    finally:
        draft.unlink(missing_ok=True)
    _remove_folder(going, archive)
    return archive


def interrupted(runs: Path) -> list[Path]:
    """The folders in runs/.going that a killed prune has left there."""
    return sorted((runs / GOING).glob("*/*"))


def finish_interrupted(runs: Path, going: Path) -> Path | None:
    """Go on with a folder that a killed prune has left in runs/.going.

    Returns:
        The archive that holds all of it. None if there is none: the folder is then back among the runs.

    Raises:
        RefusedError: it can be neither removed nor put back.
    """
    archive = runs / OLD / going.parent.name
    if not archive.exists():
        _put_back(runs, going)
        return None
    _remove_folder(going, archive)
    return archive


def archives(runs: Path, name: str) -> list[Path]:
    """The archives of runs with that name; a name may be given again."""
    pattern = re.compile(rf"{re.escape(name)}(\.\d+)?\.tar\.gz", re.DOTALL)
    try:
        return sorted(path for path in (runs / OLD).iterdir() if pattern.fullmatch(path.name))
    except OSError:
        return []


def _put_back(runs: Path, going: Path) -> None:
    """Move a folder from runs/.going back. Raises RefusedError if a new run has taken the name."""
    folder = runs / going.name
    try:
        going.rename(folder)
        going.parent.rmdir()
    except OSError as error:
        raise RefusedError(f"{going} holds what stood in {folder}, and cannot go back there: {error}") from None


def _remove_folder(going: Path, archive: Path) -> None:
    """Remove a folder that the archive holds.

    Links in it are removed, not followed. Raises RefusedError.
    """
    try:
        for path, subfolders, _files in os.walk(going):
            for folder in (path, *(os.path.join(path, name) for name in subfolders)):  # noqa: PTH118 (not always text)
                # A job may leave folders that not even their owner may write to.
                if not os.path.islink(folder) and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):  # noqa: PTH114
                    os.chmod(folder, stat.S_IRWXU)  # noqa: PTH101
        shutil.rmtree(going.parent)
    except OSError as error:
        raise RefusedError(f"{archive} holds all of it, but {going} cannot be removed: {error}") from None


def _write(archive: Path, folder: Path) -> None:
    """Write an archive that only its owner may read, as files in the folder may be secret; it is on the disk then.

    Raises OSError and TarError.
    """
    with open(os.open(archive, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:  # noqa: PTH123
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=6) as tar:  # 9 takes three times as long for 1 %
            tar.add(folder, folder.name)
        file.flush()
        os.fsync(file.fileno())


def _snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """The size and the time of the last change of every file and folder in a folder.

    Raises OSError.
    """
    found = {}
    for path, subfolders, files in os.walk(folder, onerror=_raise):
        for name in (*subfolders, *files):
            inside = os.path.join(path, name)  # noqa: PTH118 (not always text)
            info = os.lstat(inside)
            found[os.path.relpath(inside, folder)] = (info.st_size, info.st_mtime_ns)
    return found


def _raise(error: OSError) -> None:
    raise error


def _unused_name(old: Path, name: str) -> Path:
    """Where to put the archive of a run.

    Its name may have been given before, and that archive stays.
    """
    archive = old / f"{name}.tar.gz"
    number = 1
    while os.path.lexists(archive):
        number += 1
        archive = old / f"{name}.{number}.tar.gz"
    return archive
