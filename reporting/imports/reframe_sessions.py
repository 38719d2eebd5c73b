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
from collections.abc import Callable, Iterable, Iterator, Mapping
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

Of = Callable[..., Any]  # reads one value by its path, or says in a ValueError what is there
Skipped = dict[str, list[object]]  # by metric, values that are no numbers

_REPORT = re.compile(rb"[\xef\xbb\xbf\xfe\xff\0\s]*(\[[\0\s]*)?\{")  # a mark of UTF-8 or UTF-16 may come first


def is_database(path: Path) -> bool:
    """Whether a file is a database. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def is_report(path: Path) -> bool:
    """Whether a file is JSON: a report, or a list of them. Raises OSError."""
    with path.open("rb") as file:
        return _REPORT.match(file.read(1 << 16)) is not None


def read_report(path: Path, problems: list[str]) -> list[ReframeCase]:
    """The test cases of a report file, such as `run-report-17.json`.

    Args:
        problems: gets a sentence if it cannot be read, and for each metric with values that are no numbers.

    Raises:
        OSError: the file cannot be read.
    """
    skipped: Skipped = {}
    cases = _cases(str(path), path.read_bytes(), problems, skipped)
    problems += _sentences(path, skipped)
    return cases


def read_database(path: Path, problems: list[str]) -> Iterator[ReframeCase]:
    """The test cases of all sessions, in the order of the sessions.

    Args:
        problems: gets a sentence for each session that cannot be read, and for each metric with values that are no
            numbers.

    Raises:
        BenchError: the file cannot be read, or holds no results of ReFrame.
    """
    skipped: Skipped = {}
    address = f"{path.resolve().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S)) as database:
            sessions = database.execute("SELECT uuid FROM sessions ORDER BY session_start_unix, uuid").fetchall()
            for (session,) in sessions:
                row = database.execute("SELECT json_blob FROM sessions WHERE uuid = ?", (session,)).fetchone()
                if row is not None:  # else ReFrame has deleted it meanwhile
                    yield from _cases(f"{path}: session {session}", row[0], problems, skipped)
    except sqlite3.Error as error:
        raise BenchError(
            f"{path}: this is no results database of ReFrame that can be read: {error} (if ReFrame writes to it now, "
            "or was killed while it did, copy it together with the files beside it, and import the copy)"
        ) from None
    problems += _sentences(path, skipped)


def _cases(where: str, document: str | bytes, problems: list[str], skipped: Skipped) -> list[ReframeCase]:
    where = f"{where}: this session is skipped"
    try:
        found = json.loads(document)
    except ValueError as error:
        problems.append(f"{where}: it is no whole JSON document: {error}")
        return []
    cases = []
    for report in found if isinstance(found, list) else [found]:
        try:
            cases += _of_report(report, where, skipped)
        except ValueError as error:
            problems.append(str(error))
    return cases


def _of_report(report: object, where: str, skipped: Skipped) -> list[ReframeCase]:
    """The test cases of a session. Raises ValueError with a sentence."""
    of = functools.partial(field, report, where=where, tool=READ)
    info = of("session_info", kind=dict)
    session = began_s = ended_s = None
    if "uuid" in info:
        session = str(info["uuid"])
    else:
        began_s, ended_s = (_seconds(of("session_info", key, kind=str), where) for key in ("time_start", "time_end"))
    cases = []
    for index, run in enumerate(of("runs", kind=list)):
        attempt = 1 + int(_number(run.get("run_index", run.get("runid"))) or 0) if isinstance(run, dict) else 1
        for number, _ in enumerate(of("runs", index, "testcases", kind=list)):
            entry = of("runs", index, "testcases", number, kind=dict)
            at = f"{where}: runs[{index}].testcases[{number}]"
            found = functools.partial(field, entry, where=at, tool=READ)
            case = _case(found, skipped) if session is not None else _old_case(found, skipped)
            cases.append(
                replace(
                    case,
                    session=session or f"of-{began_s:.0f}",
                    attempt=attempt,
                    submitted_s=case.submitted_s if began_s is None else began_s,
                    completed_s=case.completed_s if ended_s is None else ended_s,
                    version=info.get("version"),
                )
            )
    return cases


def _case(of: Of, skipped: Skipped) -> ReframeCase:
    """A test case of ReFrame 4.7 or later. Raises ValueError with a sentence."""
    entry = of(kind=dict)
    values = [(name, *(of("perfvalues", name, at) for at in (0, 2, 3, 4))) for name in _given(of, "perfvalues", dict)]
    return ReframeCase(
        check=without_repetition(str(of("name"))),
        system=str(of("system")),
        partition=str(of("partition")),
        environ=str(of("environ")),
        result=str(of("result")),
        values=_values(values, skipped),
        fail_phase=entry.get("fail_phase"),
        job_id=_job_id(entry),
        submitted_s=_number(entry.get("job_submit_time")),
        completed_s=_number(entry.get("job_completion_time_unix")),
        nodes=_text(entry.get("job_nodelist") or ""),
        settings={name: _text(entry[name]) for name in SETTINGS if entry.get(name)},
    )


def _old_case(of: Of, skipped: Skipped) -> ReframeCase:
    """A test case of a report before 4.7, without the times of its job. Raises ValueError with a sentence."""
    entry = of(kind=dict)
    system, _, partition = of("system", kind=str).partition(":")
    result = str(of("result"))
    keys = ("name", "value", "thres_lower", "thres_upper", "unit")
    values = [tuple(of("perfvars", at, key) for key in keys) for at, _ in enumerate(_given(of, "perfvars", list))]
    settings = _given(of, "check_vars", dict)
    return ReframeCase(
        check=without_repetition(str(entry.get("display_name") or of("name"))),
        system=system,
        partition=partition,
        environ=str(of("environment")),
        result=RESULTS.get(result, result),
        values=_values(values, skipped),
        fail_phase=entry.get("fail_phase"),
        job_id=_job_id(entry),
        nodes=_text(entry.get("nodelist") or ""),
        settings={name: _text(settings[name]) for name in SETTINGS if settings.get(name)},
    )


def _given(of: Of, key: str, kind: type) -> Any:
    """What a key that may be missing or null has; else nothing. Raises ValueError with a sentence."""
    return of(key, kind=kind) if of(kind=dict).get(key) else kind()


def _values(found: Iterable[tuple[Any, ...]], skipped: Skipped) -> tuple[PerformanceValue, ...]:
    """From (`daint:gpu:triad`, value, lower, upper, unit). The bounds are relative to the reference."""
    values = []
    for name, value, lower, upper, unit in found:
        metric = str(name).rpartition(":")[2]
        if value is None or _number(value) is not None:
            values.append(PerformanceValue(metric, str(unit or ""), *map(_number, (value, lower, upper))))
        else:
            skipped.setdefault(metric, []).append(value)
    return tuple(values)


def _job_id(entry: Mapping[str, Any]) -> str | None:
    found = entry.get("jobid")
    return None if found in (None, "None") else str(found)


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


def _sentences(where: Path, skipped: Skipped) -> list[str]:
    return [
        f"{where}: {json.dumps(values[0])} is no number; values of `{metric}` that are skipped: {len(values)}"
        for metric, values in skipped.items()
    ]
