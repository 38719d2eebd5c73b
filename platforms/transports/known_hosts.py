"""Reads known_hosts as OpenSSH does.

paramiko's own reader fails at `@cert-authority`, and keeps only one key of each kind for a host.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry, HostKeys


@dataclass(frozen=True)
class HostKey:
    """One key of a host in a file. A server that shows a `revoked` key must not be trusted."""

    key: paramiko.PKey
    file: Path
    revoked: bool


def keys_of_host(host: str, files: Sequence[Path]) -> list[HostKey]:
    """Return every key of a host, named as in the files: `archer2.ac.uk`, `[127.0.0.1]:2222`.

    Files and lines that cannot be read are skipped.
    """
    return [key for file in files for key in _read(host, file)]


def algorithms(known: Sequence[HostKey], offered: Sequence[str]) -> list[str]:
    """Return host key algorithms in the order to ask for, so that a server with several keys shows one that we know."""
    kinds = {host_key.key.get_name() for host_key in known if not host_key.revoked}
    if "ssh-rsa" in kinds:
        kinds.update({"rsa-sha2-512", "rsa-sha2-256"})
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
        if not _matches(host, words[0].split(",")):
            continue
        key = _key(words)
        if key is not None:
            yield HostKey(key, file, revoked=marker == "@revoked")


def _key(words: Sequence[str]) -> paramiko.PKey | None:
    try:
        entry = HostKeyEntry.from_line(" ".join(words[:3]))
    except (paramiko.SSHException, ValueError):
        return None
    return entry.key if entry else None


def _matches(host: str, patterns: Sequence[str]) -> bool:
    """Match by name, by `*` and `?`, or by hash; `!name` excludes a host."""
    matched = False
    for pattern in patterns:
        if pattern.startswith("!") and _is(host, pattern[1:]):
            return False
        matched = matched or _is(host, pattern)
    return matched


def _is(host: str, pattern: str) -> bool:
    if pattern.startswith("|1|"):
        try:
            return bool(HostKeys.hash_host(host, pattern) == pattern)
        except (ValueError, AssertionError, IndexError):
            return False
    plain = pattern.lower().replace("[", "[[]")  # in known_hosts brackets stand for themselves
    return fnmatch.fnmatchcase(host, plain)
