"""Submits every selected job before the first test waits, and waits for each outside of fixtures."""

from __future__ import annotations

import difflib
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import pytest
from _pytest.skipping import evaluate_skip_marks, evaluate_xfail_marks

from harness import output_paths, select, session_start
from harness.console import Console
from harness.session_end import leaving
from harness.spec import spec_of
from harness.suite import Suite, case_key, new_run_id, refuse_in_vain
from platforms import checkout, schedulers
from platforms.config.schema import Platform
from platforms.job import BenchError, JobSpec, RefusedError
from platforms.rundir import code_archive
from platforms.runner import Runner, messages
from platforms.schedulers import Scheduler

CHECK_S = 60.0  # to start a Python interpreter that reads a command line
SUBMIT_S = 300.0  # how long --wait 0 waits for schedulers to take the jobs


def will_run(item: pytest.Item) -> bool:
    """Whether the test's body will be reached: a test that is skipped by a mark must not cost a job."""
    if evaluate_skip_marks(item) is not None:
        return False
    xfail = evaluate_xfail_marks(item)
    return xfail is None or xfail.run


def specs(suite: Suite, items: list[pytest.Item], run_id: str) -> dict[str, JobSpec]:
    """The jobs of these tests, by node id, in the tests' order."""
    wanted = [item for item in items if case_key(item) in suite.cases]
    if not wanted:
        return {}
    try:
        code = code_archive.build(checkout.ROOT / "models", suite.options.runs / "archives")
    except OSError as error:
        raise output_paths.unwritable(suite.options.runs, error) from None
    return {item.nodeid: spec_of(item, suite.case(item), run_id, code.path, item.config.rootpath) for item in wanted}


def _refuse_in_vain(suite: Suite, config: pytest.Config, tests: list[str], show: Console) -> None:
    """Raise UsageError where the jobs' results could not be written, or not be compared as is wanted."""
    if unchecked := output_paths.without_reference(config, tests):
        show.problem(f"not compared, as there is no earlier number: {', '.join(unchecked)}")
    try:
        output_paths.refuse_unwritable(config, suite.options.runs)
    except pytest.UsageError:
        suite.unwritten = True
        raise


def check_cost(suite: Suite, jobs: dict[str, JobSpec]) -> str | None:
    """One line on what jobs away from this machine may cost. Raises UsageError above the site's max_device_hours."""
    hours = sum(spec.device_hours for spec in jobs.values() if spec.platform != "local")
    allowed = suite.site.max_device_hours
    if allowed is not None and hours > allowed:
        raise pytest.UsageError(
            f"{len(jobs)} jobs may cost {hours:.1f} device-hours (devices x limit); {suite.options.site / 'site.yaml'} "
            f"says max_device_hours: {allowed:g}. Nothing was submitted. Select fewer with -k, or raise the limit."
        )
    return f"{len(jobs)} jobs, at most {hours:.1f} device-hours (devices x time limit)" if hours else None


def check_complete(suite: Suite, jobs: dict[str, JobSpec]) -> None:
    """Raise UsageError for a platform whose `${site.…}` nobody has set: its jobs would carry a text in their place."""
    for name in dict.fromkeys(spec.platform for spec in jobs.values()):
        if missing := suite.platforms[name].missing:
            values = ", ".join(f"{key}: …" for key in missing)
            raise pytest.UsageError(
                f"{name}: {', '.join(missing)} not set, so nothing was submitted. Write `values: {{{values}}}` in "
                f"{suite.options.site / 'site.yaml'}, or export HPC_ML_BENCH_{missing[0].upper()}"
                f"{misspelled(missing, suite.site.values)}"
            )


def check_training(suite: Suite, jobs: dict[str, JobSpec], items: Sequence[pytest.Item]) -> None:
    """Raise UsageError for a benchmark's job that models/ itself would refuse, after its wait in the queue."""
    for item in items:
        spec = jobs.get(item.nodeid)
        why = "" if spec is None else cannot_train(suite.platforms[spec.platform], spec, item)
        if why:
            raise pytest.UsageError(f"{item.nodeid}: {why}. Nothing was submitted")


def cannot_train(platform: Platform, spec: JobSpec, item: pytest.Item) -> str:
    """Why models/ would refuse a job, in one sentence; "" where nothing is known against it."""
    if spec.benchmark is None:
        return ""
    families = checkout.device_families()
    device = spec.request.get("device", "cpu")
    if device not in families:
        return f"models/ trains on {' and '.join(families)}, and not on {device} yet (docs/profiles.md)"
    mark = select.workload(item) or {}
    if platform.arguments or "arguments" in mark:  # the rest of the command line is ours
        words = not_understood(spec)
        if words:
            return f"its job would refuse `arguments:` of {platform.source} or of its workload mark: {words}"
    return ""


def not_understood(spec: JobSpec) -> str:
    """What models/ says against the job's command line; "" where it understands it."""
    command = [sys.executable, "-I", str(spec.archive), *spec.arguments, "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_S, check=False)
    return "" if done.returncode == 0 else done.stderr.strip().removeprefix("error: ")


def misspelled(missing: Sequence[str], values: Collection[str]) -> str:
    """What is said of values of site.yaml whose names resemble one that a platform needs and does not find."""
    similar = {key: difflib.get_close_matches(key, values, n=1, cutoff=0.8) for key in missing}
    said = [f"{found[0]!r} stands there: did you mean {key!r}?" for key, found in similar.items() if found]
    return "".join(f"; {sentence}" for sentence in said)


def dry_run(suite: Suite, items: list[pytest.Item], show: Console) -> None:
    """Show each job as it would be submitted, and stop there. Raises UsageError where the site's rules forbid one, or,
    when it is asked, its scheduler."""
    jobs = specs(suite, items, new_run_id(suite))
    if suite.options.ask_server:
        check_complete(suite, jobs)
    skipped = {item.nodeid: skip.reason for item in items if (skip := evaluate_skip_marks(item)) is not None}
    by_test = {item.nodeid: item for item in items}
    known: dict[str, Scheduler] = {}
    forbidden = []
    for spec in jobs.values():
        platform = suite.platforms[spec.platform]
        show.section(f"{spec.test} ({platform.scheduler})")
        if why := skipped.get(spec.test):
            show.always(f"would be skipped: {why}")
        elif refused := cannot_train(platform, spec, by_test[spec.test]):
            show.always(f"would be refused: {refused}")
        try:
            if platform.name not in known:
                known[platform.name] = schedulers.connect(platform)
            text = known[platform.name].render(spec)
            show.always(text.rstrip("\n"))
            if platform.missing:
                show.always("missing: " + ", ".join(platform.missing))
            if findings := known[platform.name].lint(spec, text):
                forbidden.append(f"{spec.test}: {messages.against_policy(findings)}")
            elif suite.options.ask_server and not why:
                forbidden += _answers(known[platform.name], spec, text, platform.name, show)
        except BenchError as error:
            raise pytest.UsageError(f"{spec.test}: {messages.why(error)}") from None
    show.section(f"dry run: {len(jobs)} jobs rendered, none submitted")
    if forbidden:
        raise pytest.UsageError("\n".join(forbidden))


def _answers(scheduler: Scheduler, spec: JobSpec, text: str, platform: str, show: Console) -> list[str]:
    """What the scheduler itself has against a job, if anything."""
    found = scheduler.check(spec, text)
    if not found:
        show.always(f"{platform} has nothing against it")
    return [f"{spec.test}: {platform} would refuse it: {'; '.join(found)}"] if found else []


@contextmanager
def submitted(suite: Suite, config: pytest.Config, items: list[pytest.Item], show: Console) -> Iterator[None]:
    """All jobs submitted (as many as each platform takes at once); then what is not finished is cancelled."""
    run_id = new_run_id(suite)
    chosen = [item for item in items if case_key(item) in suite.cases and will_run(item)]
    if chosen:
        _refuse_in_vain(suite, config, [item.nodeid for item in chosen], show)
    jobs = specs(suite, chosen, run_id)
    if line := check_cost(suite, jobs):
        show.line(line)
    if not jobs:
        yield
        return
    refuse_in_vain(config, [item for item in items if item.nodeid in jobs])
    check_complete(suite, jobs)
    check_training(suite, jobs, items)
    beat_s = max(suite.platforms[spec.platform].poll_s for spec in jobs.values())
    try:
        plan = session_start.plan(config, jobs)
        begun = session_start.stepping_back(
            lambda: session_start.begin(suite.options, run_id, plan, jobs, beat_s, show.line)
        )
    except RefusedError as error:
        raise pytest.UsageError(str(error)) from None
    runner = suite.runner = Runner(
        suite.options.runs,
        run_id,
        journal=begun.journal,
        max_device_hours=suite.site.max_device_hours,
        on_change=show.change,
        again=suite.options.again(run_id),
    )
    with leaving(suite, runner, begun, show):
        for test, spec in jobs.items():
            suite.jobs[test] = runner.add(spec, suite.platforms[spec.platform], begun.attempts[test])
        show.line(f"run {run_id}: {len(jobs)} job{'s' * (len(jobs) > 1)}, evidence in {suite.options.runs / run_id}")
        for line in begun.told:
            show.line(line)
        suite.deadline = None if suite.options.wait_s is None else time.monotonic() + suite.options.wait_s
        try:
            runner.pump()
            if suite.options.wait_s == 0:  # submit and leave
                runner.hand_over(SUBMIT_S)
        except RefusedError as error:
            raise pytest.UsageError(str(error)) from None
        yield


def wait(suite: Suite, item: pytest.Item, show: Console) -> None:
    """Wait for the item's job while all others go on; capture is off here, so progress can be shown."""
    job = suite.jobs[item.nodeid]
    assert suite.runner is not None
    with show.waiting(suite.runner.jobs):
        job = suite.jobs[item.nodeid] = suite.runner.wait(job, tick=show.tick, deadline=suite.deadline)
    if job.error is not None and (login := suite.runner.login(job)) is not None:
        show.once(f"{job.platform.name}: {messages.why(login)}")
