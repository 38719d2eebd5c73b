"""How long the jobs of a session still take, as far as that can be known.

A training job says itself how long it needs. Of any other job the history says how long it waited and ran in the past.
Without both, the time limit is the most that a job may run.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from platforms.job import State

if TYPE_CHECKING:
    from platforms.results.log_reader import Progress
    from platforms.runner import Job
    from reporting.history.envelope import Envelope

LAST_RUNS = 20  # of a test, whose durations count
LATE_S = 60.0  # an estimate that is over for longer was wrong
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0


@dataclass(frozen=True)
class Remaining:
    """How long something still takes. `at_most`: it may end much earlier. Infinite seconds are not known."""

    seconds: float
    at_most: bool = False

    @property
    def is_known(self) -> bool:
        return math.isfinite(self.seconds)

    def after(self, earlier: Remaining) -> Remaining:
        """Both, one after the other."""
        if not (self.is_known and earlier.is_known):
            return UNKNOWN
        return Remaining(self.seconds + earlier.seconds, self.at_most or earlier.at_most)

    def __str__(self) -> str:
        """`~4 min`, `max 60 min`, or `?`. More digits would claim what is not known."""
        if not self.is_known:
            return "?"
        minutes = self.seconds / MINUTE_S
        if minutes < 0.75:
            return "<1 min"
        sign = "max " if self.at_most else "~"
        if minutes < 9.5:
            return f"{sign}{minutes:.0f} min"
        if minutes < 87.5:
            return f"{sign}{5 * round(minutes / 5)} min"
        if self.seconds < 9.75 * HOUR_S:
            return f"{sign}{round(2 * self.seconds / HOUR_S) / 2:g} h"
        if self.seconds < 2 * DAY_S:
            return f"{sign}{self.seconds / HOUR_S:.0f} h"
        return f"{sign}{self.seconds / DAY_S:.0f} days"


UNKNOWN = Remaining(math.inf)


@dataclass(frozen=True)
class PastDurations:
    """How long the jobs of a test waited to start, and ran: medians in seconds; None if the history does not say."""

    queue_s: float | None = None
    run_s: float | None = None


@dataclass(frozen=True)
class Forecast:
    """How long each unfinished job still takes, and how long all of them do; how much of each job is done."""

    session: Remaining
    jobs: Mapping[Job, Remaining] = field(default_factory=dict)
    shares: Mapping[Job, float] = field(default_factory=dict)
    done: float = 0.0


class Estimates:
    """Forecasts for the jobs of a session. Nothing is asked of a scheduler for them.

    Args:
        past: gives the history of the session's tests.
    """

    def __init__(
        self,
        past: Callable[[], Iterable[Envelope]],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._past = past
        self._clock = clock
        self._wall = wall
        self._reports: dict[Job, tuple[Progress, float]] = {}  # what a job said last, and when that was first seen
        self._durations: Mapping[str, PastDurations] = {}  # by test

    def load(self) -> None:
        """Read the history. Another thread may do it: forecasts do without it until it has ended."""
        runs: dict[str, list[Envelope]] = {}
        for envelope in self._past():
            if envelope.sane:
                runs.setdefault(envelope.key.test, []).append(envelope)
        self._durations = {test: _durations_of(of_test[-LAST_RUNS:]) for test, of_test in runs.items()}

    def forecast(self, jobs: Sequence[Job]) -> Forecast:
        """What is known now of these jobs, in the order in which they are submitted."""
        jobs = [job for job in jobs if job.successor is None]
        unfinished = [job for job in jobs if not job.done and job.error is None]
        waits = self._waits_seen(jobs)
        remaining: dict[Job, Remaining] = {}
        slots: dict[str, list[tuple[float, bool]]] = {}  # by platform: when each slot that is taken is free again
        for job in unfinished:
            if job.submission is not None:
                remaining[job] = self._of_submitted(job, waits)
                slots.setdefault(job.platform.name, []).append((remaining[job].seconds, remaining[job].at_most))
        for taken in slots.values():
            heapq.heapify(taken)
        for job in unfinished:
            if job.submission is None:
                taken = slots.setdefault(job.platform.name, [])
                start = Remaining(0.0)
                if len(taken) >= job.platform.max_running:
                    start = Remaining(*heapq.heappop(taken))
                remaining[job] = self._run(job).after(self._queue(job, waits)).after(start)
                heapq.heappush(taken, (remaining[job].seconds, remaining[job].at_most))
        shares = {job: share for job in unfinished if (share := self._share(job, remaining[job])) is not None}
        session = max(remaining.values(), key=lambda left: left.seconds, default=Remaining(0.0))
        if session.is_known:
            session = Remaining(session.seconds, any(left.at_most for left in remaining.values()))
        done = len(jobs) - len(unfinished) + sum(shares.values())
        return Forecast(session, remaining, shares, done / len(jobs) if jobs else 0.0)

    def _of_submitted(self, job: Job, waits: Mapping[str, float]) -> Remaining:
        if job.status.state is State.RUNNING:
            return self._of_running(job)
        return self._run(job).after(self._rest_of_queue(job, waits))

    def _of_running(self, job: Job) -> Remaining:
        said_s = self._said_by_job(job)
        if said_s is not None:
            return Remaining(max(0.0, said_s)) if said_s > -LATE_S else UNKNOWN
        ran_s = self._ran_s(job)
        past_s = self._past_of(job).run_s
        if past_s is not None and ran_s < past_s + LATE_S:
            return Remaining(max(0.0, past_s - ran_s))
        limit_s = job.spec.time_limit_s - ran_s
        return Remaining(limit_s, at_most=True) if limit_s > 0 else UNKNOWN

    def _said_by_job(self, job: Job) -> float | None:
        """What the job said last, less the time since then; None if it says nothing."""
        progress = job.progress
        if progress is None or progress.left_s is None:
            return None
        now = self._clock()
        report, seen_at = self._reports.get(job, (None, now))
        if report != progress:
            seen_at = now
            self._reports[job] = (progress, now)
        return progress.left_s - (now - seen_at)

    def _run(self, job: Job) -> Remaining:
        """The run of a job that has not started."""
        past_s = self._past_of(job).run_s
        return Remaining(job.spec.time_limit_s, at_most=True) if past_s is None else Remaining(past_s)

    def _queue(self, job: Job, waits: Mapping[str, float]) -> Remaining:
        """The wait of a job that is not submitted, once it has a slot."""
        past_s = self._past_of(job).queue_s
        if past_s is None:
            past_s = waits.get(job.platform.name)
        return UNKNOWN if past_s is None else Remaining(past_s)

    def _rest_of_queue(self, job: Job, waits: Mapping[str, float]) -> Remaining:
        """The wait of a job that the scheduler has: until the start that it expects, or as long as in the past."""
        expected_s = job.status.expected_s
        if expected_s is not None and expected_s > self._wall():
            return Remaining(expected_s - self._wall())
        whole = self._queue(job, waits)
        waited_s = 0.0
        if job.status.submitted_s is not None:
            waited_s = max(0.0, self._wall() - job.status.submitted_s)
        if waited_s > whole.seconds + LATE_S:
            return UNKNOWN
        return Remaining(max(0.0, whole.seconds - waited_s))

    def _waits_seen(self, jobs: Sequence[Job]) -> dict[str, float]:
        """How long this session's jobs waited to start, by platform: for tests that the history does not know."""
        waits: dict[str, list[float]] = {}
        for job in jobs:
            if job.queue_s is not None:
                waits.setdefault(job.platform.name, []).append(job.queue_s)
        return {platform: median(seconds) for platform, seconds in waits.items()}

    def _share(self, job: Job, left: Remaining) -> float | None:
        """How much of a running job is done; None if that is not known."""
        if job.status.state is not State.RUNNING or left.at_most or not left.is_known:
            return None
        ran_s = self._ran_s(job)
        return ran_s / (ran_s + left.seconds) if ran_s > 0 else 0.0

    def _ran_s(self, job: Job) -> float:
        """How long it has run: by the scheduler's start, which an earlier session may have seen; else since we know."""
        if job.status.started_s is None:
            return job.time_in_state_s
        return max(0.0, self._wall() - job.status.started_s)

    def _past_of(self, job: Job) -> PastDurations:
        return self._durations.get(job.spec.test, PastDurations())


def _durations_of(runs: Sequence[Envelope]) -> PastDurations:
    queues = []
    lengths = []
    for run in runs:
        if run.started_s is not None and run.key.submitted_s is not None:
            queues.append(max(0.0, run.started_s - run.key.submitted_s))
        if run.started_s is not None and run.ended_s is not None:
            lengths.append(max(0.0, run.ended_s - run.started_s))
    return PastDurations(median(queues) if queues else None, median(lengths) if lengths else None)
