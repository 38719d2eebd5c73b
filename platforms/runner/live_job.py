"""Jobs while they live: what the runner knows of each, its log as far as it is read, and what its end means."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from platforms.job import (
    RETRIED,
    WIRE_EXIT_STATES,
    JobError,
    JobSpec,
    Run,
    State,
    Status,
    StillPending,
    Submitted,
    job_name,
    state_of_exit,
)
from platforms.results.log_reader import LogReader, Progress
from platforms.rundir import job_folder
from platforms.rundir.session_history import FIRST, Attempt
from platforms.schedulers import Scheduler, log_file

if TYPE_CHECKING:
    from platforms.config.schema import Platform

NO_PLACE = (State.SUBMIT_REFUSED, State.NEVER_ADMISSIBLE)  # what a job is told that avoids too many nodes
GRACE_S = 60.0  # how much longer than its own time limit a job may run before we end it
AWAY_S = 600.0  # how long a scheduler may answer, and say nothing about a job
NOT_YET = Status(State.QUEUED, "not submitted yet")
NO_LOG = LogReader()


@dataclass(eq=False)
class Job:
    """One submission, from before it is submitted to after its end.

    Two threads look at it. The turn of its platform (line.py) changes it, and `done` is the last thing that it sets;
    the main thread reads it, and changes `left` and `again` alone.
    """

    spec: JobSpec
    platform: Platform
    folder: Path
    attempt: Attempt = FIRST
    text: str = ""
    submission: Submitted | None = None
    status: Status = NOT_YET
    progress: Progress | None = None
    hints: tuple[str, ...] = ()
    run: Run | None = None
    failure: JobError | None = None
    done: bool = False
    again: Job | None = None  # what took its place, since the machine failed it
    left: StillPending | None = None  # we stopped waiting, and the job goes on without us
    over: bool = False  # it has ended after it was left: another session collects it

    found: bool = field(default=False, repr=False)  # an earlier session submitted it, and we have not looked yet
    asked_s: float | None = field(default=None, repr=False)  # Unix seconds; there may be a job though we have no id
    submitting: bool = field(default=False, repr=False)  # the scheduler's answer is on its way
    claimed: bool = field(default=False, repr=False)
    news: deque[Job] = field(default_factory=deque, repr=False)  # of its platform: whose state has changed
    lock: Lock = field(default_factory=Lock, repr=False)  # either it is left, or its end is written down
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    reader: LogReader = field(default_factory=LogReader, repr=False)
    offset: int = field(default=0, repr=False)  # how much of the log the reader has
    last_read: bytes = field(default=b"", repr=False)  # the last bytes of that
    # by `clock`, which unlike the machines' clocks is one and never jumps
    changed: float = field(default=0.0, repr=False)
    tried: float | None = field(default=None, repr=False)  # to submit it, and nobody answered
    submitted: float | None = field(default=None, repr=False)
    running: float | None = field(default=None, repr=False)
    unknown: float | None = field(default=None, repr=False)
    unheard: float | None = field(default=None, repr=False)  # its scheduler answers, and does not know it
    ended: float | None = field(default=None, repr=False)

    @property
    def job_id(self) -> str | None:
        """The scheduler's name for it, once it has one."""
        return None if self.submission is None else self.submission.job_id

    @property
    def known(self) -> str:
        """Whether there is a job, for people."""
        if self.job_id is not None:
            return f"as job {self.job_id}"
        return "though it is not submitted yet" if self.asked_s is None else "though nobody knows if it is submitted"

    @property
    def queue_s(self) -> float | None:
        """How long it waited to start."""
        if self.status.submitted_s is None or self.status.started_s is None:
            return None
        return max(0.0, self.status.started_s - self.status.submitted_s)

    @property
    def run_s(self) -> float | None:
        """How long it ran."""
        return self.status.run_s

    @property
    def time_in_state_s(self) -> float:
        return self.clock() - self.changed

    @property
    def error(self) -> JobError | None:
        """Why there is no good run of it; None while it goes on and somebody waits for it."""
        return self.failure if self.done else self.left

    @property
    def live(self) -> bool:
        """It is at the scheduler, as far as we know, and takes a place there."""
        return self.submission is not None and not self.done and not (self.over and self.left is not None)

    @property
    def waiting(self) -> bool:
        """It is to be submitted, or to be submitted again since nobody answered."""
        return self.submission is None and not self.done and self.left is None

    def leave(self, error: StillPending, *, in_submission: bool = False) -> bool:
        """Stop waiting for it.

        Returns False, and changes nothing, when it has ended meanwhile: then wait until it is done. So too while it is
        being submitted, unless `in_submission`: a job that is left at that moment may or may not exist.
        """
        with self.lock:
            if self.claimed or (self.submitting and not in_submission):
                return False
            self.left = error
            return True

    def begin_submission(self) -> bool:
        """Before the scheduler is asked to take it. False when it was left, so that it must not be submitted."""
        with self.lock:
            self.submitting = self.left is None
            return self.submitting

    def end_submission(self) -> None:
        """The scheduler has answered, or does not."""
        self.submitting = False

    def claim(self) -> bool:
        """Before its end is written down. False when it was left: then it is another session's to collect."""
        with self.lock:
            self.claimed = self.left is None
            return self.claimed

    def result(self) -> Run:
        """What it measured. Raises MachineError, WorkloadError, or StillPending while it is not done."""
        if (error := self.error) is not None:
            raise error
        if not self.done or self.run is None:
            raise StillPending(f"{self.spec.name}: {self.status}", self.status, self.folder)
        return self.run

    def become(self, status: Status) -> None:
        """Its state from now on, which is news where it, or the reason for it, is another one."""
        before, self.status = self.status, status
        if before.state is not status.state:
            self.changed = self.clock()
        if (before.state, before.reason) != (status.state, status.reason):
            self.news.append(self)

    def note(self, status: Status, wall_s: float) -> Status:
        """Remember when it was first seen in a state that a deadline counts from; what was known before stays known."""
        now = self.clock()
        unknown = status.state is State.UNKNOWN
        self.unknown = (now if self.unknown is None else self.unknown) if unknown else None
        self.unheard = (now if self.unheard is None else self.unheard) if unknown and not status.away else None
        if status.state is State.RUNNING and self.running is None:
            self.running = now
            status = replace(status, started_s=status.started_s or wall_s)
        known_before = {
            name: value
            for name in ("nodes", "submitted_s", "started_s")
            if not getattr(status, name) and (value := getattr(self.status, name))
        }
        return replace(status, **known_before) if known_before else status

    def overdue(self, waiting_for_login: bool) -> tuple[State, str] | None:
        """The deadlines, for a scheduler that does not keep them itself. None passes while a person is waited for."""
        spec, now = self.spec, self.clock()
        if waiting_for_login:
            self.unknown = self.unheard = None
        elif self.unheard is not None:
            if now - self.unheard > AWAY_S:
                return State.CONTROLLER_AWAY, f"no word for {now - self.unheard:.0f} s: {self.status.reason}"
        elif self.unknown is not None:
            if now - self.unknown > AWAY_S and not self._may_still_run:
                return State.CONTROLLER_AWAY, f"no answer for {now - self.unknown:.0f} s: {self.status.reason}"
        elif self.running is not None:
            if now - self.running > spec.time_limit_s + GRACE_S:
                return State.TIME_LIMIT, f"it ran longer than its time limit of {spec.time_limit_s:g} s"
        elif self.submitted is not None and now - self.submitted > spec.start_limit_s:
            reason = f"it did not start within its start limit of {spec.start_limit_s:g} s"
            return State.START_DEADLINE, f"{reason}: {self.status.reason}".rstrip(": ")
        return None

    @property
    def _may_still_run(self) -> bool:
        """By its own limits, whenever it has begun: an hour without a login node must not cost a night's results."""
        if self.running is not None:
            return self.clock() - self.running <= self.spec.time_limit_s + GRACE_S
        longest_s = self.spec.start_limit_s + self.spec.time_limit_s + GRACE_S
        return self.submitted is not None and self.clock() - self.submitted <= longest_s

    def read(self, scheduler: Scheduler, chunks: int | None = None) -> None:
        """Give the reader what is new in the log, up to its end or some chunks. Raises what Scheduler.read raises."""
        assert self.submission is not None
        path = self.folder / "log"
        copy = not scheduler.log_in_folder
        if copy and self.offset == 0 and path.exists():  # an earlier session had it so far
            self._feed(path.read_bytes())
        while chunks is None or chunks > 0:
            chunk = scheduler.read(self.submission, self.offset, self.last_read)
            if not chunk:
                break
            if copy:
                job_folder.put(path, chunk, self.offset)
            self._feed(chunk)
            chunks = None if chunks is None else chunks - 1
        self.progress = self.reader.progress

    def _feed(self, chunk: bytes) -> None:
        self.reader.feed(chunk)
        self.offset += len(chunk)
        self.last_read = log_file.last_bytes(self.last_read, chunk)


def decide(status: Status, spec: JobSpec, reader: LogReader) -> Status:
    """What a job's end means, now that its whole log is known: its own exit codes, and whether the log is complete."""
    if status.exit_code is None or status.state not in (State.EXITED, State.SIGNALLED, State.SUCCEEDED):
        return status
    speaks_wire = spec.benchmark is not None or reader.speaks_wire
    state, reason, said = state_of_exit(status.exit_code, speaks_wire=speaks_wire), status.reason, reader.exit_code
    if state in (State.EXITED, State.SIGNALLED, State.SUCCEEDED) and (own := WIRE_EXIT_STATES.get(said or 0)):
        state = own  # torchrun makes 1 of every code, srun 143
        reason = reason or f"the job itself said exit code {said}, which did not come through"
    elif state is State.SUCCEEDED and speaks_wire and not reader.complete:
        state, reason = State.INCOMPLETE, reader.why_incomplete
    return replace(status, state=state, reason=reason)


def numbered(spec: JobSpec, run_id: str, attempt: Attempt) -> JobSpec:
    """A second attempt needs another name: at a scheduler the first one may still lie there as evidence."""
    spec = replace(spec, avoid_nodes=attempt.avoid)
    if attempt.number == 1:
        return spec
    key = job_name("", spec.layout, run_id, spec.test, attempt.number).rpartition("-")[2]
    return replace(spec, name=f"{spec.name.rpartition('-')[0]}-{key}")


def next_attempt(job: Job, status: Status) -> Attempt | None:
    """What takes the place of a job that ends so, if anything: the machine failed it, and that may happen so often.

    One that was refused since other nodes were asked for than there are takes any node.
    """
    attempt = job.attempt
    if status.state in NO_PLACE and attempt.avoid:
        return Attempt(attempt.number + 1, attempt.earlier)
    if status.state is State.CANCELLED and attempt.ending:  # by a session that was killed meanwhile
        return Attempt(attempt.number + 1, attempt.earlier, attempt.avoid)
    if status.state not in RETRIED or len(attempt.earlier) >= job.platform.retries:
        return None
    where = f" on {', '.join(status.nodes)}" if status.nodes else ""
    told = f"attempt {attempt.number} ended as {status.state.value}{where}"
    avoid = attempt.avoid if status.state is State.PREEMPTED else (*attempt.avoid, *status.nodes)
    return Attempt(attempt.number + 1, (*attempt.earlier, told), avoid)


def entry(job: Job) -> dict[str, object]:
    """A job's line in the session's journal."""
    return {
        "test": job.spec.test,
        **replace(job.attempt, asked_s=None if job.job_id else job.asked_s).entry(),
        "name": job.spec.name,
        "platform": job.spec.platform,
        "job_id": job.job_id,
        "state": job.status.state,
        "reason": job.status.reason,
    }
