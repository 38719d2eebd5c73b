"""Whole files over any transport, by its `run` alone: sh, cat and dd are everywhere where a job script runs."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Protocol

from platforms.job import AwayError, RefusedError
from platforms.transports import CommandResult, MissingFile

MINUTE_S = 60.0
SLOWEST = 1e6  # bytes/s: a transfer may take a minute and what it needs at this speed
LARGE = 500e6  # bytes: what a file is taken for whose size nobody knows
INCOMPLETE = 75  # exit code of _PUT when fewer bytes arrived than were sent: the connection broke on the way

# $1 folder, $2 draft, $3 file, $4 size. mv would move the draft into a directory of the file's name.
_PUT = (
    "trap 'rm -f -- \"$2\"' EXIT; umask 022; "
    'if [ -d "$3" ]; then echo "$3: Is a directory" >&2; exit 1; fi; '
    'mkdir -p -- "$1" && cat > "$2" || exit 1; [ "$(wc -c < "$2")" -eq "$4" ] || exit $INCOMPLETE; '
    'chmod 644 -- "$2" && mv -f -- "$2" "$3"'
).replace("$INCOMPLETE", str(INCOMPLETE))


class Shell(Protocol):
    """What of a transport files need."""

    where: str

    def run(self, argv: Sequence[str], *, input: bytes = b"", timeout_s: float = 60.0) -> CommandResult: ...  # noqa: A002
    def typed(self, command: str) -> str: ...


def put(shell: Shell, content: bytes, path: str) -> None:
    """`Transport.put`: a draft beside the file, its size checked, then renamed."""
    file = PurePosixPath(path)
    draft = file.parent / f".{file.name[:200]}.{secrets.token_hex(4)}"
    argv = ["sh", "-c", _PUT, "sh", str(file.parent), str(draft), str(file), str(len(content))]
    done = shell.run(argv, input=content, timeout_s=_limit_s(len(content)))
    if done.exit_code == INCOMPLETE:
        raise AwayError(f"{shell.where}: {path}: lost on the way there, nothing was written")
    if done.exit_code != 0:
        folder = shlex.quote(str(file.parent))
        look = shell.typed(f"df -h {folder}; ls -ld {folder}")
        raise RefusedError(f"{shell.where}: {path} cannot be written: {_words(done)} (look with: {look})")


def get(shell: Shell, path: str, offset: int, limit: int | None) -> bytes:
    """`Transport.get`; dd seeks, so the cost of a call is that of what it returns."""
    argv = ["dd", f"if={path}", "bs=256K", "iflag=skip_bytes,count_bytes,fullblock", f"skip={offset}", "status=none"]
    argv += [] if limit is None else [f"count={limit}"]
    done = shell.run(argv, timeout_s=_limit_s(LARGE if limit is None else limit))
    if done.exit_code == 0:
        return done.stdout
    if b"No such file or directory" in done.stderr:
        raise MissingFile(f"{shell.where}: {path}: there is no such file")
    raise RefusedError(f"{shell.where}: {path} cannot be read: {_words(done)}")


def existing(shell: Shell, paths: Sequence[str]) -> list[str]:
    """`Transport.existing`, by one command."""
    if not paths:
        return []
    script = 'for path; do [ ! -e "$path" ] || printf "%s\\n" "$path"; done'
    done = shell.run(["sh", "-c", script, "sh", *paths], timeout_s=MINUTE_S)
    found = set(done.stdout.decode(errors="surrogateescape").splitlines())
    return [path for path in paths if path in found]


def _limit_s(size: float) -> float:
    return MINUTE_S + size / SLOWEST


def _words(done: CommandResult) -> str:
    words = done.stderr.decode(errors="replace").strip()
    return words.replace("\n", "; ") or f"exit code {done.exit_code}"
