"""Tests that do not run now, because a person has paused them or their platform is under maintenance."""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from _pytest.skipping import evaluate_skip_marks

from harness.selection import Selection
from harness.wording import counted
from platforms.config.schema import Platform
from platforms.job import BenchError, JobSpec
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


def maintenances(selection: Selection, items: Sequence[pytest.Item]) -> dict[str, Maintenance]:
    """The maintenance of each platform on which tests will run, by the platform's name. Asks all platforms at once.

    A platform that does not answer has none here: the submission says what is wrong with it.
    """
    platforms: dict[str, Platform] = {}
    for item in items:
        if selection.has_job(item) and evaluate_skip_marks(item) is None:
            platform = selection.case(item).platform
            platforms[platform.name] = platform
    if not platforms:
        return {}
    reservation = selection.inputs.options.trials.reservation
    with ThreadPoolExecutor(len(platforms)) as pool:
        answers = pool.map(lambda platform: _maintenance(platform, reservation), platforms.values())
        return {name: answer for name, answer in zip(platforms, answers, strict=True) if answer is not None}


def _maintenance(platform: Platform, reservation: str | None) -> Maintenance | None:
    try:
        return backend_of(platform).maintenance(platform, reservation)
    except BenchError:
        return None


def skip_maintained(
    selection: Selection, items: Sequence[pytest.Item], found: Mapping[str, Maintenance], now_s: float
) -> None:
    """Mark the tests of the platforms whose maintenance has begun."""
    for item in items:
        if not selection.has_job(item):
            continue
        maintenance = found.get(selection.case(item).platform.name)
        if maintenance is not None and maintenance.begins_s <= now_s < maintenance.ends_s:
            _skip(item, f"maintenance until {_time(maintenance.ends_s)}: reservation {maintenance.name}")


def coming_lines(jobs: Iterable[JobSpec], found: Mapping[str, Maintenance], now_s: float) -> list[str]:
    """A line on each maintenance that begins before a job, which starts now, must have ended: such a job waits."""
    longest: dict[str, float] = {}
    for spec in jobs:
        longest[spec.platform] = max(spec.time_limit_s, longest.get(spec.platform, 0.0))
    lines = []
    for name, maintenance in found.items():
        if now_s < maintenance.begins_s < now_s + longest.get(name, 0.0):
            lines.append(
                f"{name}: maintenance from {_time(maintenance.begins_s)} to {_time(maintenance.ends_s)} (reservation "
                f"{maintenance.name}): its scheduler holds jobs that might not end before, so they may start after it"
            )
    return lines


def _skip(item: pytest.Item, reason: str) -> None:
    item.add_marker(pytest.mark.skip(reason=reason))


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
