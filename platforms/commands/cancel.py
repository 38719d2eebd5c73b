"""`python -m platforms cancel`: what is left of a run is ended, and its results are kept, without pytest.

This is a session of the run like any other, which has no tests: it goes on in the place of those that were left, writes
down what it does, and brings what there is of each job before that is ended. Killed half-way it leaves what a killed
session leaves, to `cancel` or to `pytest --resume`.
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
from platforms.commands.find_run import Typed
from platforms.commands.job_records import RecordedJob, SchedulerPool, on_platforms, recorded_jobs
from platforms.commands.log_reading import Reader, Reading
from platforms.config.schema import Platform
from platforms.job import BenchError, RefusedError, State, Status
from platforms.rundir import job_folder, job_json, session_history, session_liveness
from platforms.rundir.session_history import SessionRecord
from platforms.rundir.session_journal import Journal
from platforms.runner.contact import Contact
from platforms.runner.finalizer import Finalizer
from platforms.runner.live_job import Job, journal_entry
from platforms.runner.slots import Slots

ENDED_BY_US, NEVER_SUBMITTED = "`python -m platforms cancel` ended it", "it was never submitted"
SETTLE_S = 90.0  # how long a scheduler may take to say how those ended that are gone; Slurm's accounting lags
SETTLE_POLL_S = 1.0


def add_cancel(parser: argparse.ArgumentParser) -> None:
    """Options of `cancel`."""
    parser.add_argument("run", metavar="RUN", help="a run that its session has left unfinished, or latest")
    parser.add_argument("--platform", action="append", metavar="NAME", help="only its jobs there (repeatable)")
    find_run.add_folder(parser)


def cancel(options: argparse.Namespace) -> int:
    """End what is left of a run, and see that it is gone; then the run has ended. Returns 1 where something is left."""
    runs, typed = find_run.folder(options), Typed.of(options)
    places = SchedulerPool(checkout.site_folder(options.site), only_looks=False)
    run_id = find_run.named(runs, options.run)
    sessions = [session for session in session_history.sessions(runs / run_id) if session.open]
    if not sessions:
        print(f"run {run_id} had ended before: nothing of it is left to be ended")
        return 0
    _refuse_lives(run_id, sessions)
    _refuse_unwritable([session.path.parent for session in sessions])
    all_jobs = [job for job in recorded_jobs(runs, run_id) if job.open]
    jobs = on_platforms(all_jobs, options.platform, run_id)
    _refuse_unwritable([job.folder for job in jobs if job.folder.exists()])
    with _in_place_of(runs / run_id, sessions) as ours:
        if ours is None:
            print(f"run {run_id} is gone on with since a moment ago: {typed.command(f'jobs {run_id}')}")
            return 1
        left = []
        for name in dict.fromkeys(job.platform for job in jobs):
            left += _end(places, name, [job for job in jobs if job.platform == name], ours)
        unsure, others = [job.name for job in jobs if job.unsure], len(all_jobs) - len(jobs)
        if unsure:
            print(f"nobody knows whether these were submitted: {', '.join(unsure)}; {typed.resume(run_id)} finds out")
        if others:
            print(f"{others} jobs elsewhere are left alone: run {run_id} is not finished")
        if left:
            print(f"run {run_id} has not ended: {typed.command(f'cancel {run_id}')} tries again")
        if not (left or unsure or others):
            while ours:
                ours.popitem()[1].end(session_history.DONE)
            print(f"run {run_id} has ended; logs and results are in {runs / run_id}")
        return int(bool(left or unsure))


def _refuse_lives(run_id: str, sessions: Sequence[SessionRecord]) -> None:
    """Raises RefusedError where a session of the run goes on."""
    for session in sessions:
        if session_liveness.lives(session):
            how = "it ends its own jobs: Ctrl-C there, or kill -INT, cancels them; nothing is left for this command"
            raise RefusedError(f"run {run_id} is under way in {session}, and {how}")


def _refuse_unwritable(folders: Sequence[Path]) -> None:
    """Before anything is ended: where its end cannot be written down, it is not ours to be ended. Raises
    RefusedError."""
    for folder in folders:
        if not os.access(folder, os.W_OK | os.X_OK):
            uid = folder.stat().st_uid
            owner = next((each.pw_name for each in pwd.getpwall() if each.pw_uid == uid), str(uid))
            raise RefusedError(f"nothing was cancelled, since {folder}, of user {owner}, may not be written to by us")


@contextmanager
def _in_place_of(run: Path, sessions: Sequence[SessionRecord]) -> Iterator[dict[Path, Journal] | None]:
    """Go on in the place of those sessions: a record of ours for each, as the next one may need its plan. None when
    somebody else was quicker. What is not ended in them is left as those left it."""
    ours: dict[Path, Journal] = {}
    try:
        for session in sessions:
            ours[session.path] = Journal(run, session.plan, session.beat_s)
            if not ours[session.path].take_over(session):
                ours.pop(session.path).end(session_history.DONE)
                yield None
                return
        yield ours
    finally:
        for record in ours.values():
            record.end(session_history.PENDING)


# --- one platform's jobs ---------------------------------------------------------------------------------------------


def _end(
    places: SchedulerPool, name: str, jobs: Sequence[RecordedJob], ours: Mapping[Path, Journal]
) -> list[RecordedJob]:
    """End them, each with its log and run.json. Returns those that cannot be seen to be gone."""
    try:
        return _Ending(places, name, jobs, ours).run()
    except (BenchError, OSError) as error:
        for job in jobs:
            print(f"{job.name} on {name}: {error}", flush=True)
        return list(jobs)


def _job(recorded: RecordedJob, platform: Platform) -> Job:
    """As a session has it that finds it again. Raises RefusedError."""
    before = job_json.read_json(recorded.folder / "submitted.json")
    spec = job_json.spec_from_submitted(recorded.name, recorded.test, recorded.platform, before)
    job_folder.make_folder(recorded.folder)
    submitted_s = None if recorded.submitted is None else recorded.submitted.submitted_s
    state = State.QUEUED if recorded.submitted is None else State.SUBMITTED
    return Job(
        spec,
        platform,
        recorded.folder,
        recorded.attempt,
        submission=recorded.submitted,
        status=Status(state, submitted_s=submitted_s),
        asked_s=submitted_s,
    )


class _Ending:
    """One platform's jobs, ended as a session ends its own."""

    def __init__(
        self, places: SchedulerPool, name: str, jobs: Sequence[RecordedJob], ours: Mapping[Path, Journal]
    ) -> None:
        platform, scheduler = places.platform(name), places.scheduler(name)
        self._scheduler, self._poll_s, self._ours = scheduler, platform.poll_s, ours
        self._contact = Contact(platform, lambda _platform: scheduler, time.monotonic)
        self._finalizer = Finalizer(self._contact, Slots(platform), None, lambda spec: False, time.monotonic, time.time)
        self._finalizer.stopping = True  # nothing begins again
        self._jobs = {_job(each, platform): each for each in jobs if not each.unsure}

    def run(self) -> list[RecordedJob]:
        """Returns those that cannot be seen to be gone. Raises BenchError."""
        for job in [job for job in self._jobs if job.submission is None]:
            self._finalizer.finish(job, replace(job.status, state=State.CANCELLED, reason=NEVER_SUBMITTED))
        there = [job for job in self._jobs if job.submission is not None]
        seen = self._bring(there) if there else {}
        for job in there:
            status = job.merge_status(seen[job], time.time())
            if status.state.live:
                job.set_status(status)
            else:
                self._finalizer.guard(job, self._finalizer.collect, job, status, patient=False)
        left = self._cancel([job for job in there if not job.done])
        for job, before in self._jobs.items():
            self._ours[before.session.path].jobs([journal_entry(job)])
            print(f"{job.spec.name} on {job.platform.name}: {left.get(job, job.status)}", flush=True)
        return [self._jobs[job] for job in left]

    def _bring(self, jobs: Sequence[Job]) -> dict[Job, Status]:
        """Their states, and the log of each: what a job has said may go when it is ended. Raises BenchError."""
        in_folder, readings = self._scheduler.log_in_folder, dict[Reading, Job]()
        for job in jobs:
            assert job.submission is not None
            path = job.folder / "log"
            readings[Reading(job.submission, path.stat().st_size if path.exists() and not in_folder else 0)] = job
        for reading, chunk in Reader(self._scheduler, self._poll_s, follow=False).read(list(readings)):
            if not in_folder:
                job_folder.write_log_chunk(readings[reading].folder / "log", chunk, reading.offset - len(chunk))
        return {job: reading.status or job.status for reading, job in readings.items()}

    def _cancel(self, jobs: Sequence[Job]) -> dict[Job, str]:
        """Returns those that cannot be seen to be gone, and why."""
        if not jobs:
            return {}
        if any(record.lost() for record in self._ours.values()):
            raise RefusedError("another session has just gone on with it, so it is not ended")
        began_s = time.time()
        left = self._contact.cancel(jobs)
        gone = [job for job in jobs if job not in left]
        self._settle(gone)
        self._finalizer.collect_cancelled(dict.fromkeys(gone, (State.CANCELLED, ENDED_BY_US)), began_s)
        return left

    def _settle(self, jobs: Sequence[Job]) -> None:
        """Wait until their scheduler says how they have ended: one may have done so by itself just before."""
        deadline = time.monotonic() + SETTLE_S
        while jobs and time.monotonic() < deadline:
            try:
                statuses = self._contact.statuses(jobs).values()
            except BenchError:  # they are gone in any case
                return
            if not any(status.state.live and not status.away for status in statuses):
                return
            time.sleep(SETTLE_POLL_S)
