"""Jobs as the records of their runs have them, and the schedulers that know more of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from platforms import checkout, journal, schedulers
from platforms.config import Platform
from platforms.job import BenchError, RefusedError, Status, Submitted
from platforms.journal import Past
from platforms.runner import evidence


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

    @property
    def open(self) -> bool:
        """There may be a job that goes on, and no session has seen its end."""
        return self.ended is None and self.session.open

    def again(self) -> Known:
        """As its folder tells now."""
        ended, submitted = _of_folder(self.name, self.folder)
        return replace(self, ended=ended, submitted=submitted)


def known(runs: Path, run_id: str) -> list[Known]:
    """The jobs of a run, each at its last attempt. Raises RefusedError where there is no such run."""
    sessions = journal.sessions(runs / run_id)
    if not sessions:
        there = ", ".join(journal.recorded(runs)[-5:])
        raise RefusedError(
            f"{runs} knows no run {run_id}; there are: {there or 'none'} (--runs-dir names another place)"
        )
    lines: dict[str, Mapping[str, object]] = {}
    last: dict[str, Known] = {}
    for session in sessions:
        for test, attempt in session.attempts.items():
            if "name" in session.states[test]:
                lines[test] = session.states[test]
            if test in lines:  # else it was taken over before anything was said of it
                folder = evidence.of_attempt(runs, run_id, test, attempt.number)
                last[test] = _known(run_id, session, test, lines[test], folder)
    return list(last.values())


def _known(run_id: str, session: Past, test: str, line: Mapping[str, object], folder: Path) -> Known:
    name = str(line["name"])
    ended, submitted = _of_folder(name, folder)
    told = str(line["state"]) + (f": {line['reason']}" if line.get("reason") else "")
    return Known(run_id, test, name, str(line["platform"]), folder, session, submitted, ended, told)


def _of_folder(name: str, folder: Path) -> tuple[Status | None, Submitted | None]:
    """How a job has ended, if a session has seen it, and under which id it was submitted."""
    ended, before = evidence.recorded(folder), evidence.read_json(folder / "submitted.json")
    submitted = Submitted(str(before["job_id"]), name, before["submitted_s"], folder) if "job_id" in before else None
    return None if ended is None else ended[0].status, submitted


def latest(runs: Path) -> str:
    """Raises RefusedError."""
    if not (runs / "latest").exists():
        raise RefusedError(f"there is no run in {runs} (--runs-dir names another place)")
    return (runs / "latest").resolve().name


def unfinished(runs: Path) -> str:
    found = journal.unfinished(runs)
    if not found:
        raise RefusedError(f"no run in {runs} is unfinished; name one")
    return found[0]


def one(jobs: Sequence[Known], words: str) -> Known:
    """Raises RefusedError unless one job is meant."""
    found = [job for job in jobs if job.name == words] or [
        job for job in jobs if words in job.test or words in job.name
    ]
    if len(found) != 1:
        names = ", ".join(f"{job.name} ({job.test})" for job in (found or jobs)[:8])
        raise RefusedError(f"{words}: {'which one' if found else 'there is no such job'}? {names}")
    return found[0]


def on(jobs: Sequence[Known], platforms: Sequence[str] | None) -> list[Known]:
    """Those on these platforms. Raises RefusedError for one that has none."""
    there = dict.fromkeys(job.platform for job in jobs)
    if unknown := [name for name in platforms or () if name not in there]:
        known_there = ", ".join(there) or "no platform"
        raise RefusedError(f"--platform {unknown[0]}: the run has unfinished jobs on {known_there}, and none there")
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
