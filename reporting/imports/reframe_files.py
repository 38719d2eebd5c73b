"""Reads ReFrame's files of every kind, in the order in which they are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from reporting.imports.reframe import TestCase
from reporting.imports.reframe_database import is_database, read_database
from reporting.imports.reframe_perflog import perflogs_in, read_perflog


def read_files(paths: Sequence[Path], problems: list[str]) -> Iterator[TestCase]:
    """The test cases of databases, perflogs, and folders of perflogs.

    Args:
        problems: gets a sentence for each part that is skipped, with its file and line.

    Raises:
        BenchError, OSError: a file cannot be read.
    """
    for path in paths:
        if path.is_file() and is_database(path):
            yield from read_database(path, problems)
            continue
        perflogs = perflogs_in(path)
        if not perflogs:
            problems.append(f"{path}: this folder has no perflog (*.log)")
        for perflog in perflogs:
            yield from read_perflog(perflog, problems)
