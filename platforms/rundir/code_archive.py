"""Packs models/, all of our code that a job needs, into one file that Python can run."""

from __future__ import annotations

import hashlib
import io
import os
import shlex
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from platforms import atomic_file, environ
from platforms.job import RefusedError

GIT_S = 60.0

# A loader's worker imports this file again when it is spawned; the guard keeps it from training, too.
MAIN = b"""\
import runpy

if __name__ == "__main__":
    runpy.run_module("models.__main__", run_name="__main__", alter_sys=True)
"""
# What `sh models-<code>.pyz …` runs; commits before it have none. A zip file may have anything before it.
NODE = "models/node.sh"


@dataclass(frozen=True)
class Archive:
    """An archive.

    `code` is 12 hexadecimal digits of the hash of its members' names and contents.
    """

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
    members = {}
    for path in source.rglob("*"):
        parts = path.relative_to(source).parts
        if path.is_file() and _is_code(parts):
            members["/".join(("models", *parts))] = path.read_bytes()
    return _write(members, folder)


def full_commit(clone: Path, name: str) -> str:
    """The 40 digits of a commit, a tag or a branch.

    Raises RefusedError where `clone` has none of this name.
    """
    _git(clone, "rev-parse", "--git-dir", why=f"{clone} is no git clone, so it has no other commits")
    unknown = f"{clone} has no commit {name!r}: `git -C {shlex.quote(str(clone))} fetch --all --tags` may bring it"
    if name.startswith("-"):  # git would take it for an option
        raise RefusedError(unknown)
    return _git(clone, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", why=unknown).decode().strip()


def build_from_commit(clone: Path, commit: str, folder: Path) -> Archive:
    """Write the archive of models/ as it was in a commit of this suite: the one that `build` wrote there and then.

    Raises:
        RefusedError: the commit has no models/ that can be run, or `clone` is no git clone.
    """
    lacks = f"commit {commit} has no models/__main__.py, so nothing can run from it: is it a commit of this suite?"
    packed = _git(clone, "archive", "--format=tar", commit, "models", why=lacks)
    members = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isfile() else None
            if file is not None and _is_code(Path(member.name).parts[1:]):
                members[member.name] = file.read()
    if "models/__main__.py" not in members:
        raise RefusedError(lacks)
    return _write(members, folder)


def _git(clone: Path, *words: str, why: str) -> bytes:
    """What git prints. Raises RefusedError with the sentence `why`, and what git says."""
    try:
        done = subprocess.run(
            ["git", "-C", str(clone), *words], env=environ.copied(), capture_output=True, timeout=GIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RefusedError(f"{why} ({error})") from None
    if done.returncode:
        errors = done.stderr.decode(errors="replace").strip()
        raise RefusedError(f"{why} ({errors})" if errors else why)
    return done.stdout


def _write(package: Mapping[str, bytes], folder: Path) -> Archive:
    members = {"__main__.py": MAIN, **package}
    digest = hashlib.sha256()
    for name in sorted(members):
        digest.update(f"{len(name)} {name} {len(members[name])} ".encode() + members[name])
    code = digest.hexdigest()[:12]
    path = folder / f"models-{code}.pyz"
    content = members.get(NODE, b"") + _zip(members)
    if not path.exists() or path.read_bytes() != content:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_file.write_bytes(path, content, sync=True)  # another session may build it now, a job may start from it
    else:
        os.utime(path)  # it is in use, so `prune` must not remove it yet
    return Archive(path, code)


def _is_code(parts: Sequence[str]) -> bool:
    """Whether a file of the package is no hidden file, no editor's backup and no compiled code (which depends on
    Python)."""
    hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
    return not hidden and not parts[-1].endswith((".pyc", "~"))


def _zip(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name)  # its time is 1980-01-01
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, members[name])
    return buffer.getvalue()
