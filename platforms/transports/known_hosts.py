"""known_hosts as OpenSSH reads it: paramiko's reader fails at `@cert-authority` and keeps one key of a kind a host."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry, HostKeys


@dataclass(frozen=True)
class HostKey:
    """One key that a file has for a host. `revoked`: a server that shows it must not be trusted."""

    key: paramiko.PKey
    file: Path
    revoked: bool


def keys_of_host(host: str, files: Sequence[Path]) -> list[HostKey]:
    """Every key that the files have for a host, named as there: `archer2.ac.uk`, `[127.0.0.1]:2222`.

    A file that is not there or cannot be read has none, and a line that nobody can read is no key.
    """
    return [known for file in files for known in _read(host, file)]


def algorithms(known: Sequence[HostKey], offered: Sequence[str]) -> list[str]:
    """Host key algorithms in the order to ask for: a server with several keys shall show one that we know."""
    kinds = {one.key.get_name() for one in known if not one.revoked}
    kinds |= {"rsa-sha2-512", "rsa-sha2-256"} if "ssh-rsa" in kinds else set()
    return sorted(offered, key=lambda name: name not in kinds)


def _read(host: str, file: Path) -> Iterator[HostKey]:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if marker not in ("", "@revoked") or len(words) < 3 or words[0].startswith("#"):
            continue
        if _matches(host, words[0].split(",")) and (key := _key(words)):
            yield HostKey(key, file, marker == "@revoked")


def _key(words: Sequence[str]) -> paramiko.PKey | None:
    try:
        entry = HostKeyEntry.from_line(" ".join(words[:3]))
    except (paramiko.SSHException, ValueError):
        return None
    return entry.key if entry else None


def _matches(host: str, patterns: Sequence[str]) -> bool:
    """By name, by `*` and `?`, or by hash; `!name` takes one out."""
    found = False
    for pattern in patterns:
        if pattern.startswith("!") and _is(host, pattern[1:]):
            return False
        found = found or _is(host, pattern)
    return found


def _is(host: str, pattern: str) -> bool:
    if pattern.startswith("|1|"):
        try:
            return bool(HostKeys.hash_host(host, pattern) == pattern)
        except (ValueError, AssertionError, IndexError):
            return False
    plain = pattern.lower().replace("[", "[[]")  # brackets stand for themselves there
    return fnmatch.fnmatchcase(host, plain)
