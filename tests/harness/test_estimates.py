"""How long jobs still take: what they say themselves, what the history says, and what is not known."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from harness.estimates import UNKNOWN, Estimates, Remaining
from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, State, Status
from platforms.results.log_reader import Progress
from platforms.runner import Job
from platforms.schedulers import Submitted
from tests.reporting.history_lines import BEGAN_S, envelope

NOW_S = BEGAN_S + 10_000.0


class Session:
    """Jobs of one platform, with a clock that the test sets."""

    def __init__(self, folder: Path, max_running: int = 1, **past_s: float) -> None:
        self.now = 0.0
        self.reads = 0
        self._folder = folder
        self._past_s = past_s
        self._platform = Platform(name="far", max_running=max_running)
        self.jobs: list[Job] = []
        self.estimates = Estimates(self._past, clock=lambda: self.now, wall=lambda: NOW_S + self.now)

    def _past(self):
        """For each name a run that waited 100 s and ran for so long."""
        self.reads += 1
        return [
            envelope(name, submitted_s=BEGAN_S, started_s=BEGAN_S + 100.0, ended_s=BEGAN_S + 100.0 + seconds)
            for name, seconds in self._past_s.items()
        ]

    def job(self, test: str, state: State | None = None, ran_s: float = 0.0, **status) -> Job:
        """A job in a state; None for one that is not submitted."""
        spec = JobSpec(f"job-{len(self.jobs)}", test, "far", Layout(1, 1, "cpu"), (), time_limit_s=1800.0)
        job = Job(spec, self._platform, self._folder, clock=lambda: self.now)
        if state is not None:
            job.submission = Submitted(spec, str(len(self.jobs)), self._folder)
            started_s = NOW_S - ran_s if state is State.RUNNING else None
            job.status = Status(state, started_s=started_s, **status)
        self.jobs.append(job)
        return job

    def left(self) -> list[str]:
        """How long each job takes, in seconds, and then the session."""
        if not self.reads:
            self.estimates.load()
        forecast = self.estimates.forecast(self.jobs)
        return [_short(left) for left in (*forecast.jobs.values(), forecast.session)]


def _short(left: Remaining) -> str:
    return ("max " if left.at_most else "") + (f"{left.seconds:.0f}" if left.is_known else "?")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "<1 min"), (44, "<1 min"), (46, "~1 min"), (250, "~4 min"), (569, "~9 min"), (601, "~10 min"),
     (780, "~15 min"), (5200, "~85 min"), (5300, "~1.5 h"), (7200, "~2 h"),
     (40_000, "~11 h"), (200_000, "~2 days"), (math.inf, "?")],
)  # fmt: skip
def test_it_claims_no_more_digits_than_are_known(seconds, text):
    assert str(Remaining(seconds)) == text


def test_a_limit_is_called_one():
    assert str(Remaining(3600.0, at_most=True)) == "max 60 min"


def test_a_job_that_reports_its_progress_is_believed(tmp_path):
    session = Session(tmp_path, a=999.0)
    job = session.job("a", State.RUNNING, ran_s=60.0)
    job.progress = Progress(step=1, steps=4, left_s=180.0)
    assert session.left() == ["180", "180"]
    assert session.estimates.forecast(session.jobs).shares == {job: 0.25}
    session.now = 50.0
    assert session.left()[0] == "130"  # it has said nothing new since
    job.progress = Progress(step=2, steps=4, left_s=170.0)
    assert session.left()[0] == "170"


def test_a_report_that_is_over_for_long_is_not_believed(tmp_path):
    session = Session(tmp_path)
    session.job("a", State.RUNNING).progress = Progress(left_s=10.0)
    assert session.left()[0] == "10"
    session.now = 60.0
    assert session.left()[0] == "0"
    session.now = 80.0
    assert session.left()[0] == "?"


def test_before_it_reports_the_history_says_how_long_it_ran(tmp_path):
    session = Session(tmp_path, a=600.0)
    session.job("a", State.RUNNING, ran_s=200.0)
    assert session.left() == ["400", "400"]


def test_a_job_that_runs_longer_than_ever_has_its_limit(tmp_path):
    session = Session(tmp_path, a=600.0)
    session.job("a", State.RUNNING, ran_s=900.0)
    assert session.left() == ["max 900", "max 900"]
    session.now = 900.0
    assert session.left() == ["?", "?"]


def test_without_a_history_the_time_limit_is_the_most(tmp_path):
    session = Session(tmp_path)
    job = session.job("a", State.RUNNING, ran_s=300.0)
    assert session.left() == ["max 1500", "max 1500"]
    assert job not in session.estimates.forecast(session.jobs).shares


def test_a_queue_of_which_nothing_is_known_is_not_known(tmp_path):
    session = Session(tmp_path)
    session.job("a", State.QUEUED)
    assert session.left() == ["?", "?"]


def test_a_queue_is_as_long_as_in_the_past(tmp_path):
    session = Session(tmp_path, a=600.0)
    session.job("a", State.QUEUED, submitted_s=NOW_S - 30.0)
    assert session.left() == ["670", "670"]
    session.now = 200.0
    assert session.left() == ["?", "?"]  # longer than ever


def test_a_start_that_the_scheduler_expects_counts(tmp_path):
    session = Session(tmp_path, a=600.0)
    session.job("a", State.QUEUED, expected_s=NOW_S + 3000.0)
    assert session.left() == ["3600", "3600"]


def test_jobs_that_are_not_submitted_wait_for_slots(tmp_path):
    session = Session(tmp_path, max_running=2, a=600.0, b=300.0)
    session.job("a", State.RUNNING, ran_s=500.0)
    session.job("b", State.RUNNING, ran_s=50.0)
    session.job("a")
    session.job("b")
    assert session.left() == ["100", "250", "800", "650", "800"]


def test_what_this_session_waited_counts_for_tests_without_a_history(tmp_path):
    session = Session(tmp_path)
    session.job("a", State.RUNNING, ran_s=100.0, submitted_s=NOW_S - 120.0)
    session.job("b")
    assert session.left() == ["max 1700", "max 3520", "max 3520"]


def test_jobs_that_are_done_or_left_count_no_more(tmp_path):
    session = Session(tmp_path, a=600.0)
    session.job("a", State.SUCCEEDED).done = True
    forecast = session.estimates.forecast(session.jobs)
    assert (forecast.session, forecast.done) == (Remaining(0.0), 1.0)


def test_a_forecast_does_not_wait_for_the_history(tmp_path):
    session = Session(tmp_path, a=600.0)
    session.job("a", State.RUNNING)
    assert session.estimates.forecast(session.jobs).session == Remaining(1800.0, at_most=True)
    assert session.reads == 0
    session.estimates.load()
    assert session.estimates.forecast(session.jobs).session == Remaining(600.0)


def test_nothing_is_known_is_said_with_a_question_mark():
    assert str(UNKNOWN) == "?"
    assert not UNKNOWN.after(Remaining(5.0)).is_known
