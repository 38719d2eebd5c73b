"""Packs the folder of an old run into runs/old/<run id>.tar.gz, and removes it. `prune` calls this.

A prune that is killed loses nothing. An archive is a draft until it is complete and on the disk. Then the folder moves
to runs/.going, where no session finds it; it is compared with the archive, byte by byte, and removed. If this is
interrupted, the next prune goes on there.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import shutil
import stat
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from platforms import atomic_file
from platforms.job import BenchError, RefusedError
from platforms.printable import printable
from platforms.rundir import locks

OLD = "old"
GOING = ".going"
CHUNK = 1 << 20  # bytes
LEVEL = 6  # gzip's default; 9 takes three times as long and saves one percent
DRAFT_S = 3600.0  # without locks, a draft that has not grown for so long belongs to a prune that was killed
_DRAFT_NAME = re.compile(r"\..+\.\d+\.draft", re.DOTALL)


class Busy(BenchError):
    """A folder changed while it was being archived; it is still in its place."""


@contextlib.contextmanager
def exclusive(runs: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Let one prune at a time work in the folder of all runs, and remove the drafts of one that was killed.

    Args:
        report: called with a sentence if a person should see to something.

    Raises:
        RefusedError: another prune is at work, or no archive can be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            (runs / OLD).mkdir(parents=True, exist_ok=True)
            why_no_lock = stack.enter_context(locks.held(runs / OLD / ".lock"))
        except locks.Taken as other:
            raise RefusedError(f"another prune is at work in {runs}, {other}; nothing was removed") from None
        except OSError as error:
            raise RefusedError(f"archives cannot be written there, so nothing was removed: {error}") from None
        if why_no_lock:
            report(f"{why_no_lock}: let no other prune work in {runs} at the same time")
        _remove_drafts(runs / OLD, min_age_s=DRAFT_S if why_no_lock else 0.0)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                (runs / GOING).rmdir()


def _remove_drafts(old: Path, min_age_s: float) -> None:
    for path in old.iterdir():
        if not _DRAFT_NAME.fullmatch(path.name):
            continue
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.lstat().st_mtime >= min_age_s:
                path.unlink()


def archive_run(runs: Path, name: str, why_needed: Callable[[Path], str]) -> Path:
    """Archive runs/<name> and remove the folder. Returns the archive.

    Args:
        why_needed: says why a run's folder must stay; empty if it may go. Called when no session can find it any more.

    Raises:
        RefusedError: the folder cannot be read, archived or removed; the message says where it is now.
        Busy: the folder was changed meanwhile, and stays.
    """
    folder = runs / name
    going = runs / GOING / name
    archive = find_archive_of(runs, name, folder)
    is_new = archive is None
    try:
        if archive is None:
            archive = _write_archive(folder, runs / OLD)
        going.parent.mkdir(exist_ok=True)
        folder.rename(going)  # from now on no session can begin in it
    except (OSError, tarfile.TarError) as error:
        raise RefusedError(f"{printable(name)} stays as it is: {error}") from None
    try:
        change = _difference(archive, going) or why_needed(going)
    except BaseException:
        going.rename(folder)
        raise
    if change:
        _put_back(runs, name)
        if is_new:
            archive.unlink()
        raise Busy(f"{printable(name)} stays: a process has begun to work on it ({change})")
    _remove_folder(going, archive)
    return archive


def finish_interrupted(runs: Path, name: str) -> Path | None:
    """Go on with a folder that a killed prune has left in runs/.going.

    Returns:
        The archive that holds all of it. None if there is none: the folder is then back among the runs.

    Raises:
        RefusedError: it can be neither removed nor put back.
    """
    archive = find_archive_of(runs, name, runs / GOING / name)
    if archive is None:
        _put_back(runs, name)
    else:
        _remove_folder(runs / GOING / name, archive)
    return archive


def _put_back(runs: Path, name: str) -> None:
    """Move a folder from runs/.going back. Raises RefusedError if a new run has taken the name."""
    going = runs / GOING / name
    try:
        going.rename(runs / name)
    except OSError as error:
        raise RefusedError(f"{going} holds what stood in {runs / name}, and cannot go back there: {error}") from None


def _remove_folder(going: Path, archive: Path) -> None:
    """Remove a folder that the archive holds. Links in it are removed, not followed. Raises RefusedError."""
    try:
        for path, subfolders, _files in os.walk(going):
            for folder in (path, *(os.path.join(path, name) for name in subfolders)):  # noqa: PTH118 (not always text)
                if os.path.islink(folder):  # noqa: PTH114
                    continue
                if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                    os.chmod(folder, stat.S_IRWXU)  # noqa: PTH101
        shutil.rmtree(going)
    except OSError as error:
        raise RefusedError(f"{archive} holds all of it, but {going} cannot be removed: {error}") from None


# --- the archive -----------------------------------------------------------------------------------------------------


def archives(runs: Path, name: str) -> list[Path]:
    """The archives of runs with that name; a name may be given again."""
    pattern = re.compile(rf"{re.escape(name)}(\.\d+)?\.tar\.gz", re.DOTALL)
    try:
        return sorted(path for path in (runs / OLD).iterdir() if pattern.fullmatch(path.name))
    except OSError:
        return []


def find_archive_of(runs: Path, name: str, folder: Path) -> Path | None:
    """The archive that holds everything in a folder, if there is one.

    A prune that was killed has written it, or a person has unpacked it to look at the run.
    """
    for archive in archives(runs, name):
        if not _difference(archive, folder):
            return archive
    return None


def _difference(archive: Path, folder: Path) -> str:
    """What in the folder is missing in the archive, or differs; empty if nothing is. The archive is read to its end."""
    try:
        unseen = dict(_entries(folder))
        with gzip.open(archive) as stream, _open_tar(fileobj=stream, mode="r|") as tar:
            for member in tar:
                top, _, name = member.name.partition("/")
                info = unseen.pop(name, None) if top == folder.name else None
                if info is not None and not _is_same(tar, member, folder / name, info):
                    return f"{printable(name)} has changed"
            while stream.read(CHUNK):  # its end holds the checksum
                pass
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        return str(error)
    if unseen:
        first = next(iter(unseen))
        return f"{printable(first)} is new"
    return ""


def _is_same(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path, info: os.stat_result) -> bool:
    if stat.S_ISLNK(info.st_mode):
        return member.issym() and member.linkname == str(path.readlink())
    if stat.S_ISDIR(info.st_mode):
        return member.isdir()
    if not stat.S_ISREG(info.st_mode):
        return member.isdev()
    if not member.isreg() or member.size != info.st_size:
        return False
    packed = tar.extractfile(member)
    if packed is None:
        return False
    with _open_file(path) as file:
        while chunk := file.read(CHUNK):
            if packed.read(len(chunk)) != chunk:
                return False
    return not packed.read(1)


def _write_archive(folder: Path, old: Path) -> Path:
    """Write a complete archive, or none; it is on the disk when this returns. It never replaces another one.

    Raises OSError and TarError.
    """
    draft = old / f".{folder.name}.{os.getpid()}.draft"
    try:
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            group = os.fstat(file.fileno()).st_gid
            readers = _read_permissions(folder.stat(), group)
            with gzip.GzipFile("", "wb", LEVEL, file) as packed, _open_tar(fileobj=packed, mode="w") as tar:
                tar.add(folder, folder.name, recursive=False)
                for name, info in _entries(folder):
                    _add(tar, folder, name, info)
                    readers &= _read_permissions(info, group)
            os.fchmod(file.fileno(), 0o600 | readers)
            file.flush()
            os.fsync(file.fileno())
        archive = _unused_name(old, folder.name)
        draft.rename(archive)
        atomic_file.sync_folder(old)
    finally:
        draft.unlink(missing_ok=True)
    return archive


def _read_permissions(info: os.stat_result, group: int) -> int:
    """Who besides its owner may read a file or folder, as the mode bits of an archive that belongs to `group`.

    Only those may read an archive who may read everything in it.
    """
    if stat.S_ISLNK(info.st_mode):
        return 0o044
    mode = info.st_mode
    if stat.S_ISDIR(mode):
        mode &= mode << 2  # a folder must be readable and searchable
    return mode & (0o044 if info.st_gid == group else 0o004)


def _add(tar: tarfile.TarFile, folder: Path, name: str, info: os.stat_result) -> None:
    entry = tar.gettarinfo(folder / name, f"{folder.name}/{name}")
    if not stat.S_ISREG(info.st_mode):
        tar.addfile(entry)
        return
    entry.type = tarfile.REGTYPE  # a second hard link becomes a file of its own
    entry.linkname = ""
    entry.size = info.st_size
    with _open_file(folder / name) as file:
        tar.addfile(entry, file)


def _open_tar(fileobj: IO[bytes] | gzip.GzipFile, mode: str) -> tarfile.TarFile:
    """A tar file in which a name may be any bytes."""
    return tarfile.open(  # type: ignore[call-overload,no-any-return]
        fileobj=fileobj, mode=mode, format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape"
    )


def _unused_name(old: Path, name: str) -> Path:
    """Where to put the archive of a run. Its name may have been given before, and that archive stays."""
    archive = old / f"{name}.tar.gz"
    number = 1
    while os.path.lexists(archive):
        number += 1
        archive = old / f"{name}.{number}.tar.gz"
    return archive


def _entries(folder: Path, below: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Everything in a folder, by its path in it, in a fixed order. Links are not followed, and sockets are left out.

    Raises OSError.
    """
    with os.scandir(folder / below) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        info = entry.stat(follow_symlinks=False)
        if stat.S_ISSOCK(info.st_mode):
            continue
        yield below + entry.name, info
        if stat.S_ISDIR(info.st_mode):
            yield from _entries(folder, f"{below}{entry.name}/")


def _open_file(path: Path) -> IO[bytes]:
    """Open a regular file for reading; a link that has replaced it meanwhile is an error."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
