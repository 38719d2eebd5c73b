"""A job while it lives: its status, and its log as far as it has been read.

The runner creates a Job on the main thread. From then on the worker thread of its platform changes it, through
platform_queue.py and finalizer.py, until it is done.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from platforms.job import JobError, JobSpec, Run, State, Status, StillPending, Submitted
from platforms.results.log_reader import LogReader, Progress
from platforms.rundir import job_folder
from platforms.rundir.session_history import FIRST, Attempt
from platforms.runner.deadlines import AWAY_S, Deadlines
from platforms.schedulers import Scheduler, log_file, past_jobs

if TYPE_CHECKING:
    from platforms.config.schema import Platform

NOT_SUBMITTED = Status(State.QUEUED, "not submitted yet")


@dataclass(frozen=True)
class End:
    """How a job has ended, once that is decided; it stays so until it is written.

    Attributes:
        run: what the job measured; None while its log is not read to its end.
        next_attempt: the attempt that follows; None if the job is not begun again.
    """

    status: Status
    run: Run | None = None
    next_attempt: Attempt | None = None


@dataclass(eq=False)
class Job:
    """One submission, from before it is submitted until its result is written.

    Two threads use it. The platform's worker thread changes it and sets `done` last. The main thread reads it, and
    changes only `left` and `successor`.

    Fields whose name ends in `_at` or `_since` are times by `clock`, which never jumps; those that end in `_s` are
    Unix seconds.
    """

    spec: JobSpec
    platform: Platform
    folder: Path
    attempt: Attempt = FIRST
    text: str = ""  # what the scheduler is given: a script or a manifest
    submission: Submitted | None = None
    status: Status = NOT_SUBMITTED
    progress: Progress | None = None
    hints: tuple[str, ...] = ()  # commands that show the job
    run: Run | None = None
    failure: JobError | None = None
    done: bool = False
    successor: Job | None = None  # the next attempt, after the machine failed this one
    left: StillPending | None = None  # set when we stop waiting; the job goes on without us
    ended_after_leave: bool = False  # it has ended since then, and another session collects it

    found_again: bool = field(default=False, repr=False)  # submitted by an earlier session, and not polled by us yet
    asked_s: float | None = field(default=None, repr=False)  # first request to submit it; a job may exist from then on
    submitting: bool = field(default=False, repr=False)  # the scheduler has been asked and has not answered yet
    end_claimed: bool = field(default=False, repr=False)  # its result is being written: it can no longer be left
    end: End | None = field(default=None, repr=False)  # it has ended so, and its result is not written yet
    trouble: str = field(default="", repr=False)  # what of it could not be read or written; "" if all could
    trouble_since: float = field(default=0.0, repr=False)
    try_again_at: float = field(default=0.0, repr=False)  # it is not submitted before that, after a trouble
    recorded: bool = field(default=False, repr=False)  # its submitted.json is written
    changed_jobs: deque[Job] = field(default_factory=deque, repr=False)  # its platform's queue of jobs to report
    lock: Lock = field(default_factory=Lock, repr=False)  # a job is either left or finished, never both
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    reader: LogReader = field(default_factory=LogReader, repr=False)
    offset: int = field(default=0, repr=False)  # bytes of the log that the reader has been given
    last_read: bytes = field(default=b"", repr=False)  # the last of those bytes
    state_since: float = field(default=0.0, repr=False)
    submit_failing_since: float | None = field(default=None, repr=False)
    deadlines: Deadlines = field(init=False, repr=False)
    retry_spec: JobSpec = field(init=False, repr=False)  # what its next attempt is made of
    ended_at: float | None = field(default=None, repr=False)  # it has ended, and its log could not be read yet

    def __post_init__(self) -> None:
        self.retry_spec = self.spec
        self.deadlines = Deadlines(self.spec, self.clock)

    def ask_otherwise(self, spec: JobSpec) -> None:
        """Note what an earlier session asked of it. A job that follows it is asked what it would have been."""
        self.spec = spec
        self.deadlines = Deadlines(spec, self.clock)

    @property
    def job_id(self) -> str | None:
        """The id that the scheduler gave it; None until it is submitted."""
        return None if self.submission is None else self.submission.job_id

    @property
    def existence(self) -> str:
        """Whether the scheduler has such a job, as the end of a sentence for people."""
        if self.job_id is not None:
            return f"as job {self.job_id}"
        if self.asked_s is None:
            return "though it is not submitted yet"
        return "though it is not known whether it was submitted"

    @property
    def queue_s(self) -> float | None:
        """How long it waited to start."""
        return self.status.queue_s

    @property
    def run_s(self) -> float | None:
        """How long it ran."""
        return self.status.run_s

    @property
    def time_in_state_s(self) -> float:
        return self.clock() - self.state_since

    @property
    def error(self) -> JobError | None:
        """Why there is no good run of it; None after a success, and while the session still waits for it."""
        return self.failure if self.done else self.left

    @property
    def live(self) -> bool:
        """The scheduler has it, as far as we know, so it takes a slot there."""
        if self.submission is None or self.done:
            return False
        return self.left is None or not self.ended_after_leave

    @property
    def awaits_submission(self) -> bool:
        """It is to be submitted, or to be submitted again because the scheduler did not answer."""
        return self.submission is None and not self.done and self.left is None

    @property
    def is_due(self) -> bool:
        """It awaits submission, and no trouble forbids that now."""
        return self.awaits_submission and self.clock() >= self.try_again_at

    def hold(self, trouble: str, again_s: float) -> None:
        """Note that something of it could not be read or written.

        It is tried again after so many seconds.
        """
        now = self.clock()
        if not self.trouble:
            self.trouble_since = now
        self.trouble = trouble
        self.try_again_at = now + again_s

    @property
    def out_of_reach(self) -> bool:
        """Its trouble has lasted until it must be over by its own limits, or until it should have started."""
        if not self.trouble:
            return False
        silent_s = self.clock() - self.trouble_since
        if self.submission is None:
            return silent_s > self.spec.start_limit_s
        return silent_s > AWAY_S and not self.deadlines.may_still_run

    def leave(self, error: StillPending, *, in_submission: bool = False) -> bool:
        """Stop waiting for it; the main thread calls this.

        Returns:
            False, and changes nothing, when its result is being written: wait until it is done. Also False while it is
            being submitted, unless `in_submission`: a job that is left at that moment may or may not exist.
        """
        with self.lock:
            if self.end_claimed or (self.submitting and not in_submission):
                return False
            self.left = error
            return True

    def begin_submission(self) -> bool:
        """Call before the scheduler is asked to submit it.

        False when it was left: then it must not be submitted.
        """
        with self.lock:
            self.submitting = self.left is None
            return self.submitting

    def end_submission(self) -> None:
        """Call when the scheduler has answered, or has failed to."""
        self.submitting = False

    def claim_end(self) -> bool:
        """Call before its result is written.

        False when it was left: then another session collects it.
        """
        with self.lock:
            self.end_claimed = self.left is None
            return self.end_claimed

    def release_end(self) -> None:
        """Call when its result could not be written: it can be left again."""
        self.end_claimed = False

    def result(self) -> Run:
        """What it measured.

        Raises MachineError or WorkloadError, and StillPending while it is not done.
        """
        error = self.error
        if error is not None:
            raise error
        if not self.done or self.run is None:
            raise StillPending(f"{self.spec.name}: {self.status}", self.status, self.folder)
        return self.run

    def set_status(self, status: Status) -> None:
        """Set the status. Report the job to the main thread if its state or reason has changed."""
        before = self.status
        self.status = status
        if before.state is not status.state:
            self.state_since = self.clock()
        if (before.state, before.reason) != (status.state, status.reason):
            self.changed_jobs.append(self)

    def merge_status(self, status: Status, wall_s: float) -> Status:
        """Note when it was first seen in a state from which a deadline counts.

        Args:
            status: the scheduler's new answer.
            wall_s: now, in Unix seconds.

        Returns:
            The new status, with nodes and times of the old one where the new one has none.
        """
        if self.deadlines.note(status):
            status = replace(status, started_s=status.started_s or wall_s)
        return replace(
            status,
            nodes=status.nodes or self.status.nodes,
            submitted_s=status.submitted_s or self.status.submitted_s,
            started_s=status.started_s or self.status.started_s,
        )

    def read_log(self, scheduler: Scheduler, chunks: int | None = None) -> None:
        """Give the reader what is new in the log.

        Args:
            chunks: read at most so many chunks; None reads to the end.

        Raises:
            BenchError: as Scheduler.read does.
        """
        assert self.submission is not None
        path = self.folder / "log"
        copy = not scheduler.log_in_folder
        if copy and self.offset == 0 and path.exists():  # an earlier session copied it so far
            self._feed(path.read_bytes())
        chunks_read = 0
        while chunks is None or chunks_read < chunks:
            chunk = scheduler.read(self.submission, self.offset, self.last_read)
            if not chunk:
                break
            if copy:
                job_folder.write_log_chunk(path, chunk, self.offset)
            self._feed(chunk)
            chunks_read += 1
        self.progress = self.reader.progress

    def _feed(self, chunk: bytes) -> None:
        try:
            self.reader.feed(chunk)
        except Exception:  # it may have read half of the chunk: the next time it reads from the beginning
            self.reader = LogReader()
            self.offset = 0
            self.last_read = b""
            raise
        self.offset += len(chunk)
        self.last_read = log_file.last_bytes(self.last_read, chunk)


def journal_entry(job: Job) -> dict[str, object]:
    """A job's line in the journal of the session.

    Once its id is known, the time of the request is left out.
    """
    attempt = job.attempt
    asked_s = None if job.job_id else job.asked_s
    trial = job.spec.trial.key
    return {
        "test": job.spec.test,
        **({"trial": trial} if trial else {}),
        **replace(attempt, asked_s=asked_s).journal_entry(),
        "name": job.spec.name,
        "platform": job.spec.platform,
        "job_id": job.job_id,
        "place": past_jobs.place(job.platform, job.job_id),
        "state": job.status.state,
        "reason": job.status.reason,
    }
