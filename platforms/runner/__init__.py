"""Submit, wait with deadlines, collect, explain, clean up: the only loop, in one thread, for all jobs of a session."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

from platforms import evidence, explain, schedulers
from platforms.job import ERRORS, BenchError, JobError, JobSpec, MachineError, Outcome, Run, State, Status, StillPending
from platforms.live import Job, Line, decide, numbered

if TYPE_CHECKING:
    from platforms.config import Platform

__all__ = ["Job", "Runner"]

GRACE_S = 60.0  # how much longer than its own time limit a job may run before we end it
AWAY_S = 600.0  # how long a scheduler may say nothing about a job
LOG_S = 120.0  # how long we try to read the log of a job that has ended
TICK_S = 0.2  # how often a waiting person sees something
CHUNKS = 16  # of a running job's log at one look

P = ParamSpec("P")


class Runner:
    """All jobs of one session.

    Args:
        runs: the folder of all runs; a job's evidence lies in runs/<run id>/<test>.
        run_id: a session with the same run id finds its live jobs, and those that nobody collected, again.
        clock, wall, sleep: monotonic seconds, Unix seconds, and how to wait.
        on_change: called with a job when its state or the reason for it has changed.
        connect: the scheduler of a platform.
    """

    def __init__(
        self,
        runs: Path,
        run_id: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        on_change: Callable[[Job], None] = lambda job: None,
        connect: Callable[[Platform], schedulers.Scheduler] = schedulers.connect,
    ) -> None:
        self.runs, self.run_id = runs, run_id
        self.jobs: list[Job] = []
        self._clock, self._wall, self._sleep = clock, wall, sleep
        self._on_change, self._connect = on_change, connect
        self._lines: dict[str, Line] = {}

    def folder_for(self, test: str) -> Path:
        """Where the evidence of a test goes, or lies while its job is live."""
        return evidence.attempt(self.runs, self.run_id, test)[0]

    def add(self, spec: JobSpec, platform: Platform) -> Job:
        """Render a job into its folder and put it in line; pump() submits it. A refusal becomes the job's error."""
        folder, attempt = evidence.attempt(self.runs, self.run_id, spec.test)
        for job in self.jobs:
            if job.folder == folder and not job.done:
                return job
        job = Job(numbered(spec, self.run_id, attempt), platform, folder, clock=self._clock, changed=self._clock())
        self.jobs.append(job)
        self._guarded(job, self._add, job)
        return job

    def pump(self) -> None:
        """Do what is due, and wait for nothing: ask each scheduler once for all its jobs, collect, submit."""
        for line in self._lines.values():
            if line.live and self._clock() >= line.due:
                self._poll(line)
                line.due = self._clock() + line.platform.poll_s
            for job in [job for job in line.jobs if job.job_id is None and not job.done]:
                if len(line.live) >= line.platform.max_running:
                    break
                self._guarded(job, self._submit, line, job)

    def wait(self, job: Job, tick: Callable[[], None] = lambda: None, deadline: float | None = None) -> None:
        """Pump until the job is done. After `deadline` (by `clock`) its error is StillPending, and the job goes on."""
        while True:
            self.pump()
            if job.done:
                return
            if deadline is not None and self._clock() >= deadline:
                text = explain.pending(job.spec, job.status, job.folder, job.job_id, self.run_id, self._hints(job))
                job.error = StillPending(text, job.status, job.folder)
                return
            tick()
            due = min((line.due for line in self._lines.values() if line.live), default=0.0)
            self._sleep(min(TICK_S, max(0.01, due - self._clock())))

    def cancel(self, jobs: Sequence[Job] | None = None) -> list[Job]:
        """End all live jobs, or these. Returns those that could not be seen to be gone; their status says why."""
        left = []
        for job in [job for job in (self.jobs if jobs is None else jobs) if not job.done]:
            if not job.attempted:
                self._finish(job, replace(job.status, state=State.CANCELLED, reason="this session never submitted it"))
                continue
            line = self._lines[job.platform.name]
            try:
                if job.job_id is None:  # interrupted half-way: submitting again is how to find it
                    job.job_id = line.scheduler.submit(job.spec, job.text, job.folder)
                line.scheduler.cancel(job.job_id)
            except Exception as error:
                self._set(job, replace(job.status, reason=f"could not be cancelled: {error}"))
                left.append(job)
            else:
                self._guarded(job, self._stopped, line, job, State.CANCELLED, "this session ended it")
        return left

    # --- submitting --------------------------------------------------------------------------------------------------

    def _add(self, job: Job) -> None:
        evidence.make_folder(job.folder)
        evidence.link_latest(self.runs, self.run_id)
        line = self._lines.get(job.platform.name)
        if line is None:
            line = self._lines[job.platform.name] = Line(job.platform, self._connect(job.platform))
        path = job.folder / line.scheduler.text_name
        before = evidence.read_json(job.folder / "submitted.json")
        if "job_id" in before:  # by an earlier session
            submitted_s = float(before["submitted_s"])
            job.job_id, job.attempted = str(before["job_id"]), True
            job.submitted = self._clock() - max(0.0, self._wall() - submitted_s)
            job.status = Status(State.SUBMITTED, "found again", submitted_s=submitted_s)
            job.text = path.read_text(encoding="utf-8", errors="surrogateescape")
        else:
            job.text = line.scheduler.render(job.spec)
            evidence.write(path, job.text)
        line.jobs.append(job)

    def _submit(self, line: Line, job: Job) -> None:
        submitted_s = self._wall()
        if not line.live:
            line.due = self._clock() + line.platform.poll_s
        job.attempted = True
        job.job_id = line.scheduler.submit(job.spec, job.text, job.folder)
        job.submitted = self._clock()
        record = {"job_id": job.job_id, "name": job.spec.name, "submitted_s": submitted_s}
        evidence.write_json(job.folder / "submitted.json", record)
        self._set(job, Status(State.SUBMITTED, submitted_s=submitted_s))

    # --- following ---------------------------------------------------------------------------------------------------

    def _poll(self, line: Line) -> None:
        jobs = line.live
        statuses: Mapping[str, Status] = {}
        reason = "the scheduler said nothing about it"
        try:
            statuses = line.scheduler.status(list(jobs))
        except BenchError as error:
            reason = str(error)
        except Exception as error:
            for job in jobs.values():
                self._broken(job, error)
            return
        for job_id, job in jobs.items():
            self._guarded(job, self._follow, line, job, statuses.get(job_id, Status(State.UNKNOWN, reason)))

    def _follow(self, line: Line, job: Job, status: Status) -> None:
        status = job.note(status, self._wall())
        if not status.state.live:
            self._collect(line, job, status)
            return
        self._set(job, status)
        if status.state is State.RUNNING:
            with contextlib.suppress(BenchError):  # the next look tries again, and the last one says so
                job.read(line.scheduler, CHUNKS)
        self._enforce(line, job)

    def _enforce(self, line: Line, job: Job) -> None:
        """The deadlines, for a scheduler that does not keep them itself."""
        spec, now = job.spec, self._clock()
        if job.unknown is not None:
            if now - job.unknown > AWAY_S:
                self._stop(line, job, State.CONTROLLER_AWAY, f"no word for {AWAY_S:g} s: {job.status.reason}")
        elif job.running is not None:
            if now - job.running > spec.time_limit_s + GRACE_S:
                self._stop(line, job, State.TIME_LIMIT, f"it ran longer than its time limit of {spec.time_limit_s:g} s")
        elif job.submitted is not None and now - job.submitted > spec.start_limit_s:
            reason = f"it did not start within its start limit of {spec.start_limit_s:g} s"
            self._stop(line, job, State.START_DEADLINE, f"{reason}: {job.status.reason}".rstrip(": "))

    def _stop(self, line: Line, job: Job, state: State, reason: str) -> None:
        """Cancel what passed a deadline."""
        assert job.job_id is not None
        try:
            line.scheduler.cancel(job.job_id)
        except BenchError as error:
            reason += f"; it could not be cancelled either: {error}"
        self._stopped(line, job, state, reason)

    def _stopped(self, line: Line, job: Job, state: State, reason: str) -> None:
        """What a cancelled job ended as; should it have ended by itself meanwhile, that counts."""
        assert job.job_id is not None
        status = job.status
        with contextlib.suppress(BenchError):
            status = job.note(line.scheduler.status([job.job_id]).get(job.job_id, status), self._wall())
        if status.state.live or status.state in (State.CANCELLED, State.LOST):
            status = replace(status, state=state, reason=reason)
        self._collect(line, job, status, patient=False)

    # --- ending ------------------------------------------------------------------------------------------------------

    def _collect(self, line: Line, job: Job, status: Status, patient: bool = True) -> None:
        """The job has ended: its whole log, its outcome. `patient`: should the log be out of reach, try again later."""
        problems: tuple[str, ...] = ()
        job.ended = self._clock() if job.ended is None else job.ended
        try:
            job.read(line.scheduler)
        except BenchError as error:
            if patient and self._clock() - job.ended < LOG_S:
                return
            problems = (f"the log could not be read to its end: {error}",)
        run = job.reader.finish(job.spec)
        if status.ended_s is None:
            status = replace(status, ended_s=self._wall())
        self._finish(job, decide(status, job.spec, job.reader), replace(run, problems=(*run.problems, *problems)))

    def _finish(self, job: Job, status: Status, run: Run | None = None) -> None:
        """The job is done: Run, error, run.json; success is cleaned up, failure keeps what there is to look at."""
        spec = job.spec
        run = replace(run or Run(), name=spec.name, test=spec.test, platform=spec.platform, benchmark=spec.benchmark)
        run = replace(run, layout=str(spec.layout), status=status, folder=job.folder)
        job.error = None
        if status.state.outcome is Outcome.PASSED:
            run = replace(run, warnings=(*run.warnings, *self._clean(job)))
        else:
            source = job.platform.source
            text = explain.ended(spec, run, source=source, tail=job.reader.tail, hints=self._hints(job))
            job.error = ERRORS.get(status.state.outcome, MachineError)(text, status, job.folder)
        job.run, job.done = run, True
        self._set(job, status)
        try:
            error = None if job.error is None else str(job.error)
            evidence.write_json(job.folder / "run.json", evidence.record(run, spec, job.job_id, job.queue_s, error))
        except OSError as failure:
            job.error = MachineError(f"{spec.name}: its evidence cannot be written: {failure}", status, job.folder)

    def _clean(self, job: Job) -> tuple[str, ...]:
        assert job.job_id is not None
        try:
            self._lines[job.platform.name].scheduler.clean(job.job_id)
        except BenchError as error:
            return (f"not cleaned up: {error}",)
        return ()

    def _hints(self, job: Job) -> tuple[str, ...]:
        if job.job_id is None:
            return ()
        try:
            return self._lines[job.platform.name].scheduler.hints(job.job_id)
        except Exception as error:  # what we were about to say matters more
            return (f"(no commands: {error})",)

    def _guarded(self, job: Job, step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """One job's refusal or a scheduler's mistake ends that job, loudly, and no other."""
        try:
            step(*args, **kwargs)
        except BenchError as error:
            refused = error.status if isinstance(error, JobError) else Status(State.SUBMIT_REFUSED, str(error))
            self._finish(job, replace(refused, submitted_s=job.status.submitted_s))
        except Exception as error:
            self._broken(job, error)

    def _broken(self, job: Job, error: Exception) -> None:
        path = job.folder / "traceback.txt"
        with contextlib.suppress(OSError):
            evidence.write(path, "".join(traceback.format_exception(error)))
        reason = f"{type(error).__name__}: {error} (a mistake in the suite, see {path})"
        if job.job_id is not None:
            try:
                self._lines[job.platform.name].scheduler.cancel(job.job_id)
            except Exception as second:
                reason += f"; it may still run, since it could not be cancelled either: {second}"
        self._finish(job, replace(job.status, state=State.LOST if job.job_id else State.SUBMIT_REFUSED, reason=reason))

    def _set(self, job: Job, status: Status) -> None:
        before, job.status = job.status, status
        if before.state is not status.state:
            job.changed = self._clock()
        if (before.state, before.reason) != (status.state, status.reason):
            self._on_change(job)
