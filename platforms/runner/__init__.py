"""All jobs of a session: submitted, waited for with deadlines, cancelled. Each platform has a thread of its own."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from platforms import schedulers
from platforms.job import JobSpec, LoginNeeded, RefusedError, State, Status, StillPending
from platforms.rundir import job_folder
from platforms.rundir.session_history import Attempt
from platforms.rundir.session_journal import Journal
from platforms.runner import messages
from platforms.runner.live_job import NOT_YET, Job, entry, numbered
from platforms.runner.platform_queue import PlatformQueue
from platforms.runner.workers import ThreadPool, WorkerPool

if TYPE_CHECKING:
    from platforms.config.schema import Platform

__all__ = ["Job", "Runner"]

TICK_S = 0.2  # how often a waiting person sees something
ANSWER_S = 10.0  # how long after the deadline a scheduler may take to answer a submission that is under way


class Runner:
    """All jobs of one session.

    Its methods belong to one thread, the main one, and only cancel() waits for a platform. What takes time happens in a
    platform's turns, one at a time for each platform (line.py); pump() starts those that are due.

    Args:
        runs: the folder of all runs; a job's evidence lies in runs/<run id>/<test>.
        run_id: a session with the same run id finds its live jobs, and those that nobody collected, again.
        journal: where this session writes down what becomes of its jobs.
        max_device_hours: what all jobs may cost that are begun again after a machine's failure, and all others; those
            of the platform local cost nothing.
        clock, wall: monotonic seconds, Unix seconds.
        turns: who takes the platforms' turns, and how to wait for them.
        on_change: called by the main thread with a job when its state or the reason for it has changed.
        connect: the scheduler of a platform.
    """

    def __init__(
        self,
        runs: Path,
        run_id: str,
        *,
        journal: Journal | None = None,
        max_device_hours: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        turns: WorkerPool | None = None,
        on_change: Callable[[Job], None] = lambda job: None,
        connect: Callable[[Platform], schedulers.Scheduler] = schedulers.connect,
        again: str = "",  # the command that goes on with the run
    ) -> None:
        self.runs, self.run_id, self._journal = runs, run_id, journal
        self.jobs: list[Job] = []
        self._by_folder: dict[Path, Job] = {}
        self._again = again or f"pytest --resume={run_id}"
        self._clock, self._wall = clock, wall
        self._turns = turns or ThreadPool()
        self._on_change, self._connect = on_change, connect
        self._lines: dict[str, PlatformQueue] = {}
        self._added: list[Job] = []  # not in the journal yet
        self._left_h = math.inf if max_device_hours is None else max_device_hours
        self._spending = Lock()
        self._leaving = -math.inf  # by `clock`: when a job was left

    def folder_for(self, test: str) -> Path:
        """Where the evidence of a test goes, or lies while its job is live."""
        return job_folder.attempt(self.runs, self.run_id, test)[0]

    def add(self, spec: JobSpec, platform: Platform, attempt: Attempt | None = None) -> Job:
        """Render a job into its folder and put it in line; pump() submits it. A refusal becomes the job's error.

        With an attempt that an earlier session has made, go on with that one, whatever has become of it.
        """
        attempt = attempt or Attempt(job_folder.attempt(self.runs, self.run_id, spec.test)[1])
        folder = job_folder.of_attempt(self.runs, self.run_id, spec.test, attempt.number)
        if (known := self._by_folder.get(folder)) is not None and not known.done:
            return known
        for _ in range(1 + len(attempt.earlier)):
            self._afford(spec)
        job = self._put(numbered(spec, self.run_id, attempt), platform, folder, attempt, NOT_YET)
        self._added.append(job)
        return job

    def pump(self) -> None:
        """Start the turns that are due, and wait for nothing. Raises what went wrong in a turn, which is a mistake of
        ours; TakenOver when another session goes on in our place; RefusedError when new jobs cannot be written down,
        and then they are not submitted."""
        for line in self._lines.values():
            self._begin_again(line)
        if self._journal is not None:
            self._journal.refuse_taken()
            if self._added:  # before anything is submitted
                self._journal.jobs(map(entry, self._added))
                self._added = []
        for line in self._lines.values():
            if line.worker.busy:
                self._tell(line)
                continue
            if (crash := line.worker.take_crash()) is not None:
                raise crash
            if line.wants_turn:
                self._tell(line)  # before it has news of the same jobs
                line.worker.start(line.turn)
            elif line.places.settled:
                line.worker.stop()
            self._tell(line)

    def wait(self, job: Job, tick: Callable[[Job], None] = lambda job: None, deadline: float | None = None) -> Job:
        """Pump until the job is done, and the one that takes its place when the machine fails it; returns the last. Its
        error is StillPending, and it goes on without us, after `deadline` (by `clock`), or when its platform waits for
        a person to log in."""
        line, job.left = self._lines[job.platform.name], None
        while True:
            if self._clock() - self._leaving >= TICK_S:  # thousands may be left, one after the other
                self.pump()
            if job.done:
                self._tell(line)
                self._begin_again(line)
                if job.again is None:
                    return job
                job = job.again
                continue
            late_s = -math.inf if deadline is None else self._clock() - deadline
            if (line.contact.login is not None or late_s >= 0) and self._leave(job, in_submission=late_s >= ANSWER_S):
                return job
            tick(job)
            self._turns.rest(self._rest_s())

    @property
    def owes_attempts(self) -> bool:
        """Some jobs that the machine failed are still to be begun again."""
        return any(line.endings.again for line in self._lines.values())

    def hand_over(self, limit_s: float) -> None:
        """Pump until what there is a place for is submitted, and what has ended meanwhile is read, or nobody answers,
        but no longer than that."""
        end = self._clock() + limit_s
        while self._clock() < end:
            self.pump()
            if not any(self._lines[job.platform.name].owes(job) for job in self.jobs):
                break
            self._turns.rest(self._rest_s())

    def login(self, job: Job) -> LoginNeeded | None:
        """Set while the job's platform waits for a person to open the connection again."""
        return self._lines[job.platform.name].contact.login

    def cancel(self, jobs: Sequence[Job] | None = None) -> list[Job]:
        """End all live jobs, or these, on all platforms at the same time; each takes as long as its own time-outs.

        Returns those that could not be seen to be gone; their status says why. Raises what went wrong in a turn.
        """
        wanted = [job for job in (self.jobs if jobs is None else jobs) if not job.done]
        lines = list({job.platform.name: self._lines[job.platform.name] for job in wanted}.values())
        for line in lines:
            line.endings.stopping = True
        left = {job: job.left for job in wanted}
        for job in wanted:
            job.left = None
        todo, crashes = list(lines), []
        while True:
            for line in [line for line in todo if not line.worker.busy]:
                crashes.append(line.worker.take_crash())
                todo.remove(line)
                line.worker.start(partial(line.end, [job for job in wanted if job.platform.name == line.platform.name]))
            for line in lines:
                self._tell(line)
                line.worker.nudge()
            if not todo and not any(line.worker.busy for line in lines):
                break
            self._turns.rest(TICK_S)
        for line in lines:
            self._tell(line)
            crashes.append(line.worker.take_crash())
            line.worker.stop()
        for crash in crashes:
            if crash is not None:
                raise crash
        for job in wanted:
            job.left = left[job]  # what was said of one that still is not done stays said
        return [job for job in wanted if not job.done]

    def _line(self, platform: Platform) -> PlatformQueue:
        line = self._lines.get(platform.name)
        if line is None:
            worker = self._turns.worker(platform.name)
            line = self._lines[platform.name] = PlatformQueue(
                platform, self._connect, worker, self._journal, self._afford, self._clock, self._wall
            )
        return line

    def _put(self, spec: JobSpec, platform: Platform, folder: Path, attempt: Attempt, status: Status) -> Job:
        line, now = self._line(platform), self._clock()
        job = Job(spec, platform, folder, attempt, status=status, clock=self._clock, changed=now, news=line.news)
        line.endings.guarded(job, self._add, line, job)
        self.jobs.append(job)  # not before: an interrupt must not find one of which nobody knows yet if it is submitted
        self._by_folder[folder] = job
        self._tell(line)
        return job

    def _begin_again(self, line: PlatformQueue) -> None:
        """Those that the machine has failed."""
        line.endings.look_back()
        while line.endings.again:
            job, attempt = line.endings.again[0]
            folder = job_folder.of_attempt(self.runs, self.run_id, job.spec.test, attempt.number)
            spec = numbered(job.spec, self.run_id, attempt)
            status = Status(State.QUEUED, messages.begun_again(attempt))
            job.again = self._put(spec, job.platform, folder, attempt, status)
            line.endings.again.popleft()
            self._note([job.again])

    def _afford(self, spec: JobSpec) -> bool:
        hours = 0.0 if spec.platform == "local" else spec.device_hours
        with self._spending:
            self._left_h -= hours if (enough := hours <= self._left_h) else 0.0
        return enough

    def _add(self, line: PlatformQueue, job: Job) -> None:
        job_folder.make_folder(job.folder)
        if not self.jobs:
            job_folder.link_latest(self.runs, self.run_id)
        line.add(job)

    def _leave(self, job: Job, *, in_submission: bool) -> bool:
        status, login = job.status, self.login(job)
        text = messages.pending(
            job.spec, status, job.folder, job.known, again=self._again, login=login, hints=job.hints
        )
        if left := job.leave(StillPending(text, status, job.folder), in_submission=in_submission):
            self._leaving = self._clock()
        return left

    def _rest_s(self) -> float:
        """Until somebody wants to see something, or a turn is due; the end of a turn ends it earlier."""
        idle = (line for line in self._lines.values() if line.places.active and not line.worker.busy)
        due = min((line.contact.wakes for line in idle), default=math.inf)
        return min(TICK_S, max(0.01, due - self._clock()))

    def _tell(self, line: PlatformQueue) -> None:
        news = []
        while line.news:
            news.append(line.news.popleft())
        if news:
            self._note(news)

    def _note(self, news: Sequence[Job]) -> None:
        if self._journal is not None:
            with contextlib.suppress(RefusedError):  # the disk is full: whoever goes on finds the jobs by their folders
                self._journal.jobs(map(entry, news))
        for job in news:
            self._on_change(job)
