"""Whole files over any transport, by its `run` alone: every login node has sh, cat and dd."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from platforms.job import AwayError, RefusedError
from platforms.transports import MissingFile, Transport

MINUTE_S = 60.0
SLOWEST = 1e6  # bytes/s: a transfer may take a minute longer than it needs at this speed
LARGE = 500e6  # bytes: assumed for a file of unknown size
INCOMPLETE = 75  # exit code of _PUT when fewer bytes arrived than were sent: the connection broke on the way

# $1 folder, $2 draft, $3 file, $4 size. mv would move the draft into a directory of the file's name.
_PUT = (
    "trap 'rm -f -- \"$2\"' EXIT; umask 022; "
    'if [ -d "$3" ]; then echo "$3: Is a directory" >&2; exit 1; fi; '
    'mkdir -p -- "$1" && cat > "$2" || exit 1; [ "$(wc -c < "$2")" -eq "$4" ] || exit $INCOMPLETE; '
    'chmod 644 -- "$2" && mv -f -- "$2" "$3"'
).replace("$INCOMPLETE", str(INCOMPLETE))


def put(transport: Transport, content: bytes, path: str) -> None:
    """Write or replace a file, mode 0644, whole or not at all; make the folders above it.

    Raises, beside what `run` raises:
        RefusedError: it cannot be written (disk full, not writable); with the system's message.
    """
    file = PurePosixPath(path)
    draft = file.parent / f".{file.name[:200]}.{secrets.token_hex(4)}"
    argv = ["sh", "-c", _PUT, "sh", str(file.parent), str(draft), str(file), str(len(content))]
    result = transport.run(argv, input=content, timeout_s=_limit_s(len(content)))
    if result.exit_code == INCOMPLETE:
        raise AwayError(f"{transport.where}: {path}: the connection broke on the way, nothing was written")
    if result.exit_code != 0:
        folder = shlex.quote(str(file.parent))
        look = transport.typed(f"df -h {folder}; ls -ld {folder}")
        raise RefusedError(f"{transport.where}: {path} cannot be written: {result.error_text} (look with: {look})")


def get(transport: Transport, path: str, offset: int = 0, limit: int | None = None) -> bytes:
    """Return the bytes of a file from `offset` on, at most `limit`; b"" at its end. It costs no more than these bytes.

    Raises, beside what `run` raises:
        MissingFile: there is no such file.
        RefusedError: it cannot be read; with the system's message.
    """
    argv = ["dd", f"if={path}", "bs=256K", "iflag=skip_bytes,count_bytes,fullblock", f"skip={offset}", "status=none"]
    if limit is not None:
        argv.append(f"count={limit}")
    size = LARGE if limit is None else limit
    result = transport.run(argv, timeout_s=_limit_s(size))
    if result.exit_code == 0:
        return result.stdout
    if b"No such file or directory" in result.stderr:
        raise MissingFile(f"{transport.where}: {path}: there is no such file")
    raise RefusedError(f"{transport.where}: {path} cannot be read: {result.error_text}")


def existing(transport: Transport, paths: Sequence[str]) -> list[str]:
    """Return those of the paths that exist, by one command."""
    if not paths:
        return []
    script = 'for path; do [ ! -e "$path" ] || printf "%s\\n" "$path"; done'
    result = transport.run(["sh", "-c", script, "sh", *paths], timeout_s=MINUTE_S)
    printed = set(result.stdout.decode(errors="surrogateescape").splitlines())
    return [path for path in paths if path in printed]


def _limit_s(size: float) -> float:
    return MINUTE_S + size / SLOWEST
