"""A job's log as a file, which grows while it is read, and may be truncated or replaced under its reader."""

from __future__ import annotations

from platforms.job import LogChanged

CHUNK = 1 << 20  # bytes read at once
KNOWN_BYTES = 256  # of what was read last, to see whether it is still the same file


def last_bytes(known: bytes, chunk: bytes) -> bytes:
    """What is known of a log after one more chunk of it."""
    return (known + chunk[-KNOWN_BYTES:])[-KNOWN_BYTES:]


def new_bytes(found: bytes, known: bytes, path: str) -> bytes:
    """What stands behind `known` in `found`, the bytes of the file from where those were read.

    Raises:
        LogChanged: they are not there any more.
    """
    if not found.startswith(known):
        raise LogChanged(f"{path} was truncated or replaced while its job wrote: what was read of it is not there now")
    return found[len(known) :]


def gone(path: str) -> str:
    """The problem of a job that has run, and whose log is not there at its end."""
    return f"{path} is gone: what its job printed last is lost"
