"""Which of a platform's jobs are in line and which its scheduler has, and whether there is room for one more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from platforms.job import State
from platforms.runner.live_job import Job

if TYPE_CHECKING:
    from platforms.config.schema import Platform


class Slots:
    """The jobs that are not done, in the order in which they came.

    The main thread adds to them and looks during a turn, so whoever goes through them takes a copy; what is asked at
    every tick stops at the first job that answers it.
    """

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._queued: dict[Job, None] = {}  # no scheduler has them yet, as far as we know
        self._held: dict[Job, None] = {}
        self.full = False  # there was no room for those in line when it was looked at last

    def add(self, job: Job) -> None:
        (self._queued if job.submission is None else self._held)[job] = None

    def submitted(self, job: Job) -> None:
        """The scheduler has it."""
        self._held[job] = None
        self._queued.pop(job, None)

    def done(self, job: Job) -> None:
        """It takes no place any more."""
        self._held.pop(job, None)
        self._queued.pop(job, None)
        self.full = False

    @property
    def waiting(self) -> list[Job]:
        """Those that are to be submitted."""
        return [job for job in list(self._queued) if job.waiting]

    @property
    def live(self) -> list[Job]:
        """Those that take a place at the scheduler."""
        return [job for job in list(self._held) if job.live]

    @property
    def active(self) -> bool:
        """Whether there are live ones."""
        return any(job.live for job in list(self._held))

    @property
    def settled(self) -> bool:
        """Nobody waits for any of them."""
        return all(job.left is not None for jobs in (list(self._held), list(self._queued)) for job in jobs)

    @property
    def room(self) -> bool:
        """For one more at the scheduler: `max_running:`, and `max_queued:` of those that have not started."""
        live, most = self.live, self._platform.max_queued
        queued = sum(job.status.state not in (State.STARTING, State.RUNNING) for job in live)
        return len(live) < self._platform.max_running and (most is None or queued < most)

    @property
    def wanted(self) -> bool:
        """Whether one is to be submitted and may be."""
        return not self.full and any(job.waiting for job in list(self._queued)) and self.room

    def look(self) -> None:
        """At the end of a turn: only the next one can find room where there is none."""
        self.full = bool(self._queued) and not self.room
