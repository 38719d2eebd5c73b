"""Reads ReFrame's sessions, each of which is one JSON document: a row of its results database, or a report file.

They are read one by one, so that the memory that it takes does not depend on how many there are, and so that ReFrame
can write to its database (SQLite, schema 1.0 of ReFrame 4.7 and later) between two of them.

Reports before 4.7 have other names for nearly everything. A session has no uuid there, and a job no time.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from platforms.job import BenchError
from platforms.results import field
from reporting.history.envelope_json import without_repetition
from reporting.imports.reframe import SETTINGS, PerformanceValue, ReframeCase

MAGIC = b"SQLite format 3\0"
BUSY_TIMEOUT_S = 30.0
READ = "a report of ReFrame 3.2 to 4.10, or a database of 4.7 to 4.10"
RESULTS = {"success": "pass", "failure": "fail", "aborted": "abort", "skipped": "skip"}  # the words before 4.7

_REPORT = re.compile(rb"[\xef\xbb\xbf\xfe\xff\0\s]*(\[[\0\s]*)?\{")  # a mark of UTF-8 or UTF-16 may come first


def is_database(path: Path) -> bool:
    """Whether a file is a database. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def is_report(path: Path) -> bool:
    """Whether a file is JSON: a report, or a list of them. Raises OSError."""
    with path.open("rb") as file:
        return path.suffix == ".json" or _REPORT.match(file.read(1 << 16)) is not None


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
    info = of("session_info", kind=dict)
    began_s = ended_s = None
    run_number = "run_index" if "uuid" in info else "runid"
    if "uuid" not in info:
        began_s, ended_s = (_seconds(of("session_info", key, kind=str), where) for key in ("time_start", "time_end"))
    session = of("session_info", "uuid", kind=str) if began_s is None else f"of-{began_s:.0f}"
    cases = []
    for index, _ in enumerate(of("runs", kind=list)):
        run = of("runs", index, kind=dict)
        attempt = 1 + (of("runs", index, run_number, kind=int) if run_number in run else 0)
        for number, _ in enumerate(of("runs", index, "testcases", kind=list)):
            entry = of("runs", index, "testcases", number, kind=dict)
            at = f"{where}: runs[{index}].testcases[{number}]"
            if began_s is not None:
                entry = {**_renamed(entry, at), "job_submit_time": began_s, "job_completion_time_unix": ended_s}
            case = _case(entry, at, no_numbers)
            cases.append(replace(case, session=session, attempt=attempt, version=info.get("version")))
    return cases


def _case(entry: Mapping[str, Any], where: str, no_numbers: set[str]) -> ReframeCase:
    """A test case by the names of ReFrame 4.7 and later. Raises ValueError with a sentence."""
    of = functools.partial(field, entry, where=where, tool=READ)
    values = []
    for name in of("perfvalues", kind=dict) if entry.get("perfvalues") else ():
        value, lower, upper, unit = (of("perfvalues", name, at) for at in (0, 2, 3, 4))
        metric = name.rpartition(":")[2]
        if value is None or _number(value) is not None:
            values.append(PerformanceValue(metric, str(unit or ""), *map(_number, (value, lower, upper))))
        else:
            no_numbers.add(f"`{metric}`, such as {json.dumps(value)}")
    job_id = entry.get("jobid")
    return ReframeCase(
        check=without_repetition(str(of("name"))),
        system=str(of("system")),
        partition=str(of("partition")),
        environ=str(of("environ")),
        result=str(of("result")),
        values=tuple(values),
        fail_phase=entry.get("fail_phase"),
        job_id=None if job_id is None else str(job_id),
        submitted_s=_number(entry.get("job_submit_time")),
        completed_s=_number(entry.get("job_completion_time_unix")),
        nodes=_text(entry.get("job_nodelist") or ""),
        settings={name: _text(entry[name]) for name in SETTINGS if entry.get(name)},
    )


def _renamed(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A test case of a report before 4.7 by the later names. Raises ValueError with a sentence."""
    of = functools.partial(field, entry, where=where, tool=READ)
    system, _, partition = of("system", kind=str).partition(":")
    keys = ("value", "reference", "thres_lower", "thres_upper", "unit")
    metrics = range(len(of("perfvars", kind=list) if entry.get("perfvars") else ()))
    return {
        **(of("check_vars", kind=dict) if entry.get("check_vars") else {}),
        "name": entry.get("display_name") or of("name"),
        "system": system,
        "partition": partition,
        "environ": of("environment"),
        "result": RESULTS.get(str(of("result")), of("result")),
        "perfvalues": {of("perfvars", at, "name"): [of("perfvars", at, key) for key in keys] for at in metrics},
        "fail_phase": entry.get("fail_phase"),
        "jobid": None if entry.get("jobid") == "None" else entry.get("jobid"),
        "job_nodelist": entry.get("nodelist"),
    }


def _seconds(text: str, where: str) -> float:
    """Unix seconds. Raises ValueError with a sentence."""
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ValueError(f"{where}: {text!r} is no time like 2026-01-31T22:00:00+0100. Read is {READ}") from None


def _text(found: object) -> str:
    if isinstance(found, list):
        return ",".join(map(str, found))
    return str(found)


def _number(found: object) -> float | None:
    if isinstance(found, int | float) and not isinstance(found, bool):
        return float(found)
    return None
