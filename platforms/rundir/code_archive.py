"""Packs models/, all of our code that a job needs, into one file that Python can run."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from platforms import atomic_file
from platforms.job import RefusedError

# A loader's worker imports this file again when it is spawned; the guard keeps it from training, too.
MAIN = b"""\
import runpy

if __name__ == "__main__":
    runpy.run_module("models.__main__", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Archive:
    """An archive. `code` is 12 hexadecimal digits of the hash of its members' names and contents."""

    path: Path
    code: str


def build(source: Path, folder: Path) -> Archive:
    """Write `models-<code>.pyz` into `folder`, unless it is there, from the package in the folder `source`.

    `python models-<code>.pyz …` runs it, also under torchrun. Processes that it starts by fork, forkserver or spawn
    find the package again. The same members give the same bytes on every machine: they are sorted, and have neither
    times nor compression (the output of zlib differs between its versions).

    Raises:
        RefusedError: `source` is not a package that can be run.
    """
    if not (source / "__main__.py").is_file():
        raise RefusedError(f"{source} has no __main__.py, so nothing can run from it: it must be the suite's models/")
    members = {"__main__.py": MAIN, **{name: path.read_bytes() for name, path in _members(source)}}
    digest = hashlib.sha256()
    for name in sorted(members):
        digest.update(f"{len(name)} {name} {len(members[name])} ".encode() + members[name])
    code = digest.hexdigest()[:12]
    path = folder / f"models-{code}.pyz"
    content = _zip(members)
    if not path.exists() or path.read_bytes() != content:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_file.write_bytes(path, content, sync=True)  # another session may build it now, a job may start from it
    else:
        os.utime(path)  # it is in use, so `prune` must not remove it yet
    return Archive(path, code)


def _members(source: Path) -> Iterator[tuple[str, Path]]:
    """The files of the package, without hidden files, editors' backups and compiled code (which depends on Python)."""
    for path in source.rglob("*"):
        parts = path.relative_to(source).parts
        hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
        if path.is_file() and not hidden and not path.name.endswith((".pyc", "~")):
            yield "/".join(("models", *parts)), path


def _zip(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name)  # its time is 1980-01-01
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, members[name])
    return buffer.getvalue()
