"""Reads the history: the envelopes of all sessions, and the run.json's that they refer to.

Sessions may write meanwhile. Files are read one after the other, and one line at a time.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import json
import os
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from platforms.job import RefusedError
from platforms.printable import printable
from reporting.history import one_device, same_values
from reporting.history.envelope import ALL_WINDOWS, Envelope, Key, Revision
from reporting.history.envelope_json import from_line, ids_in_lines, job_of, job_that_ended, may_be_of, visit_like
from reporting.history.run_facts import THROUGHPUT, beside_of, metrics_of

WHAT_TO_DO = " (copy the file again from a backup, or delete this line)"
CLOCKS_DIFFER_S = 86400.0  # at most, those of machines that write one history
MONTH_S = 30 * 86400.0
LONGEST_START = 1000  # of a line: test, schema and site
ONLY_FASTEST = "only its fastest stretch is known"
_BUFFER = 1 << 16  # a session's file is read in one go


def read(
    folder: Path, tests: Collection[str] | None = None, problems: list[str] | None = None, *, visits: bool = True
) -> list[Envelope]:
    """The envelopes of the history in the order in which their jobs started, only the last one of each key.

    Args:
        folder: of the history. One that does not exist is empty.
        tests: ids, or `test_x.py::test_x[` for all cases of one; None stands for all tests. Lines of other tests are
            not parsed, so that this is much quicker.
        problems: gets a sentence for each file that cannot be read, or that has lines which cannot. A file's last line
            without an end is no problem: its session was killed, or is writing it now.
        visits: False leaves visits to nodes out. Of those in one file that are alike (`visit_like`) the first one is
            read, since it tells which devices a test has had. In a large fleet they are nearly all lines.
    """
    if problems is None:
        problems = []
    ids = None if tests is None else ids_in_lines(tests)
    latest: dict[Key, Envelope] = {}
    with _garbage_collector_paused():
        for path in _files(folder, problems):
            for envelope in _envelopes(path, ids, problems, visits=visits):
                test = envelope.key.test
                if tests is not None and test not in tests and same_values.function(test) not in tests:
                    continue
                earlier = latest.get(envelope.key)
                if earlier is None or _rank(envelope) >= _rank(earlier):
                    latest[envelope.key] = envelope
        found = [_with_all_windows(folder, envelope) for envelope in latest.values()]
    return one_device.joined(same_values.joined(sorted(found, key=_order)))


def _with_all_windows(folder: Path, envelope: Envelope) -> Envelope:
    """An envelope whose throughput is that of all windows; of an older line it is computed from its run.json.

    One whose run.json is lost keeps the throughput of its fastest stretch, which cannot be compared with the others.
    """
    if envelope.statistic or envelope.run is None or THROUGHPUT not in envelope.metrics:
        return envelope
    try:
        run_json = run_of(folder, envelope)
        metrics = {**envelope.metrics, THROUGHPUT: metrics_of(run_json)[THROUGHPUT]}
        return replace(envelope, metrics=metrics, beside=beside_of(run_json), statistic=ALL_WINDOWS)
    except (RefusedError, KeyError, TypeError, ZeroDivisionError):
        return replace(envelope, doubts=(*envelope.doubts, ONLY_FASTEST))


def judged_tests(folder: Path, site: str, now_s: float) -> int:
    """How many tests of a site have written a line in this month or the one 30 days ago; at least 1.

    Lines are not parsed, so this is quick.
    """
    first = datetime.datetime.fromtimestamp(now_s - MONTH_S, datetime.UTC)
    of_site = b'"site":' + json.dumps(site).encode() + b","
    tests: set[bytes] = set()
    for path in _files(folder, []):
        if Path(path).parent.name < f"{first:%Y-%m}":
            continue
        with contextlib.suppress(OSError), open(path, "rb", buffering=_BUFFER) as file:  # noqa: PTH123
            tests.update(line[: line.find(b'",')] for line in file if of_site in line[:LONGEST_START])
    return max(len(tests), 1)


def is_empty(folder: Path) -> bool:
    """Whether no session has written to the history. A part that cannot be read may hold lines."""
    problems: list[str] = []
    for path in _files(folder, problems):
        with contextlib.suppress(OSError):
            if Path(path).stat().st_size:
                return False
    return not problems


def run_of(folder: Path, envelope: Envelope) -> dict[str, Any]:
    """The content of the run.json that an envelope refers to; empty if it refers to none.

    Raises:
        RefusedError: it is not there any more, or is damaged.
    """
    if envelope.run is None:
        return {}
    path = folder / envelope.run.file
    try:
        with path.open("rb") as file:
            file.seek(envelope.run.offset)
            content = json.loads(file.read(envelope.run.length))
    except OSError as error:
        raise RefusedError(f"{path}: the run.json of {envelope.key.test} cannot be read: {error.strerror}") from None
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise RefusedError(
            f"{path}: there is no run.json of {envelope.key.test} at byte {envelope.run.offset}: the file was changed "
            "or copied incompletely (copy it again from a backup)"
        )
    return content


@contextlib.contextmanager
def _garbage_collector_paused() -> Iterator[None]:
    """Python would look for cycles in all envelopes again and again, which took half of the time. They have none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _rank(envelope: Envelope) -> tuple[int, float]:
    return envelope.revision, envelope.written_s


def _order(envelope: Envelope) -> tuple[float, float]:
    return envelope.time_s, envelope.written_s


def _refuse_future(envelope: Envelope, now_s: float) -> None:
    """Raise ValueError for a job that is later than now: it would stay the latest one of its test for years."""
    if envelope.time_s > now_s + CLOCKS_DIFFER_S:
        start = datetime.datetime.fromtimestamp(envelope.time_s)
        raise ValueError(f"its job started at {start:%Y-%m-%d %H:%M}, which is in the future: a clock was wrong")


def _files(folder: Path, problems: list[str]) -> list[str]:
    """The files with envelopes, in order of months and sessions."""
    paths: list[str] = []
    for month in _entries(folder, problems):
        if not month.name.startswith(".") and month.is_dir():
            paths += [
                entry.path
                for entry in _entries(month.path, problems)
                if entry.name.endswith(".jsonl") and not entry.name.endswith(".runs.jsonl")
            ]
    return sorted(paths)


def _entries(folder: Path | str, problems: list[str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"{folder}: this part of the history cannot be read: {error.strerror}")
        return []


def _envelopes(path: str, ids: frozenset[bytes] | None, problems: list[str], *, visits: bool) -> Iterator[Envelope]:
    """The envelopes in a file. With `ids` they are those of these tests, and of tests whose lines had to be parsed."""
    damaged = 0
    first = ""
    now_s = time.time()
    lines = _Lines(ids, visits=visits)
    try:
        with open(path, "rb", buffering=_BUFFER) as file:  # noqa: PTH123 (a Path for each of many files takes time)
            for number, line in lines.of(file):
                try:
                    envelope = from_line(line)
                    _refuse_future(envelope, now_s)
                except ValueError as error:
                    if line.endswith(b"\n") and line.strip():
                        damaged += 1
                        first = first or f"{path}:{number}: this line of the history is skipped: {error}{WHAT_TO_DO}"
                else:
                    lines.parsed(line, envelope)
                    yield envelope
    except OSError as error:
        problems.append(f"{path}: this file of the history cannot be read: {error.strerror}")
    if damaged > 1:
        first += f" (and {damaged - 1} more of this file)"
    if damaged:
        problems.append(printable(first))


class _Lines:
    """Chooses the lines of a file that must be parsed, since that takes thirty times as long as to look at them.

    Args:
        ids: of the tests, as they stand in lines; None stands for all tests.
        visits: False leaves out visits that are like one that was parsed.
    """

    def __init__(self, ids: frozenset[bytes] | None, *, visits: bool) -> None:
        self._ids = ids
        self._visits = visits
        self._known: set[tuple[bytes, bytes, bool]] = set()  # what visits were like
        self._ended: dict[bytes, tuple[int, bytes]] = {}  # lines of jobs that have ended, and whose tests may have

    def of(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """The lines with their numbers. Those of jobs come last, if those of their tests were not parsed until then."""
        for number, line in enumerate(file, 1):
            like = None if self._visits else visit_like(line)
            if like not in self._known and (self._ids is None or may_be_of(line, self._ids)):
                job = job_that_ended(line) if like is None else None
                if job is None:
                    yield number, line
                else:
                    self._ended[job] = number, line
            if not line.endswith(b"\n"):
                break  # if a session writes it now, its rest would look like the next line
        yield from list(self._ended.values())

    def parsed(self, line: bytes, envelope: Envelope) -> None:
        """Note that a line could be read."""
        like = None if self._visits else visit_like(line)
        if like is not None:
            self._known.add(like)
        if envelope.revision > Revision.JOB_ENDED:
            self._ended.pop(job_of(line), None)
