"""Submits the jobs of all selected tests before the first test waits, and waits for each outside of fixtures."""

from __future__ import annotations

import datetime
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from _pytest.skipping import evaluate_skip_marks, evaluate_xfail_marks

from harness import job_checks, output_paths, pauses, session_start
from harness.console import Console
from harness.history_entries import HistoryEntries
from harness.job_factory import JobFactory
from harness.plans.confirmed import Confirmed
from harness.session_end import ended_properly
from harness.suite import Suite, case_key, new_run_id
from harness.trials import Trials
from platforms.job import JobSpec, RefusedError, describe_error
from platforms.runner import Runner
from platforms.schedulers import Maintenance
from reporting.history.place import history_folder, refuse_missing

if TYPE_CHECKING:
    from harness.confirmations import Confirmations
    from harness.judging import Judging
    from harness.session_start import StartedSession

KILLED_RUNS = 3  # so many are named
HAND_OVER_S = 300.0  # how long --wait 0 waits for schedulers to take the jobs


@contextmanager
def submitted(suite: Suite, config: pytest.Config, items: list[pytest.Item], console: Console) -> Iterator[None]:
    """Submit all jobs, as many as each platform takes at once; in the end cancel what is not finished.

    Raises UsageError, before anything is submitted, for jobs that cannot run and results that cannot be written.
    """
    run_id = new_run_id(suite)
    maintenances = _skip_what_must_not_run(suite, items, console)
    chosen = [item for item in items if case_key(item) in suite.cases and will_run(item)]
    if chosen:
        _refuse_useless(suite, config, [item.nodeid for item in chosen], console)
    factory = JobFactory(suite, chosen, run_id)
    factory.leave_out_refused()
    jobs = factory.first_jobs()
    for notice in factory.notices:
        console.problem(notice)
    cost = job_checks.cost_line(suite, factory.all_first_jobs(), factory.most_device_hours())
    if cost:
        console.line(cost)
    for line in pauses.coming_lines(jobs.values(), maintenances, time.time()):
        console.line(line)
    if not jobs:
        yield
        return
    job_checks.refuse_without_effect(config, [item for item in items if item.nodeid in jobs])
    job_checks.refuse_incomplete(suite, jobs)
    for specs in factory.each_stacks_jobs():
        job_checks.refuse_untrainable(suite, specs, items)

    assert suite.entries is not None
    plan = session_start.session_plan(config, jobs, suite.entries.folder)
    beat_s = max(suite.platforms[spec.platform].poll_s for spec in jobs.values())
    try:
        started = session_start.start(suite.options, run_id, plan, jobs, beat_s, console.line)
    except RefusedError as error:
        raise pytest.UsageError(str(error)) from None
    runner = Runner(
        suite.options.runs,
        run_id,
        journal=started.journal,
        max_device_hours=suite.site.max_device_hours,
        on_change=console.change,
        on_end=suite.entries.job_ended,
        on_trouble=console.problem,
        resume_command=suite.options.again(run_id),
    )
    suite.runner = runner
    with ended_properly(suite, runner, started, console):
        _begin(suite, runner, started, factory, console)
        _look_back(suite, suite.entries, run_id, console)
        yield


def _begin(suite: Suite, runner: Runner, started: StartedSession, factory: JobFactory, console: Console) -> None:
    """Begin the first jobs of all tests, and make what judges and repeats them."""
    assert suite.entries is not None
    jobs = factory.first_jobs()
    trials = Trials(runner, suite.entries, factory.job, started.attempt_of)
    suite.trials = trials
    trials.add_tests({test: factory.plan(test) for test in jobs})
    for test in jobs:
        suite.jobs[test] = trials.main_job(test)
    count = "1 job" if len(runner.jobs) == 1 else f"{len(runner.jobs)} jobs"
    console.line(f"run {runner.run_id}: {count}, evidence in {suite.options.runs / runner.run_id}")
    for notice in started.notices:
        console.line(notice)
    if suite.entries.is_first and suite.options.trials.check is None:
        console.problem(f"history: {suite.entries.folder} has no run yet: this session begins a new history")
    if suite.options.wait_s is not None:
        suite.deadline = time.monotonic() + suite.options.wait_s
    runner.pump()
    if suite.options.wait_s == 0:  # submit and leave
        runner.hand_over(HAND_OVER_S)
    suite.judging = _judging(suite, jobs)
    if suite.judging is not None:
        suite.confirmations = _confirmations(suite, suite.judging, trials, factory, jobs, started, console)
        trials.waits_for_others = suite.confirmations.waits
        trials.released = suite.confirmations.released


def _look_back(suite: Suite, entries: HistoryEntries, run_id: str, console: Console) -> None:
    """Write what earlier sessions owe to the history, and name the runs whose session was killed."""
    unfinished = entries.unfinished(suite.options.runs)
    owed = entries.write_owed(unfinished)
    if owed:
        console.line(f"history: {owed} entries that earlier sessions owed are written")
    killed = [run.folder.name for run in unfinished if run.killed and run.folder.name != run_id]
    for other in killed[-KILLED_RUNS:]:
        console.problem(f"run {other} was not finished: {suite.options.again(other)} reads its jobs")
    if len(killed) > KILLED_RUNS:
        shows_all = f"python -m platforms jobs{suite.options.typed_places}"
        console.problem(f"and {len(killed) - KILLED_RUNS} earlier ones: {shows_all}")


def wait(suite: Suite, item: pytest.Item, console: Console) -> None:
    """Wait for the item's jobs while all others go on. pytest does not capture output here, so progress is shown."""
    assert suite.runner is not None
    assert suite.trials is not None
    with console.waiting(suite.runner.jobs):
        suite.trials.wait(item.nodeid, console.tick, suite.deadline)
    job = suite.trials.main_job(item.nodeid)
    suite.jobs[item.nodeid] = job
    login = suite.runner.login(job)
    if job.error is not None and login is not None:
        console.once(f"{job.platform.name}: {describe_error(login)}")


def _skip_what_must_not_run(suite: Suite, items: list[pytest.Item], console: Console) -> Mapping[str, Maintenance]:
    """Mark the tests that are paused or under maintenance. Returns the maintenances that platforms know of.

    A resumed run goes on with the jobs that it has, so nothing is marked.
    """
    if suite.options.resume:
        return {}
    for line in pauses.skip_paused(suite, items, datetime.date.today()):
        console.problem(line)
    found = pauses.maintenances(suite, items)
    pauses.skip_maintained(suite, items, found, time.time())
    return found


def will_run(item: pytest.Item) -> bool:
    """Whether the test's body will be reached: a test that is skipped by a mark must not cost a job."""
    if evaluate_skip_marks(item) is not None:
        return False
    xfail = evaluate_xfail_marks(item)
    return xfail is None or xfail.run


def _refuse_useless(suite: Suite, config: pytest.Config, tests: list[str], console: Console) -> None:
    """Raise UsageError where the jobs' results could not be written, or not be compared as --benchmark-compare asks."""
    unchecked = output_paths.without_reference(config, tests)
    if unchecked:
        console.problem(f"not compared, as there is no earlier number: {', '.join(unchecked)}")
    try:
        output_paths.refuse_unwritable(config, suite.options.runs)
        suite.entries = _history_entries(suite, config)
    except pytest.UsageError:
        suite.unwritten = True
        raise


def _history_entries(suite: Suite, config: pytest.Config) -> HistoryEntries:
    """This session's entries in the history. Raises UsageError where they could not be written."""
    typed = config.getoption("history")
    folder = history_folder(typed, suite.site, suite.options.site).absolute()
    try:
        refuse_missing(folder, typed, suite.options.site)
        if suite.options.trials.check is not None:
            from harness import user_check

            folder = (suite.options.runs.parent / user_check.HISTORY).absolute()
        return HistoryEntries(folder, suite.site.name)
    except RefusedError as error:
        raise pytest.UsageError(f"{error}. Nothing was submitted") from None


def _judging(suite: Suite, tests: Collection[str]) -> Judging | None:
    """The gate for these tests; None with --gate=off."""
    if suite.options.gate == "off" or suite.entries is None or suite.options.trials.single_nodes:
        return None
    from harness.judging import Judging  # imported here, so that jobs are submitted before the gate is loaded

    return Judging(
        suite.entries.folder,
        suite.site,
        suite.options.site,
        tests,
        require=suite.options.gate == "require",
        typed=suite.options.typed_for_commands(suite.site, suite.entries.folder),
    )


def _confirmations(
    suite: Suite,
    judging: Judging,
    trials: Trials,
    factory: JobFactory,
    jobs: Mapping[str, JobSpec],
    started: StartedSession,
    console: Console,
) -> Confirmations:
    """The repeats of suspect runs, for the tests that are measured once."""
    from harness.confirmations import Confirmations

    platforms = {
        test: suite.platforms[spec.platform] for test, spec in jobs.items() if isinstance(factory.plan(test), Confirmed)
    }
    return Confirmations(judging, trials, platforms, started.begun_jobs, console.line)
