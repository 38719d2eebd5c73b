"""Locks on files, so that only one command at a time works on a folder. The kernel releases those of a dead process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from platforms.job import BenchError, RefusedError

# The errors of a file system without locks, such as NFS without its lock daemon. Commands work there all the same.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
LOCKED_BY_OTHER = (errno.EAGAIN, errno.EACCES)


class Taken(BenchError):
    """Another process holds the lock; the message says which: `process 17 on login1`."""


@contextlib.contextmanager
def held(path: Path) -> Iterator[str]:
    """Hold the lock of a file, which is created if it is missing and stays.

    Yields:
        Why there is no lock in this file system; empty if there is one.

    Raises:
        Taken: another process holds it.
        RefusedError: the kernel does not say whether it is held.
        OSError: the file cannot be created.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        why_no_lock = _lock(descriptor, path)
        if not why_no_lock:
            _write_holder(descriptor)
        yield why_no_lock
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> str:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return f"{path.parent} is in a file system without locks ({error.strerror})"
        if error.errno in LOCKED_BY_OTHER:
            raise Taken(_read_holder(descriptor)) from None
        raise RefusedError(
            f"{path}: the kernel does not say whether another process works there: {error.strerror}"
        ) from None
    return ""


def _write_holder(descriptor: int) -> None:
    """Write into the file who holds its lock. A full disk is no reason to stop."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)


def _read_holder(descriptor: int) -> str:
    """Who holds the lock.

    The holder may have taken it a moment ago, and not have written that yet.
    """
    holder = ""
    with contextlib.suppress(OSError):
        content = os.pread(descriptor, 200, 0).decode(errors="replace")
        holder = content.partition("\n")[0].strip()
    return holder or "another process"
