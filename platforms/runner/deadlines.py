"""The deadlines of one job: how long it may wait to start, run, and be out of sight.

Schedulers need not enforce these limits themselves.
"""

from __future__ import annotations

from collections.abc import Callable

from platforms.job import JobSpec, State, Status

GRACE_S = 60.0  # how much longer than its own time limit a job may run before we end it
AWAY_S = 600.0  # how long a scheduler may answer, and say nothing about a job


class Deadlines:
    """Since when a job has been in a state from which a deadline counts. All times are by `clock`, which never jumps.

    Attributes:
        submitted_at: None until its scheduler has taken it.
    """

    def __init__(self, spec: JobSpec, clock: Callable[[], float]) -> None:
        self.submitted_at: float | None = None
        self._spec = spec
        self._clock = clock
        self._running_since: float | None = None
        self._unknown_since: float | None = None  # no state is known of it
        self._unlisted_since: float | None = None  # its scheduler answers, and does not know it

    def note(self, status: Status) -> bool:
        """Note the scheduler's new answer.

        Returns whether the job is seen to run for the first time.
        """
        now = self._clock()
        if status.state is not State.UNKNOWN:
            self._unknown_since = None
        elif self._unknown_since is None:
            self._unknown_since = now
        if status.state is not State.UNKNOWN or status.away:
            self._unlisted_since = None
        elif self._unlisted_since is None:
            self._unlisted_since = now
        begins = status.state is State.RUNNING and self._running_since is None
        if begins:
            self._running_since = now
        return begins

    def passed(self, reason: str, *, waiting_for_login: bool, has_trouble: bool) -> tuple[State, str] | None:
        """The deadline that has passed, as the state in which the job ends and why; None if there is none.

        No limit passes while the job's state is unknown because a person is asked to log in, or because of a trouble
        of ours.

        Args:
            reason: of the job's status now.
        """
        now = self._clock()
        time_limit_s = self._spec.time_limit_s
        start_limit_s = self._spec.start_limit_s
        if waiting_for_login or (has_trouble and self._unknown_since is not None):
            self._unknown_since = None
            self._unlisted_since = None
        elif self._unlisted_since is not None:
            silent_s = now - self._unlisted_since
            if silent_s > AWAY_S:
                return State.CONTROLLER_AWAY, f"no word for {silent_s:.0f} s: {reason}"
        elif self._unknown_since is not None:
            silent_s = now - self._unknown_since
            if silent_s > AWAY_S and not self.may_still_run:
                return State.CONTROLLER_AWAY, f"no answer for {silent_s:.0f} s: {reason}"
        elif self._running_since is not None:
            if now - self._running_since > time_limit_s + GRACE_S:
                return State.TIME_LIMIT, f"it ran longer than its time limit of {time_limit_s:g} s"
        elif self.submitted_at is not None and now - self.submitted_at > start_limit_s:
            late = f"it did not start within its start limit of {start_limit_s:g} s"
            return State.START_DEADLINE, f"{late}: {reason}".rstrip(": ")
        return None

    @property
    def may_still_run(self) -> bool:
        """Its own limits allow it to run still: an hour without a login node must not cost the results of a night."""
        now = self._clock()
        run_limit_s = self._spec.time_limit_s + GRACE_S
        if self._running_since is not None:
            return now - self._running_since <= run_limit_s
        return self.submitted_at is not None and now - self.submitted_at <= self._spec.start_limit_s + run_limit_s
