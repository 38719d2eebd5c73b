"""--dry-run: show each job as it would be submitted, and submit none."""

from __future__ import annotations

import datetime
import time

import pytest
from _pytest.skipping import evaluate_skip_marks

from harness import job_checks, pauses
from harness.console import Console
from harness.job_factory import JobFactory
from harness.select import Case
from harness.suite import Suite, case_key, new_run_id
from platforms import schedulers
from platforms.job import BenchError, JobSpec
from platforms.runner import messages
from platforms.schedulers import Scheduler


def dry_run(suite: Suite, items: list[pytest.Item], console: Console) -> None:
    """Render the job of each test. With --dry-run=server each scheduler is asked what it has against the job.

    Raises UsageError where the site's rules forbid a job, or its scheduler would refuse it.
    """
    pauses.skip_paused(suite, items, datetime.date.today())  # which is said below, at each test
    if suite.options.ask_server:
        pauses.skip_maintained(suite, items, pauses.maintenances(suite, items), time.time())
    factory = JobFactory(suite, [item for item in items if case_key(item) in suite.cases], new_run_id(suite))
    jobs = factory.first_jobs()
    for notice in factory.notices:
        console.problem(notice)
    if suite.options.ask_server:
        job_checks.refuse_incomplete(suite, jobs)
    connected: dict[str, Scheduler] = {}
    objections: list[str] = []
    refusals = 0
    for item in items:
        spec = jobs.get(item.nodeid)
        if spec is None:
            continue
        platform = suite.platforms[spec.platform]
        console.section(f"{spec.test} ({platform.scheduler})")
        case = suite.case(item)
        skip = evaluate_skip_marks(item)
        if skip is not None:
            console.always(f"would be skipped: {skip.reason}")
        why_no_script = _why_no_script(case, spec, console)
        if why_no_script:
            refusals += 1
            console.always(why_no_script)
            continue
        refused = job_checks.why_untrainable(platform, spec, item)
        if refused and skip is None:
            console.always(f"would be refused: {refused}")
        try:
            if platform.name not in connected:
                connected[platform.name] = schedulers.connect(platform)
            scheduler = connected[platform.name]
            text = scheduler.render(spec)
            console.always(text.rstrip("\n"))
            if platform.missing:
                console.always("missing: " + ", ".join(platform.missing))
            findings = scheduler.lint(spec, text)
            if findings:
                objections.append(f"{spec.test}: {messages.against_policy(findings)}")
            elif suite.options.ask_server and skip is None:
                objections += _objections_of(scheduler, spec, text, console)
        except BenchError as error:
            raise pytest.UsageError(f"{spec.test}: {messages.describe_error(error)}") from None
    refused_too = f", {refusals} refused" if refusals else ""
    console.section(f"dry run: {len(jobs) - refusals} jobs rendered{refused_too}, none submitted")
    if objections:
        raise pytest.UsageError("\n".join(objections))


def _why_no_script(case: Case, spec: JobSpec, console: Console) -> str:
    """Say what the platform's file has against a test. Returns why there is no script to show; empty if there is."""
    if case.is_tried:
        console.always(f"would be tried, although its platform's file says that it cannot run: {case.obstacle}")
    elif case.obstacle is not None and case.ended is not None:  # else it stands in the reason of the skip
        for reason in case.platform.obstacles(spec.benchmark or ""):
            console.always(f"it could not run there: {reason}")
    no_device = job_checks.why_no_device(spec)
    if no_device:
        return f"would be refused: {no_device}"
    if case.platform.cannot_run is not None and case.obstacle is not None and not case.is_tried:
        return "no script is shown, since its job could not run there; --try-unsupported shows it all the same"
    return ""


def _objections_of(scheduler: Scheduler, spec: JobSpec, text: str, console: Console) -> list[str]:
    """Ask the scheduler itself what it has against a job. Raises BenchError."""
    objections = scheduler.check(spec, text)
    if objections:
        return [f"{spec.test}: {spec.platform} would refuse it: {'; '.join(objections)}"]
    console.always(f"{spec.platform} has nothing against it")
    return []
