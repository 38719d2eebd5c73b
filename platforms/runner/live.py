"""Jobs while they live: what the runner knows of each, its log as far as it is read, and what its end means."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from platforms.job import (
    WIRE_EXIT_STATES,
    JobError,
    JobSpec,
    Run,
    State,
    Status,
    StillPending,
    job_name,
    state_of_exit,
)
from platforms.metrics import LogReader, Progress
from platforms.schedulers import Scheduler

if TYPE_CHECKING:
    from platforms.config import Platform

NOT_YET = Status(State.QUEUED, "not submitted yet")


@dataclass(eq=False)
class Job:
    """One submission, from before it is submitted to after its end."""

    spec: JobSpec
    platform: Platform
    folder: Path
    text: str = ""
    job_id: str | None = None
    status: Status = NOT_YET
    progress: Progress | None = None
    run: Run | None = None
    error: JobError | None = None
    done: bool = False

    attempted: bool = field(default=False, repr=False)  # to submit it; there may be a job though we have no id
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    reader: LogReader = field(default_factory=LogReader, repr=False)
    offset: int = field(default=0, repr=False)  # how much of the log the reader has
    # by `clock`, which unlike the machines' clocks is one and never jumps
    changed: float = field(default=0.0, repr=False)
    submitted: float | None = field(default=None, repr=False)
    running: float | None = field(default=None, repr=False)
    unknown: float | None = field(default=None, repr=False)
    ended: float | None = field(default=None, repr=False)

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

    def result(self) -> Run:
        """What it measured. Raises MachineError, WorkloadError, or StillPending while it is not done."""
        if self.error is not None:
            raise self.error
        if self.run is None:
            raise StillPending(f"{self.spec.name}: {self.status}", self.status, self.folder)
        return self.run

    def note(self, status: Status, wall_s: float) -> Status:
        """Remember when it was first seen in a state that a deadline counts from; what was known before stays known."""
        now = self.clock()
        if status.state is not State.UNKNOWN:
            self.unknown = None
        elif self.unknown is None:
            self.unknown = now
        if status.state is State.RUNNING and self.running is None:
            self.running = now
            status = replace(status, started_s=status.started_s or wall_s)
        before = self.status
        return replace(
            status,
            nodes=status.nodes or before.nodes,
            submitted_s=status.submitted_s or before.submitted_s,
            started_s=status.started_s or before.started_s,
        )

    def read(self, scheduler: Scheduler, chunks: int | None = None) -> None:
        """Give the reader what is new in the log, up to its end or some chunks. Raises what Scheduler.read raises."""
        assert self.job_id is not None
        path = self.folder / "log"
        copy = not scheduler.log_in_folder
        if copy and self.offset == 0 and path.exists():  # an earlier session had it so far
            self._feed(path.read_bytes())
        while chunks is None or chunks > 0:
            chunk = scheduler.read(self.job_id, self.offset)
            if not chunk:
                break
            if copy:
                with path.open("ab") as file:
                    file.write(chunk)
            self._feed(chunk)
            chunks = None if chunks is None else chunks - 1
        self.progress = self.reader.progress

    def _feed(self, chunk: bytes) -> None:
        self.reader.feed(chunk)
        self.offset += len(chunk)


@dataclass(eq=False)
class Line:
    """The jobs of one platform, in the order in which they are submitted."""

    platform: Platform
    scheduler: Scheduler
    jobs: list[Job] = field(default_factory=list)
    due: float = 0.0  # when to ask for their states again

    @property
    def live(self) -> dict[str, Job]:
        return {job.job_id: job for job in self.jobs if job.job_id is not None and not job.done}


def decide(status: Status, spec: JobSpec, reader: LogReader) -> Status:
    """What a job's end means, now that its whole log is known: its own exit codes, and whether the log is complete."""
    if status.exit_code is None or status.state not in (State.EXITED, State.SUCCEEDED):
        return status
    speaks_wire = spec.benchmark is not None or reader.speaks_wire
    state, reason, said = state_of_exit(status.exit_code, speaks_wire=speaks_wire), status.reason, reader.exit_code
    if state in (State.EXITED, State.SUCCEEDED) and (own := WIRE_EXIT_STATES.get(said or 0)):
        state = own  # torchrun makes 1 of every code
        reason = reason or f"the job itself said exit code {said}, which did not come through"
    elif state is State.SUCCEEDED and speaks_wire and not reader.complete:
        state, reason = State.INCOMPLETE, reader.why_incomplete
    return replace(status, state=state, reason=reason)


def numbered(spec: JobSpec, run_id: str, attempt: int) -> JobSpec:
    """A second attempt needs another name: at a scheduler the first one may still lie there as evidence."""
    if attempt == 1:
        return spec
    key = job_name("", spec.layout, run_id, spec.test, attempt).rpartition("-")[2]
    return replace(spec, name=f"{spec.name.rpartition('-')[0]}-{key}")
