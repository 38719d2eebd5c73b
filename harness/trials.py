"""The engine of plans: begins the jobs that tests' plans ask for, while the session waits.

A test has one or more jobs, its trials. All of them run side by side with those of other tests. When one has ended, its
test's plan is asked for more, whichever test pytest is at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.plans import Conclusion, Plan, TrialRequest, TrialResult

if TYPE_CHECKING:
    from harness.history_entries import HistoryEntries
    from platforms.config.schema import Platform
    from platforms.job import JobSpec
    from platforms.rundir.session_history import Attempt
    from platforms.runner import Job, Runner
    from reporting.history.envelope import Envelope


@dataclass
class _Begun:
    """A job that was begun for a request.

    Attributes:
        job: None if it was too expensive.
        noticed: its plan knows of its end.
        body_ended: the test's body has run for it.
        body_error: what the body says against it.
        envelope: of a job that has measured well, as long as nothing adds to it.
    """

    request: TrialRequest
    job: Job | None
    noticed: bool = False
    body_ended: bool = False
    body_error: str | None = None
    envelope: Envelope | None = None


@dataclass
class _Test:
    plan: Plan
    begun: list[_Begun] = field(default_factory=list)


class Trials:
    """The jobs of all tests of a session. Only the main thread calls it.

    Args:
        job_of: makes the spec of a test's request, with the platform that it is for.
        attempt_of: which attempt a job is, by its key.

    Attributes:
        waits_for_others: whether a test's plan cannot ask for more before jobs of other tests have ended.
        released: the tests whose plans ask for more, since jobs of other tests have ended.
    """

    def __init__(
        self,
        runner: Runner,
        entries: HistoryEntries,
        job_of: Callable[[str, TrialRequest], tuple[JobSpec, Platform]],
        attempt_of: Callable[[str], Attempt],
    ) -> None:
        self._runner = runner
        self._entries = entries
        self._job_of = job_of
        self._attempt_of = attempt_of
        self._tests: dict[str, _Test] = {}
        self.waits_for_others: Callable[[str], bool] = lambda test: False
        self.released: Callable[[], Sequence[str]] = lambda: ()

    def add_tests(self, plans: Mapping[str, Plan]) -> None:
        """Begin the first jobs of tests, by id. The first jobs of all tests come before the second ones."""
        rounds: dict[str, list[TrialRequest]] = {}
        for test, plan in plans.items():
            self._tests[test] = _Test(plan)
            rounds[test] = list(plan.first())
        for number in range(max(map(len, rounds.values()), default=0)):
            for test, requests in rounds.items():
                if number < len(requests):
                    self._begin(test, requests[number], affordable=True)

    def jobs(self, test: str) -> list[Job]:
        """The jobs of a test, each at its last attempt, in the order in which they were begun."""
        return [_last(begun.job) for begun in self._tests[test].begun if begun.job is not None]

    def main_job(self, test: str) -> Job:
        """The job that speaks for a test.

        It is the first one that the session has stopped waiting for; else the first one that has measured well; else
        the first one.
        """
        jobs = self.jobs(test)
        left = [job for job in jobs if not job.done and job.left is not None]
        if left:
            return left[0]
        return next((job for job in jobs if _has_measured(job)), jobs[0])

    def is_live(self, test: str) -> bool:
        """Whether the session still waits for one of a test's jobs, or for jobs of others that its plan needs."""
        return any(result.live for result in self.results(test)) or self.waits_for_others(test)

    def has_passed(self, test: str, job: Job) -> bool:
        """Whether the test's body has run for a job, and has nothing against it."""
        begun = self._begun(test, job)
        return begun.body_ended and begun.body_error is None

    def jobs_without_body(self, test: str) -> list[Job]:
        """The jobs of a test that have measured well, and for which its body has not run."""
        jobs = [_last(begun.job) for begun in self._tests[test].begun if begun.job is not None and not begun.body_ended]
        return [job for job in jobs if _has_measured(job)]

    def body_ended(self, test: str, job: Job, error: str | None = None) -> None:
        """The test's body has run for a job.

        Args:
            error: what it says against the job; None if it has passed.
        """
        begun = self._begun(test, job)
        begun.body_ended = True
        begun.body_error = error
        begun.envelope = None  # the body may have added metrics

    def results(self, test: str) -> list[TrialResult]:
        """What the jobs of a test have measured so far."""
        return [self._result(begun) for begun in self._tests[test].begun]

    def conclusion(self, test: str) -> Conclusion | None:
        return self._tests[test].plan.conclusion(self.results(test))

    @property
    def unfinished(self) -> bool:
        """Some plan does not know yet how one of its jobs has ended, so it may ask for more."""
        return any(not begun.noticed for test in self._tests.values() for begun in test.begun)

    def advance(self) -> None:
        """Ask the plans of tests whose jobs have ended for more, and those that have waited for them."""
        ended = [test for test in self._tests if self._notice(test)]
        for test in ended:
            self.ask(test)
        if ended:
            for test in self.released():
                self.ask(test)

    def ask(self, test: str) -> None:
        """Ask a test's plan for more jobs. Nothing is begun for a test that the session has stopped waiting for."""
        results = self.results(test)
        if any(result.job is not None and result.job.left is not None for result in results):
            return
        for request in self._tests[test].plan.more(results):
            self._begin(test, request, affordable=False)

    def wait(self, test: str, tick: Callable[[Job], None], deadline: float | None) -> None:
        """Wait until none of a test's jobs is live and its plan asks for no more.

        Args:
            tick: called with a job again and again.
            deadline: as of Runner.wait: the jobs go on without this session then.
        """

        def advance_and_tick(job: Job) -> None:
            self.advance()
            tick(job)

        waited = 0
        while waited < len(self._tests[test].begun) or self.waits_for_others(test):
            if waited < len(self._tests[test].begun):
                job = self._tests[test].begun[waited].job
                waited += 1
            else:
                job = self._live_job_of_others()
                if job is None:
                    return
            if job is not None:
                self._runner.wait(job, tick=advance_and_tick, deadline=deadline)
            self.advance()

    def _live_job_of_others(self) -> Job | None:
        results = [result for test in self._tests for result in self.results(test)]
        return next((result.job for result in results if result.live), None)

    def _notice(self, test: str) -> bool:
        """Whether jobs of a test have ended since the last time."""
        found = False
        for begun in self._tests[test].begun:
            if not begun.noticed and (begun.job is None or self._runner.settled(begun.job)):
                begun.noticed = True
                found = True
        return found

    def _begin(self, test: str, request: TrialRequest, *, affordable: bool) -> None:
        """Begin a job. The first jobs of tests are known to be affordable, all of them together."""
        spec, platform = self._job_of(test, request)
        job = None
        if affordable or self._runner.can_afford(spec):
            job = self._runner.add(spec, platform, self._attempt_of(spec.key))
        self._tests[test].begun.append(_Begun(request, job))

    def _result(self, begun: _Begun) -> TrialResult:
        if begun.job is None:
            return TrialResult(begun.request, None)
        job = _last(begun.job)
        if begun.body_error is not None or not _has_measured(job):
            return TrialResult(begun.request, job, error=begun.body_error)
        if begun.envelope is None:
            begun.envelope = self._entries.envelope(job)
        return TrialResult(begun.request, job, begun.envelope)

    def _begun(self, test: str, job: Job) -> _Begun:
        return next(begun for begun in self._tests[test].begun if begun.job is not None and _last(begun.job) is job)


def _has_measured(job: Job) -> bool:
    return job.done and job.error is None and job.run is not None and not job.run.problems


def _last(job: Job) -> Job:
    """The last attempt of a job."""
    while job.successor is not None:
        job = job.successor
    return job
