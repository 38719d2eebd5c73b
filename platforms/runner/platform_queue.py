"""All jobs of one platform: queued, submitted in order, and polled until they end.

The main thread calls add(), then lets the platform's worker thread run poll_and_submit() again and again, and at the
end cancel(). Only one of these runs at a time. Meanwhile the main thread reads what the jobs say.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
    describe_error,
    unseen,
)
from platforms.rundir import job_folder, job_json
from platforms.rundir.session_history import ASKED
from platforms.rundir.session_journal import Journal
from platforms.runner import messages
from platforms.runner.contact import Contact
from platforms.runner.finalizer import Cancellations, Finalizer
from platforms.runner.live_job import Job, journal_entry
from platforms.runner.slots import Slots
from platforms.schedulers import Scheduler

if TYPE_CHECKING:
    from platforms.config.schema import Platform
    from platforms.runner.workers import Worker

CHUNKS = 16  # of a running job's log, read at one poll
NOT_CANCELLED = "could not be cancelled: "


class PlatformQueue:
    """The jobs of one platform.

    Args:
        connect: makes the scheduler of a platform.
        worker: the platform's worker thread.
        journal: of this session.
        afford: takes a retry from the budget of device-hours; False when too little is left.
        clock, wall: monotonic seconds, Unix seconds.
        on_end: as in Runner.
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
        on_end: Callable[[Job], None] = lambda job: None,
    ) -> None:
        self.platform = platform
        self.worker = worker
        self.slots = Slots(platform)
        self.changed_jobs: deque[Job] = deque()  # whose state has changed; the main thread empties it
        self.contact = Contact(platform, connect, clock)
        self.finalizer = Finalizer(self.contact, self.slots, journal, afford, clock, wall, on_end)
        self._journal = journal
        self._clock = clock
        self._wall = wall
        self._stuck_since: float | None = None  # by clock: since when no job can be submitted

    # --- what the main thread asks -----------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether poll_and_submit() has something to do now."""
        if self.slots.any_live or self.contact.away is not None:
            if self._clock() >= self.contact.next_action_at:
                return not self.slots.all_left
            if self.contact.away is not None:
                return False
        return self.slots.can_submit

    def must_hand_over(self, job: Job) -> bool:
        """True while a session that does not wait for results must not exit yet because of this job.

        The job is still to be submitted and there is room for it; or an earlier session submitted it, and it has not
        been polled since; or it has ended, and its log is being read.
        """
        if self.contact.away is not None:
            return False
        if job.awaits_submission:
            return self.slots.can_submit
        has_ended = job.end is not None and not job.trouble
        return job.live and (job.deadlines.submitted_at is None or job.found_again or has_ended)

    # --- adding jobs -------------------------------------------------------------------------------------------------

    def add(self, job: Job) -> None:
        """Queue a job.

        One that an earlier session submitted is followed, and one that it finished is done.
        """
        self.finalizer.guard(job, self._prepare, job)
        if not job.done:
            self.slots.add(job)

    def _prepare(self, job: Job) -> None:
        """Find out what an earlier session did with a job; if it did nothing, render its script into its folder.

        Raises:
            RefusedError: the site's rules forbid the job.
            OSError: its folder cannot be read or written.
        """
        job.asked_s = self._wall()  # as long as its folder is not read, it may have been submitted
        job_folder.make_folder(job.folder)
        if self.finalizer.restore(job):
            self.slots.remove(job)
            return
        submitted = job_json.read_json(job.folder / "submitted.json", strict=True)
        if "job_id" in submitted:
            self._find_again(job, submitted)
            return
        job.asked_s = job.attempt.asked_s
        text = self.contact.scheduler.render(job.spec)
        atomic_file.write_text(job.folder / self.contact.scheduler.text_name, text)
        violations = self.contact.scheduler.lint(job.spec, text)
        if violations:
            raise RefusedError(messages.against_policy(violations))
        job.text = text  # last: from now on it can be submitted

    def _find_again(self, job: Job, submitted: Mapping[str, Any]) -> None:
        """Follow the job that an earlier session submitted, as its submitted.json says.

        The platform's file may have been edited since: what this job was asked counts, and only its retry follows the
        file.
        """
        asked_s = float(submitted["submitted_s"])
        if submitted.get("asked"):
            spec = job.spec
            job.ask_otherwise(job_json.spec_from_submitted(spec.name, spec.test, spec.platform, submitted))
        job.asked_s = asked_s
        job.submission = Submitted(str(submitted["job_id"]), job.spec.name, asked_s, job.folder)
        job.deadlines.submitted_at = self._clock() - max(0.0, self._wall() - asked_s)
        job.status = Status(State.SUBMITTED, "found again", submitted_s=asked_s)
        job.found_again = True
        job.recorded = True
        self.slots.mark_submitted(job)

    # --- the cycle of the worker thread ------------------------------------------------------------------------------

    def poll_and_submit(self) -> None:
        """Ask for the states of the jobs if that is due, then submit what there is room for."""
        try:
            self._poll_and_submit()
        except Exception as error:  # a mistake in the suite: the jobs go on
            self.contact.pause()
            for job in [*self.slots.live, *self.slots.queued]:
                self.finalizer.hold(job, error)

    def _poll_and_submit(self) -> None:
        if self.contact.poll_is_due(self.slots.live):
            self.contact.away = None
            self.contact.begin_poll()
            if self.slots.any_live:
                self._poll()
                self.contact.end_poll()
        self._submit_queued()
        self._give_up_submitting()
        self.slots.note_room()

    def _submit_queued(self) -> None:
        for job in self.slots.queued:
            if not job.is_due:  # it is tried again later, or the main thread has left it meanwhile
                continue
            if job.end is not None:  # it was refused, and that is not written yet
                self.finalizer.guard(job, self.finalizer.go_on, job)
                continue
            if not self.slots.has_room or self.finalizer.stopping or self.contact.away is not None:
                break
            any_live = self.slots.any_live
            if any_live and self._clock() >= self.contact.poll_at:  # poll the submitted jobs first
                break
            if not any_live:
                self.contact.start_polling()
            self.finalizer.guard(job, self._try_to_submit, job)

    def _try_to_submit(self, job: Job) -> None:
        """Submit a job.

        If the scheduler does not answer, it stays queued: submitting again finds out if it exists.
        """
        if not job.text:
            self._prepare(job)
        if job.done or job.submission is not None:
            return
        if not job.begin_submission():
            return
        try:
            self._submit(job)
        except AwayError as error:
            if isinstance(error, LoginNeeded):  # a person may take their time
                job.submit_failing_since = None
                self._stuck_since = None
            else:
                now = self._clock()
                if job.submit_failing_since is None:
                    job.submit_failing_since = now
                if self._stuck_since is None:
                    self._stuck_since = now
            state = State.UNKNOWN
            if isinstance(error, NoRoom):
                state = State.QUEUED
                job.asked_s = None  # the scheduler has answered: there is no job
            job.set_status(Status(state, describe_error(error)))
        finally:
            job.end_submission()

    def _submit(self, job: Job) -> None:
        if self._taken_over():
            return
        if job.asked_s is None:
            asked_s = self._wall()
            if self._journal is not None:
                # If this session is killed now, the next one reads that it must look for the job.
                entry = {**journal_entry(job), "asked_s": asked_s, "state": ASKED}
                self._journal.write_jobs([entry])
                if self._journal.ended:  # perhaps before that line: a job that no record names must not start
                    return
            job.asked_s = asked_s
        try:
            job_id = self.contact.call(self.contact.scheduler.submit, job.spec, job.text, job.folder)
        except AwayError:
            raise
        except BenchError:
            job.asked_s = None  # the scheduler has refused it: there is no job
            raise
        if not job_id:
            raise AwayError(f"{self.platform.name}: the scheduler gave {job.spec.name} no id")
        job.submission = Submitted(job_id, job.spec.name, job.asked_s, job.folder)
        self.slots.mark_submitted(job)
        job.set_status(Status(State.SUBMITTED, submitted_s=job.asked_s))
        job.deadlines.submitted_at = self._clock()  # from now on a session that does not wait may leave it
        self._stuck_since = None
        with contextlib.suppress(Exception):  # polls see the end, too
            self.contact.scheduler.watch(job.submission, self._told_of_end)
        self._record(job)

    def _told_of_end(self) -> None:
        """Poll now, on the worker thread; any thread may call this."""
        self.contact.note_end()
        self.worker.wake()

    def _record(self, job: Job) -> None:
        """Write submitted.json, unless it is written.

        Until then the job is found by its name. Raises OSError.
        """
        if job.recorded or job.submission is None:
            return
        content = job_json.submitted_content(job.spec, job.submission.job_id, job.submission.submitted_s)
        job_json.write_json(job.folder / "submitted.json", content)
        job.recorded = True

    def _give_up_submitting(self) -> None:
        """End jobs that could not be submitted within their start limit."""
        error = self.contact.away
        if error is None or self.contact.login is not None:
            return
        for job in self.slots.queued:
            since = self._stuck_since if job.submit_failing_since is None else job.submit_failing_since
            if since is None or self._clock() - since <= job.spec.start_limit_s:
                continue
            reason = messages.never_answered(job.spec, job.asked_s is not None, error)
            state = State.START_DEADLINE if isinstance(error, NoRoom) else State.CONTROLLER_AWAY
            self.finalizer.guard(job, self.finalizer.finish, job, replace(job.status, state=state, reason=reason))

    def _poll(self) -> None:
        """Ask for the states of all submitted jobs with one query, and handle each answer.

        Jobs of which the end is known need no answer: their results are still to be written.
        """
        jobs = self.slots.live
        unknown = [job for job in jobs if job.end is None]
        no_answer = Status(State.UNKNOWN, "the scheduler said nothing about it")
        statuses: Mapping[str, Status] = {}
        try:
            if unknown:
                statuses = self.contact.statuses(unknown)
        except Exception as error:
            no_answer = unseen(error)
        overdue: Cancellations = {}
        for job in jobs:
            if self.finalizer.stopping:
                return
            if job.end is not None:
                self.finalizer.guard(job, self.finalizer.go_on, job)
            else:
                status = statuses.get(job.job_id or "", no_answer)
                self.finalizer.guard(job, self._handle_status, job, status, overdue)
        if overdue:
            self._cancel_overdue(overdue)

    def _handle_status(self, job: Job, status: Status, overdue: Cancellations) -> None:
        """Finish a job that has ended; of a running one read the log.

        A job past a deadline is added to `overdue`.
        """
        status = job.merge_status(status, self._wall())
        job.found_again = False
        if job.left is not None:
            job.ended_after_leave = not status.state.live
            return
        if status.state.live:
            job.set_status(status)
            job.hints = job.hints or self.contact.hints(job)
            end = job.deadlines.passed(
                status.reason, waiting_for_login=self.contact.login is not None, has_trouble=bool(job.trouble)
            )
            if end is not None:  # before anything that may fail: a full disk suspends no deadline
                overdue[job] = end
                return
        self._record(job)
        if not status.state.live:
            self.finalizer.collect(job, status)
        elif status.state is State.RUNNING:
            with contextlib.suppress(BenchError):  # a later poll tries again, and the last one reports the error
                self.contact.read_log(job, CHUNKS)
        elif status.error is not None:
            raise status.error

    def _cancel_overdue(self, overdue: Cancellations) -> None:
        if self._taken_over():
            return
        began_s = self._wall()
        remaining = self.contact.cancel(list(overdue))
        for job, why in remaining.items():
            state, reason = overdue[job]
            overdue[job] = state, f"{reason}; it could not be cancelled either: {why}"
        self.finalizer.collect_cancelled(overdue, began_s)

    # --- the end of the session --------------------------------------------------------------------------------------

    def cancel(
        self, jobs: Sequence[Job], ended: str = messages.ENDED_BY_US, never: str = messages.NEVER_SUBMITTED
    ) -> None:
        """Cancel jobs, on the worker thread. One that may still be there is not done then; its status says why.

        Args:
            ended, never: the reasons with which jobs end that were submitted, and that never were.
        """
        self.contact.away = None
        if self._taken_over():
            return
        for job in jobs:
            if job.done:
                continue
            if job.asked_s is None:
                never_submitted = replace(job.status, state=State.CANCELLED, reason=never)
                self.finalizer.guard(job, self.finalizer.finish, job, never_submitted)
            elif job.submission is None and self.contact.away is None:
                self.finalizer.guard(job, self._try_to_submit, job)  # submitting again is how to find it
        submitted = [job for job in jobs if job.submission is not None and not job.done]
        began_s = self._wall()
        self._record_cancelling(submitted)
        remaining = self.contact.cancel(submitted)
        for job in jobs:
            if job.submission is None and not job.done:
                remaining[job] = job.trouble or job.status.reason
        for job, reason in remaining.items():
            reason = reason.removeprefix(NOT_CANCELLED)
            job.set_status(replace(job.status, reason=f"{NOT_CANCELLED}{reason}"))
        gone: Cancellations = {job: (State.CANCELLED, ended) for job in submitted if job not in remaining}
        self.finalizer.collect_cancelled(gone, began_s)
        for job in jobs:
            if job.end is not None and not job.done:
                job.set_status(replace(job.status, reason=messages.unwritten(job.end.status, job.trouble)))
        self.finalizer.stopping = False

    def _record_cancelling(self, jobs: Sequence[Job]) -> None:
        """If this session is killed now, the next one reads that it cancelled these jobs, and retries them.

        The command `cancel` has no journal here: what it ends is not begun again.
        """
        for job in jobs:
            job.hints = job.hints or self.contact.hints(job)  # for a person who does not wait for the end
        if self._journal is None:
            return
        for job in jobs:
            job.attempt = replace(job.attempt, ending=True)
        with contextlib.suppress(OSError):
            self._journal.write_jobs([journal_entry(job) for job in jobs])

    def _taken_over(self) -> bool:
        """Whether another session goes on in place of this one; the main thread learns of it a moment later."""
        return self._journal is not None and self._journal.is_taken_over()
