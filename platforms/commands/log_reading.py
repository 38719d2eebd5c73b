"""Reads the log of a job that no session follows, through its scheduler: as far as it is written, or to the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from platforms.job import AwayError, LoginNeeded, RefusedError, State, Status, Submitted
from platforms.runner.finalizer import LOG_S
from platforms.schedulers import Scheduler, log_file

PAUSE_S = 0.2
# A scheduler that collects a log from many pods needs time until `read` returns it. Only when nothing more has come
# for QUIET_S, or nothing at all for FIRST_S, is the log taken to be read as far as it is written.
QUIET_S = 2.0
FIRST_S = 5.0
NOT_STARTED = (State.SUBMITTED, State.QUEUED)


class LogReading:
    """One job's log from byte `offset` on, which grows. `status` is the job's, once its scheduler has said it.

    Args:
        poll_s: seconds between two polls of the job's state.
        follow: read until the job has ended; otherwise, of a running job, what there is now.
        check: is called in every round and before anything is returned; an exception that it raises ends the reading.
        notify: is called with what a waiting person should know.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        job: Submitted,
        offset: int,
        poll_s: float,
        *,
        follow: bool,
        check: Callable[[], None],
        notify: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.offset = offset
        self.status: Status | None = None
        self._scheduler = scheduler
        self._job = job
        self._poll_s = poll_s
        self._follow = follow
        self._check = check
        self._notify_person = notify
        self._clock = clock
        self._sleep = sleep
        self._last_read = b""
        self._last_notice = ""
        self._has_output = False

    def chunks(self) -> Iterator[bytes]:
        """Yield what comes, until that is all.

        Raises:
            AwayError: the scheduler does not answer; while the log is followed, for LOG_S.
            RefusedError: the log could not be read to its end.
        """
        answered_s = self._clock()
        quiet_since_s = answered_s
        poll_at_s = answered_s
        while True:
            pause_s = min(PAUSE_S, self._poll_s)
            self._check()
            obstacle = ""
            try:
                if self._clock() >= poll_at_s:
                    status = self._poll()
                    answered_s = self._clock()
                    poll_at_s = answered_s + self._poll_s  # from the poll's end, which takes long at a busy cluster
                    self._check()  # a session that ended the job has taken it over before
                for chunk in self._read():
                    yield chunk
                    quiet_since_s = self._clock()
            except AwayError as error:
                if not self._follow or isinstance(error, LoginNeeded) or self._clock() - answered_s > LOG_S:
                    raise
                pause_s = self._poll_s
                self._notify(str(error))
            except RefusedError as error:
                obstacle = str(error)
                pause_s = self._poll_s
                self._notify(f"{self._job.name}: {obstacle}")
                self._give_up(obstacle, self._clock() - quiet_since_s)
            else:
                if self._is_done(status, self._clock() - quiet_since_s):
                    return
            self._sleep(pause_s)

    def _poll(self) -> Status:
        statuses = self._scheduler.status([self._job])
        status = statuses.get(self._job.job_id, Status(State.UNKNOWN, "the scheduler said nothing about it"))
        if status.state.live and status.state is not State.RUNNING:
            self._notify(f"{self._job.name}: {status}")
        self.status = status
        return status

    def _read(self) -> Iterator[bytes]:
        while chunk := self._scheduler.read(self._job, self.offset, self._last_read):
            self._check()
            self.offset += len(chunk)
            self._last_read = log_file.last_bytes(self._last_read, chunk)
            self._has_output = True
            yield chunk

    def _notify(self, text: str) -> None:
        if text != self._last_notice:
            self._notify_person(text)
        self._last_notice = text

    def _give_up(self, obstacle: str, quiet_s: float) -> None:
        """Raise RefusedError if the scheduler has refused the log for too long. Its end may take some time."""
        if self.status is not None and self.status.state.live and not self._follow:
            raise RefusedError(f"{self._job.name}: {obstacle}")
        if quiet_s >= LOG_S:
            raise RefusedError(f"{self._job.name}: nothing more of its log came for {LOG_S:g} s: {obstacle}")

    def _is_done(self, status: Status, quiet_s: float) -> bool:
        """Whether the log is read as far as it should be. The status is older than the last read."""
        live = status.state.live
        if self._follow:
            return not live
        if status.state in NOT_STARTED or not self._scheduler.log_in_folder:
            return True
        limit_s = QUIET_S if self._has_output or not live else FIRST_S
        if quiet_s < limit_s:
            return False
        if status.state is State.UNKNOWN:
            why = f"whether there is more of its log is not known: {status.reason}"
            raise RefusedError(f"{self._job.name}: {why}")
        return True
