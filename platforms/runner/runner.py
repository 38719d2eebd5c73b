"""The main thread's side of all jobs of a session: adds them, starts the workers that are due, waits, cancels.

The pytest plugin and the commands that start jobs own one Runner and call it from the main thread only. Everything
that asks a scheduler runs on a worker thread, one for each platform (platform_queue.py).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from platforms import schedulers
from platforms.job import JobSpec, LoginNeeded, State, Status, StillPending
from platforms.rundir import job_folder
from platforms.rundir.session_history import Attempt
from platforms.rundir.session_journal import Journal
from platforms.runner import messages
from platforms.runner.live_job import NOT_SUBMITTED, Job, journal_entry
from platforms.runner.platform_queue import PlatformQueue
from platforms.runner.retries import spec_of_attempt
from platforms.runner.workers import ThreadPool, WorkerPool

if TYPE_CHECKING:
    from platforms.config.schema import Platform

TICK_S = 0.2  # how often a waiting person sees something new
ANSWER_S = 10.0  # how long after the deadline a scheduler may take to answer a submission that is under way


class Runner:
    """All jobs of one session.

    Only cancel() waits for a platform. All other methods return at once or after a time that the caller limits.

    Args:
        runs: the folder of all runs; what is kept of a job lies in runs/<run id>/<test>.
        run_id: a session with the same run id finds its live jobs again, and those that have no result yet.
        journal: where this session writes down what becomes of its jobs.
        max_device_hours: the budget for retries after machine failures, and for all first attempts that are added.
            Jobs on the platform `local` cost nothing.
        clock, wall: monotonic seconds, Unix seconds.
        workers: makes the platforms' workers, and waits for them.
        on_change: called by the main thread with a job whose state, or the reason for it, has changed.
        on_end: called with a job when its run.json is written, on the thread that has written it. Must not raise.
        on_trouble: called by the main thread with what a person must know: something could not be read or written.
        connect: makes the scheduler of a platform.
        resume_command: the command that goes on with the run, for messages.
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
        workers: WorkerPool | None = None,
        on_change: Callable[[Job], None] = lambda job: None,
        on_end: Callable[[Job], None] = lambda job: None,
        on_trouble: Callable[[str], None] = lambda text: None,
        connect: Callable[[Platform], schedulers.Scheduler] = schedulers.connect,
        resume_command: str = "",
    ) -> None:
        self.runs = runs
        self.run_id = run_id
        self.jobs: list[Job] = []
        self._journal = journal
        self._resume_command = resume_command or f"pytest --resume={run_id}"
        self._clock = clock
        self._wall = wall
        self._workers = workers or ThreadPool()
        self._on_change = on_change
        self._on_end = on_end
        self._on_trouble = on_trouble
        self._connect = connect
        self._queues: dict[str, PlatformQueue] = {}  # by the platform's name
        self._by_folder: dict[Path, Job] = {}
        self._not_in_journal: list[Job] = []
        self._hours_left = math.inf if max_device_hours is None else max_device_hours
        self._budget_lock = Lock()
        self._last_left_at = -math.inf  # by clock: when a job was left

    def add(self, spec: JobSpec, platform: Platform, attempt: Attempt | None = None) -> Job:
        """Render a job into its folder and queue it; pump() submits it. A refusal becomes the job's error.

        Args:
            attempt: one that an earlier session has made: go on with it, whatever has become of it.
        """
        if attempt is None:
            attempt = Attempt(job_folder.next_attempt_number(self.runs, self.run_id, spec.key))
        folder = job_folder.attempt_folder(self.runs, self.run_id, spec.key, attempt.number)
        known = self._by_folder.get(folder)
        if known is not None and not known.done:
            return known
        for _ in range(1 + len(attempt.earlier)):
            self._afford(spec)
        spec = spec_of_attempt(spec, self.run_id, attempt)
        job = self._queue_job(spec, platform, folder, attempt, NOT_SUBMITTED)
        self._not_in_journal.append(job)
        return job

    def pump(self) -> None:
        """Start the workers that have something to do, and report what they have done. Waits for nothing.

        Raises:
            TakenOver: another session goes on in place of this one.
            BaseException: a worker's, which is a bug in the suite.
        """
        for queue in self._queues.values():
            self._start_retries(queue)
        if self._journal is not None:
            self._journal.refuse_taken_over()
            if self._not_in_journal:
                with contextlib.suppress(OSError):  # it is tried again; no job is submitted before a line names it
                    self._journal.write_jobs([journal_entry(job) for job in self._not_in_journal])
                    self._not_in_journal = []
        for queue in self._queues.values():
            if queue.worker.busy:
                self._report_changes(queue)
                continue
            crash = queue.worker.take_crash()
            if crash is not None:
                raise crash
            if queue.has_work:
                self._report_changes(queue)  # before the worker changes the same jobs again
                queue.worker.start(queue.poll_and_submit)
            elif queue.slots.all_left:
                queue.worker.stop()
            self._report_changes(queue)

    def wait(self, job: Job, tick: Callable[[Job], None] = lambda job: None, deadline: float | None = None) -> Job:
        """Pump until the job is done; if the machine failed it, until its retry is done. Returns the last attempt.

        After `deadline` (by `clock`), when its platform waits for a person to log in, or when something of it could not
        be read or written for too long, the job goes on without this session, and its error is StillPending.

        Args:
            tick: called with the job again and again while this waits.
        """
        queue = self._queues[job.platform.name]
        job.left = None
        while True:
            if self._clock() - self._last_left_at >= TICK_S:  # a session may leave thousands, one after the other
                self.pump()
            if job.done:
                self._report_changes(queue)
                self._start_retries(queue)
                if job.successor is None:
                    return job
                job = job.successor
                continue
            late_s = -math.inf if deadline is None else self._clock() - deadline
            must_leave = queue.contact.login is not None or job.out_of_reach or late_s >= 0
            if must_leave and self._leave(job, in_submission=late_s >= ANSWER_S):
                return job
            tick(job)
            self._workers.rest(self._pause_s())

    def hand_over(self, limit_s: float) -> None:
        """Pump until the session can exit without its results: everything is submitted that there is room for.

        Results of jobs that have ended meanwhile are read. Stops after `limit_s` seconds, and when no platform answers.
        """
        deadline = self._clock() + limit_s
        while self._clock() < deadline:
            self.pump()
            if not any(self._queues[job.platform.name].must_hand_over(job) for job in self.jobs):
                break
            self._workers.rest(self._pause_s())

    def can_afford(self, spec: JobSpec) -> bool:
        """Whether one more job is within `max_device_hours`."""
        return _cost_h(spec) <= self._hours_left

    def settled(self, job: Job) -> bool:
        """Whether a job is done, with all of its attempts."""
        while job.successor is not None:
            job = job.successor
        return job.done and not self._queues[job.platform.name].finalizer.owes_retry(job)

    @property
    def owes_retries(self) -> bool:
        """Some jobs that the machine failed are still to be begun again."""
        return any(queue.finalizer.retries for queue in self._queues.values())

    def login(self, job: Job) -> LoginNeeded | None:
        """Set while the job's platform waits for a person to open the connection again."""
        return self._queues[job.platform.name].contact.login

    def cancel(self, jobs: Sequence[Job] | None = None) -> list[Job]:
        """Cancel all live jobs, or these, on all platforms at the same time. This waits for the platforms' time-outs.

        Returns:
            The jobs that may still be there; their status says why.

        Raises:
            BaseException: a worker's, which is a bug in the suite.
        """
        if jobs is None:
            jobs = self.jobs
        jobs = [job for job in jobs if not job.done]
        by_queue: dict[PlatformQueue, list[Job]] = {}
        for job in jobs:
            by_queue.setdefault(self._queues[job.platform.name], []).append(job)
        for queue in by_queue:
            queue.finalizer.stopping = True
        left_before = {job: job.left for job in jobs}
        for job in jobs:
            job.left = None
        crashes = self._cancel_on_workers(by_queue)
        if crashes:
            raise crashes[0]
        for job in jobs:
            job.left = left_before[job]  # a job that is still not done stays left
        return [job for job in jobs if not job.done]

    def _cancel_on_workers(self, by_queue: Mapping[PlatformQueue, Sequence[Job]]) -> list[BaseException]:
        """Let each queue's worker cancel its jobs, once its current task has ended.

        Returns what workers raised.
        """
        to_start = list(by_queue)
        crashes: list[BaseException | None] = []
        while True:
            for queue in list(to_start):
                if queue.worker.busy:
                    continue
                crashes.append(queue.worker.take_crash())
                to_start.remove(queue)
                queue.worker.start(partial(queue.cancel, by_queue[queue]))
            for queue in by_queue:
                self._report_changes(queue)
                queue.worker.nudge()
            if not to_start and not any(queue.worker.busy for queue in by_queue):
                break
            self._workers.rest(TICK_S)
        for queue in by_queue:
            self._report_changes(queue)
            crashes.append(queue.worker.take_crash())
            queue.worker.stop()
        return [crash for crash in crashes if crash is not None]

    # --- one job -----------------------------------------------------------------------------------------------------

    def _queue_job(self, spec: JobSpec, platform: Platform, folder: Path, attempt: Attempt, status: Status) -> Job:
        queue = self._queue_of(platform)
        job = Job(
            spec,
            platform,
            folder,
            attempt,
            status=status,
            clock=self._clock,
            state_since=self._clock(),
            changed_jobs=queue.changed_jobs,
        )
        queue.add(job)
        if not self.jobs:
            job_folder.link_latest(self.runs, self.run_id)
        # Only now: after an interrupt, jobs that are listed here are known to be submitted or not.
        self.jobs.append(job)
        self._by_folder[folder] = job
        self._report_changes(queue)
        return job

    def _queue_of(self, platform: Platform) -> PlatformQueue:
        queue = self._queues.get(platform.name)
        if queue is None:
            worker = self._workers.worker(platform.name)
            queue = PlatformQueue(
                platform,
                self._connect,
                worker,
                self._journal,
                self._afford,
                self._clock,
                self._wall,
                self._on_end,
            )
            self._queues[platform.name] = queue
        return queue

    def _start_retries(self, queue: PlatformQueue) -> None:
        """Queue the next attempt of each job that the machine has failed."""
        queue.finalizer.retry_restored()
        while queue.finalizer.retries:
            failed, attempt = queue.finalizer.retries[0]
            folder = job_folder.attempt_folder(self.runs, self.run_id, failed.spec.key, attempt.number)
            spec = spec_of_attempt(failed.retry_spec, self.run_id, attempt, failed.attempt)
            status = Status(State.QUEUED, messages.retried(attempt))
            failed.successor = self._queue_job(spec, failed.platform, folder, attempt, status)
            queue.finalizer.retries.popleft()  # only now: an interrupt loses no retry
            self._report([failed.successor])

    def _afford(self, spec: JobSpec) -> bool:
        """Take a job's cost from the budget.

        Returns False, and takes nothing, when too little is left.
        """
        hours = _cost_h(spec)
        with self._budget_lock:
            if hours > self._hours_left:
                return False
            self._hours_left -= hours
            return True

    def _leave(self, job: Job, *, in_submission: bool) -> bool:
        """Stop waiting for a job.

        Returns False when its end or its submission must be awaited first.
        """
        status = job.status
        text = messages.still_pending(
            job.spec,
            status,
            job.folder,
            job.existence,
            resume_command=self._resume_command,
            login=self.login(job),
            trouble=job.trouble,
            hints=job.hints,
        )
        left = job.leave(StillPending(text, status, job.folder), in_submission=in_submission)
        if left:
            self._last_left_at = self._clock()
        return left

    # --- waiting and reporting ---------------------------------------------------------------------------------------

    def _pause_s(self) -> float:
        """How long to sleep: until a worker is due, and at most a tick.

        The end of a worker's task ends it earlier.
        """
        next_action_at = math.inf
        for queue in self._queues.values():
            if queue.slots.any_live and not queue.worker.busy:
                next_action_at = min(next_action_at, queue.contact.next_action_at)
        return min(TICK_S, max(0.01, next_action_at - self._clock()))

    def _report_changes(self, queue: PlatformQueue) -> None:
        """Report the jobs that a worker has changed."""
        changed = []
        while queue.changed_jobs:
            changed.append(queue.changed_jobs.popleft())
        if changed:
            self._report(changed)
        while queue.finalizer.notices:
            self._on_trouble(queue.finalizer.notices.popleft())

    def _report(self, jobs: Sequence[Job]) -> None:
        """Write jobs to the journal and call on_change for each."""
        if self._journal is not None:
            with contextlib.suppress(OSError):  # the disk is full: the next session finds jobs by their folders
                self._journal.write_jobs([journal_entry(job) for job in jobs])
        for job in jobs:
            self._on_change(job)


def _cost_h(spec: JobSpec) -> float:
    """What a job takes from the budget, in device-hours. This machine costs nothing."""
    return 0.0 if spec.platform == "local" else spec.device_hours
