"""Locks that people's commands take on a file, so that one is at work at a time; the kernel lets go of a dead one's."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from platforms.job import BenchError, RefusedError

# What a file system says that knows no locks, as NFS without its lock daemon; it is no reason not to work.
NONE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_HELD = (errno.EAGAIN, errno.EACCES)


class Taken(BenchError):
    """Another process holds the lock; the message says which: `process 17 on login1`."""


@contextlib.contextmanager
def held(path: Path) -> Iterator[str]:
    """Hold the lock of a file, which is made where it is missing and stays. Yields why there is no lock to be had in
    this file system, empty where there is one.

    Raises:
        Taken: by another process.
        RefusedError: the kernel cannot tell.
        OSError: the file cannot be made.
    """
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        none = _lock(file, path)
        if not none:
            _sign(file)
        yield none
    finally:
        os.close(file)


def _lock(file: int, path: Path) -> str:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in NONE:
            return f"{path.parent} is in a file system without locks ({error.strerror})"
        if error.errno in _HELD:
            raise Taken(_holder(file)) from None
        raise RefusedError(f"{path}: whether somebody else is at work there cannot be told: {error.strerror}") from None
    return ""


def _sign(file: int) -> None:
    """A full disk keeps nobody from work."""
    with contextlib.suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)


def _holder(file: int) -> str:
    """As it has signed; a moment ago it may not have."""
    with contextlib.suppress(OSError):
        if words := os.pread(file, 200, 0).decode(errors="replace").partition("\n")[0].strip():
            return words
    return "another process"
