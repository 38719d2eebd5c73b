"""Reads a job's log, a file that grows while it is read, and that a job may truncate or replace."""

from __future__ import annotations

from platforms.job import LogChanged

CHUNK = 1 << 20  # bytes read at once
KNOWN_BYTES = 256  # how many of the bytes read last are compared, to see whether it is still the same file


def last_bytes(known: bytes, chunk: bytes) -> bytes:
    """Return the last bytes of a log after one more chunk; `known` are those before it."""
    return (known + chunk[-KNOWN_BYTES:])[-KNOWN_BYTES:]


def new_bytes(found: bytes, known: bytes, path: str) -> bytes:
    """Return the bytes of `found` behind `known`. `found` are the file's bytes from where `known` was read.

    Raises:
        LogChanged: `found` does not begin with `known` any more.
    """
    if not found.startswith(known):
        raise LogChanged(
            f"{path} was truncated or replaced while its job wrote: the bytes that were read before are no longer there"
        )
    return found[len(known) :]


def gone(path: str) -> str:
    """Return the problem of a job that has run and whose log is missing at its end."""
    return f"{path} is gone: what its job printed last is lost"
