"""Reads the database in which ReFrame stores its results (SQLite, schema 1.0 of ReFrame 4.7 and later).

A session is one row with one JSON document. They are read one by one, so that the memory that it takes does not depend
on how many there are, and so that ReFrame can write between two of them.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from platforms.job import BenchError
from reporting.imports.reframe import SETTINGS, PerformanceValue, TestCase

MAGIC = b"SQLite format 3\0"
BUSY_TIMEOUT_S = 30.0


def is_database(path: Path) -> bool:
    """Whether a file is a database. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_database(path: Path, problems: list[str]) -> Iterator[TestCase]:
    """The test cases of all sessions, in the order of the sessions.

    Args:
        problems: gets a sentence for each session that cannot be read.

    Raises:
        BenchError: the file cannot be read, or holds no results of ReFrame.
    """
    address = f"{path.resolve().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S)) as database:
            sessions = database.execute("SELECT uuid FROM sessions ORDER BY session_start_unix, uuid").fetchall()
            for (session,) in sessions:
                row = database.execute("SELECT json_blob FROM sessions WHERE uuid = ?", (session,)).fetchone()
                if row is not None:  # else ReFrame has deleted it meanwhile
                    yield from _cases(path, str(session), row[0], problems)
    except sqlite3.Error as error:
        raise BenchError(
            f"{path}: this is no results database of ReFrame that can be read: {error} (if ReFrame writes to it now, "
            "or was killed while it did, copy it together with the files beside it, and import the copy)"
        ) from None


def _cases(path: Path, session: str, blob: str | bytes, problems: list[str]) -> list[TestCase]:
    try:
        report = json.loads(blob)
        version = report["session_info"].get("version")
        cases = []
        for run in report["runs"]:
            for entry in run["testcases"]:
                cases.append(_case(entry, session, int(run.get("run_index", 0)), version))
        return cases
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        problems.append(f"{path}: session {session}: it is skipped: {type(error).__name__}: {error}")
        return []


def _case(entry: Mapping[str, Any], session: str, run_index: int, version: str | None) -> TestCase:
    job_id = entry.get("jobid")
    return TestCase(
        check=str(entry["name"]),
        system=str(entry["system"]),
        partition=str(entry["partition"]),
        environ=str(entry["environ"]),
        result=str(entry["result"]),
        values=tuple(_value(name, found) for name, found in (entry.get("perfvalues") or {}).items()),
        fail_phase=entry.get("fail_phase"),
        session=session,
        attempt=run_index + 1,
        job_id=None if job_id is None else str(job_id),
        submitted_s=_number(entry.get("job_submit_time")),
        completed_s=_number(entry.get("job_completion_time_unix")),
        nodes=tuple(entry.get("job_nodelist") or ()),
        version=version,
        settings={name: _text(entry[name]) for name in SETTINGS if entry.get(name)},
    )


def _value(name: str, found: list[Any]) -> PerformanceValue:
    """From `"daint:gpu:triad": [value, reference, lower, upper, unit, …]`. The bounds are relative to the reference."""
    value, _, lower, upper, unit = found[:5]
    return PerformanceValue(name.rpartition(":")[2], str(unit or ""), *map(_number, (value, lower, upper)))


def _text(found: object) -> str:
    return ",".join(map(str, found)) if isinstance(found, list) else str(found)


def _number(found: object) -> float | None:
    return float(found) if isinstance(found, int | float) else None
