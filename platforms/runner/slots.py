"""The jobs of one platform that are not done: which wait to be submitted, which the scheduler has, and is there room.

PlatformQueue owns one. The main thread adds jobs and asks questions while the platform's worker thread changes it, so
every loop runs over a copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from platforms.job import State
from platforms.runner.live_job import Job

if TYPE_CHECKING:
    from platforms.config.schema import Platform


class Slots:
    """The queue of one platform and the slots at its scheduler, both in the order in which jobs were added."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._queued: dict[Job, None] = {}  # not submitted yet, as far as we know
        self._submitted: dict[Job, None] = {}
        self._full = False  # there was no room for the queued jobs when last looked at

    def add(self, job: Job) -> None:
        if job.submission is None:
            self._queued[job] = None
        else:
            self._submitted[job] = None

    def mark_submitted(self, job: Job) -> None:
        """Move a job from the queue into a slot."""
        self._submitted[job] = None
        self._queued.pop(job, None)

    def remove(self, job: Job) -> None:
        """Free the slot of a job that is done."""
        self._submitted.pop(job, None)
        self._queued.pop(job, None)
        self._full = False

    def note_room(self) -> None:
        """Remember whether there is room, at the end of a worker's cycle: only the next cycle can find more."""
        self._full = bool(self._queued) and not self.has_room

    @property
    def queued(self) -> list[Job]:
        """The jobs that are to be submitted."""
        return [job for job in list(self._queued) if job.awaits_submission]

    @property
    def live(self) -> list[Job]:
        """The jobs that take a slot at the scheduler."""
        return [job for job in list(self._submitted) if job.live]

    @property
    def any_live(self) -> bool:
        return any(job.live for job in list(self._submitted))

    @property
    def all_left(self) -> bool:
        """The session waits for none of the jobs."""
        return all(job.left is not None for job in [*self._submitted, *self._queued])

    @property
    def has_room(self) -> bool:
        """One more job may be submitted: `max_running:`, and `max_queued:` for those that have not started."""
        live = self.live
        if len(live) >= self._platform.max_running:
            return False
        if self._platform.max_queued is None:
            return True
        not_started = [job for job in live if job.status.state not in (State.STARTING, State.RUNNING)]
        return len(not_started) < self._platform.max_queued

    @property
    def can_submit(self) -> bool:
        """A job is queued and there is room for it.

        Asked at every tick, so it stops at the first such job.
        """
        return not self._full and any(job.is_due for job in list(self._queued)) and self.has_room
