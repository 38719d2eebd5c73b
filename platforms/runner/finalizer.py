"""How one platform's jobs end: what is made of each, run.json, what is cleaned up, and what begins again."""

from __future__ import annotations

import contextlib
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ParamSpec

from platforms import atomic_file
from platforms.job import ERRORS, BenchError, JobError, JobSpec, LogChanged, MachineError, Outcome, Run, State, Status
from platforms.rundir import job_folder
from platforms.rundir.session_history import Attempt
from platforms.rundir.session_journal import Journal
from platforms.runner import messages
from platforms.runner.contact import Contact
from platforms.runner.live_job import NO_LOG, NO_PLACE, Job, decide, next_attempt
from platforms.runner.slots import Slots

LOG_S = 120.0  # how long we try to read the log of a job that has ended

P = ParamSpec("P")
Ends = dict[Job, tuple[State, str]]  # what jobs that we cancel end as, and why


class Finalizer:
    """The ends of one platform's jobs, in its turns.

    Args:
        contact: its scheduler.
        places: its jobs that are not done.
        journal: whose end they are to write down: not ours, once another session goes on in our place.
        afford: whether a job may begin again, by what the site allows to be spent.
        clock, wall: monotonic seconds, Unix seconds.
    """

    def __init__(
        self,
        contact: Contact,
        places: Slots,
        journal: Journal | None,
        afford: Callable[[JobSpec], bool],
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.again: deque[tuple[Job, Attempt]] = deque()  # which jobs begin again, and as what
        self.stopping = False  # the main thread wants to cancel: a turn under way ends soon, and nothing begins again
        self._contact, self._places = contact, places
        self._journal, self._afford, self._clock, self._wall = journal, afford, clock, wall
        self._recalled: list[Job] = []

    def recall(self, job: Job) -> bool:
        """Whether an earlier session has written the job's end down; then it is done, as it was there."""
        found = job_folder.recorded(job.folder)
        if found is None:
            return False
        job.run, text = found
        job.status = job.run.status
        if text is not None:
            job.failure = ERRORS.get(job.status.state.outcome, MachineError)(text, job.status, job.folder)
        job.claimed = job.done = True
        self._recalled.append(job)
        return True

    def look_back(self) -> None:
        """When all jobs are here, and what they may cost is known: which of the recalled ones begin again."""
        for job in self._recalled:
            self._begin_again(job, job.status)
        self._recalled = []

    def stopped(self, ends: Ends, began_s: float) -> None:
        """What jobs ended as that we began to cancel then, a Unix second. Should one have ended by itself before, that
        counts; what a program makes of our signal does not."""
        statuses: Mapping[str, Status] = {}
        if ends and self._contact.held is None:
            with contextlib.suppress(Exception):  # they are gone in any case
                statuses = self._contact.statuses(ends)
        for job, (state, reason) in ends.items():
            status = job.note(statuses.get(job.job_id or "", job.status), self._wall())
            by_itself = status.ended_s is not None and status.ended_s < int(began_s)  # schedulers count whole seconds
            if not by_itself or status.state.live or status.state in (State.CANCELLED, State.LOST):
                status = replace(status, state=state, reason=reason)
            self.guarded(job, self.collect, job, status, patient=False)

    def collect(self, job: Job, status: Status, patient: bool = True) -> None:
        """The job has ended: its whole log, its outcome. `patient`: should the log be out of reach, try again later."""
        problems: tuple[str, ...] = ()
        try:
            self._contact.read(job)
        except BenchError as error:
            if patient and self._contact.login is not None:
                return
            job.ended = self._clock() if job.ended is None else job.ended
            certain = isinstance(error, LogChanged) and self._contact.scheduler.log_in_folder
            if patient and not certain and self._clock() - job.ended < LOG_S:
                return
            problems = (f"the log could not be read to its end: {messages.why(error)}",)
        if status.state is State.SUCCEEDED and not self._contact.scheduler.log_in_folder:
            job_folder.put(job.folder / "log", b"", 0)  # there is one, also of a job that printed nothing
        run = job.reader.finish(job.spec)
        problems += (*self._contact.gaps(job), *job.reader.contradictions(status.last_word), *status.problems)
        warnings = (*run.warnings, *status.warnings)
        run = replace(run, problems=(*run.problems, *problems), warnings=warnings)
        if status.ended_s is None:
            status = replace(status, ended_s=self._wall())
        self.finish(job, decide(status, job.spec, job.reader), run)

    def finish(self, job: Job, status: Status, run: Run | None = None) -> None:
        """The job is done: Run, error, run.json; success is cleaned up, failure keeps what there is to look at."""
        if (self._journal is not None and self._journal.taken is not None) or not job.claim():
            job.over = True
            return
        status = self._begin_again(job, status)
        job.become(status)
        job.run, job.failure = _write_down(job, status, run or Run(), self._contact)
        job.reader = NO_LOG  # the log of many ranks takes memory
        job.done = True  # last: from now on the main thread takes what it finds
        self._places.done(job)

    def _begin_again(self, job: Job, status: Status) -> Status:
        """Where the machine failed it. Returns how it ended, with why it is not begun again where that is too dear."""
        attempt = next_attempt(job, status)
        if attempt is None or self.stopping:
            return status
        free = status.state in NO_PLACE  # it has cost nothing, and what was set aside for it is left
        if not free and not self._afford(job.spec):
            return replace(status, reason=f"{status.reason}; {messages.TOO_DEAR}".removeprefix("; "))
        self.again.append((job, attempt))
        return status

    def guarded(self, job: Job, step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """One job's refusal or a scheduler's mistake ends that job, loudly, and no other."""
        try:
            step(*args, **kwargs)
        except BenchError as error:
            refused = error.status if isinstance(error, JobError) else Status(State.SUBMIT_REFUSED, str(error))
            self.finish(job, replace(refused, submitted_s=job.status.submitted_s))
        except Exception as error:
            self.broken(job, error)

    def broken(self, job: Job, error: Exception) -> None:
        """A mistake of ours, or of a scheduler's: its traceback lies in the job's folder, and the job is cancelled."""
        path = job.folder / "traceback.txt"
        with contextlib.suppress(OSError):
            atomic_file.write_text(path, "".join(traceback.format_exception(error)))
        reason = f"{messages.why(error)}, see {path}"
        ours = self._journal is None or not self._journal.lost()
        if ours and job.submission is not None and (left := self._contact.cancel([job])):
            reason += f"; it may still run, since it could not be cancelled either: {left[job]}"
        self.finish(job, replace(job.status, state=State.LOST if job.job_id else State.SUBMIT_REFUSED, reason=reason))


def _write_down(job: Job, status: Status, run: Run, contact: Contact) -> tuple[Run, JobError | None]:
    """The run with what it was a run of, and why it is no good one. A failure keeps what there is to look at."""
    spec = job.spec
    run = replace(run, name=spec.name, test=spec.test, platform=spec.platform, benchmark=spec.benchmark)
    run = replace(run, layout=str(spec.layout), status=status, folder=job.folder)
    run = replace(run, warnings=(*job.attempt.earlier, *run.warnings, *_shared_nodes(spec, status)))
    failure: JobError | None = None
    if status.state.outcome is not Outcome.PASSED:
        source, hints = job.platform.source, contact.hints(job)
        earlier = job.attempt.earlier
        text = messages.ended(spec, run, source=source, earlier=earlier, tail=job.reader.tail, hints=hints)
        failure = ERRORS.get(status.state.outcome, MachineError)(text, status, job.folder)
    try:
        _write(job, run, failure)
        if failure is None:
            if contact.scheduler.clean_deletes:
                job_folder.keep(job.folder)
            if told := contact.clean(job):
                run = replace(run, warnings=(*run.warnings, *told))
                _write(job, run, failure)
    except OSError as problem:
        failure = messages.not_written(spec, status, job.folder, problem)
    return run, failure


def _shared_nodes(spec: JobSpec, status: Status) -> tuple[str, ...]:
    """On a small cluster of Kubernetes several pods, nodes of the layout, may be on one node."""
    if not 0 < len(status.nodes) < spec.layout.nodes:
        return ()
    where = ", ".join(status.nodes)
    return (f"shared node: layout {spec.layout} asks for {spec.layout.nodes}, and all its ranks ran on {where}",)


def _write(job: Job, run: Run, failure: JobError | None) -> None:
    error = None if failure is None else str(failure)
    job_folder.write_json(
        job.folder / "run.json", job_folder.record(run, job.spec, job.job_id, job.queue_s, error), sync=True
    )
