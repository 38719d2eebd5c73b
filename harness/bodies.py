"""Runs the body of a test once more for each further job that the test has.

pytest runs it for the job that speaks for the test. A plan may ask for jobs that depend on what a body has read from a
log, so after each round of bodies it is asked for more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from harness import outcome, record
from harness.console import Console
from harness.record import Recording
from harness.running import Running
from platforms.job import Role, StillPending
from platforms.runner import Job


def finish(running: Running, item: pytest.Item, console: Console) -> None:
    """After the body of a test has passed: keep what it has recorded, of all of the test's jobs, and judge it."""
    run_of_main_job = record.recorded_run(item)
    if run_of_main_job is None:
        running.tests[item.nodeid].is_unrecorded = True
        return
    record.save_recorded(run_of_main_job)
    run_others(running, item, console)
    run = record.recorded_run(item)
    if run is None:  # of visits and checks
        record.hand_over_nothing(item)
    else:
        running.tests[item.nodeid].recorded = run
        running.tests[item.nodeid].remark = record.remark(item)
    running.judge(item)
    if run is not None:
        record.replay(item)


def run_others(running: Running, item: pytest.Item, console: Console) -> None:
    """Wait for all further jobs of a test, and run its body for each that has measured well.

    The body has passed for the test's main job. What it says against another one stands in that job's result: the plan
    concludes what it means for the test.
    """
    trials = running.trials
    main = running.tests[item.nodeid].job
    recordings = {main: record.take(item)}
    trials.body_ended(item.nodeid, main)
    while True:
        trials.ask(item.nodeid)
        if trials.is_live(item.nodeid):
            with _terminal_free(item), console.waiting(running.runner.jobs):
                trials.wait(item.nodeid, console.tick, running.deadline)
        _skip_if_pending(running, item)
        jobs = trials.jobs_without_body(item.nodeid)
        if not jobs:
            break
        for job in jobs:
            recordings[job] = _run_body(running, item, job)
    measured = [recording for job, recording in recordings.items() if job.spec.trial.role is Role.MEASURE]
    record.put(item, record.joined([recording for recording in measured if recording is not None]))


def _skip_if_pending(running: Running, item: pytest.Item) -> None:
    """Skip a test as PENDING if the session has stopped waiting for one of its jobs. --resume runs its body again."""
    job = running.trials.main_job(item.nodeid)
    if isinstance(job.error, StillPending):
        running.tests[item.nodeid].job = job
        record.hand_over_nothing(item)
        outcome.run_or_raise(job)


def _run_body(running: Running, item: pytest.Item, job: Job) -> Recording | None:
    """Run the body for a job. Returns what it has recorded; None if it has failed, or has recorded nothing."""
    _refuse_own_fixtures(item)
    funcargs: dict[str, Any] = getattr(item, "funcargs", {})
    funcargs["run"] = job.run
    error = None
    try:
        item.runtest()
        run = record.recorded_run(item)
        if run is not None:
            record.save_recorded(run)
    except (Exception, pytest.fail.Exception) as failure:
        error = str(failure) or type(failure).__name__
    recording = record.take(item)
    if error is None and recording is None:
        error = "nothing is recorded, since record(run) was not called"
    running.trials.body_ended(item.nodeid, job, error)
    return None if error else recording


def _refuse_own_fixtures(item: pytest.Item) -> None:
    """Fail a test whose own fixtures use `run`: they would hold what they have made of another job."""
    for name, definitions in item._fixtureinfo.name2fixturedefs.items():  # type: ignore[attr-defined]
        if any("run" in definition.argnames for definition in definitions):
            pytest.fail(
                f"the fixture {name} uses `run`, so it cannot be used by a test that has several jobs: read the log in "
                "the test's body",
                pytrace=False,
            )


@contextmanager
def _terminal_free(item: pytest.Item) -> Iterator[None]:
    """Let the session show its progress, which pytest would capture as the test's output."""
    capture = item.config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        yield
        return
    with capture.global_and_fixture_disabled():
        yield
