"""`python -m platforms jobs | logs | fetch | cancel`: the jobs of runs, looked at and ended without pytest."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from platforms import checkout, journal
from platforms.job import BenchError, RefusedError
from platforms.reading import Reader, Reading
from platforms.recorded import Known, Places, known, latest, on, one, unfinished

FOLLOW_S = 1.0
CHUNK = 1 << 20


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
    run_id, offset = options.run or latest(runs), 0
    job = one(known(runs, run_id), options.job)
    while True:
        job = job.again()
        if job.open and not journal.lives(job.session):  # another one may go on in its place
            before, job = job, next(each for each in known(runs, run_id) if each.test == job.test)
            offset = offset if job.folder == before.folder else 0
            if job.open and not journal.lives(job.session):
                _print_on(job, offset, Places(checkout.site_folder(options.site)), follow=options.follow)
                return 0
        offset += _print(job.folder / "log", offset)
        if not job.open or not options.follow:
            return 0
        time.sleep(FOLLOW_S)


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
    """What a job's folder has from there on, and its scheduler after that. Raises RefusedError when that is not all."""
    try:
        if job.submitted is None:
            raise RefusedError(f"{job.name}: {job.told}; nobody has its id: pytest --resume={job.run} finds it")
        reader = _reader(places, job.platform, [job], follow=follow)
        in_folder = places.scheduler(job.platform).log_in_folder
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


def _reader(places: Places, name: str, jobs: Sequence[Known], *, follow: bool) -> Reader:
    """Of one platform's jobs. It ends when a session goes on with them: that reads their logs, too, into their folders,
    and they have one writer."""

    def check() -> None:
        for session in {job.session.path: job.session for job in jobs}.values():
            now = journal.read(session.path)
            if now is not None and now.taken is not None:
                run = jobs[0].run
                raise RefusedError(
                    f"run {run} was gone on with just now, in {now.taken}: python -m platforms jobs {run}"
                )

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    poll_s = places.platform(name).poll_s
    return Reader(places.scheduler(name), poll_s, follow=follow, check=check, tell=tell)


def add_fetch(parser: argparse.ArgumentParser) -> None:
    """Options of `fetch`."""
    parser.add_argument("run", metavar="RUN", nargs="?", help="a run (default: the last one that is not finished)")
    _add_runs(parser)


def fetch(options: argparse.Namespace) -> int:
    """Bring the logs of a run's jobs into its folder, as far as they are written; `pytest --resume` reads on there.
    Returns 1 where one could not be had."""
    runs, places = _runs(options), Places(checkout.site_folder(options.site))
    run_id = options.run or unfinished(runs)
    jobs = [job for job in known(runs, run_id) if job.open and job.submitted is not None]
    _refuse_lives(run_id, jobs)
    problems = 0
    for name in dict.fromkeys(job.platform for job in jobs):
        here = [job for job in jobs if job.platform == name]
        for job, problem in _fetched(places, name, here).items():
            size = _size(job.folder / "log")
            problems += bool(problem)
            so_far = f"{size} bytes in {job.folder / 'log'}"
            print(f"{job.name} on {name}: {so_far}" + (f", and not all of it: {problem}" if problem else ""))
    print(f"{len(jobs) - problems} of {len(jobs)} logs; the results: pytest --resume={run_id}")
    return int(bool(problems))


def _fetched(places: Places, name: str, jobs: Sequence[Known]) -> dict[Known, str]:
    """Read logs of one platform's jobs on. Returns what went wrong with each, or nothing."""
    found = {Reading(job.submitted): job for job in jobs if job.submitted is not None}
    try:
        reader, in_folder = _reader(places, name, jobs, follow=False), places.scheduler(name).log_in_folder
        for reading, job in found.items():
            reading.offset = 0 if in_folder else _size(job.folder / "log")
        for reading, chunk in reader.read(list(found)):
            if not in_folder:
                with (found[reading].folder / "log").open("ab") as file:
                    file.write(chunk)
    except (BenchError, OSError) as error:
        return {job: reading.problem or ("" if reading.done else str(error)) for reading, job in found.items()}
    return {job: reading.problem for reading, job in found.items()}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


# --- cancel ----------------------------------------------------------------------------------------------------------


def add_cancel(parser: argparse.ArgumentParser) -> None:
    """Options of `cancel`."""
    parser.add_argument("run", metavar="RUN", help="a run that its session has left unfinished")
    parser.add_argument("--platform", action="append", metavar="NAME", help="only its jobs there (repeatable)")
    _add_runs(parser)


def cancel(options: argparse.Namespace) -> int:
    """End what is left of a run, and see that it is gone; then the run has ended. Returns 1 where something is left."""
    runs, places = _runs(options), Places(checkout.site_folder(options.site))
    all_jobs = [job for job in known(runs, options.run) if job.open]
    jobs = on(all_jobs, options.platform)
    _refuse_lives(options.run, all_jobs)
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
    elif others := len(all_jobs) - len(jobs):
        print(f"{others} jobs elsewhere are left alone: run {options.run} is not finished")
    elif not left:
        for session in {job.session.path: job.session for job in jobs}.values():
            journal.take(session, "python -m platforms cancel")
    return int(bool(left or unsure))


# --- all of them -----------------------------------------------------------------------------------------------------


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs-dir", metavar="DIR", default=str(checkout.ROOT / "runs"), help="default: runs/")


def _runs(options: argparse.Namespace) -> Path:
    return Path(options.runs_dir)


def _refuse_lives(run_id: str, jobs: Sequence[Known]) -> None:
    for session in {job.session.path: job.session for job in jobs}.values():
        if journal.lives(session):
            raise RefusedError(f"run {run_id} is under way in {session}: end that session first (kill -INT, or Ctrl-C)")
