"""Jobs as the records of their runs have them, and the schedulers that know more of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from platforms import checkout, journal, schedulers, which_run
from platforms.config import Platform
from platforms.job import BenchError, RefusedError, Status, Submitted
from platforms.journal import Past
from platforms.runner import evidence

SHOWN = 8  # jobs in a message


@dataclass(frozen=True, eq=False)
class Known:
    """A job as the record of its run has it. `submitted` is None while nobody knows that there is one; `ended` when a
    session has written its end down."""

    run: str
    test: str
    name: str
    platform: str
    folder: Path
    session: Past
    submitted: Submitted | None
    ended: Status | None
    told: str
    asked: bool = False  # its scheduler was asked for it, and nobody heard an answer

    @property
    def open(self) -> bool:
        """There may be a job that goes on, and no session has seen its end."""
        return self.ended is None and self.session.open

    def again(self) -> Known:
        """As its folder tells now."""
        ended, submitted = _of_folder(self.name, self.folder)
        return replace(self, ended=ended, submitted=submitted)


def known(runs: Path, run_id: str) -> list[Known]:
    """The jobs of a run, each at its last attempt. Raises RefusedError where no session of it is recorded."""
    sessions = journal.sessions(runs / run_id)
    if not sessions:
        raise RefusedError(which_run.missing(runs, run_id))
    last: dict[str, Known] = {}
    for session in sorted(sessions, key=lambda past: past.taken is None):  # what was taken over is the other one's
        for test, attempt in session.attempts.items():
            folder = evidence.of_attempt(runs, run_id, test, attempt.number)
            last[test] = _known(run_id, session, test, folder)
    return list(last.values())


def _known(run_id: str, session: Past, test: str, folder: Path) -> Known:
    line, asked = session.states[test], session.attempts[test].asked_s is not None
    name, platform = str(line["name"]), str(line["platform"])
    ended, submitted = _of_folder(name, folder)
    told = str(line["state"]) + (f": {line['reason']}" if line.get("reason") else "")
    return Known(run_id, test, name, platform, folder, session, submitted, ended, told, asked)


def _of_folder(name: str, folder: Path) -> tuple[Status | None, Submitted | None]:
    """How a job has ended, if a session has seen it, and under which id it was submitted."""
    ended, before = evidence.recorded(folder), evidence.read_json(folder / "submitted.json")
    submitted = Submitted(str(before["job_id"]), name, before["submitted_s"], folder) if "job_id" in before else None
    return None if ended is None else ended[0].status, submitted


def one(jobs: Sequence[Known], words: str, run_id: str) -> Known:
    """The job that is meant by its name, or by a part of that or of its test's id. Raises RefusedError unless it is one
    job."""
    found = [job for job in jobs if job.name == words] or [
        job for job in jobs if words in job.test or words in job.name
    ]
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{job.name} ({job.test})" for job in (found or jobs)[:SHOWN])
    if more := len(found or jobs) - SHOWN if len(found or jobs) > SHOWN else 0:
        names += f" and {more} more, which python -m platforms jobs {run_id} shows"
    if found:
        raise RefusedError(f"{words!r} is a part of {len(found)} jobs of run {run_id}: type one name of {names}")
    there = f"it has {names}" if jobs else "none of it has begun"
    raise RefusedError(f"run {run_id} has no job {words!r}, nor one with that in its name or test: {there}")


def on(jobs: Sequence[Known], platforms: Sequence[str] | None, run_id: str) -> list[Known]:
    """Those on these platforms. Raises RefusedError for one that has none."""
    there = dict.fromkeys(job.platform for job in jobs)
    if unknown := [name for name in platforms or () if name not in there]:
        has = f"it has some on {', '.join(there)}" if there else "it has none anywhere"
        raise RefusedError(f"--platform {unknown[0]}: run {run_id} has no unfinished job there; {has}")
    return [job for job in jobs if not platforms or job.platform in platforms]


class Places:
    """The platforms' schedulers, connected when they are asked."""

    def __init__(self, site: Path) -> None:
        self._site = site
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
            self._connected[name] = schedulers.connect(self.platform(name))
        return self._connected[name]

    def states(self, jobs: Sequence[Known]) -> dict[Known, str]:
        """What the schedulers say of jobs, one query a platform."""
        found: dict[Known, str] = {}
        for name in dict.fromkeys(job.platform for job in jobs):
            asked = {job.submitted.job_id: job for job in jobs if job.platform == name and job.submitted is not None}
            try:
                statuses = self.scheduler(name).status([job.submitted for job in asked.values() if job.submitted])
            except BenchError as error:
                found |= dict.fromkeys(asked.values(), f"not known: {error}")
            else:
                now_s = time.time()
                found |= {
                    job: statuses[job_id].told(now_s) if job_id in statuses else job.told
                    for job_id, job in asked.items()
                }
        return found
