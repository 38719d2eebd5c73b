"""Submits the jobs of all selected tests before the first test waits, and waits for each outside of fixtures."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from _pytest.skipping import evaluate_skip_marks, evaluate_xfail_marks

from harness import job_checks, output_paths, pauses, session_start
from harness.collection import FILES
from harness.console import Console
from harness.gate import Gate
from harness.history_entries import HistoryEntries
from harness.job_factory import JobFactory
from harness.plans.confirmed import Confirmed
from harness.running import Running, RunningTest
from harness.session_end import ended_properly
from harness.trials import Trials
from harness.wording import counted
from platforms import checkout
from platforms.job import RefusedError
from platforms.runner import Runner
from reporting.history.place import refuse_missing

if TYPE_CHECKING:
    from harness.confirmations import Confirmations
    from harness.inputs import Inputs
    from harness.session_start import StartedSession
    from harness.suite import Suite

KILLED_RUNS = 3  # so many are named
HAND_OVER_S = 300.0  # how long --wait 0 waits for schedulers to take the jobs


@contextmanager
def submitted(suite: Suite, config: pytest.Config, items: list[pytest.Item], console: Console) -> Iterator[None]:
    """Submit all jobs, as many as each platform takes at once; in the end cancel what is not finished.

    Raises UsageError, before anything is submitted, for jobs that cannot run and results that cannot be written.
    """
    inputs = suite.inputs
    options = inputs.options
    run_id = options.new_run_id()
    if not options.resume:  # a resumed run goes on with the jobs that it has
        for line in pauses.skip_paused(suite.selection, items, datetime.date.today()):
            console.problem(line)
        pauses.skip_maintained(suite.selection, items)
    chosen = [item for item in items if suite.selection.has_job(item) and will_run(item)]
    if not chosen:
        yield
        return
    job_checks.refuse_repeaters(config, chosen)
    output_paths.refuse_unwritable(options.runs)
    entries = _history_entries(inputs)
    factory = JobFactory(suite.selection, chosen, run_id)
    factory.leave_out_refused()
    jobs = factory.first_jobs()
    for notice in factory.notices:
        console.problem(notice)
    cost = job_checks.cost_line(inputs, factory.all_first_jobs(), factory.most_device_hours())
    if cost:
        console.line(cost)
    if not jobs:
        yield
        return
    job_checks.refuse_incomplete(inputs, jobs)
    for specs in factory.each_stacks_jobs():
        job_checks.refuse_untrainable(inputs, specs, items)
    job_checks.refuse_unknown_committed(config.stash[FILES], inputs, jobs)

    plan = session_start.session_plan(config, jobs, entries.folder, inputs.site.name)
    beat_s = max(inputs.platforms[spec.platform].poll_s for spec in jobs.values())
    try:
        started = session_start.start(options, run_id, plan, jobs, inputs.platforms, beat_s, console.line)
    except RefusedError as error:
        raise pytest.UsageError(str(error)) from None
    runner = Runner(
        options.runs,
        run_id,
        journal=started.journal,
        max_device_hours=inputs.site.max_device_hours,
        on_change=console.change,
        on_end=entries.job_ended,
        on_trouble=console.problem,
        resume_command=options.again(run_id),
    )
    deadline = None if options.wait_s is None else time.monotonic() + options.wait_s
    trials = Trials(runner, entries, factory.job, started.attempt_of)
    running = Running(inputs, runner, entries, trials, deadline)
    suite.running = running
    with ended_properly(running, started, console):
        _begin(running, started, factory, console)
        _look_back(running, console)
        yield


def _begin(running: Running, started: StartedSession, factory: JobFactory, console: Console) -> None:
    """Begin the first jobs of all tests, and make what judges and repeats them."""
    options = running.inputs.options
    runner = running.runner
    trials = running.trials
    jobs = factory.first_jobs()
    trials.add_tests({test: factory.plan(test) for test in jobs})
    for test in jobs:
        running.tests[test] = RunningTest(trials.main_job(test))
    count = counted(len(runner.jobs), "job")
    console.line(f"run {runner.run_id}: {count}, evidence in {options.runs / runner.run_id}")
    for notice in started.notices:
        console.line(notice)
    if running.entries.is_first and options.trials.check is None:
        console.problem(f"history: {running.entries.folder} has no run yet: this session begins a new history")
    runner.pump()
    if options.wait_s == 0:  # submit and leave
        runner.hand_over(HAND_OVER_S)
    if options.gate != "off" and not options.trials.single_nodes:
        gate = Gate(lambda: _confirmations(running, started, factory, console), trials)
        running.gate = gate
        factory.repeats = gate.repeats
        trials.waits_for_others = gate.waits
        trials.released = gate.released
        has_committed = any(platform.committed for platform in job_checks.used_platforms(running.inputs, jobs))
        has_numbers = factory.records_numbers or any(spec.benchmark is not None for spec in jobs.values())
        if has_committed or has_numbers or options.gate == "require" or options.resume:
            gate.load()  # while the jobs run


def _look_back(running: Running, console: Console) -> None:
    """Write what earlier sessions owe to the history, and name the runs whose session was killed."""
    options = running.inputs.options
    unfinished = running.entries.unfinished(options.runs)
    owed = running.entries.write_owed(unfinished)
    if owed:
        console.line(f"history: {owed} entries that earlier sessions owed are written")
    killed = [run.folder.name for run in unfinished if run.killed and run.folder.name != running.runner.run_id]
    for other in killed[-KILLED_RUNS:]:
        console.problem(f"run {other} was not finished: {options.again(other)} reads its jobs")
    if len(killed) > KILLED_RUNS:
        shows_all = f"python -m platforms jobs{options.typed_places}"
        console.problem(f"and {len(killed) - KILLED_RUNS} earlier ones: {shows_all}")


def will_run(item: pytest.Item) -> bool:
    """Whether the test's body will be reached: a test that is skipped by a mark must not cost a job."""
    if evaluate_skip_marks(item) is not None:
        return False
    xfail = evaluate_xfail_marks(item)
    return xfail is None or xfail.run


def _history_entries(inputs: Inputs) -> HistoryEntries:
    """This session's entries in the history. Raises UsageError where they could not be written."""
    options = inputs.options
    folder = inputs.history
    try:
        refuse_missing(folder, options.typed_history, options.site)
        if options.trials.check is not None:
            from harness import user_check

            folder = checkout.absolute(options.runs.parent / user_check.HISTORY)
        return HistoryEntries(folder, inputs.site.name)
    except RefusedError as error:
        raise pytest.UsageError(f"{error}. Nothing was submitted") from None


def _confirmations(running: Running, started: StartedSession, factory: JobFactory, console: Console) -> Confirmations:
    """The gate of a session, and the repeats of suspect runs, for the tests that are measured once."""
    # Imported here, so that jobs are submitted before the gate is loaded.
    from harness.confirmations import Confirmations
    from harness.judging import Judging
    from reporting.gate.committed import commitments
    from reporting.history import same_values

    inputs = running.inputs
    history = running.entries.folder
    jobs = factory.first_jobs()
    judging = Judging(
        history,
        inputs.site,
        inputs.options.site,
        [same_values.function(test) if spec.values else test for test, spec in jobs.items()],
        commitments(job_checks.used_platforms(inputs, jobs)),
        require=inputs.options.gate == "require",
        typed=inputs.typed_for_commands(history),
    )
    platforms = {
        test: inputs.platforms[spec.platform]
        for test, spec in jobs.items()
        if isinstance(factory.plan(test), Confirmed)
    }
    for line in judging.mistaken_commitments():
        console.problem(line)
    return Confirmations(judging, running.trials, platforms, started.begun_jobs, console.line)
