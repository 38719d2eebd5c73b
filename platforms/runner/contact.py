"""What is asked of one platform's scheduler, how often, and for how long nothing is after it has not answered."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from platforms.job import AwayError, BenchError, LoginNeeded, Status, Submitted
from platforms.runner import messages
from platforms.runner.live_job import Job
from platforms.schedulers import Scheduler

if TYPE_CHECKING:
    from platforms.config.schema import Platform

P = ParamSpec("P")
T = TypeVar("T")


class Contact:
    """A platform's scheduler, and whether it answers."""

    def __init__(
        self, platform: Platform, connect: Callable[[Platform], Scheduler], clock: Callable[[], float]
    ) -> None:
        self._platform, self._connect, self._clock = platform, connect, clock
        self.due = 0.0  # by clock: when to ask for the jobs' states again
        self.held: AwayError | None = None  # nobody answered, and nothing but an end is asked until it is due
        self._pause_s = platform.poll_s  # from the next look to the one after it
        self._looked = -math.inf  # by clock: when the last look began
        self._rests_until = -math.inf  # by clock: until when the scheduler is left in peace after a slow look
        self._glance_due = math.inf  # by clock: when to see next whether a look is worth it before it is due

    @cached_property
    def scheduler(self) -> Scheduler:
        """Raises ConfigError."""
        return self._connect(self._platform)

    @property
    def login(self) -> LoginNeeded | None:
        """Set while a person is needed to open the connection again."""
        held = self.held
        return held if isinstance(held, LoginNeeded) else None

    @property
    def wakes(self) -> float:
        """By clock: when there is something to do next for jobs that the scheduler has."""
        return self.due if self.held is not None else min(self.due, self._glance_due)

    def begin_looks(self) -> None:
        """The first job is submitted and may end at once: looks come soon, then ever more rarely, up to poll_s."""
        self._pause_s = self._soon_s
        self.next_poll()

    def next_poll(self) -> None:
        """A look begins: when the next one is due."""
        self._looked = self._clock()
        self.due = self._looked + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._platform.poll_s)
        self._glance_due = self._looked + self.scheduler.glance_s

    def looked(self) -> None:
        """The look is over. One that takes longer than from one to the next leaves as much time for other things, jobs
        that are to be submitted above all, and to a scheduler that has much to do."""
        now = self._clock()
        self._rests_until = now + (now - self._looked)
        if self.held is None:
            self.due = max(self.due, self._rests_until)

    def look_is_worth_it(self, jobs: Iterable[Job]) -> bool:
        """Whether a look at the jobs is due, or one of them gives a sign that costs its scheduler nothing, such as the
        last file of a job that has ended. Looks that follow such a sign come soon one after the other, since a
        scheduler takes some seconds to agree."""
        now = self._clock()
        if now >= self.due:
            return True
        if self.held is not None or now < self._glance_due:
            return False
        self._glance_due = now + self.scheduler.glance_s
        try:
            sign = self.scheduler.has_news(_submissions(jobs))
        except BenchError:  # the next look says what is wrong
            sign = False
        if sign:
            self._pause_s = self._soon_s
            self.due = max(now, self._looked + self._soon_s, self._rests_until)
        return now >= self.due

    @property
    def _soon_s(self) -> float:
        return min(self.scheduler.first_look_s, self._platform.poll_s)

    def reach(self, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Ask the scheduler. Where nobody answers, nothing more is asked until the next poll: each would time out."""
        try:
            answer = ask(*args, **kwargs)
        except AwayError as error:
            self.held = error
            self.next_poll()
            raise
        self.held = None
        return answer

    def statuses(self, jobs: Iterable[Job]) -> Mapping[str, Status]:
        """By id. Raises BenchError."""
        return self.reach(self.scheduler.status, _submissions(jobs))

    def read(self, job: Job, chunks: int | None = None) -> None:
        """What is new in a job's log. Raises BenchError."""
        if self.held is not None:
            raise self.held
        self.reach(job.read, self.scheduler, chunks)

    def gaps(self, job: Job) -> tuple[str, ...]:
        """What of a log that has been read to its end is missing."""
        assert job.submission is not None
        return tuple(self.scheduler.gaps(job.submission))

    def cancel(self, jobs: Iterable[Job]) -> dict[Job, str]:
        """Cancel jobs with one request. Returns those that cannot be seen to be gone, and why."""
        ids = {job.job_id: job for job in jobs if job.job_id is not None}
        try:
            left = self.reach(self.scheduler.cancel, _submissions(ids.values())) if ids else {}
        except Exception as error:
            return dict.fromkeys(ids.values(), messages.why(error))
        return {ids[job_id]: why for job_id, why in left.items() if job_id in ids}

    def clean(self, job: Job) -> tuple[str, ...]:
        """After a success. Returns what a person should know about it."""
        assert job.submission is not None
        try:
            self.scheduler.clean(job.submission)
        except BenchError as error:
            return (f"not cleaned up: {error}",)
        return ()

    def hints(self, job: Job) -> tuple[str, ...]:
        """Commands to look at a job."""
        if job.submission is None:
            return ()
        try:
            return self.scheduler.hints(job.submission)
        except Exception as error:  # what we were about to say matters more
            return (f"(no commands: {error})",)


def _submissions(jobs: Iterable[Job]) -> list[Submitted]:
    return [job.submission for job in jobs if job.submission is not None]
