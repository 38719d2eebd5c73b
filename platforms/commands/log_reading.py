"""Logs of jobs that no session follows, read through their scheduler: as far as they are written, or to their ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from platforms.job import AwayError, LoginNeeded, RefusedError, State, Status, Submitted
from platforms.runner.finalizer import LOG_S
from platforms.schedulers import Scheduler, log_file

PAUSE_S = 0.2
# Where logs come from many pods at once they come by and by, and `read` says nothing until they do: that nothing more
# comes is believed after so long, and after FIRST_S where nothing has come at all. It also is longer than what has
# come may take until it is written down that it has.
QUIET_S = 2.0
FIRST_S = 5.0
NOT_STARTED = (State.SUBMITTED, State.QUEUED)


@dataclass(eq=False)
class Reading:
    """One job's log from byte `offset` on. In the end `problem` says why it is not read to its end, if it is not."""

    job: Submitted
    offset: int = 0
    last_read: bytes = b""
    status: Status | None = None
    heard: bool = False  # something has come
    heard_s: float = 0.0  # by the reader's pauses: when something came last, or it was begun
    trouble: str = ""  # why nothing comes for now
    done: bool = False
    problem: str = ""


class Reader:
    """Logs of one platform's jobs, side by side.

    Args:
        scheduler: theirs.
        poll_s: between two looks at their states.
        follow: read on until they have ended; otherwise, of those that run, what there is now.
        check: asked in every turn, and before anything is handed out; what it raises ends the reading.
        tell: what a person should know who waits.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        poll_s: float,
        *,
        follow: bool,
        check: Callable[[], None] = lambda: None,
        tell: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._scheduler, self._poll_s, self._follow = scheduler, poll_s, follow
        self._check, self._tell, self._clock, self._sleep = check, tell, clock, sleep
        self._said = ""
        self._rested_s = 0.0  # in pauses; one in which this process was stopped, and could hear nothing, counts little
        self._quiet_s = (FIRST_S, QUIET_S) if scheduler.log_in_folder else (0.0, 0.0)

    def read(self, readings: Sequence[Reading]) -> Iterator[tuple[Reading, bytes]]:
        """What comes of each, until all are done. Raises BenchError when the scheduler cannot be asked."""
        self._answered_s = due_s = self._clock()
        while left := [reading for reading in readings if not reading.done]:
            pause_s = self._poll_s
            try:
                self._check()
                if self._clock() >= due_s:
                    self._look(left)
                    due_s = self._clock() + self._poll_s  # from its end: a cluster that is away makes it a long one
                    self._check()  # who has ended them has taken them over before
                for reading in left:
                    yield from self._chunks(reading)
                if not any(reading.trouble for reading in left):
                    pause_s = min(PAUSE_S, self._poll_s)
            except AwayError as error:
                self._be_patient(error)
            if not all(reading.done for reading in left):
                before_s = self._clock()
                self._sleep(pause_s)
                self._rested_s += min(self._clock() - before_s, 2 * pause_s)

    def _look(self, readings: Sequence[Reading]) -> None:
        statuses = self._scheduler.status([reading.job for reading in readings])
        self._answered_s = self._clock()
        for reading in readings:
            status = statuses.get(reading.job.job_id, Status(State.UNKNOWN, "the scheduler said nothing about it"))
            before, reading.status = reading.status, status
            if before is None:
                reading.heard_s = self._rested_s
            if status.state.live and status.state is not State.RUNNING and str(status) != str(before):
                self._say(f"{reading.job.name}: {status}")

    def _be_patient(self, error: AwayError) -> None:
        """Who follows a log does not mind that nobody answers for a while."""
        if not self._follow or isinstance(error, LoginNeeded) or self._clock() - self._answered_s > LOG_S:
            raise error
        self._say(str(error))

    def _say(self, text: str) -> None:
        if text != self._said:
            self._tell(text)
        self._said = text

    def _chunks(self, reading: Reading) -> Iterator[tuple[Reading, bytes]]:
        if (status := reading.status) is None:
            return
        try:
            while chunk := self._scheduler.read(reading.job, reading.offset, reading.last_read):
                self._check()
                reading.offset += len(chunk)
                reading.last_read = log_file.last_bytes(reading.last_read, chunk)
                reading.heard, reading.heard_s = True, self._rested_s
                yield reading, chunk
            reading.trouble = ""
        except RefusedError as error:
            reading.trouble = str(error)
            self._say(f"{reading.job.name}: {error}")
        self._judge(reading, status)

    def _judge(self, reading: Reading, status: Status) -> None:
        """Whether it is read as far as it is to be. The status is older than the last read."""
        quiet_s, live = self._rested_s - reading.heard_s, status.state.live
        if reading.trouble:
            limit_s = 0.0 if live and not self._follow else LOG_S
            reading.done = quiet_s >= limit_s
            if reading.done:
                waited = f"nothing more of its log came for {limit_s:g} s: " if limit_s else ""
                reading.problem = f"{waited}{reading.trouble}"
        elif not live:
            reading.done = quiet_s >= (0.0 if self._follow else self._quiet_s[1])
        elif not self._follow:
            reading.done = status.state in NOT_STARTED or quiet_s >= self._quiet_s[reading.heard]
            if reading.done and status.state is State.UNKNOWN and self._scheduler.log_in_folder:
                reading.problem = f"whether there is more of its log is not known: {status.reason}"
