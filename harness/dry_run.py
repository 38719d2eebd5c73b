"""--dry-run: show each job as it would be submitted, and submit none."""

from __future__ import annotations

import datetime

import pytest
from _pytest.skipping import evaluate_skip_marks

from harness import job_checks, pauses
from harness.cases import Case
from harness.collection import TestFiles
from harness.console import Console
from harness.inputs import Inputs
from harness.job_factory import JobFactory
from harness.selection import Selection
from harness.wording import counted
from platforms import schedulers
from platforms.config.schema import Platform
from platforms.job import BenchError, ConfigError, JobSpec, RefusedError, describe_error
from platforms.runner import messages
from platforms.schedulers import Scheduler


def dry_run(selection: Selection, items: list[pytest.Item], files: TestFiles, console: Console) -> None:
    """Render the job of each test. With --dry-run=server each scheduler is asked what it has against the job.

    Raises UsageError where the site's rules forbid a job, or its scheduler would refuse it.
    """
    pauses.skip_paused(selection, items, datetime.date.today())  # which is said below, at each test
    inputs = selection.inputs
    if inputs.options.ask_server:
        pauses.skip_maintained(selection, items)
    job_tests = [item for item in items if selection.has_job(item)]
    factory = JobFactory(selection, job_tests, inputs.options.new_run_id())
    factory.leave_out_refused()
    jobs = factory.first_jobs()
    for notice in factory.notices:
        console.problem(notice)
    job_checks.refuse_unknown_committed(files, inputs, jobs)
    if inputs.options.ask_server:
        job_checks.refuse_incomplete(inputs, jobs)
    shown = _Shown(inputs, console)
    for item in items:
        if item.nodeid in jobs:
            shown.job(item, selection.case(item), jobs[item.nodeid])
    count = counted(shown.rendered, "job")
    skipped_too = f" ({shown.skipped} of them would be skipped)" if shown.skipped else ""
    without = len(jobs) - shown.rendered
    without_script = f", {without} without a script" if without else ""
    console.section(f"dry run: {count} rendered{skipped_too}{without_script}, none submitted")
    objections = [*selection.refused.values(), *shown.objections]
    if objections:
        raise pytest.UsageError("\n".join(objections))


class _Shown:
    """Shows jobs, and counts them.

    Attributes:
        objections: a sentence on each job that would be refused.
        rendered, skipped: how many jobs have a script, and how many of these tests would be skipped.
    """

    def __init__(self, inputs: Inputs, console: Console) -> None:
        self.objections: list[str] = []
        self.rendered = 0
        self.skipped = 0
        self._inputs = inputs
        self._console = console
        self._schedulers: dict[str, Scheduler] = {}  # by platform

    def job(self, item: pytest.Item, case: Case, spec: JobSpec) -> None:
        """Show the job of a test. Raises UsageError where nothing can be known of it."""
        platform = self._inputs.platforms[spec.platform]
        self._console.section(f"{spec.test} ({platform.scheduler})")
        skip = evaluate_skip_marks(item)
        if skip is not None:
            self._console.always(f"would be skipped: {skip.reason}")
        shows_all = self._inputs.options.try_unsupported
        said, has_script = _on_obstacle(case, spec.benchmark or "", shows_all=shows_all)
        for line in said:
            self._console.always(line)
        if not has_script:
            return
        refused = job_checks.why_untrainable(platform, spec, item)
        if refused and skip is None:
            self._console.always(f"would be refused: {refused}")
            self.objections.append(f"{spec.test}: {refused}")
        try:
            self._script(platform, spec, is_skipped=skip is not None)
        except BenchError as error:
            raise pytest.UsageError(f"{spec.test}: {describe_error(error)}") from None

    def _script(self, platform: Platform, spec: JobSpec, *, is_skipped: bool) -> None:
        if platform.name not in self._schedulers:
            self._schedulers[platform.name] = schedulers.connect(platform)
        scheduler = self._schedulers[platform.name]
        try:
            text = scheduler.render(spec)
        except (RefusedError, ConfigError) as error:  # of this job alone
            self.objections.append(f"{spec.test}: {describe_error(error)}")
            return
        self.rendered += 1
        self.skipped += is_skipped
        self._console.always(text.rstrip("\n"))
        if platform.missing:
            self._console.always("missing: " + ", ".join(platform.missing))
        findings = scheduler.lint(spec, text)
        if findings:
            self.objections.append(f"{spec.test}: {messages.against_policy(findings)}")
        elif self._inputs.options.ask_server and not is_skipped:
            self._ask(scheduler, spec, text)

    def _ask(self, scheduler: Scheduler, spec: JobSpec, text: str) -> None:
        """Ask the scheduler itself what it has against a job."""
        objections = scheduler.check(spec, text)
        if objections:
            self.objections.append(f"{spec.test}: {spec.platform} would refuse it: {'; '.join(objections)}")
        else:
            self._console.always(f"{spec.platform} has nothing against it")


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
