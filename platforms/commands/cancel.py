"""`python -m platforms cancel`: cancels what is left of a run, and keeps its results, without pytest.

The command is a session of the run like any other, only without tests: it takes over the sessions that were left, and
cancels their jobs as a session does. If it is killed half-way, `cancel` or `pytest --resume` goes on with what is left.
"""

from __future__ import annotations

import argparse
import os
import pwd
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from platforms import checkout
from platforms.commands import find_run
from platforms.commands.find_run import TypedOptions
from platforms.commands.job_records import RecordedJob, SchedulerPool, recorded_jobs
from platforms.commands.log_reading import FIRST_S, PAUSE_S, QUIET_S
from platforms.config.schema import Platform
from platforms.job import BenchError, RefusedError, State, Status
from platforms.rundir import job_folder, job_json, session_history, session_liveness
from platforms.rundir.session_history import SessionRecord
from platforms.rundir.session_journal import Journal
from platforms.runner.live_job import Job, journal_entry
from platforms.runner.platform_queue import PlatformQueue
from platforms.runner.workers import InlinePool

# Not the words of a session that is ended: `pytest --resume` begins again what that one has ended.
CANCELLED_BY_US = "`python -m platforms cancel` ended it"
NEVER_SUBMITTED = "it was never submitted"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run that its session has left unfinished, or latest")
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
    jobs = [job for job in recorded_jobs(runs, run_id) if job.open]
    _refuse_unwritable([session.path.parent for session in sessions])
    _refuse_unwritable([job.folder for job in jobs if job.folder.exists()])
    with _taken_over(runs / run_id, sessions) as journals:
        if journals is None:
            print(f"run {run_id}: another session has just gone on with it: {typed.command(f'jobs {run_id}')}")
            return 1
        left = False
        for name in dict.fromkeys(job.platform for job in jobs):
            if not _cancel_on(schedulers, name, [job for job in jobs if job.platform == name], journals):
                left = True
        unsure = [job.name for job in jobs if job.unsure]
        if unsure:
            print(
                f"it is not known whether these were submitted: {', '.join(unsure)}; {typed.resume(run_id)} finds out"
            )
        if left:
            print(f"run {run_id} has not ended: {typed.command(f'cancel {run_id}')} tries again")
        if not (left or unsure):
            while journals:  # what is not closed here is closed as unfinished
                journals.popitem()[1].end(session_history.DONE)
            print(f"run {run_id} has ended; logs and results are in {runs / run_id}")
        return int(left or bool(unsure))


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
    schedulers: SchedulerPool, name: str, records: Sequence[RecordedJob], journals: Mapping[Path, Journal]
) -> bool:
    """Cancel the jobs of one platform as a session cancels its own. Returns whether all were seen to be gone."""
    try:
        platform = schedulers.platform(name)
        scheduler = schedulers.scheduler(name, records)
        jobs = {_job_of(record, platform): record for record in records if not record.unsure}
        worker = InlinePool().worker(name)
        queue = PlatformQueue(platform, lambda _: scheduler, worker, None, lambda spec: True, time.monotonic, time.time)
        _read_logs(queue, [job for job in jobs if job.submission is not None])
        if any(journal.is_taken_over() for journal in journals.values()):
            raise RefusedError("another session has just gone on with it, so it was not cancelled")
        queue.cancel([job for job in jobs if not job.done], ended=CANCELLED_BY_US, never=NEVER_SUBMITTED)
        for job, record in jobs.items():
            journals[record.session.path].write_jobs([journal_entry(job)])
            print(f"{job.spec.name} on {name}: {job.status}", flush=True)
    except (BenchError, OSError) as error:
        for record in records:
            print(f"{record.name} on {name}: {error}", flush=True)
        return False
    return all(job.done for job in jobs)


def _read_logs(queue: PlatformQueue, jobs: Sequence[Job]) -> None:
    """Finish jobs that have ended by themselves, and read the logs of the others if they vanish with them.

    A scheduler that collects a log from many pods has it some time after it was first asked.
    """
    for job in jobs:
        queue.slots.add(job)
    queue.poll_and_submit()
    if not queue.contact.scheduler.clean_deletes:
        return
    until_s = time.monotonic() + FIRST_S
    while queue.slots.any_live and time.monotonic() < until_s:
        for job in queue.slots.live:
            offset = job.offset
            with suppress(BenchError):  # it is cancelled all the same, and its result says what is missing
                queue.contact.read_log(job)
            if job.offset > offset:
                until_s = time.monotonic() + QUIET_S
        time.sleep(PAUSE_S)


def _job_of(record: RecordedJob, platform: Platform) -> Job:
    """The runner's job, rebuilt from its folder. Raises RefusedError."""
    submission = job_json.read_json(record.folder / "submitted.json")
    job_folder.make_folder(record.folder)
    status = Status(State.QUEUED)
    submitted_s = None
    if record.submitted is not None:
        submitted_s = record.submitted.submitted_s
        status = Status(State.SUBMITTED, submitted_s=submitted_s)
    return Job(
        job_json.spec_from_submitted(record.name, record.test, record.platform, submission),
        platform,
        record.folder,
        # A person ends it for good. Marked as `ending`, it would be begun again when it is found cancelled later.
        replace(record.attempt, ending=False),
        submission=record.submitted,
        status=status,
        asked_s=submitted_s,
        recorded=True,
    )
