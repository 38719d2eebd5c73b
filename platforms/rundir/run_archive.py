"""The folder of a run -> one archive runs/old/<run id>.tar.gz. The folder goes when every byte of it was seen there.

A prune that is killed loses nothing: an archive is a draft until it is whole and on the disk; then the folder moves to
runs/.going, where no session finds it, is compared with the archive, and is removed. The next prune goes on there.
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
CHUNK = 1 << 20
LEVEL = 6  # gzip's own; 9 takes three times as long for a hundredth
DRAFT_S = 3600.0  # where the file system knows no locks, a draft that nobody has written to for so long is nobody's
_DRAFT = re.compile(r"\..+\.\d+\.draft", re.DOTALL)


class Busy(BenchError):
    """Something has changed in a folder while it was put away; it is where it was."""


@contextlib.contextmanager
def alone(runs: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """One prune at a time in a folder of runs; drafts that a killed one has left are removed. `tell` is given what a
    person should see to. Raises RefusedError."""
    with contextlib.ExitStack() as stack:
        try:
            (runs / OLD).mkdir(parents=True, exist_ok=True)
            none = stack.enter_context(locks.held(runs / OLD / ".lock"))
        except locks.Taken as other:
            raise RefusedError(f"another prune is at work in {runs}, {other}; nothing was removed") from None
        except OSError as error:
            raise RefusedError(f"archives cannot be written there, so nothing was removed: {error}") from None
        if none:
            tell(f"{none}: let no other prune work in {runs} at the same time")
        _remove_drafts(runs / OLD, DRAFT_S if none else 0.0)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                (runs / GOING).rmdir()


def _remove_drafts(old: Path, patience_s: float) -> None:
    for draft in old.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if _DRAFT.fullmatch(draft.name) and time.time() - draft.lstat().st_mtime >= patience_s:
                draft.unlink()


def put_away(runs: Path, name: str, needed: Callable[[Path], str]) -> Path:
    """Archive runs/<name> and remove it. Returns the archive. `needed` says why a run's folder must stay, if it must.

    Raises:
        RefusedError: it cannot be read, written or removed; the message says where it is now.
        Busy: it was changed meanwhile, and stays.
    """
    folder, going = runs / name, runs / GOING / name
    archive = holding(runs, name, folder)
    fresh = archive is None
    try:
        archive = archive or _write(folder, runs / OLD)
        going.parent.mkdir(exist_ok=True)
        folder.rename(going)  # from now on nobody begins anything in it
    except (OSError, tarfile.TarError) as error:
        raise RefusedError(f"{printable(name)} stays as it is: {error}") from None
    try:
        changed = differs(archive, going) or needed(going)
    except BaseException:
        going.rename(folder)
        raise
    if changed:
        back(runs, name)
        if fresh:
            archive.unlink()
        raise Busy(f"{printable(name)} stays: somebody has begun to work on it ({changed})")
    remove(going, archive)
    return archive


def finish(runs: Path, name: str) -> Path | None:
    """Go on with what a killed prune has left in runs/.going. Returns the archive that has it; None where none has it
    all, and then it is a run again. Raises RefusedError."""
    archive = holding(runs, name, runs / GOING / name)
    if archive is None:
        back(runs, name)
    else:
        remove(runs / GOING / name, archive)
    return archive


def back(runs: Path, name: str) -> None:
    """Raises RefusedError where a new run has taken the name."""
    going = runs / GOING / name
    try:
        going.rename(runs / name)
    except OSError as error:
        raise RefusedError(f"{going} holds what stood in {runs / name}, and cannot go back there: {error}") from None


def remove(going: Path, archive: Path) -> None:
    """Of a folder that the archive holds; links in it are removed, not followed. Raises RefusedError."""
    try:
        for path, folders, _files in os.walk(going):
            for each in (path, *(os.path.join(path, name) for name in folders)):  # noqa: PTH118 (a name may be no text)
                if not os.path.islink(each) and not os.access(each, os.R_OK | os.W_OK | os.X_OK):  # noqa: PTH114
                    os.chmod(each, stat.S_IRWXU)  # noqa: PTH101
        shutil.rmtree(going)
    except OSError as error:
        raise RefusedError(f"{archive} holds all of it, but {going} cannot be removed: {error}") from None


# --- the archive -----------------------------------------------------------------------------------------------------


def archives(runs: Path, name: str) -> list[Path]:
    """Those of runs of that name, which may have been given again."""
    match = re.compile(rf"{re.escape(name)}(\.\d+)?\.tar\.gz", re.DOTALL)
    try:
        return sorted(path for path in (runs / OLD).iterdir() if match.fullmatch(path.name))
    except OSError:
        return []


def holding(runs: Path, name: str, folder: Path) -> Path | None:
    """The archive that has everything of a folder, if there is one: a killed prune had come so far, or somebody has
    unpacked it to look at it."""
    return next((path for path in archives(runs, name) if not differs(path, folder)), None)


def differs(archive: Path, folder: Path) -> str:
    """What of the folder is not in the archive, or is otherwise there; empty when the archive has it all. It is read to
    its last byte."""
    try:
        there = dict(_entries(folder))
        with gzip.open(archive) as stream, _tar(fileobj=stream, mode="r|") as tar:
            for member in tar:
                top, _, name = member.name.partition("/")
                info = there.pop(name, None) if top == folder.name else None
                if info is not None and not _same(tar, member, folder / name, info):
                    return f"{printable(name)} has changed"
            while stream.read(CHUNK):
                pass
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        return str(error)
    return f"{printable(next(iter(there)))} is new" if there else ""


def _same(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path, info: os.stat_result) -> bool:
    if stat.S_ISLNK(info.st_mode):
        return member.issym() and member.linkname == str(path.readlink())
    if not stat.S_ISREG(info.st_mode):
        return member.isdir() if stat.S_ISDIR(info.st_mode) else member.isdev()
    packed = tar.extractfile(member) if member.isreg() and member.size == info.st_size else None
    if packed is None:
        return False
    with _opened(path) as file:
        while chunk := file.read(CHUNK):
            if packed.read(len(chunk)) != chunk:
                return False
    return not packed.read(1)


def _write(folder: Path, old: Path) -> Path:
    """Whole or not at all, on the disk when it returns. Never in the place of another. Raises OSError, TarError."""
    draft = old / f".{folder.name}.{os.getpid()}.draft"
    try:
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:
            readers = _readers(folder.stat(), group := os.fstat(file.fileno()).st_gid)
            with gzip.GzipFile("", "wb", LEVEL, file) as packed, _tar(fileobj=packed, mode="w") as tar:
                tar.add(folder, folder.name, recursive=False)
                for name, info in _entries(folder):
                    _add(tar, folder, name, info)
                    readers &= _readers(info, group)
            os.fchmod(file.fileno(), 0o600 | readers)
            file.flush()
            os.fsync(file.fileno())
        archive = _free(old, folder.name)
        draft.rename(archive)
        atomic_file.sync_folder(old)
    finally:
        draft.unlink(missing_ok=True)
    return archive


def _readers(info: os.stat_result, group: int) -> int:
    """Who beside its owner may read what is in a file or folder, as bits of a file's mode in that group. An archive is
    read by those who may read all that is in it."""
    if stat.S_ISLNK(info.st_mode):
        return 0o044
    mode = info.st_mode & (info.st_mode << 2) if stat.S_ISDIR(info.st_mode) else info.st_mode  # a folder needs x, too
    return mode & (0o044 if info.st_gid == group else 0o004)


def _add(tar: tarfile.TarFile, folder: Path, name: str, info: os.stat_result) -> None:
    entry = tar.gettarinfo(folder / name, f"{folder.name}/{name}")
    if not stat.S_ISREG(info.st_mode):
        tar.addfile(entry)
        return
    entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", info.st_size  # a second name of a file is a file
    with _opened(folder / name) as file:
        tar.addfile(entry, file)


def _tar(fileobj: IO[bytes] | gzip.GzipFile, mode: str) -> tarfile.TarFile:
    """Names of any bytes come back as they were."""
    return tarfile.open(  # type: ignore[call-overload,no-any-return]
        fileobj=fileobj, mode=mode, format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape"
    )


def _free(old: Path, name: str) -> Path:
    """A run id may be given again; what it was the name of before stays."""
    archive, number = old / f"{name}.tar.gz", 1
    while os.path.lexists(archive):
        number += 1
        archive = old / f"{name}.{number}.tar.gz"
    return archive


def _entries(folder: Path, below: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Everything in a folder, by its path in it; sockets hold nothing, and links are not followed. Raises OSError."""
    with os.scandir(folder / below) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        info = entry.stat(follow_symlinks=False)
        if stat.S_ISSOCK(info.st_mode):
            continue
        yield below + entry.name, info
        if stat.S_ISDIR(info.st_mode):
            yield from _entries(folder, f"{below}{entry.name}/")


def _opened(path: Path) -> IO[bytes]:
    """A plain file, and not what a link that has taken its place leads to."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
