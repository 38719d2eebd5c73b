"""Reads ReFrame's files of every kind, in the order in which they are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from reporting.imports.reframe import ReframeCase
from reporting.imports.reframe_perflog import read_perflog
from reporting.imports.reframe_sessions import is_database, is_report, read_database, read_report

PATTERNS = ("*.log", "*.log.h*", "*.json")  # `.h0`: ReFrame sets a perflog aside when its columns change


def read_files(paths: Sequence[Path], problems: list[str]) -> Iterator[ReframeCase]:
    """The test cases of databases, report files, perflogs, and folders of the last two.

    Args:
        problems: gets a sentence for each part that is skipped, with its file and line.

    Raises:
        BenchError, OSError: a file cannot be read.
    """
    for path in paths:
        for file in _files(path, problems):
            if is_database(file):
                yield from read_database(file, problems)
            elif is_report(file):
                yield from read_report(file, problems)
            else:
                yield from read_perflog(file, problems)


def _files(path: Path, problems: list[str]) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for pattern in PATTERNS for file in path.rglob(pattern))
    if not found:
        problems.append(f"{path}: this folder has no perflog (*.log) and no report (*.json)")
    return found
