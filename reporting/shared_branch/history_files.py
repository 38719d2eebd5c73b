"""What a history and a branch have of each other: files that are missing, and lines that are missing at their ends.

A session's files grow while it lives, and are never changed afterwards. So of two files with one name one has all lines
of the other. Where that is not so, a person has edited one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from platforms import atomic_file
from reporting.history.writer import make_month

FOLDER = "history"  # in the branch
DETAILS = ".runs.jsonl"


@dataclass
class Brought:
    """What `bring` has done.

    Attributes:
        new: how many files were missing, or had fewer lines.
        differing: files that are not the same in both, by their paths below the history.
        problems: a sentence for each file that cannot be read.
    """

    new: int = 0
    differing: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def bring(source: Path, target: Path, *, details: bool) -> Brought:
    """Copy what one history has and the other one has not: whole files, as far as their lines are complete.

    Args:
        details: also the run.json's.

    Raises:
        OSError: it cannot be written.
    """
    brought = Brought()
    missing: dict[str, int] = {}  # bytes by name, since a large site's history does not fit into memory
    for path in _files(source, details=details):
        name = path.relative_to(source).as_posix()
        try:
            content = complete_lines(path)
            there = complete_lines(target / name)
        except OSError as error:
            brought.problems.append(f"{error.filename}: this file of the history cannot be read: {error.strerror}")
            continue
        if content.startswith(there) and content != there:
            missing[name] = len(content)
        elif not there.startswith(content):
            brought.differing.append(name)
    # The run.json's were measured last and are written first: no line refers to one that is not there yet. Nothing is
    # flushed: what a power failure leaves empty or short, the next command brings again.
    for name, size in reversed(missing.items()):
        make_month(target, name.partition("/")[0])
        mode = 0o200 | target.stat().st_mode & 0o444
        atomic_file.write_bytes(target / name, (source / name).read_bytes()[:size], mode=mode)
    brought.new = len(missing)
    return brought


def complete_lines(path: Path) -> bytes:
    """The complete lines of a file: its session may have been killed, or write now. A missing file has none."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return b""
    return content[: content.rfind(b"\n") + 1]


def _files(history: Path, *, details: bool) -> Iterator[Path]:
    """The files of a history, those with lines first."""
    every = [path for path in sorted(history.glob("[!.]*/[!.]*.jsonl")) if path.is_file()]
    yield from (path for path in every if not path.name.endswith(DETAILS))
    if details:
        yield from (path for path in every if path.name.endswith(DETAILS))
