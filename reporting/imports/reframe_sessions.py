"""Reads ReFrame's sessions, each of which is one JSON document: a row of its results database, or a report file.

They are read one by one, so that the memory that it takes does not depend on how many there are, and so that ReFrame
can write to its database (SQLite, schema 1.0 of ReFrame 4.7 and later) between two of them.

Reports before 4.7 have other names for nearly everything. A session has no uuid there, and a job no time.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from platforms.job import BenchError
from platforms.results import field
from reporting.history.envelope_json import without_repetition
from reporting.imports.reframe import SETTINGS, PerformanceValue, ReframeCase, unix_seconds

MAGIC = b"SQLite format 3\0"
BUSY_TIMEOUT_S = 30.0
READ = "a report of ReFrame 3.12 to 4.10, or a database of 4.7 to 4.10"
RESULTS = {"success": "pass", "failure": "fail", "aborted": "abort", "skipped": "skip"}  # the words before 4.7
BEFORE_JSON = b"\xef\xbb\xbf\xfe\xff\0 \t\r\n"  # a mark of UTF-8 or UTF-16, and blanks


def is_database(path: Path) -> bool:
    """Whether a file is a database. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def is_report(path: Path) -> bool:
    """Whether a file is JSON: a report, or a list of them. Raises OSError."""
    with path.open("rb") as file:
        return path.suffix == ".json" or file.read(1 << 16).lstrip(BEFORE_JSON).startswith((b"{", b"["))


def read_report(path: Path, problems: list[str]) -> list[ReframeCase]:
    """The test cases of a report file, such as `run-report-17.json`.

    Args:
        problems: gets a sentence if it cannot be read, and for each metric with values that are no numbers.

    Raises:
        OSError: the file cannot be read.
    """
    return _cases(path, "", path.read_bytes(), problems)


def read_database(path: Path, problems: list[str]) -> Iterator[ReframeCase]:
    """The test cases of all sessions, in the order of the sessions.

    Args:
        problems: gets a sentence for each session that cannot be read, and for each metric with values that are no
            numbers.

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
                    yield from _cases(path, f": session {session}", row[0], problems)
    except sqlite3.Error as error:
        raise BenchError(
            f"{path}: this is no results database of ReFrame that can be read: {error} (if ReFrame writes to it now, "
            "or was killed while it did, copy it together with the files beside it, and import the copy)"
        ) from None


def _cases(path: Path, session: str, document: str | bytes, problems: list[str]) -> list[ReframeCase]:
    where = f"{path}{session}: this session is skipped"
    try:
        found = json.loads(document)
    except ValueError as error:
        problems.append(f"{where}: it is no whole JSON document: {error}")
        return []
    cases = []
    no_numbers: set[str] = set()
    for report in found if isinstance(found, list) else [found]:
        try:
            cases += _of_report(report, where, no_numbers)
        except ValueError as error:
            problems.append(str(error))
    problems += [f"{path}: values of {text}, which is no number, are skipped" for text in sorted(no_numbers)]
    return cases


def _of_report(report: object, where: str, no_numbers: set[str]) -> list[ReframeCase]:
    """The test cases of a session. Raises ValueError with a sentence."""
    of = functools.partial(field, report, where=where, tool=READ)
    is_old = "uuid" not in of("session_info", kind=dict)
    cases = []
    for run, _ in enumerate(of("runs", kind=list)):
        attempt = 1 + of("runs", run, "runid" if is_old else "run_index", kind=int)
        for number, _ in enumerate(of("runs", run, "testcases", kind=list)):
            entry = of("runs", run, "testcases", number, kind=dict)
            case = _case(entry, is_old, f"{where}: runs[{run}].testcases[{number}]", no_numbers)
            cases.append(replace(case, attempt=attempt, version=of("session_info").get("version")))
    if is_old:
        began_s, ended_s = (
            unix_seconds(of("session_info", f"time_{end}", kind=str), where) for end in ("start", "end")
        )
        return [replace(case, session=f"of-{began_s:.0f}", submitted_s=began_s, completed_s=ended_s) for case in cases]
    return [replace(case, session=of("session_info", "uuid", kind=str)) for case in cases]


def _case(entry: Mapping[str, Any], is_old: bool, where: str, no_numbers: set[str]) -> ReframeCase:
    """A test case. The names and words before 4.7 are old. Raises ValueError with a sentence."""
    of = functools.partial(field, entry, where=where, tool=READ)
    system, _, partition = of("system", kind=str).partition(":")
    result = of("result", kind=str)
    job_id = str(entry.get("jobid"))
    settings = of("check_vars", kind=dict) if is_old else entry
    return ReframeCase(
        check=without_repetition(of("display_name", kind=str)),
        system=system,
        partition=partition if is_old else of("partition", kind=str),
        environ=of("environment" if is_old else "environ", kind=str),
        result=RESULTS.get(result, result),
        values=tuple(_values(entry, of, no_numbers)),
        fail_phase=entry.get("fail_phase"),
        job_id=None if job_id == "None" else job_id,
        submitted_s=_number(entry.get("job_submit_time")),
        completed_s=_number(entry.get("job_completion_time_unix")),
        nodes=_text(entry.get("nodelist" if is_old else "job_nodelist") or ""),
        settings={name: _text(settings[name]) for name in SETTINGS if settings.get(name)},
    )


def _values(entry: Mapping[str, Any], of: Callable[..., Any], no_numbers: set[str]) -> Iterator[PerformanceValue]:
    """The metrics of a test case that have a number. Raises ValueError with a sentence."""
    for name, value, lower, upper, unit in _rows(entry, of):
        number = _number(value)
        if number is not None:
            yield PerformanceValue(name, str(unit or ""), number, _number(lower), _number(upper))
        elif value is not None:
            no_numbers.add(f"`{name}`, such as {json.dumps(value)}")


def _rows(entry: Mapping[str, Any], of: Callable[..., Any]) -> Iterator[list[Any]]:
    """Name, value, lower and upper bound, and unit of each metric. Raises ValueError with a sentence."""
    if entry.get("perfvars"):
        for at, _ in enumerate(of("perfvars", kind=list)):
            yield [of("perfvars", at, key) for key in ("name", "value", "thres_lower", "thres_upper", "unit")]
    elif entry.get("perfvalues"):
        for name in of("perfvalues", kind=dict):
            yield [name.rpartition(":")[2], *(of("perfvalues", name, at) for at in (0, 2, 3, 4))]


def _text(found: object) -> str:
    if isinstance(found, list):
        return ",".join(map(str, found))
    return str(found)


def _number(found: object) -> float | None:
    if isinstance(found, int | float) and not isinstance(found, bool):
        return float(found)
    return None
