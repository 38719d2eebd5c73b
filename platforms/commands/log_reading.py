"""Reads logs of jobs that no session follows, through their scheduler: as far as they are written, or to the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from platforms.job import AwayError, LoginNeeded, RefusedError, State, Status, Submitted
from platforms.runner.finalizer import LOG_S
from platforms.schedulers import Scheduler, log_file

PAUSE_S = 0.2
# A scheduler that collects a log from many pods needs time until `read` returns it. Only when nothing more has come
# for QUIET_S, or nothing at all for FIRST_S, is the log taken to be read as far as it is written.
QUIET_S = 2.0
FIRST_S = 5.0
NOT_STARTED = (State.SUBMITTED, State.QUEUED)


@dataclass(eq=False)
class LogReading:
    """One job's log from byte `offset` on.

    Attributes:
        has_output: something has come.
        last_output_s: when something came last, or the reading began, on the reader's own clock.
        obstacle: why nothing comes at the moment.
        problem: why the log was not read to its end, once it is `done`; empty where it was.
    """

    job: Submitted
    offset: int = 0
    last_read: bytes = b""
    status: Status | None = None
    has_output: bool = False
    last_output_s: float = 0.0
    obstacle: str = ""
    done: bool = False
    problem: str = ""


class LogsReader:
    """Reads the logs of one platform's jobs side by side.

    Args:
        scheduler: the jobs' scheduler.
        poll_s: seconds between two polls of the jobs' states.
        follow: read until the jobs have ended; otherwise, of running jobs, what there is now.
        check: is called in every round and before anything is returned; an exception that it raises ends the reading.
        notify: is called with what a waiting person should know.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        poll_s: float,
        *,
        follow: bool,
        check: Callable[[], None] = lambda: None,
        notify: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._scheduler = scheduler
        self._poll_s = poll_s
        self._follow = follow
        self._check = check
        self._notify_person = notify
        self._clock = clock
        self._sleep = sleep
        self._last_notice = ""
        # The reader's own clock advances in its pauses. A pause in which this process was stopped, and could read
        # nothing, counts little.
        self._paused_s = 0.0

    def read(self, readings: Sequence[LogReading]) -> Iterator[tuple[LogReading, bytes]]:
        """Yield what comes of each log, until all are done. Raises BenchError when the scheduler cannot be asked."""
        self._answered_s = due_s = self._clock()
        while unfinished := [reading for reading in readings if not reading.done]:
            pause_s = self._poll_s
            try:
                self._check()
                if self._clock() >= due_s:
                    self._poll(unfinished)
                    due_s = self._clock() + self._poll_s  # from the poll's end, which takes long at a busy cluster
                    self._check()  # a session that ended the jobs has taken them over before
                for reading in unfinished:
                    yield from self._chunks(reading)
                if not any(reading.obstacle for reading in unfinished):
                    pause_s = min(PAUSE_S, self._poll_s)
            except AwayError as error:
                self._tolerate(error)
            if not all(reading.done for reading in unfinished):
                before_s = self._clock()
                self._sleep(pause_s)
                self._paused_s += min(self._clock() - before_s, 2 * pause_s)

    def _poll(self, readings: Sequence[LogReading]) -> None:
        statuses = self._scheduler.status([reading.job for reading in readings])
        self._answered_s = self._clock()
        for reading in readings:
            status = statuses.get(reading.job.job_id, Status(State.UNKNOWN, "the scheduler said nothing about it"))
            previous = reading.status
            reading.status = status
            if previous is None:
                reading.last_output_s = self._paused_s
            if status.state.live and status.state is not State.RUNNING and str(status) != str(previous):
                self._notify(f"{reading.job.name}: {status}")

    def _tolerate(self, error: AwayError) -> None:
        """While a log is followed, a scheduler may be away for a while. Raises the error otherwise."""
        if not self._follow or isinstance(error, LoginNeeded) or self._clock() - self._answered_s > LOG_S:
            raise error
        self._notify(str(error))

    def _notify(self, text: str) -> None:
        if text != self._last_notice:
            self._notify_person(text)
        self._last_notice = text

    def _chunks(self, reading: LogReading) -> Iterator[tuple[LogReading, bytes]]:
        status = reading.status
        if status is None:
            return
        try:
            while chunk := self._scheduler.read(reading.job, reading.offset, reading.last_read):
                self._check()
                reading.offset += len(chunk)
                reading.last_read = log_file.last_bytes(reading.last_read, chunk)
                reading.has_output = True
                reading.last_output_s = self._paused_s
                yield reading, chunk
            reading.obstacle = ""
        except RefusedError as error:
            reading.obstacle = str(error)
            self._notify(f"{reading.job.name}: {error}")
        self._decide_whether_done(reading, status)

    def _decide_whether_done(self, reading: LogReading, status: Status) -> None:
        """Decide whether the log is read as far as it should be. The status is older than the last read."""
        live = status.state.live
        quiet_s = self._paused_s - reading.last_output_s
        if reading.obstacle:
            patience_s = 0.0 if live and not self._follow else LOG_S
            if quiet_s >= patience_s:
                reading.done = True
                reading.problem = reading.obstacle
                if patience_s:
                    reading.problem = f"nothing more of its log came for {patience_s:g} s: {reading.obstacle}"
            return
        if self._follow:
            reading.done = not live
            return
        collects_slowly = self._scheduler.log_in_folder
        quiet_limit_s = 0.0
        if collects_slowly:
            quiet_limit_s = QUIET_S if reading.has_output or not live else FIRST_S
        reading.done = quiet_s >= quiet_limit_s or (live and status.state in NOT_STARTED)
        if reading.done and status.state is State.UNKNOWN and collects_slowly:
            reading.problem = f"whether there is more of its log is not known: {status.reason}"
