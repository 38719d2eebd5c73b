"""`python -m platforms cancel`: cancels what is left of a run, and keeps its results, without pytest.

The command is a session of the run like any other, only without tests. It takes over the sessions that were left,
writes down what it does, and fetches each job's log before it cancels the job. If it is killed half-way, it leaves what
any killed session leaves: `cancel` or `pytest --resume` goes on with that.
"""

from __future__ import annotations

import argparse
import os
import pwd
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from platforms import checkout
from platforms.commands import find_run
from platforms.commands.find_run import TypedOptions
from platforms.commands.job_records import RecordedJob, SchedulerPool, on_platforms, recorded_jobs
from platforms.commands.log_reading import LogReading, LogsReader
from platforms.config.schema import Platform
from platforms.job import BenchError, RefusedError, State, Status
from platforms.rundir import job_folder, job_json, session_history, session_liveness
from platforms.rundir.session_history import SessionRecord
from platforms.rundir.session_journal import Journal
from platforms.runner import messages
from platforms.runner.contact import Contact
from platforms.runner.finalizer import Finalizer
from platforms.runner.live_job import Job, journal_entry
from platforms.runner.slots import Slots

CANCELLED_BY_US = "`python -m platforms cancel` ended it"
NEVER_SUBMITTED = "it was never submitted"
# A scheduler may take so long to say how cancelled jobs ended: Slurm's accounting lags behind.
SETTLE_S = 90.0
SETTLE_POLL_S = 1.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run that its session has left unfinished, or latest")
    parser.add_argument("--platform", action="append", metavar="NAME", help="only its jobs there (repeatable)")
    find_run.add_runs_dir(parser)


def main(options: argparse.Namespace) -> int:
    """Cancel what is left of a run, and see that it is gone; then the run has ended. Returns 1 where jobs are left."""
    runs = find_run.runs_folder(options)
    typed = TypedOptions.of(options)
    schedulers = SchedulerPool(checkout.site_folder(options.site), only_looks=False)
    run_id = find_run.named(runs, options.run)
    sessions = [session for session in session_history.read_sessions(runs / run_id) if session.open]
    if not sessions:
        print(f"run {run_id} had ended before: it has nothing left to cancel")
        return 0
    _refuse_living(run_id, sessions)
    all_jobs = [job for job in recorded_jobs(runs, run_id) if job.open]
    jobs = on_platforms(all_jobs, options.platform, run_id)
    _refuse_unwritable([session.path.parent for session in sessions])
    _refuse_unwritable([job.folder for job in jobs if job.folder.exists()])
    with _taken_over(runs / run_id, sessions) as journals:
        if journals is None:
            print(f"run {run_id}: another session has just gone on with it: {typed.command(f'jobs {run_id}')}")
            return 1
        left: list[RecordedJob] = []
        for name in dict.fromkeys(job.platform for job in jobs):
            left += _cancel_on(schedulers, name, [job for job in jobs if job.platform == name], journals)
        unsure = [job.name for job in jobs if job.unsure]
        elsewhere = len(all_jobs) - len(jobs)
        if unsure:
            print(
                f"it is not known whether these were submitted: {', '.join(unsure)}; {typed.resume(run_id)} finds out"
            )
        if elsewhere:
            print(f"{elsewhere} jobs elsewhere are left alone: run {run_id} is not finished")
        if left:
            print(f"run {run_id} has not ended: {typed.command(f'cancel {run_id}')} tries again")
        if not (left or unsure or elsewhere):
            while journals:  # what is not closed here is closed as unfinished
                journals.popitem()[1].end(session_history.DONE)
            print(f"run {run_id} has ended; logs and results are in {runs / run_id}")
        return int(bool(left or unsure))


def _refuse_living(run_id: str, sessions: Sequence[SessionRecord]) -> None:
    """Raise RefusedError where a session of the run is alive."""
    for session in sessions:
        if session_liveness.seems_alive(session):
            raise RefusedError(
                f"run {run_id} is under way in {session}, and it ends its own jobs: Ctrl-C there, or kill -INT, "
                "cancels them; this command is for runs without a session"
            )


def _refuse_unwritable(folders: Sequence[Path]) -> None:
    """Raise RefusedError for a folder of another user: a job whose end we cannot write down is not ours to cancel."""
    for folder in folders:
        if not os.access(folder, os.W_OK | os.X_OK):
            uid = folder.stat().st_uid
            owner = next((user.pw_name for user in pwd.getpwall() if user.pw_uid == uid), str(uid))
            raise RefusedError(f"nothing was cancelled: {folder} belongs to user {owner}, and we may not write to it")


@contextmanager
def _taken_over(run_folder: Path, sessions: Sequence[SessionRecord]) -> Iterator[dict[Path, Journal] | None]:
    """Take over sessions, with a journal of ours for each, because each has a plan of its own.

    Yields the journals by the path of the session's record, or None when another session was quicker. Journals that
    are still in the dict at the end are closed as unfinished.
    """
    journals: dict[Path, Journal] = {}
    try:
        for session in sessions:
            journal = Journal(run_folder, session.plan, session.beat_s)
            journals[session.path] = journal
            if not journal.take_over(session):
                journals.pop(session.path).end(session_history.DONE)
                yield None
                return
        yield journals
    finally:
        for journal in journals.values():
            journal.end(session_history.PENDING)


def _cancel_on(
    schedulers: SchedulerPool, name: str, jobs: Sequence[RecordedJob], journals: Mapping[Path, Journal]
) -> list[RecordedJob]:
    """Cancel the jobs of one platform. Returns those that were not seen to be gone."""
    try:
        return _Cancellation(schedulers, name, jobs, journals).run()
    except (BenchError, OSError) as error:
        for job in jobs:
            print(f"{job.name} on {name}: {error}", flush=True)
        return list(jobs)


class _Cancellation:
    """Cancels the jobs of one platform as a session cancels its own: each gets its whole log and its run.json."""

    def __init__(
        self, schedulers: SchedulerPool, name: str, jobs: Sequence[RecordedJob], journals: Mapping[Path, Journal]
    ) -> None:
        platform = schedulers.platform(name)
        scheduler = schedulers.scheduler(name)
        self._scheduler = scheduler
        self._poll_s = platform.poll_s
        self._journals = journals
        self._contact = Contact(platform, lambda _platform: scheduler, time.monotonic)
        self._finalizer = Finalizer(self._contact, Slots(platform), None, lambda spec: False, time.monotonic, time.time)
        self._finalizer.stopping = True  # no job begins again
        self._jobs = {_job_of(record, platform): record for record in jobs if not record.unsure}

    def run(self) -> list[RecordedJob]:
        """Cancel the jobs. Returns those that were not seen to be gone. Raises BenchError."""
        submitted: list[Job] = []
        for job in self._jobs:
            if job.submission is None:
                end = replace(job.status, state=State.CANCELLED, reason=NEVER_SUBMITTED)
                self._finalizer.guard(job, self._finalizer.finish, job, end)
            else:
                submitted.append(job)
        statuses = self._fetch_logs(submitted)
        for job in submitted:
            status = job.merge_status(statuses[job], time.time())
            if status.state.live:
                job.set_status(status)
            else:  # it has ended by itself meanwhile
                self._finalizer.guard(job, self._finalizer.collect, job, status, patient=False)
        left = self._cancel([job for job in submitted if not job.done and job.end is None])
        for job in self._jobs:
            if job.end is not None and not job.done:
                left[job] = messages.unwritten(job.end.status, job.trouble)
        for job, record in self._jobs.items():
            self._journals[record.session.path].write_jobs([journal_entry(job)])
            print(f"{job.spec.name} on {job.platform.name}: {left.get(job, job.status)}", flush=True)
        return [self._jobs[job] for job in left]

    def _fetch_logs(self, jobs: Sequence[Job]) -> dict[Job, Status]:
        """Fetch the logs, which may vanish with the jobs. Returns the jobs' states. Raises BenchError."""
        if not jobs:
            return {}
        log_in_folder = self._scheduler.log_in_folder
        readings: dict[LogReading, Job] = {}
        for job in jobs:
            assert job.submission is not None
            log = job.folder / "log"
            offset = log.stat().st_size if log.exists() and not log_in_folder else 0
            readings[LogReading(job.submission, offset)] = job
        reader = LogsReader(self._scheduler, self._poll_s, follow=False)
        for reading, chunk in reader.read(list(readings)):
            if not log_in_folder:
                job_folder.write_log_chunk(readings[reading].folder / "log", chunk, reading.offset - len(chunk))
        return {job: reading.status or job.status for reading, job in readings.items()}

    def _cancel(self, jobs: Sequence[Job]) -> dict[Job, str]:
        """Cancel jobs. Returns those that were not seen to be gone, and why."""
        if not jobs:
            return {}
        if any(journal.is_taken_over() for journal in self._journals.values()):
            raise RefusedError("another session has just gone on with it, so it was not cancelled")
        began_s = time.time()
        left = self._contact.cancel(jobs)
        gone = [job for job in jobs if job not in left]
        self._settle(gone)
        self._finalizer.collect_cancelled(dict.fromkeys(gone, (State.CANCELLED, CANCELLED_BY_US)), began_s)
        return left

    def _settle(self, jobs: Sequence[Job]) -> None:
        """Wait until the scheduler says how the jobs ended: one may have ended by itself just before."""
        deadline = time.monotonic() + SETTLE_S
        while jobs and time.monotonic() < deadline:
            try:
                statuses = self._contact.statuses(jobs).values()
            except BenchError:  # the jobs are gone in any case
                return
            if not any(status.state.live and not status.away for status in statuses):
                return
            time.sleep(SETTLE_POLL_S)


def _job_of(record: RecordedJob, platform: Platform) -> Job:
    """The runner's job, rebuilt from its folder. Raises RefusedError."""
    submission = job_json.read_json(record.folder / "submitted.json")
    job_folder.make_folder(record.folder)
    state, submitted_s = State.QUEUED, None
    if record.submitted is not None:
        state, submitted_s = State.SUBMITTED, record.submitted.submitted_s
    return Job(
        job_json.spec_from_submitted(record.name, record.test, record.platform, submission),
        platform,
        record.folder,
        record.attempt,
        submission=record.submitted,
        status=Status(state, submitted_s=submitted_s),
        asked_s=submitted_s,
    )
