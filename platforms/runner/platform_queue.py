"""All jobs of one platform, in the order in which they are submitted, and everything that is asked of its scheduler.

After add() one thread at a time is in here: the platform's turn. The main thread looks at what the jobs say.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from platforms import atomic_file
from platforms.job import (
    AwayError,
    BenchError,
    JobSpec,
    LoginNeeded,
    NoRoom,
    RefusedError,
    State,
    Status,
    Submitted,
    unseen,
)
from platforms.rundir import job_folder
from platforms.rundir.session_history import ASKED
from platforms.rundir.session_journal import Journal
from platforms.runner import messages
from platforms.runner.contact import Contact
from platforms.runner.finalizer import Ends, Finalizer
from platforms.runner.live_job import Job, entry
from platforms.runner.slots import Slots
from platforms.schedulers import Scheduler

if TYPE_CHECKING:
    from platforms.config.schema import Platform
    from platforms.runner.workers import Worker

CHUNKS = 16  # of a running job's log at one look
NOT_CANCELLED = "could not be cancelled: "


class PlatformQueue:
    """One platform's jobs.

    Args:
        connect: the scheduler of a platform.
        worker: who takes the turns.
        journal: where this session writes down what it does, as long as the run is its own.
        afford: whether a job may begin again, by what the site allows to be spent.
        clock, wall: monotonic seconds, Unix seconds.
    """

    def __init__(
        self,
        platform: Platform,
        connect: Callable[[Platform], Scheduler],
        worker: Worker,
        journal: Journal | None,
        afford: Callable[[JobSpec], bool],
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.platform, self.worker = platform, worker
        self.places = Slots(platform)
        self.news: deque[Job] = deque()  # whose state has changed; the main thread takes them
        self.contact = Contact(platform, connect, clock)
        self.endings = Finalizer(self.contact, self.places, journal, afford, clock, wall)
        self._journal, self._clock, self._wall = journal, clock, wall
        self._stuck: float | None = None  # since when nothing can be submitted

    @property
    def wants_turn(self) -> bool:
        if self.places.active or self.contact.held is not None:
            if self._clock() >= self.contact.wakes:
                return not self.places.settled
            if self.contact.held is not None:
                return False
        return self.places.wanted

    def owes(self, job: Job) -> bool:
        """What who does not wait for its end waits for: there is a place for it and a turn is to submit it and to write
        that down, or an earlier session has, and a turn is to see whether it has ended."""
        if self.contact.held is not None:
            return False
        if job.waiting:
            return self.places.wanted
        return job.live and (job.submitted is None or job.found or job.ended is not None)

    def add(self, job: Job) -> None:
        """Render a job into its folder and put it in line, or find the one that an earlier session submitted; one whose
        end that session has written down is done."""
        if self.endings.recall(job):
            return
        before = job_folder.read_json(job.folder / "submitted.json")
        if "job_id" in before:
            job.asked_s = float(before["submitted_s"])
            job.submission = Submitted(str(before["job_id"]), job.spec.name, job.asked_s, job.folder)
            job.submitted = self._clock() - max(0.0, self._wall() - job.asked_s)
            job.status = Status(State.SUBMITTED, "found again", submitted_s=job.asked_s)
            job.found = True
        else:
            job.asked_s = job.attempt.asked_s
            job.text = self.contact.scheduler.render(job.spec)
            path = job.folder / self.contact.scheduler.text_name
            atomic_file.write_text(path, job.text)
            if findings := self.contact.scheduler.lint(job.spec, job.text):
                raise RefusedError(messages.against_policy(findings))
        self.places.add(job)

    def turn(self) -> None:
        """Ask for the states when that is due, then submit what there is a place for."""
        if self.contact.look_is_worth_it(self.places.live):
            self.contact.held = None
            self.contact.next_poll()
            if self.places.active:
                self._poll()
                self.contact.looked()
        self._submit()
        self._give_up()
        self.places.look()

    def end(self, jobs: Sequence[Job]) -> None:
        """End jobs with the session. One that cannot be seen to be gone is not done then, and its status says why."""
        self.contact.held = None
        if self._lost():
            return
        for job in jobs:
            if not job.done and job.asked_s is None:
                self.endings.finish(job, replace(job.status, state=State.CANCELLED, reason=messages.NEVER_SUBMITTED))
            elif not job.done and job.submission is None and self.contact.held is None:
                self.endings.guarded(job, self._attempt, job)  # submitting again is how to find it
        known, began_s = [job for job in jobs if job.submission is not None and not job.done], self._wall()
        self._begin_to_end(known)
        why = self.contact.cancel(known)
        why |= {job: job.status.reason for job in jobs if job.submission is None and not job.done}
        for job, reason in why.items():
            job.become(replace(job.status, reason=f"{NOT_CANCELLED}{reason.removeprefix(NOT_CANCELLED)}"))
        ended: Ends = {job: (State.CANCELLED, messages.ENDED_BY_US) for job in known if job not in why}
        self.endings.stopped(ended, began_s)
        self.endings.stopping = False

    def _begin_to_end(self, jobs: Sequence[Job]) -> None:
        """Who goes on after we are killed now knows who cancelled them; a person who does not wait, how to end them."""
        for job in jobs:
            job.attempt = replace(job.attempt, ending=True)
            job.hints = job.hints or self.contact.hints(job)
        if self._journal is not None:
            with contextlib.suppress(RefusedError):
                self._journal.jobs(map(entry, jobs))

    # --- submitting --------------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        for job in self.places.waiting:
            if not job.waiting:  # it was left meanwhile
                continue
            if not self.places.room or self.endings.stopping or self.contact.held is not None:
                break
            active = self.places.active
            if active and self._clock() >= self.contact.due:  # first the others are looked at
                break
            if not active:
                self.contact.begin_looks()
            self.endings.guarded(job, self._attempt, job)

    def _attempt(self, job: Job) -> None:
        """Submit; where nobody knows whether there is a job now, it stays in line, since submitting again finds out."""
        if not job.begin_submission():
            return
        try:
            self._hand_over(job)
        except AwayError as error:
            now, login = self._clock(), isinstance(error, LoginNeeded)  # a person may take their time
            job.tried = None if login else now if job.tried is None else job.tried
            self._stuck = None if login else now if self._stuck is None else self._stuck
            if isinstance(error, NoRoom):
                job.asked_s = None  # so there is no job
            state = State.QUEUED if isinstance(error, NoRoom) else State.UNKNOWN
            job.become(Status(state, messages.why(error)))
        finally:
            job.end_submission()

    def _hand_over(self, job: Job) -> None:
        if self._lost():
            return
        if job.asked_s is None:
            job.asked_s = self._wall()
            if self._journal is not None:  # who finds this line last, and no id, must look whether there is a job
                with contextlib.suppress(RefusedError):
                    self._journal.jobs([{**entry(job), "state": ASKED}])
                if self._journal.ended:  # perhaps before that line: a job that nobody knows of must not begin
                    return
        job_id = self.contact.reach(self.contact.scheduler.submit, job.spec, job.text, job.folder)
        job.submission = Submitted(job_id, job.spec.name, job.asked_s, job.folder)
        self.places.submitted(job)
        job_folder.write_json(job.folder / "submitted.json", job_folder.submitted(job.spec, job_id, job.asked_s))
        job.become(Status(State.SUBMITTED, submitted_s=job.asked_s))
        job.submitted, self._stuck = self._clock(), None  # last: who does not wait may leave now

    def _give_up(self) -> None:
        """The start limit of what cannot be submitted: after it even a job that is there starts no more."""
        if self.contact.held is None or self.contact.login is not None:
            return
        for job in self.places.waiting:
            since = self._stuck if job.tried is None else job.tried
            if since is not None and self._clock() - since > job.spec.start_limit_s:
                reason = messages.never_answered(job.spec, job.asked_s is not None, self.contact.held)
                room = isinstance(self.contact.held, NoRoom)
                state = State.START_DEADLINE if room else State.CONTROLLER_AWAY
                self.endings.finish(job, replace(job.status, state=state, reason=reason))

    # --- following ---------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        jobs, unknown = self.places.live, Status(State.UNKNOWN, "the scheduler said nothing about it")
        statuses: Mapping[str, Status] = {}
        try:
            statuses = self.contact.statuses(jobs)
        except BenchError as error:
            unknown = replace(unseen(error), reason=messages.why(error))
        except Exception as error:
            for job in jobs:
                self.endings.broken(job, error)
            return
        late: Ends = {}
        for job in jobs:
            if self.endings.stopping:
                return
            status = statuses.get(job.job_id or "", unknown)
            self.endings.guarded(job, self._follow, job, status, late)
        if late:
            if self._lost():
                return
            began_s = self._wall()
            left = self.contact.cancel(list(late))
            for job, why in left.items():
                late[job] = (late[job][0], f"{late[job][1]}; it could not be cancelled either: {why}")
            self.endings.stopped(late, began_s)

    def _follow(self, job: Job, status: Status, late: Ends) -> None:
        status, job.found = job.note(status, self._wall()), False
        if job.left is not None:
            job.over = not status.state.live
            return
        if not status.state.live:
            self.endings.collect(job, status)
            return
        job.become(status)
        job.hints = job.hints or self.contact.hints(job)
        if status.state is State.RUNNING:
            with contextlib.suppress(BenchError):  # the next look tries again, and the last one says so
                self.contact.read(job, CHUNKS)
        if (end := job.overdue(waiting_for_login=self.contact.login is not None)) is not None:
            late[job] = end

    def _lost(self) -> bool:
        """Another session goes on with our jobs, and the main thread hears of it in a moment."""
        return self._journal is not None and self._journal.lost()
