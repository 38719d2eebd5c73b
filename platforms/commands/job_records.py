"""The jobs of a run as its sessions recorded them, and the schedulers that know more about them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from platforms import checkout, schedulers
from platforms.commands import find_run
from platforms.commands.find_run import TypedOptions
from platforms.config.schema import Platform
from platforms.job import BenchError, RefusedError, State, Status, Submitted
from platforms.rundir import job_folder, job_json, session_history
from platforms.rundir.session_history import Attempt, SessionRecord
from platforms.schedulers.past_jobs import Place, refuse_moved

JOBS_PER_MESSAGE = 8


@dataclass(frozen=True, eq=False)
class RecordedJob:
    """A job as the record of its run has it.

    Attributes:
        submitted: None while the record has no id of the job.
        ended: how it ended, once a session has written that down.
        last_state: what its session wrote down last, for people.
        place: where it lies and how it is asked, as `past_jobs.place` said then.
        unsure: it has no id, and may exist all the same.
    """

    run: str
    test: str
    name: str
    platform: str
    folder: Path
    attempt: Attempt
    session: SessionRecord
    submitted: Submitted | None
    ended: Status | None
    last_state: str
    place: Place
    unsure: bool = False

    @property
    def open(self) -> bool:
        """Whether the job may still exist: no session has seen its end."""
        return self.ended is None and self.session.open

    def refreshed(self) -> RecordedJob:
        """The same job, with what its folder says now."""
        submitted = _submitted(self.name, self.folder) or self.submitted
        return replace(self, ended=_ended(self.folder), submitted=submitted)


def recorded_jobs(runs: Path, run_id: str) -> list[RecordedJob]:
    """The jobs of a run, each at its last attempt. Raises RefusedError where the run has no record of a session."""
    sessions = session_history.read_sessions(runs / run_id)
    if not sessions:
        raise RefusedError(find_run.missing(runs, run_id))
    # A session that was taken over comes first: its jobs belong to the session that took them over.
    sessions.sort(key=lambda session: session.successor is None)
    jobs: dict[str, RecordedJob] = {}
    for session in sessions:
        for key, attempt in session.attempts.items():
            folder = job_folder.attempt_folder(runs, run_id, key, attempt.number)
            jobs[key] = _recorded_job(run_id, session, key, folder)
    return list(jobs.values())


def _recorded_job(run_id: str, session: SessionRecord, key: str, folder: Path) -> RecordedJob:
    entry = session.states[key]
    attempt = session.attempts[key]
    name = str(entry["name"])
    submitted = _submitted(name, folder)
    if submitted is None and entry.get("job_id"):  # the machine went down before the folder was on the disk
        submitted = Submitted(str(entry["job_id"]), name, float(entry["at_s"]), folder)
    last_state = str(entry["state"])
    if entry.get("reason"):
        last_state += f": {entry['reason']}"
    return RecordedJob(
        run=run_id,
        test=key,
        name=name,
        platform=str(entry["platform"]),
        folder=folder,
        attempt=attempt,
        session=session,
        submitted=submitted,
        ended=_ended(folder),
        last_state=last_state,
        place=entry.get("place", {}),
        unsure=submitted is None and (attempt.asked_s is not None or entry["state"] != State.QUEUED),
    )


def _ended(folder: Path) -> Status | None:
    """How a job ended, if a session has seen that."""
    found = job_json.read_run(folder)
    return None if found is None else found[0].status


def _submitted(name: str, folder: Path) -> Submitted | None:
    record = job_json.read_json(folder / "submitted.json")
    if "job_id" not in record:
        return None
    return Submitted(str(record["job_id"]), name, record["submitted_s"], folder)


def find_job(jobs: Sequence[RecordedJob], typed_name: str, run_id: str, typed: TypedOptions) -> RecordedJob:
    """The job with that name, or with that text in its name or in its test's id.

    Raises RefusedError unless that is exactly one job.
    """
    found = [job for job in jobs if job.name == typed_name]
    if not found:
        found = [job for job in jobs if typed_name in job.test or typed_name in job.name]
    if len(found) == 1:
        return found[0]
    candidates = found or jobs
    names = ", ".join(f"{job.name} ({job.test})" for job in candidates[:JOBS_PER_MESSAGE])
    if len(candidates) > JOBS_PER_MESSAGE:
        more = len(candidates) - JOBS_PER_MESSAGE
        names += f" and {more} more, which {typed.command(f'jobs {run_id}')} shows"
    if found:
        raise RefusedError(f"{typed_name!r} is a part of {len(found)} jobs of run {run_id}: type one name of {names}")
    which = f"it has {names}" if jobs else "none of it has begun"
    raise RefusedError(f"run {run_id} has no job {typed_name!r}, nor one with that in its name or test: {which}")


class SchedulerPool:
    """The schedulers of the site's platforms, each connected when it is first asked for.

    With `only_looks` a scheduler never ends a job, as some otherwise do with what is left of a failed one.
    """

    def __init__(self, site: Path, *, only_looks: bool = True) -> None:
        self._site = site
        self._only_looks = only_looks
        self._connected: dict[str, schedulers.Scheduler] = {}

    @cached_property
    def _platforms(self) -> Mapping[str, Platform]:
        return checkout.load(self._site)[1]

    def platform(self, name: str) -> Platform:
        """Raises BenchError."""
        return checkout.find(name, self._platforms)

    def scheduler(self, name: str, jobs: Sequence[RecordedJob]) -> schedulers.Scheduler:
        """The scheduler of these jobs, which are all of one platform.

        Raises BenchError, also where the platform's file says otherwise than when they began where they lie.
        """
        refuse_moved(self.platform(name), {job.name: job.place for job in jobs if job.ended is None})
        if name not in self._connected:
            self._connected[name] = schedulers.connect(self.platform(name), only_looks=self._only_looks)
        return self._connected[name]

    def states(self, jobs: Sequence[RecordedJob]) -> tuple[dict[RecordedJob, str], dict[str, str]]:
        """What the schedulers say about jobs, with one query per platform.

        Returns the states by job, and by platform why its scheduler cannot be asked.
        """
        states: dict[RecordedJob, str] = {}
        silent: dict[str, str] = {}
        for name in dict.fromkeys(job.platform for job in jobs):
            submitted = {job: job.submitted for job in jobs if job.platform == name and job.submitted is not None}
            if not submitted:
                continue
            statuses: Mapping[str, Status] = {}
            try:
                statuses = self.scheduler(name, list(submitted)).status(list(submitted.values()))
            except BenchError as error:
                silent[name] = str(error)
            if statuses and all(status.away for status in statuses.values()):
                silent[name] = next(iter(statuses.values())).reason
                statuses = {}
            for job, submission in submitted.items():
                status = statuses.get(submission.job_id)
                if status is None:
                    states[job] = f"not known, at last {job.last_state}"
                else:
                    states[job] = status.told(time.time())
        return states, silent
