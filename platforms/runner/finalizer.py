"""What happens when a job ends: read its whole log, decide its outcome, write run.json, clean up, queue a retry.

PlatformQueue calls the Finalizer on the platform's worker thread. The main thread takes jobs out of `retries` and sets
`stopping`. `python -m platforms cancel` uses it without a queue.
"""

from __future__ import annotations

import contextlib
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ParamSpec

from platforms import atomic_file
from platforms.job import (
    CONFIRM_UNSUPPORTED,
    ERRORS,
    WIRE_EXIT_STATES,
    AwayError,
    BenchError,
    JobError,
    JobSpec,
    LogChanged,
    MachineError,
    Outcome,
    Run,
    State,
    Status,
    describe_error,
    state_of_exit,
)
from platforms.results.log_reader import LogReader
from platforms.rundir import job_folder, job_json
from platforms.rundir.session_history import Attempt
from platforms.rundir.session_journal import Journal
from platforms.runner import messages
from platforms.runner.contact import Contact
from platforms.runner.live_job import End, Job
from platforms.runner.retries import REFUSED_STATES, next_attempt
from platforms.runner.slots import Slots

LOG_S = 120.0  # how long we try to read the log of a job that has ended, if its scheduler refuses it
NO_LOG = LogReader()
EXITS = (State.EXITED, State.SIGNALLED, State.SUCCEEDED)  # the job's own exit code says how it ended

P = ParamSpec("P")
Cancellations = dict[Job, tuple[State, str]]  # the state in which a job that we cancelled ends, and why


class Finalizer:
    """Finishes the jobs of one platform.

    Args:
        contact: the platform's scheduler.
        slots: the platform's jobs that are not done.
        journal: of this session. Once another session has taken over, jobs are no longer ours to finish.
        afford: takes a retry from the budget of device-hours; False when too little is left.
        clock, wall: monotonic seconds, Unix seconds.
        on_end: is called with a job when its run.json is written, before the job counts as done. Must not raise.
    """

    def __init__(
        self,
        contact: Contact,
        slots: Slots,
        journal: Journal | None,
        afford: Callable[[JobSpec], bool],
        clock: Callable[[], float],
        wall: Callable[[], float],
        on_end: Callable[[Job], None] = lambda job: None,
    ) -> None:
        self.retries: deque[tuple[Job, Attempt]] = deque()  # failed jobs, each with the attempt that follows
        self.stopping = False  # the main thread wants to cancel: polls end soon, and nothing is retried
        self._contact = contact
        self._slots = slots
        self._journal = journal
        self._afford = afford
        self._clock = clock
        self._wall = wall
        self._on_end = on_end
        self._restored: deque[Job] = deque()
        self.notices: deque[str] = deque()  # what a person must know; the main thread empties it
        self._told: set[str] = set()  # kinds of errors

    # --- ends that an earlier session has written --------------------------------------------------------------------

    def restore(self, job: Job) -> bool:
        """Finish a job as its run.json says, if an earlier session has written one. Returns whether it has.

        Raises OSError: there is one, and it cannot be read.
        """
        recorded = job_json.read_run(job.folder, strict=True)
        if recorded is None:
            return False
        job.run, error_text = recorded
        job.status = job.run.status
        if error_text is not None:
            error_class = ERRORS.get(job.status.state.outcome, MachineError)
            job.failure = error_class(error_text, job.status, job.folder)
        job.end_claimed = True
        job.done = True
        self._restored.append(job)
        return True

    def owes_retry(self, job: Job) -> bool:
        """Whether another attempt of a job that is done is still to be queued."""
        return job in self._restored or any(failed is job for failed, _ in list(self.retries))

    def retry_restored(self) -> None:
        """Queue retries of restored jobs: once all jobs have been added, so that what they may cost is known."""
        while self._restored:
            job = self._restored[0]
            end = self._decide(job, job.status, Run())
            if end.next_attempt is not None:
                self.retries.append((job, end.next_attempt))
            self._restored.popleft()

    # --- the end of a job --------------------------------------------------------------------------------------------

    def collect(self, job: Job, status: Status, patient: bool = True) -> None:
        """Finish a job that has ended: read the rest of its log and decide its outcome.

        Args:
            patient: if the log cannot be read, return and let a later poll try again.
        """
        job.end = End(status)
        problems: list[str] = []
        try:
            self._contact.read_log(job)
        except BenchError as error:
            if patient and self._may_read_later(job, error):
                return
            problems.append(f"the log could not be read to its end: {describe_error(error)}")
        if status.state is State.SUCCEEDED and not self._contact.scheduler.log_in_folder:
            # Every job that succeeds has a log, also one that printed nothing.
            job_folder.write_log_chunk(job.folder / "log", b"", 0)
        run = job.reader.finish(job.spec)
        problems += self._contact.gaps(job)
        problems += job.reader.contradictions(status.last_word)
        problems += status.problems
        warnings = (*run.warnings, *status.warnings, *self._contact.log_doubts(job))
        run = replace(run, problems=(*run.problems, *problems), warnings=warnings)
        if status.ended_s is None:
            status = replace(status, ended_s=self._wall())
        self.finish(job, final_status(status, job.spec, job.reader), run)

    def _may_read_later(self, job: Job, error: BenchError) -> bool:
        """Whether it makes sense to read the log of a job that has ended at a later poll.

        A log that nobody can reach now is still there. One that its scheduler refuses is asked for LOG_S seconds long.
        """
        if job.ended_at is None:
            job.ended_at = self._clock()
        if isinstance(error, AwayError):
            if self._contact.login is None:
                job.hold(describe_error(error), job.platform.poll_s)
            return True
        will_stay_wrong = isinstance(error, LogChanged) and self._contact.scheduler.log_in_folder
        return not will_stay_wrong and self._clock() - job.ended_at < LOG_S

    def collect_cancelled(self, cancelled: Cancellations, began_s: float) -> None:
        """Finish jobs that we have cancelled.

        A job that ended by itself before keeps its own end. How a program reacts to our signal does not count.

        Args:
            began_s: when we began to cancel, in Unix seconds.
        """
        statuses: Mapping[str, Status] = {}
        if cancelled and self._contact.away is None:
            with contextlib.suppress(Exception):  # they are gone in any case
                statuses = self._contact.statuses(cancelled)
        for job, (state, reason) in cancelled.items():
            status = job.merge_status(statuses.get(job.job_id or "", job.status), self._wall())
            ended_before = status.ended_s is not None and status.ended_s < int(began_s)  # schedulers count in seconds
            if not ended_before or status.state.live or status.state in (State.CANCELLED, State.LOST):
                status = replace(status, state=state, reason=reason)
            self.guard(job, self.collect, job, status, patient=False)

    def go_on(self, job: Job) -> None:
        """Finish a job that has ended, after something of it could not be read or written."""
        assert job.end is not None
        if job.left is not None:
            job.ended_after_leave = True
        elif job.end.run is None:
            self.collect(job, job.end.status)
        else:
            self.finish(job, job.end.status, job.end.run)

    def finish(self, job: Job, status: Status, run: Run | None = None) -> None:
        """Write the result of a job, its run.json included, and free its slot. Does nothing with a job that was left,
        or that another session has taken over.

        Raises OSError: nothing is written. How the job has ended stays decided, so that go_on() only writes it.
        """
        taken_over = self._journal is not None and self._journal.successor is not None
        if taken_over or not job.claim_end():
            job.ended_after_leave = True
            return
        try:
            if job.end is None or job.end.run is None:
                job.end = self._decide(job, status, run or Run())
            job.run, job.failure = _write_result(job, job.end.status, job.end.run or Run(), self._contact)
        except BaseException:
            job.release_end()
            raise
        job.set_status(job.end.status)
        job.reader = NO_LOG  # the log of many ranks takes memory
        self._on_end(job)
        if job.end.next_attempt is not None:
            self.retries.append((job, job.end.next_attempt))
        job.done = True  # last: from now on the main thread uses the result
        self._slots.remove(job)

    def _decide(self, job: Job, status: Status, run: Run) -> End:
        """Whether a job is begun again, since the machine failed it.

        Its status notes if the budget forbids that.
        """
        attempt = next_attempt(job, status)
        if attempt is None or self.stopping:
            return End(status, run)
        costs_nothing_more = status.state in REFUSED_STATES  # the refused job has not used what was set aside for it
        if not costs_nothing_more and not self._afford(job.spec):
            reason = f"{status.reason}; {messages.TOO_EXPENSIVE}".removeprefix("; ")
            return End(replace(status, reason=reason), run)
        return End(status, run, attempt)

    # --- errors of one job -------------------------------------------------------------------------------------------

    def guard(self, job: Job, step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run a step of one job. An error concerns no other job, and cancels none.

        It ends a job that was never submitted. One that may exist is held, and so is any job while our own disk fails.
        """
        try:
            step(*args, **kwargs)
        except Exception as error:
            if job.asked_s is not None or job.end is not None or isinstance(error, OSError):
                self.hold(job, error)
                return
            status = _refusal(job, error)
            job.end = End(status)
            self.guard(job, self.finish, job, status)
        else:
            if job.end is None:
                job.trouble = ""

    def hold(self, job: Job, error: Exception) -> None:
        """Leave a job as it is, because something of it cannot be read or written now: the next poll tries again."""
        trouble = describe_error(error)
        if trouble != job.trouble and not isinstance(error, BenchError | OSError):
            _write_traceback(job, error)
        job.hold(trouble, job.platform.poll_s)
        kind = f"{type(error).__name__} {getattr(error, 'errno', '')}"
        if kind not in self._told:
            self._told.add(kind)
            self.notices.append(messages.held(job.spec, job.job_id, job.folder, error))


def _refusal(job: Job, error: Exception) -> Status:
    """How a job ends that an error has kept from being submitted."""
    status = Status(State.SUBMIT_REFUSED, describe_error(error))
    if isinstance(error, JobError):
        status = error.status
    elif not isinstance(error, BenchError):
        _write_traceback(job, error)
        status = replace(status, reason=f"{status.reason}, see {job.folder / messages.TRACEBACK}")
    return replace(status, submitted_s=job.status.submitted_s)


def _write_traceback(job: Job, error: Exception) -> None:
    with contextlib.suppress(OSError):
        text = "".join(traceback.format_exception(error))
        atomic_file.write_text(job.folder / messages.TRACEBACK, text)


def final_status(status: Status, spec: JobSpec, reader: LogReader) -> Status:
    """What the end of a job means once its whole log is read, and whether it confirms that a tried test cannot run."""
    status = _status_by_log(status, spec, reader)
    if spec.unsupported is None or status.state not in CONFIRM_UNSUPPORTED:
        return status
    why = ": ".join(filter(None, (status.state.value, reader.first_problem or status.reason)))
    return replace(status, state=State.UNSUPPORTED, reason=why)


def _status_by_log(status: Status, spec: JobSpec, reader: LogReader) -> Status:
    """What the end of a job means by its log.

    The job's own exit code, as it stands in its log, counts more than the one that came through its launcher. A
    success without a complete log is none.
    """
    if status.exit_code is None or status.state not in EXITS:
        return status
    speaks_wire = spec.benchmark is not None or reader.speaks_wire
    state = state_of_exit(status.exit_code, speaks_wire=speaks_wire)
    own_state = WIRE_EXIT_STATES.get(reader.exit_code or 0)
    if state in EXITS and own_state is not None:  # torchrun turns every code into 1, srun into 143
        own_code = f"the job itself said exit code {reader.exit_code}, which did not come through"
        return replace(status, state=own_state, reason=status.reason or own_code)
    if state is State.SUCCEEDED and speaks_wire and not reader.complete:
        return replace(status, state=State.INCOMPLETE, reason=reader.why_incomplete)
    return replace(status, state=state)


def _write_result(job: Job, status: Status, run: Run, contact: Contact) -> tuple[Run, JobError | None]:
    """Write run.json. A success is then cleaned up; of a failure everything is kept.

    Returns:
        The run with what it was a run of, and why it is no good run; None after a success.

    Raises:
        OSError: run.json cannot be written.
    """
    spec = job.spec
    run = replace(
        spec.named(run),
        status=status,
        folder=job.folder,
        warnings=(*job.attempt.earlier, *run.warnings, *_shared_nodes(spec, status)),
    )
    failure: JobError | None = None
    if status.state.outcome is not Outcome.PASSED:
        text = messages.job_failed(
            spec,
            run,
            source=job.platform.source,
            earlier=job.attempt.earlier,
            tail=job.reader.tail,
            hints=contact.hints(job),
        )
        failure = ERRORS.get(status.state.outcome, MachineError)(text, status, job.folder)
    _write_run(job, run, failure)
    if failure is None:
        if contact.scheduler.clean_deletes:
            job_folder.sync(job.folder)
        warnings = contact.clean(job)
        if warnings:
            run = replace(run, warnings=(*run.warnings, *warnings))
            with contextlib.suppress(OSError):  # run.json has the result
                _write_run(job, run, failure)
    return run, failure


def _write_run(job: Job, run: Run, failure: JobError | None) -> None:
    error_text = None if failure is None else str(failure)
    content = job_json.run_content(run, job.spec, job.job_id, run.status.queue_s, error_text)
    job_json.write_json(job.folder / "run.json", content, sync=True)


def _shared_nodes(spec: JobSpec, status: Status) -> tuple[str, ...]:
    """Warn when several nodes of the layout were one machine, as pods may be on a small Kubernetes cluster."""
    if not 0 < len(status.nodes) < spec.layout.nodes:
        return ()
    where = ", ".join(status.nodes)
    return (f"shared node: layout {spec.layout} asks for {spec.layout.nodes}, and all its ranks ran on {where}",)
