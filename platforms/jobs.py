"""`python -m platforms jobs | logs | fetch | cancel`: the jobs of runs, looked at and ended without pytest."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from platforms import checkout, journal, schedulers
from platforms.config import Platform
from platforms.job import BenchError, RefusedError, Status, Submitted
from platforms.journal import Past
from platforms.runner import evidence

FOLLOW_S = 1.0


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


def known(runs: Path, run_id: str) -> list[Known]:
    """The jobs of a run, each at its last attempt. Raises RefusedError where there is no such run."""
    sessions = journal.sessions(runs / run_id)
    if not sessions:
        there = ", ".join(journal.recorded(runs)[-5:])
        raise RefusedError(
            f"{runs} knows no run {run_id}; there are: {there or 'none'} (--runs-dir names another place)"
        )
    last: dict[str, Known] = {}
    for session in sessions:
        for test, number in session.attempts.items():
            line = session.states[test]
            if "name" in line:
                folder = evidence.of_attempt(runs, run_id, test, number)
                last[test] = _known(run_id, session, test, line, folder)
    return list(last.values())


def _known(run_id: str, session: Past, test: str, line: Mapping[str, object], folder: Path) -> Known:
    name, ended, before = str(line["name"]), evidence.recorded(folder), evidence.read_json(folder / "submitted.json")
    submitted = Submitted(str(before["job_id"]), name, before["submitted_s"], folder) if "job_id" in before else None
    status = None if ended is None else ended[0].status
    told = str(line["state"]) + (f": {line['reason']}" if line.get("reason") else "")
    return Known(run_id, test, name, str(line["platform"]), folder, session, submitted, status, told)


class Places:
    """The platforms' schedulers, connected when they are asked."""

    def __init__(self, site: Path) -> None:
        self._site = site
        self._connected: dict[str, schedulers.Scheduler] = {}

    @cached_property
    def _platforms(self) -> Mapping[str, Platform]:
        return checkout.load(self._site)[1]

    def scheduler(self, name: str) -> schedulers.Scheduler:
        """Raises BenchError."""
        if name not in self._connected:
            self._connected[name] = schedulers.connect(checkout.find(name, self._platforms))
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
                found |= {job: str(statuses.get(job_id, job.told)) for job_id, job in asked.items()}
        return found


# --- jobs ------------------------------------------------------------------------------------------------------------


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Options of `jobs`."""
    parser.add_argument("run", metavar="RUN", nargs="?", help="a run (default: those that are not finished)")
    _add_runs(parser)


def show(options: argparse.Namespace) -> int:
    """A line a job, as its session tells it, or, where none lives, as its scheduler does."""
    runs, places = _runs(options), Places(checkout.site_folder(options.site))
    names = [options.run] if options.run else journal.unfinished(runs)
    if not names:
        print(f"no run in {runs} is unfinished; `python -m platforms jobs RUN` shows one that has ended")
    for name in names:
        jobs = known(runs, name)
        lives = {job.session.path: journal.lives(job.session) for job in jobs}
        asked = places.states([job for job in jobs if job.open and not lives[job.session.path]])
        print(f"run {name}, {_of_run(name, jobs, lives)}")
        for job in jobs:
            now = str(job.ended) if job.ended is not None else asked.get(job, job.told)
            at = f" ({job.submitted.job_id})" if job.submitted is not None and job.ended is None else ""
            print(f"  {job.name} on {job.platform}{at}: {now}")
    return 0


def _of_run(name: str, jobs: Sequence[Known], lives: Mapping[Path, bool]) -> str:
    for job in jobs:
        if job.session.open and lives[job.session.path]:
            return f"under way in {job.session}"
    return f"left unfinished: pytest --resume={name}" if any(job.session.open for job in jobs) else "ended"


# --- logs, fetch -----------------------------------------------------------------------------------------------------


def add_logs(parser: argparse.ArgumentParser) -> None:
    """Options of `logs`."""
    parser.add_argument("job", metavar="JOB", help="its name, or a part of its test's id, in the last run")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until it has ended")
    parser.add_argument("--run", metavar="RUN", help="of this run (default: the last one)")
    _add_runs(parser)


def logs(options: argparse.Namespace) -> int:
    """Print a job's log: what there is of it in its folder, and then what its scheduler has."""
    runs = _runs(options)
    job = _one(known(runs, options.run or _latest(runs)), options.job)
    out, path, offset = sys.stdout.buffer, job.folder / "log", 0
    while True:
        again = _known(job.run, job.session, job.test, job.session.states[job.test], job.folder)
        chunk = path.read_bytes()[offset:] if path.exists() else b""
        out.write(chunk)
        out.flush()
        offset += len(chunk)
        if again.ended is not None or not job.open or not journal.lives(job.session):
            break
        if not options.follow:
            return 0
        time.sleep(FOLLOW_S)
    if again.ended is None and again.open:
        if again.submitted is None:
            raise RefusedError(f"{job.name}: {again.told}; nobody has its id: pytest --resume={job.run} finds it")
        scheduler = Places(checkout.site_folder(options.site)).scheduler(job.platform)
        for chunk in _read(scheduler, again.submitted, offset, follow=options.follow):
            out.write(chunk)
            out.flush()
    return 0


def _read(scheduler: schedulers.Scheduler, job: Submitted, offset: int, *, follow: bool) -> Iterator[bytes]:
    while True:
        ended = not scheduler.status([job])[job.job_id].state.live  # before the last read, so that this is the end
        while chunk := scheduler.read(job, offset):
            offset += len(chunk)
            yield chunk
        if ended or not follow:
            return
        time.sleep(FOLLOW_S)


def add_fetch(parser: argparse.ArgumentParser) -> None:
    """Options of `fetch`."""
    parser.add_argument("run", metavar="RUN", nargs="?", help="a run (default: the last one that is not finished)")
    _add_runs(parser)


def fetch(options: argparse.Namespace) -> int:
    """Bring the logs of a run's jobs into its folder, as far as they are written; `pytest --resume` reads on there."""
    runs, places = _runs(options), Places(checkout.site_folder(options.site))
    run_id = options.run or _unfinished(runs)
    jobs = [job for job in known(runs, run_id) if job.open and job.submitted is not None]
    _refuse_lives(run_id, jobs)
    for job in jobs:
        assert job.submitted is not None
        path, scheduler = job.folder / "log", places.scheduler(job.platform)
        with path.open("ab") as file:
            for chunk in _read(scheduler, job.submitted, file.tell(), follow=False):
                if not scheduler.log_in_folder:
                    file.write(chunk)
        print(f"{job.name} on {job.platform}: {path.stat().st_size} bytes in {path}")
    print(f"{len(jobs)} logs; the results: pytest --resume={run_id}")
    return 0


# --- cancel ----------------------------------------------------------------------------------------------------------


def add_cancel(parser: argparse.ArgumentParser) -> None:
    """Options of `cancel`."""
    parser.add_argument("run", metavar="RUN", help="a run that its session has left unfinished")
    _add_runs(parser)


def cancel(options: argparse.Namespace) -> int:
    """End what is left of a run, and see that it is gone; then the run has ended. Returns 1 where something is left."""
    runs, places = _runs(options), Places(checkout.site_folder(options.site))
    jobs = [job for job in known(runs, options.run) if job.open]
    _refuse_lives(options.run, jobs)
    left: list[str] = []
    for name in dict.fromkeys(job.platform for job in jobs):
        here = {job.submitted.job_id: job for job in jobs if job.platform == name and job.submitted is not None}
        try:
            remains = places.scheduler(name).cancel([job.submitted for job in here.values() if job.submitted])
        except BenchError as error:
            remains = dict.fromkeys(here, str(error))
        for job_id, job in here.items():
            print(f"{job.name} on {name}: {remains.get(job_id, 'gone')}")
        left += remains
    unsure = [job.name for job in jobs if job.submitted is None and job.told.startswith(journal.ASKED)]
    if unsure:
        print(
            f"nobody knows whether these were submitted: {', '.join(unsure)}; pytest --resume={options.run} finds out"
        )
    elif not left:
        for session in {job.session.path: job.session for job in jobs}.values():
            journal.take(session, "python -m platforms cancel")
    return int(bool(left or unsure))


# --- all of them -----------------------------------------------------------------------------------------------------


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs-dir", metavar="DIR", default=str(checkout.ROOT / "runs"), help="default: runs/")


def _runs(options: argparse.Namespace) -> Path:
    return Path(options.runs_dir)


def _latest(runs: Path) -> str:
    """Raises RefusedError."""
    if not (runs / "latest").exists():
        raise RefusedError(f"there is no run in {runs} (--runs-dir names another place)")
    return (runs / "latest").resolve().name


def _unfinished(runs: Path) -> str:
    found = journal.unfinished(runs)
    if not found:
        raise RefusedError(f"no run in {runs} is unfinished; name one")
    return found[0]


def _one(jobs: Sequence[Known], words: str) -> Known:
    """Raises RefusedError unless one job is meant."""
    found = [job for job in jobs if job.name == words] or [
        job for job in jobs if words in job.test or words in job.name
    ]
    if len(found) != 1:
        names = ", ".join(f"{job.name} ({job.test})" for job in (found or jobs)[:8])
        raise RefusedError(f"{words}: {'which one' if found else 'there is no such job'}? {names}")
    return found[0]


def _refuse_lives(run_id: str, jobs: Sequence[Known]) -> None:
    for session in {job.session.path: job.session for job in jobs}.values():
        if journal.lives(session):
            raise RefusedError(f"run {run_id} is under way in {session}: end that session first (kill -INT, or Ctrl-C)")
