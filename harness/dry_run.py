"""--dry-run: show each job as it would be submitted, and submit none."""

from __future__ import annotations

import datetime
import time

import pytest
from _pytest.skipping import evaluate_skip_marks

from harness import job_checks, pauses
from harness.cases import Case
from harness.console import Console
from harness.job_factory import JobFactory
from harness.selection import Selection
from platforms import schedulers
from platforms.job import BenchError, ConfigError, JobSpec, RefusedError, describe_error
from platforms.runner import messages
from platforms.schedulers import Scheduler


def dry_run(selection: Selection, items: list[pytest.Item], console: Console) -> None:
    """Render the job of each test. With --dry-run=server each scheduler is asked what it has against the job.

    Raises UsageError where the site's rules forbid a job, or its scheduler would refuse it.
    """
    pauses.skip_paused(selection, items, datetime.date.today())  # which is said below, at each test
    inputs = selection.inputs
    if inputs.options.ask_server:
        pauses.skip_maintained(selection, items, pauses.maintenances(selection, items), time.time())
    job_tests = [item for item in items if selection.has_job(item)]
    factory = JobFactory(selection, job_tests, inputs.options.new_run_id())
    factory.leave_out_refused()
    jobs = factory.first_jobs()
    for notice in factory.notices:
        console.problem(notice)
    if inputs.options.ask_server:
        job_checks.refuse_incomplete(inputs, jobs)
    connected: dict[str, Scheduler] = {}
    objections = list(selection.refused.values())
    without_script = would_skip = 0
    for item in items:
        spec = jobs.get(item.nodeid)
        if spec is None:
            continue
        platform = inputs.platforms[spec.platform]
        console.section(f"{spec.test} ({platform.scheduler})")
        case = selection.case(item)
        skip = evaluate_skip_marks(item)
        if skip is not None:
            console.always(f"would be skipped: {skip.reason}")
        said, has_script = _on_obstacle(case, spec.benchmark or "", shows_all=inputs.options.try_unsupported)
        for line in said:
            console.always(line)
        if not has_script:
            without_script += 1
            continue
        refused = job_checks.why_untrainable(platform, spec, item)
        if refused and skip is None:
            console.always(f"would be refused: {refused}")
            objections.append(f"{spec.test}: {refused}")
        try:
            if platform.name not in connected:
                connected[platform.name] = schedulers.connect(platform)
            scheduler = connected[platform.name]
            try:
                text = scheduler.render(spec)
            except (RefusedError, ConfigError) as error:  # of this job alone
                without_script += 1
                objections.append(f"{spec.test}: {describe_error(error)}")
                continue
            would_skip += skip is not None
            console.always(text.rstrip("\n"))
            if platform.missing:
                console.always("missing: " + ", ".join(platform.missing))
            findings = scheduler.lint(spec, text)
            if findings:
                objections.append(f"{spec.test}: {messages.against_policy(findings)}")
            elif inputs.options.ask_server and skip is None:
                objections += _objections_of(scheduler, spec, text, console)
        except BenchError as error:
            raise pytest.UsageError(f"{spec.test}: {describe_error(error)}") from None
    skipped_too = f" ({would_skip} of them would be skipped)" if would_skip else ""
    without = f", {without_script} without a script" if without_script else ""
    rendered = len(jobs) - without_script
    count = "1 job" if rendered == 1 else f"{rendered} jobs"
    console.section(f"dry run: {count} rendered{skipped_too}{without}, none submitted")
    if objections:
        raise pytest.UsageError("\n".join(objections))


def _on_obstacle(case: Case, benchmark: str, *, shows_all: bool) -> tuple[list[str], bool]:
    """Return what the platform's file has against a test, and whether the script of its job is shown.

    `shows_all` shows the script of a test that cannot run there, too.
    """
    if case.obstacle is None:
        return [], True
    said = []
    if case.is_tried:
        said.append(f"would be tried, although its platform's file says that it cannot run: {case.obstacle}")
    elif case.ended is not None:  # else it stands in the reason of the skip
        said += [f"it could not run there: {reason}" for reason in case.platform.reasons_against(benchmark)]
    has_script = shows_all or case.platform.cannot_run is None
    if not has_script:
        said.append("no script is shown, since its job could not run there; --try-unsupported shows it all the same")
    return said, has_script


def _objections_of(scheduler: Scheduler, spec: JobSpec, text: str, console: Console) -> list[str]:
    """Ask the scheduler itself what it has against a job. Raises BenchError."""
    objections = scheduler.check(spec, text)
    if objections:
        return [f"{spec.test}: {spec.platform} would refuse it: {'; '.join(objections)}"]
    console.always(f"{spec.platform} has nothing against it")
    return []
