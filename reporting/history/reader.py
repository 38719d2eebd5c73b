"""Reads the history: the envelopes of all sessions, by its index, and the run.json's that they refer to."""

from __future__ import annotations

import contextlib
import datetime
import gc
import json
import math
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from platforms.job import RefusedError
from reporting.history.envelope import ALL_WINDOWS, Envelope
from reporting.history.index import Answer, ask
from reporting.history.measured import JobNumbers, measured_by
from reporting.history.questions import CLOCKS_DIFFER_S, Questions, may_lack_windows
from reporting.history.run_facts import THROUGHPUT, beside_of, metrics_of

__all__ = ["CLOCKS_DIFFER_S", "judged_tests", "measured", "platforms", "read", "run_of", "sites", "tests"]

MONTH_S = 30 * 86400.0
ONLY_FASTEST = "only its fastest stretch is known"


def read(
    folder: Path, tests: Collection[str] | None = None, problems: list[str] | None = None, *, visits: bool = True
) -> list[Envelope]:
    """The envelopes of the history in the order in which their jobs started, only the last one of each key.

    Args:
        folder: of the history. One that does not exist is empty.
        tests: ids, or `test_x.py::test_x[` for all cases of one; None stands for all tests.
        problems: gets a sentence for each file that cannot be read, or that has lines which cannot. A file's last line
            without an end is no problem: its session was killed, or is writing it now.
        visits: False leaves visits to nodes out. In a large fleet they are nearly all lines.
    """
    if problems is None:
        problems = []

    def question(index: sqlite3.Connection) -> tuple[list[Envelope], list[str]]:
        asked = Questions(folder, index)
        return asked.envelopes(tests, visits=visits), asked.damage(tests)

    with _garbage_collector_paused():
        found, damage = ask(folder, problems, question)
        problems += damage
        return [_with_all_windows(folder, envelope) for envelope in found]


def measured(
    folder: Path,
    site: str,
    use: Callable[[Iterable[JobNumbers]], Answer],
    problems: list[str],
    *,
    is_wanted: Callable[[Envelope], bool] = lambda _: True,
    before_s: float = math.inf,
) -> Answer:
    """Make something of what jobs have measured, also of millions.

    Args:
        use: is given the jobs of the site, each test's in the order of their starts. It may be asked twice.
        problems: as those of `read`.
        is_wanted: whether jobs like an envelope are asked for.
        before_s: only jobs that started before this time, in Unix seconds.
    """

    def question(index: sqlite3.Connection) -> tuple[list[Answer], list[str]]:
        asked = Questions(folder, index)
        found = asked.measured(site, is_wanted, before_s)
        return ([] if found is None else [use(found)]), asked.damage(None)

    with _garbage_collector_paused():
        answers, damage = ask(folder, problems, question)
        problems += damage
        for answer in answers:
            return answer
        runs = (run for run in read(folder) if run.key.site == site and run.time_s < before_s and is_wanted(run))
        return use(map(measured_by, runs))


def _with_all_windows(folder: Path, envelope: Envelope) -> Envelope:
    """An envelope whose throughput is that of all windows; of an older line it is computed from its run.json.

    One whose run.json is lost keeps the throughput of its fastest stretch, which cannot be compared with the others.
    """
    if envelope.run is None or not may_lack_windows(envelope):
        return envelope
    try:
        run_json = run_of(folder, envelope)
        metrics = {**envelope.metrics, THROUGHPUT: metrics_of(run_json)[THROUGHPUT]}
        return replace(envelope, metrics=metrics, beside=beside_of(run_json), statistic=ALL_WINDOWS)
    except (RefusedError, KeyError, TypeError, ZeroDivisionError):
        return replace(envelope, doubts=(*envelope.doubts, ONLY_FASTEST))


def judged_tests(folder: Path, site: str, now_s: float) -> int:
    """How many tests of a site have written a line in this month or the one 30 days ago; at least 1."""
    first = datetime.datetime.fromtimestamp(now_s - MONTH_S, datetime.UTC)
    return max(ask(folder, [], lambda index: Questions(folder, index).tests_since(site, f"{first:%Y-%m}")), 1)


def platforms(folder: Path, site: str) -> set[str]:
    """The platforms of which a site has runs."""
    return ask(folder, [], lambda index: Questions(folder, index).platforms(site))


def tests(folder: Path, site: str) -> set[str]:
    """The ids of the tests of which a site has runs."""
    return ask(folder, [], lambda index: Questions(folder, index).tests(site))


def sites(folder: Path, problems: list[str]) -> set[str]:
    """The sites that have runs. `problems` are those of `read`."""
    found, damage = ask(
        folder, problems, lambda index: ((asked := Questions(folder, index)).sites(), asked.damage(None))
    )
    problems += damage
    return found


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
