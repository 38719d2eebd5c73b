"""`python -m reporting verify`: computes every cell of a bundle's tables again, without a network."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from platforms.job import RefusedError
from platforms.printable import printable
from platforms.rundir.job_json import suite_commit
from reporting.bundle import manifest
from reporting.bundle.verification import Verification, verify

SHOWN = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a bundle, as `python -m reporting bundle` writes it")
    parser.add_argument("--digest", metavar="sha256:…", help="the digest that was printed with the numbers")


def main(options: argparse.Namespace) -> int:
    """Say that the bundle is identical, or what differs. Returns 1 for a difference."""
    _refuse_what_is_no_file(options.file)
    if options.digest is not None:
        digits = options.digest.lower().removeprefix("sha256:")
        if len(digits) != 64 or set(digits) - set("0123456789abcdef"):
            raise RefusedError(f"--digest: {options.digest!r} is none: it is sha256: and 64 hexadecimal digits")
    try:
        found = verify(options.file, options.digest)
    except OSError as error:
        raise RefusedError(f"{options.file}: it cannot be read: {error.strerror or error}") from None
    if not found.findings:
        print(_said_of_identical(found))
        print(found.digest)
        if found.without_digest:
            print("no --digest was given: compare this one with the digest that was printed with the numbers")
        return 0
    for finding in found.findings[:SHOWN]:
        print(printable(f"{finding.file}: {finding.said}"))
    more = len(found.findings) - SHOWN
    if more > 0:
        print(f"and {more} more")
    count = len(found.findings)
    print(f"differs: {options.file} has {count} {'difference' if count == 1 else 'differences'}, as above")
    if found.commit not in (None, suite_commit()):
        print(printable(f"it was made at commit {found.commit}; another version may write a table in another way"))
    return 1


def _refuse_what_is_no_file(path: Path) -> None:
    """Raise RefusedError for what cannot be a bundle, and say what is typed instead."""
    if path.is_dir():
        unpacked = ""
        if (path / manifest.NAME).is_file():
            unpacked = f"; `cd {shlex.quote(str(path))} && sha256sum -c {manifest.NAME}` checks its unpacked files"
        raise RefusedError(
            f"{path}: this is a folder, and a bundle is one zip file (type the name of the file{unpacked})"
        )
    if not path.exists():
        raise RefusedError(
            f"{path}: there is no such file (python -m reporting bundle latest -o {shlex.quote(str(path))} writes one)"
        )
    if not path.is_file():
        raise RefusedError(f"{path}: this is no file, and a bundle is one zip file (type the name of the file)")


def _said_of_identical(found: Verification) -> str:
    parts = []
    if found.from_steps:
        parts.append(f"of {_jobs(found.from_steps)} from {found.step_rows} rows of raw values")
    if found.from_wire:
        parts.append(f"of {_jobs(found.from_wire)} from what was reported, without raw values")
    if found.from_record:
        parts.append(f"of {_jobs(found.from_record)} from the records alone")
    cells = f"{found.cells} cells of the tables recomputed"
    return f"identical: {found.files} files as in MANIFEST; {cells}, {', '.join(parts)}"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
