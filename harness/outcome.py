"""How a job's end becomes pytest's: ERROR in setup, FAILED in place of the body, PENDING as a skip and exit code 75."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from platforms.job import MachineError, Outcome, Run, StillPending, StillUnsupported, WorkloadError

if TYPE_CHECKING:  # start-up is counted, and a session that only lists tests runs no jobs
    from harness.console import Console
    from harness.plans import TrialResult
    from platforms.runner import Job

EXIT_PENDING = 75  # EX_TEMPFAIL: nothing is wrong, and not everything is known yet


def run_or_raise(job: Job) -> Run | None:
    """Inside the fixture `run`: what the machine did wrong is raised here, so that pytest reports ERROR."""
    error = job.error
    if isinstance(error, MachineError):
        pytest.fail(str(error), pytrace=False)
    if isinstance(error, StillPending):
        pytest.skip(f"PENDING {error}")
    if isinstance(error, StillUnsupported):
        pytest.skip(str(error))
    return job.run  # of a WorkloadError too: the body, which would read it, is replaced, see fail_body


def fail_body(job: Job) -> None:
    """Before the test's body: what the workload did wrong is raised in its place, so that pytest reports FAILED."""
    if isinstance(job.error, WorkloadError):
        pytest.fail(str(job.error), pytrace=False)


def add_job_facts(report: pytest.TestReport, job: Job) -> None:
    """Give a report the job's own time, its id and folder (JUnit properties), and its reason in the short summary."""
    _put_reason_first(report, job)
    if report.when == "call" and job.run_s is not None:
        report.duration = job.run_s
    if report.when == "teardown":
        properties = {
            "job_id": job.job_id,
            "job_name": job.spec.name,
            "folder": job.folder,
            "platform": job.spec.platform,
        }
        report.user_properties += [(name, str(value)) for name, value in properties.items() if value is not None]


def _put_reason_first(report: pytest.TestReport, job: Job) -> None:
    """Put the reason of a job's failure first in pytest's short summary."""
    from platforms.runner import messages

    crash = getattr(report.longrepr, "reprcrash", None)
    if job.error is not None and crash is not None and crash.message == f"Failed: {job.error}":
        problems = job.run.problems if job.run is not None else ()
        set_summary_line(report, messages.one_line_summary(job.error.status, problems))


def set_summary_line(report: pytest.TestReport, line: str) -> None:
    """Set the line of pytest's short summary, which cuts it at the terminal's width."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = line


REPORTS = pytest.StashKey[dict[str, pytest.TestReport]]()  # of a test, by phase


def of_test(reports: dict[str, pytest.TestReport], job: Job) -> Outcome:
    """The outcome of a test with a job, after its teardown. A failure that was expected (xfail) is FAILED."""
    call = reports.get("call")
    if isinstance(job.error, StillPending):
        return Outcome.PENDING
    if call is not None and (call.failed or _failed_as_expected(call)):
        return Outcome.FAILED
    if any(report.failed for report in reports.values()):
        return Outcome.ERROR
    if any(report.skipped for report in reports.values()):
        return Outcome.SKIPPED
    return Outcome.PASSED


def of_trial(result: TrialResult) -> Outcome:
    """The outcome of one of several jobs of a test. What they mean for the test is the plan's to say."""
    assert result.job is not None
    if result.job.error is not None:
        return result.job.error.status.state.outcome
    return Outcome.PASSED if result.error is None else Outcome.FAILED


def _failed_as_expected(report: pytest.TestReport) -> bool:
    return report.skipped and hasattr(report, "wasxfail")


def exit_status(status: int, pending: int) -> int:
    """75 when nothing failed and some jobs are pending, else pytest's own exit status."""
    if pending and status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return EXIT_PENDING
    return status


def regressed(config: pytest.Config, console: Console) -> None:
    """--benchmark-compare-fail has found slower numbers, and pytest-benchmark has named them."""
    console.problem("numbers have regressed, named above; the exit code is 1")
    session: Any = config.pluginmanager.get_plugin("session")
    if session.exitstatus in (pytest.ExitCode.OK, EXIT_PENDING):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
