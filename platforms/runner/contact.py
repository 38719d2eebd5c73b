"""Calls one platform's scheduler: when to poll it, and how long to leave it alone after it did not answer.

PlatformQueue and Finalizer call this on the platform's worker thread. The main thread reads `login` and
`next_action_at`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from platforms.job import AwayError, LoginNeeded, Status, Submitted, describe_error
from platforms.results.gates import LOG_DOUBT
from platforms.runner.live_job import Job
from platforms.schedulers import Scheduler

if TYPE_CHECKING:
    from platforms.config.schema import Platform

P = ParamSpec("P")
T = TypeVar("T")


class Contact:
    """A platform's scheduler, and whether it answers. Names in `_at` are times by `clock`."""

    def __init__(
        self, platform: Platform, connect: Callable[[Platform], Scheduler], clock: Callable[[], float]
    ) -> None:
        self._platform = platform
        self._connect = connect
        self._clock = clock
        self.poll_at = 0.0  # when to ask for the states of the jobs next
        self.away: AwayError | None = None  # it did not answer; until poll_at nothing is asked but to cancel
        self._poll_interval_s = platform.poll_s
        self._polled_at = -math.inf  # when the last poll began
        self._leave_alone_until = -math.inf  # after a slow poll
        self._check_news_at = math.inf  # when to check next whether an early poll is worth it
        self._told = False  # of an end, since the last poll began

    @cached_property
    def scheduler(self) -> Scheduler:
        """Raises ConfigError."""
        return self._connect(self._platform)

    @property
    def login(self) -> LoginNeeded | None:
        """Set while a person is needed to open the connection again."""
        return self.away if isinstance(self.away, LoginNeeded) else None

    # --- when to poll ------------------------------------------------------------------------------------------------

    @property
    def next_action_at(self) -> float:
        """When there is something to do next for submitted jobs."""
        if self.away is not None:
            return self.poll_at
        return min(self.poll_at, self._check_news_at, self._soonest if self._told else math.inf)

    @property
    def _soonest(self) -> float:
        """When the next poll may begin at the earliest."""
        return max(self._polled_at + self._first_poll_s, self._leave_alone_until)

    def note_end(self) -> None:
        """A job has ended, so a poll is worth it. Any thread may call this."""
        self._told = True

    def start_polling(self) -> None:
        """Poll soon after the first submission, since the job may end at once; then ever more rarely, up to poll_s."""
        self._poll_interval_s = self._first_poll_s
        self.begin_poll()

    def begin_poll(self) -> None:
        """Call when a poll begins: sets the time of the next one."""
        self._told = False
        self._polled_at = self._clock()
        self.poll_at = self._polled_at + self._poll_interval_s
        self._poll_interval_s = min(2 * self._poll_interval_s, self._platform.poll_s)
        self._check_news_at = self._polled_at + self.scheduler.glance_s

    def pause(self) -> None:
        """Call when a poll could not even begin: the next one comes after the usual time."""
        self.poll_at = self._clock() + self._platform.poll_s

    def end_poll(self) -> None:
        """Call when a poll is over. A slow poll is followed by as much time without one.

        That time is for submissions, and for a scheduler that is busy.
        """
        now = self._clock()
        self._leave_alone_until = now + (now - self._polled_at)
        if self.away is None:
            self.poll_at = max(self.poll_at, self._leave_alone_until)

    def poll_is_due(self, jobs: Iterable[Job]) -> bool:
        """Whether to poll now: it is time, or a job shows news that costs its scheduler nothing to see.

        Such news is, for example, the last file of a job that has ended. Polls follow it at short intervals, since a
        scheduler takes some seconds to agree.
        """
        now = self._clock()
        if now >= self.poll_at or (self._told and self.away is None and now >= self._soonest):
            return True
        if self.away is not None or now < self._check_news_at:
            return False
        self._check_news_at = now + self.scheduler.glance_s
        try:
            has_news = self.scheduler.has_news(_submissions(jobs))
        except Exception:  # the next poll says what is wrong
            has_news = False
        if has_news:
            self._poll_interval_s = self._first_poll_s
            self.poll_at = max(now, self._soonest)
        return now >= self.poll_at

    @property
    def _first_poll_s(self) -> float:
        return min(self.scheduler.first_look_s, self._platform.poll_s)

    # --- what is asked -----------------------------------------------------------------------------------------------

    def call(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of the scheduler. If it does not answer, nothing more is asked until the next poll.

        Each further call would only time out, too.
        """
        try:
            answer = method(*args, **kwargs)
        except AwayError as error:
            self.away = error
            self.begin_poll()
            raise
        self.away = None
        return answer

    def statuses(self, jobs: Iterable[Job]) -> Mapping[str, Status]:
        """The statuses of jobs, by their ids, with one query. Raises BenchError."""
        return dict(self.call(self.scheduler.status, _submissions(jobs)))

    def read_log(self, job: Job, chunks: int | None = None) -> None:
        """Read what is new in a job's log, or only some chunks of it. Raises BenchError."""
        if self.away is not None:
            raise self.away
        self.call(job.read_log, self.scheduler, chunks)

    def gaps(self, job: Job) -> tuple[str, ...]:
        """What is missing in a log that has been read to its end, a sentence each."""
        assert job.submission is not None
        return tuple(self.scheduler.gaps(job.submission))

    def log_doubts(self, job: Job) -> tuple[str, ...]:
        """Why a log that has been read to its end may lack lines, a sentence each."""
        assert job.submission is not None
        return tuple(f"{LOG_DOUBT}: {why}" for why in self.scheduler.log_doubts(job.submission))

    def cancel(self, jobs: Iterable[Job]) -> dict[Job, str]:
        """Cancel jobs with one request. Returns those that may still be there, and why."""
        submitted = {job.job_id: job for job in jobs if job.job_id is not None}
        if not submitted:
            return {}
        try:
            remaining = self.call(self.scheduler.cancel, _submissions(submitted.values()))
        except Exception as error:
            return dict.fromkeys(submitted.values(), describe_error(error))
        return {submitted[job_id]: why for job_id, why in remaining.items() if job_id in submitted}

    def clean(self, job: Job) -> tuple[str, ...]:
        """Remove what a successful job left at its scheduler. Returns warnings."""
        assert job.submission is not None
        try:
            self.scheduler.clean(job.submission)
        except Exception as error:  # the job has its result
            return (f"not cleaned up: {describe_error(error)}",)
        return ()

    def hints(self, job: Job) -> tuple[str, ...]:
        """Commands that show a job."""
        if job.submission is None:
            return ()
        try:
            return self.scheduler.hints(job.submission)
        except Exception as error:  # the message that the hints belong to matters more
            return (f"(no commands: {error})",)


def _submissions(jobs: Iterable[Job]) -> list[Submitted]:
    return [job.submission for job in jobs if job.submission is not None]
