"""Reads ReFrame's sessions, each of which is one JSON document: a row of its results database, or a report file.

They are read one by one, so that the memory that it takes does not depend on how many there are, and so that ReFrame
can write to its database (SQLite, schema 1.0 of ReFrame 4.7 and later) between two of them.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from platforms.job import BenchError
from reporting.imports.reframe import SETTINGS, PerformanceValue, ReframeCase

MAGIC = b"SQLite format 3\0"
BUSY_TIMEOUT_S = 30.0


def is_database(path: Path) -> bool:
    """Whether a file is a database. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def is_report(path: Path) -> bool:
    """Whether a file is JSON. Raises OSError."""
    with path.open("rb") as file:
        return file.read(1) == b"{"


def read_report(path: Path, problems: list[str]) -> list[ReframeCase]:
    """The test cases of a report file, such as `run-report-17.json`. Raises OSError."""
    return _cases(str(path), path.read_bytes(), problems)


def read_database(path: Path, problems: list[str]) -> Iterator[ReframeCase]:
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
                    yield from _cases(f"{path}: session {session}", row[0], problems)
    except sqlite3.Error as error:
        raise BenchError(
            f"{path}: this is no results database of ReFrame that can be read: {error} (if ReFrame writes to it now, "
            "or was killed while it did, copy it together with the files beside it, and import the copy)"
        ) from None


def _cases(where: str, document: str | bytes, problems: list[str]) -> list[ReframeCase]:
    try:
        report = json.loads(document)
        session = str(report["session_info"]["uuid"])
        version = report["session_info"].get("version")
        cases = []
        for run in report["runs"]:
            for entry in run["testcases"]:
                cases.append(_case(entry, session, int(run.get("run_index", 0)), version))
        return cases
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        problems.append(f"{where}: this session is skipped: {type(error).__name__}: {error}")
        return []


def _case(entry: Mapping[str, Any], session: str, run_index: int, version: str | None) -> ReframeCase:
    job_id = entry.get("jobid")
    return ReframeCase(
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
        nodes=_text(entry.get("job_nodelist") or ""),
        version=version,
        settings={name: _text(entry[name]) for name in SETTINGS if entry.get(name)},
    )


def _value(name: str, found: list[Any]) -> PerformanceValue:
    """From `"daint:gpu:triad": [value, reference, lower, upper, unit, …]`. The bounds are relative to the reference."""
    value, _, lower, upper, unit = found[:5]
    return PerformanceValue(name.rpartition(":")[2], str(unit or ""), *map(_number, (value, lower, upper)))


def _text(found: object) -> str:
    if isinstance(found, list):
        return ",".join(map(str, found))
    return str(found)


def _number(found: object) -> float | None:
    if isinstance(found, int | float):
        return float(found)
    return None
