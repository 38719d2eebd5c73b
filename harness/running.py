"""A session from its first submission on: its jobs, and what becomes of its tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import pytest

from harness import obstacles, outcome
from harness.console import Console
from harness.inputs import Inputs
from platforms.job import Outcome, Role, Run, StillPending, describe_error

if TYPE_CHECKING:
    from harness.gate import Gate
    from harness.history_entries import HistoryEntries
    from harness.plans import Conclusion
    from harness.trials import Trials
    from platforms.runner import Job, Runner
    from reporting.gate.verdict import Verdict


@dataclass
class RunningTest:
    """What has become of a test so far.

    Attributes:
        job: the one that speaks for it.
        recorded: what it has recorded of its job, or of the middle one of its jobs.
        remark: on what is recorded of several jobs.
        is_unrecorded: it has passed, and has not called record(run).
        is_discarded: it has failed, and its numbers mean nothing.
        missed: sentences on committed values that its run has missed.
        regression: a short line, of a test that the gate, its plan or a committed value has failed.
        conclusion: what its jobs say together, where it has several.
        has_ended: its outcome is in the history.
    """

    job: Job
    recorded: Run | None = None
    remark: str | None = None
    is_unrecorded: bool = False
    is_discarded: bool = False
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)  # of the gate, by metric
    missed: Sequence[str] = ()
    regression: str | None = None
    conclusion: Conclusion | None = None
    has_ended: bool = False


@dataclass
class Running:
    """One for each session that submits jobs. Only the main thread uses it.

    Attributes:
        deadline: on time.monotonic: when we stop waiting.
        tests: by id, those that have a job.
        gate: with the repeats that it asks for. None with --gate=off, and until jobs are submitted.
        end: to be called when pytest has written all that it writes.
        is_unwritten: results could not be written.
    """

    inputs: Inputs
    runner: Runner
    entries: HistoryEntries
    trials: Trials
    deadline: float | None
    tests: dict[str, RunningTest] = field(default_factory=dict)
    gate: Gate | None = None
    began_s: float = field(default_factory=time.time)
    end: Callable[[], None] = lambda: None
    is_unwritten: bool = False

    @property
    def again(self) -> str:
        """The command that goes on with this run."""
        return self.inputs.options.again(self.runner.run_id)

    @property
    def pending(self) -> list[Job]:
        """The jobs that we stopped waiting for."""
        return [test.job for test in self.tests.values() if isinstance(test.job.error, StillPending)]

    def wait(self, item: pytest.Item, console: Console) -> None:
        """Wait for a test's jobs while all others go on. pytest does not capture output here, so progress is shown."""
        with console.waiting(self.runner.jobs):
            self.trials.wait(item.nodeid, console.tick, self.deadline)
        job = self.trials.main_job(item.nodeid)
        self.tests[item.nodeid].job = job
        login = self.runner.login(job)
        if job.error is not None and login is not None:
            console.once(f"{job.platform.name}: {describe_error(login)}")

    def run(self, item: pytest.Item) -> Run | None:
        """What the fixture `run` gives: the machine's mistakes are raised here, the workload's in the test's place."""
        if item.nodeid not in self.tests:
            return None
        job = self.tests[item.nodeid].job
        run = outcome.run_or_raise(job)
        if job.error is None and "record" in getattr(item, "fixturenames", ()):
            self._require_pin(job)
        return run

    def _require_pin(self, job: Job) -> None:
        """Fail where --gate=require finds nothing to compare the job with."""
        confirmations = None if self.gate is None else self.gate.loaded
        if confirmations is None or not job.spec.trial.in_series:
            return
        envelope = self.entries.envelope(job)
        why = None if envelope is None else confirmations.judging.why_not_comparable(envelope)
        if why is not None:
            pytest.fail(why, pytrace=False)

    # --- the end of a test -------------------------------------------------------------------------------------------

    def judge(self, item: pytest.Item) -> None:
        """Judge what a test has recorded, once its body has passed. A regression fails the test."""
        test = self.tests[item.nodeid]
        test.conclusion = self.trials.conclusion(item.nodeid)
        envelopes = [result.envelope for result in self.trials.results(item.nodeid) if result.envelope is not None]
        measured = [envelope for envelope in envelopes if envelope.trial.in_series]
        confirmations = self.gate.load() if self.gate is not None and measured else None
        if confirmations is not None:
            judging = confirmations.judging
            verdicts = judging.verdicts(measured[-1], measured[:-1])
            test.verdicts = judging.settled(confirmations.confirmed(item.nodeid, verdicts))
            red = judging.failing(test.verdicts)
            test.missed = judging.missed(measured)
            if red or test.missed:
                said = [f"{verdict.metric}: {verdict.short}" for verdict in red]
                test.regression = "; ".join([*said, *test.missed])
                texts = [judging.text(red)] if red else []
                pytest.fail("\n".join([*texts, *test.missed]), pytrace=False)
        if test.conclusion is not None and test.conclusion.fails:
            test.regression = test.conclusion.short
            pytest.fail(test.conclusion.text, pytrace=False)

    def test_failed(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Forget the numbers of a test that failed. Those of a regression stay, for the tables and the history."""
        test = self.tests.get(item.nodeid)
        if test is None:
            return
        if report.when == "call" and test.regression is not None:
            outcome.set_summary_line(report, test.regression)
        else:
            test.recorded = None
            test.is_discarded = True

    def test_ended(self, item: pytest.Item) -> None:
        """Write the outcome of a test into the history, after its teardown."""
        test = self.tests[item.nodeid]
        test_outcome = outcome.of_test(item.stash.setdefault(outcome.REPORTS, {}), test.job)
        if test_outcome is Outcome.PENDING:
            return
        test.has_ended = True
        if test.conclusion is None:  # the body has not run: no job has measured well
            test.conclusion = self.trials.conclusion(item.nodeid)
        results = self.trials.results(item.nodeid)
        jobs = [(result.job, result) for result in results if result.job is not None]
        for job, result in jobs:
            verdicts: Mapping[str, Verdict] = {}
            if result.request.trial.role is Role.MEASURE:
                verdicts = test.verdicts
            is_red = any(verdict.red for verdict in verdicts.values()) or bool(verdicts and test.missed)
            job_outcome = test_outcome if is_red or len(jobs) == 1 else outcome.of_trial(result)
            sane = not test.is_discarded and self.trials.has_passed(item.nodeid, job)
            self.entries.test_ended(job, job_outcome, sane, verdicts)

    def write_interrupted(self) -> None:
        """Write the numbers of tests whose body has passed, and that an interrupt has ended before their verdict.

        A test that is pending gets its verdict when the run is resumed.
        """
        for name, test in self.tests.items():
            if test.has_ended or isinstance(test.job.error, StillPending):
                continue
            for job in self.trials.jobs(name):
                if job.done and self.trials.has_passed(name, job):
                    self.entries.test_ended(job, Outcome.PASSED, True, {})

    # --- the end of the session --------------------------------------------------------------------------------------

    def report(self, console: Console) -> None:
        """Show what the jobs took and measured, and one line on those that go on without this session."""
        verdicts = {name: test.verdicts for name, test in self.tests.items() if test.verdicts}
        recorded = [test.recorded for test in self.tests.values() if test.recorded is not None]
        remarks = {name: test.remark for name, test in self.tests.items() if test.remark is not None}
        results = [self.trials.results(name) for name, test in self.tests.items() if test.recorded is not None]
        envelopes = [one.envelope for of_test in results for one in of_test if one.envelope is not None]
        console.summary(recorded, remarks, verdicts, self.runner.jobs, self.began_s, envelopes)
        confirmations = None if self.gate is None else self.gate.loaded
        if confirmations is not None:
            judging = confirmations.judging
            for line in (*confirmations.summary(), *judging.summary(verdicts)):
                console.problem(line)
        for name, test in self.tests.items():
            obstacle = obstacles.line(name, test.job, has_passed=test.has_ended and not test.is_discarded)
            if obstacle is not None:
                console.always(obstacle)
        for name, test in self.tests.items():
            if test.conclusion is not None and test.regression is None:  # else it is the message of the failure
                console.always(f"{name}: {test.conclusion.text}")
        self._report_unrecorded(console)

    def _report_unrecorded(self, console: Console) -> None:
        unrecorded = {name: test for name, test in self.tests.items() if test.is_unrecorded}
        for name, test in unrecorded.items():  # the table of results has the warnings of the others
            for warning in test.job.run.warnings if test.job.run is not None else ():
                console.problem(f"{name}: {warning}")
        if unrecorded:
            tests = next(iter(unrecorded))
            if len(unrecorded) > 1:
                tests += f" and {len(unrecorded) - 1} more"
            console.problem(f"{tests}: nothing is recorded, since record(run) was not called")

    def report_pending(self, console: Console) -> None:
        """Say how to go on with the jobs that we stopped waiting for."""
        pending = self.pending
        if not pending:
            return
        jobs = "1 job is" if len(pending) == 1 else f"{len(pending)} jobs are"
        unsent = sum(job.asked_s is None for job in pending)
        which = f"PENDING, {unsent} not submitted yet" if unsent else "PENDING"
        console.problem(f"{jobs} {which}: {self.again} goes on waiting (-rs says for what)")

    def not_written(self, error: Exception) -> NoReturn:
        """Leave the run unfinished, because its results could not be written. Raises pytest's Exit."""
        self.is_unwritten = True
        pytest.exit(
            f"results cannot be written: {error}; {self.again} reads and writes them again",
            pytest.ExitCode.INTERNAL_ERROR,
        )
