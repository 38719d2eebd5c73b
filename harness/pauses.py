"""Tests that do not run now, because a person has paused them or their platform is under maintenance."""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from _pytest.skipping import evaluate_skip_marks

from harness.selection import Selection
from harness.wording import counted
from platforms.config.schema import Platform
from platforms.job import BenchError
from platforms.rundir.accepted_runs import FOLDER
from platforms.schedulers import Maintenance, backend_of

if TYPE_CHECKING:
    from reporting.references.answers import Pause


def skip_paused(selection: Selection, items: Sequence[pytest.Item], today: datetime.date) -> list[str]:
    """Mark the tests that people have paused, so that no job is made for them.

    Returns a line on each pause that skips something.
    """
    job_tests = [item for item in items if selection.has_job(item)]
    if not job_tests or not (selection.inputs.options.site / FOLDER).is_dir():
        return []
    from reporting.references import store

    references = store.load(selection.inputs.options.site)
    skipped: Counter[Pause] = Counter()
    for item in job_tests:
        pause = references.pause(item.nodeid, selection.case(item).platform.name, today)
        if pause is not None:
            _skip(item, f"{pause.name} is paused until {pause.until}: {pause.reason} ({pause.author.by})")
            skipped[pause] += 1
    return [_paused_line(pause, count) for pause, count in skipped.items()]


def _paused_line(pause: Pause, count: int) -> str:
    tests = counted(count, "test")
    return f"paused until {pause.until}: {pause.name}: {pause.reason} ({pause.author.by}): {tests} skipped"


def skip_maintained(selection: Selection, items: Sequence[pytest.Item]) -> None:
    """Mark the tests of the platforms whose maintenance has begun. Asks all platforms at once.

    One that does not answer has none here: the submission says what is wrong with it. While a maintenance is still to
    come, the scheduler itself says why it holds a job.
    """
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if selection.has_job(item) and evaluate_skip_marks(item) is None:
            tests.setdefault(selection.case(item).platform.name, []).append(item)
    if not tests:
        return
    reservation = selection.inputs.options.trials.reservation
    with ThreadPoolExecutor(len(tests)) as pool:
        answers = pool.map(lambda name: _maintenance(selection.inputs.platforms[name], reservation), tests)
        for of_platform, maintenance in zip(tests.values(), answers, strict=True):
            if maintenance is not None and maintenance.begins_s <= time.time() < maintenance.ends_s:
                for item in of_platform:
                    _skip(item, f"maintenance until {_time(maintenance.ends_s)}: reservation {maintenance.name}")


def _maintenance(platform: Platform, reservation: str | None) -> Maintenance | None:
    try:
        return backend_of(platform).maintenance(platform, reservation)
    except BenchError:
        return None


def _skip(item: pytest.Item, reason: str) -> None:
    item.add_marker(pytest.mark.skip(reason=reason))


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
