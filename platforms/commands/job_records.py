"""Jobs as the records of their runs have them, and the schedulers that know more of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from platforms import checkout, schedulers
from platforms.commands import find_run
from platforms.commands.find_run import Typed
from platforms.config.schema import Platform
from platforms.job import BenchError, RefusedError, State, Status, Submitted
from platforms.rundir import job_folder, job_json, session_history
from platforms.rundir.session_history import Attempt, SessionRecord

SHOWN = 8  # jobs in a message


@dataclass(frozen=True, eq=False)
class RecordedJob:
    """A job as the record of its run has it. `submitted` is None while nobody knows that there is one, and `unsure`
    says that there may be one all the same; `ended` when a session has written its end down."""

    run: str
    test: str
    name: str
    platform: str
    folder: Path
    attempt: Attempt
    session: SessionRecord
    submitted: Submitted | None
    ended: Status | None
    told: str
    unsure: bool = False

    @property
    def open(self) -> bool:
        """There may be a job that goes on, and no session has seen its end."""
        return self.ended is None and self.session.open

    def again(self) -> RecordedJob:
        """As its folder tells now."""
        return replace(self, ended=_ended(self.folder), submitted=_submitted(self.name, self.folder) or self.submitted)


def recorded_jobs(runs: Path, run_id: str) -> list[RecordedJob]:
    """The jobs of a run, each at its last attempt. Raises RefusedError where no session of it is recorded."""
    sessions = session_history.sessions(runs / run_id)
    if not sessions:
        raise RefusedError(find_run.missing(runs, run_id))
    last: dict[str, RecordedJob] = {}
    for session in sorted(sessions, key=lambda past: past.taken is None):  # what was taken over is the other one's
        for test, attempt in session.attempts.items():
            folder = job_folder.attempt_folder(runs, run_id, test, attempt.number)
            last[test] = _known(run_id, session, test, folder)
    return list(last.values())


def _known(run_id: str, session: SessionRecord, test: str, folder: Path) -> RecordedJob:
    line, attempt = session.states[test], session.attempts[test]
    name, platform = str(line["name"]), str(line["platform"])
    submitted = _submitted(name, folder)
    if submitted is None and line.get("job_id"):  # the machine went down before its folder was on the disk
        submitted = Submitted(str(line["job_id"]), name, float(line["at_s"]), folder)
    told = str(line["state"]) + (f": {line['reason']}" if line.get("reason") else "")
    unsure = submitted is None and (attempt.asked_s is not None or line["state"] != State.QUEUED)
    return RecordedJob(run_id, test, name, platform, folder, attempt, session, submitted, _ended(folder), told, unsure)


def _ended(folder: Path) -> Status | None:
    """How a job has ended, if a session has seen it."""
    found = job_json.read_run(folder)
    return None if found is None else found[0].status


def _submitted(name: str, folder: Path) -> Submitted | None:
    before = job_json.read_json(folder / "submitted.json")
    return Submitted(str(before["job_id"]), name, before["submitted_s"], folder) if "job_id" in before else None


def one(jobs: Sequence[RecordedJob], words: str, run_id: str, typed: Typed) -> RecordedJob:
    """The job that is meant by its name, or by a part of that or of its test's id. Raises RefusedError unless it is one
    job."""
    found = [job for job in jobs if job.name == words] or [
        job for job in jobs if words in job.test or words in job.name
    ]
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{job.name} ({job.test})" for job in (found or jobs)[:SHOWN])
    if more := len(found or jobs) - SHOWN if len(found or jobs) > SHOWN else 0:
        names += f" and {more} more, which {typed.command(f'jobs {run_id}')} shows"
    if found:
        raise RefusedError(f"{words!r} is a part of {len(found)} jobs of run {run_id}: type one name of {names}")
    there = f"it has {names}" if jobs else "none of it has begun"
    raise RefusedError(f"run {run_id} has no job {words!r}, nor one with that in its name or test: {there}")


def on_platforms(jobs: Sequence[RecordedJob], platforms: Sequence[str] | None, run_id: str) -> list[RecordedJob]:
    """Those on these platforms. Raises RefusedError for one that has none."""
    there = dict.fromkeys(job.platform for job in jobs)
    if unknown := [name for name in platforms or () if name not in there]:
        has = f"it has some on {', '.join(there)}" if there else "it has none anywhere"
        raise RefusedError(f"--platform {unknown[0]}: run {run_id} has no unfinished job there; {has}")
    return [job for job in jobs if not platforms or job.platform in platforms]


class SchedulerPool:
    """The platforms' schedulers, connected when they are asked; for who `only_looks` asking them ends nothing."""

    def __init__(self, site: Path, *, only_looks: bool = True) -> None:
        self._site, self._only_looks = site, only_looks
        self._connected: dict[str, schedulers.Scheduler] = {}

    @cached_property
    def _platforms(self) -> Mapping[str, Platform]:
        return checkout.load(self._site)[1]

    def platform(self, name: str) -> Platform:
        """Raises BenchError."""
        return checkout.find(name, self._platforms)

    def scheduler(self, name: str) -> schedulers.Scheduler:
        """Raises BenchError."""
        if name not in self._connected:
            self._connected[name] = schedulers.connect(self.platform(name), only_looks=self._only_looks)
        return self._connected[name]

    def states(self, jobs: Sequence[RecordedJob]) -> tuple[dict[RecordedJob, str], dict[str, str]]:
        """What the schedulers say of jobs, one query a platform; and by platform, why nobody can be asked there."""
        found: dict[RecordedJob, str] = {}
        silent: dict[str, str] = {}
        for name in dict.fromkeys(job.platform for job in jobs if job.submitted is not None):
            asked = {job.submitted.job_id: job for job in jobs if job.platform == name and job.submitted is not None}
            statuses: Mapping[str, Status] = {}
            try:
                statuses = self.scheduler(name).status([job.submitted for job in asked.values() if job.submitted])
            except BenchError as error:
                silent[name] = str(error)
            if statuses and all(status.away for status in statuses.values()):
                silent[name] = next(iter(statuses.values())).reason
            for job_id, job in asked.items():
                said = None if name in silent else statuses.get(job_id)
                found[job] = f"not known, at last {job.told}" if said is None else said.told(time.time())
        return found, silent
