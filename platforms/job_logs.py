"""`python -m platforms logs | fetch`: the logs of jobs, printed, and brought into the folders of their runs.

The log that is kept in a job's folder has one writer at a time: the session that lives, else the command that holds the
lock beside it. Where the file system knows no locks, what is written stands at its own place in the file, so two that
bring the same bytes do no harm.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from platforms import checkout, journal, locks, which_run
from platforms.job import BenchError, RefusedError
from platforms.jobs import refuse_lives
from platforms.journal import Past
from platforms.reading import Reader, Reading
from platforms.recorded import Known, Places, known, one
from platforms.runner import evidence

FOLLOW_S = 1.0
CHUNK = 1 << 20
LOCK = ".log.lock"


# --- logs ------------------------------------------------------------------------------------------------------------


def add_logs(parser: argparse.ArgumentParser) -> None:
    """Options of `logs`."""
    parser.add_argument("job", metavar="JOB", help="its name, or a part of its test's id, in the last run")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until it has ended")
    parser.add_argument("--run", metavar="RUN", default=which_run.LATEST, help="of this run (default: latest)")
    which_run.add_folder(parser)


def logs(options: argparse.Namespace) -> int:
    """Print a job's log: what there is of it in its folder, and then what its scheduler has."""
    runs, places = which_run.folder(options), Places(checkout.site_folder(options.site))
    run_id, offset, said = which_run.named(runs, options.run), 0, ""
    job = one(known(runs, run_id), options.job, run_id)
    while True:
        job = job.again()
        if job.open and not journal.lives(job.session):  # another one may go on in its place
            before, job = job, next(each for each in known(runs, run_id) if each.test == job.test)
            offset = offset if job.folder == before.folder else 0
            if job.open and not journal.lives(job.session):
                try:
                    _print_on(job, offset, places, follow=options.follow)
                except locks.Taken as other:  # which brings it here, as a session does
                    said = _once(
                        said, f"{job.name}: {other} reads this log, too; shown is what has come to {job.folder}"
                    )
                else:
                    return 0
        offset += _print(job.folder / "log", offset)
        if not job.open or not options.follow:
            return 0
        time.sleep(FOLLOW_S)


def _once(before: str, text: str) -> str:
    if text != before:
        _tell(text)
    return text


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print(path: Path, offset: int) -> int:
    """A file from there on. Returns how much there was."""
    size = 0
    if path.exists():
        with path.open("rb") as file:
            file.seek(offset)
            while chunk := file.read(CHUNK):
                size += len(chunk)
                _write(chunk)
    return size


def _write(chunk: bytes) -> None:
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def _print_on(job: Known, offset: int, places: Places, *, follow: bool) -> None:
    """What a job's folder has from there on, and its scheduler after that. Raises RefusedError when that is not all,
    Taken while another command brings it here."""
    with contextlib.ExitStack() as stack:
        try:
            if job.submitted is None:
                raise RefusedError(f"{job.name}: {job.told}; nobody has its id: pytest --resume={job.run} finds it")
            reader = _reader(places, job.platform, [job], follow=follow)
            in_folder = places.scheduler(job.platform).log_in_folder
            if in_folder:
                stack.enter_context(_alone(job))
        except locks.Taken:
            raise
        except BenchError:
            _print(job.folder / "log", offset)
            raise
        if not in_folder:  # else the scheduler reads that file, too, and knows how much of it is to be believed
            offset += _print(job.folder / "log", offset)
        reading = Reading(job.submitted, offset)
        for _reading, chunk in reader.read([reading]):
            _write(chunk)
        if reading.problem:
            raise RefusedError(f"{job.name}: {reading.problem}")


# --- fetch -----------------------------------------------------------------------------------------------------------


def add_fetch(parser: argparse.ArgumentParser) -> None:
    """Options of `fetch`."""
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="a run, or latest (default: the last one that is not finished)"
    )
    which_run.add_folder(parser)


def fetch(options: argparse.Namespace) -> int:
    """Bring the logs of a run's jobs into its folder, as far as they are written; `pytest --resume` reads on there.
    Returns 1 where one could not be had."""
    runs, places = which_run.folder(options), Places(checkout.site_folder(options.site))
    run_id = _to_fetch(runs) if options.run is None else which_run.named(runs, options.run)
    sessions = [session for session in journal.sessions(runs / run_id) if session.open]
    if not sessions:
        return _has_ended(runs, run_id)
    jobs = [job for job in known(runs, run_id) if job.open and job.submitted is not None]
    refuse_lives(run_id, _sessions(jobs) or sessions)
    if not jobs:
        print(f"run {run_id} has no job at a scheduler of which a log could come: pytest --resume={run_id} goes on")
        return 0
    problems = 0
    with contextlib.ExitStack() as locked:  # a scheduler's threads write until we end
        for name in dict.fromkeys(job.platform for job in jobs):
            here = [job for job in jobs if job.platform == name]
            for job, problem in _fetched(places, name, here, locked).items():
                problems += bool(problem)
                so_far = f"{_size(job.folder / 'log')} bytes in {job.folder / 'log'}"
                print(f"{job.name} on {name}: {so_far}" + (f", and not all of it: {problem}" if problem else ""))
    print(f"{len(jobs) - problems} of {len(jobs)} logs; the results: pytest --resume={run_id}")
    return int(bool(problems))


def _to_fetch(runs: Path) -> str:
    """The last run that is unfinished, or, to say so, the last one. Raises RefusedError where there is none."""
    names, unread = which_run.unfinished(runs)
    for why in unread:
        _tell(why)
    return names[0] if names else which_run.latest(runs)


def _has_ended(runs: Path, run_id: str) -> int:
    """Also where no session of it can be read, which is refused."""
    known(runs, run_id)
    print(f"run {run_id} has ended, so there is nothing to fetch: its logs and results are in {runs / run_id}")
    return 0


def _fetched(places: Places, name: str, jobs: Sequence[Known], locked: contextlib.ExitStack) -> dict[Known, str]:
    """Read logs of one platform's jobs on. Returns what went wrong with each, or nothing."""
    found: dict[Reading, Known] = {}
    wrong: dict[Known, str] = {}
    failed = ""
    try:
        reader, in_folder = _reader(places, name, jobs, follow=False), places.scheduler(name).log_in_folder
        for job in jobs:
            assert job.submitted is not None
            try:
                locked.enter_context(_alone(job))
            except locks.Taken as other:
                wrong[job] = f"{other} is bringing it just now"
            else:
                found[Reading(job.submitted, 0 if in_folder else _size(job.folder / "log"))] = job
        for reading, chunk in reader.read(list(found)):
            if not in_folder:
                evidence.put(found[reading].folder / "log", chunk, reading.offset - len(chunk))
    except (BenchError, OSError) as error:
        failed = str(error)
    wrong |= {job: reading.problem or ("" if reading.done else failed) for reading, job in found.items()}
    return {job: wrong.get(job, failed) for job in jobs}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


# --- both ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _alone(job: Known) -> Iterator[None]:
    """Nobody else writes the log that is kept of a job. Raises Taken, RefusedError."""
    with contextlib.ExitStack() as stack:
        try:
            if none := stack.enter_context(locks.held(job.folder / LOCK)):
                _tell(f"{none}: let one command at a time read this log")
        except OSError:
            pass  # a folder that we may only read, as we then do
        yield


def _reader(places: Places, name: str, jobs: Sequence[Known], *, follow: bool) -> Reader:
    """Of one platform's jobs. It ends when a session goes on with them: that reads their logs, too, into their folders,
    and they have one writer."""
    sessions = _sessions(jobs)

    def check() -> None:
        for session in sessions:
            if (by := journal.taken(session.path)) is not None:
                run, other = jobs[0].run, by or "another session"
                raise RefusedError(f"run {run} was gone on with just now, in {other}: python -m platforms jobs {run}")

    poll_s = places.platform(name).poll_s
    return Reader(places.scheduler(name), poll_s, follow=follow, check=check, tell=_tell)


def _sessions(jobs: Sequence[Known]) -> list[Past]:
    return list({job.session.path: job.session for job in jobs}.values())
