"""`python -m platforms fetch`: the logs of jobs brought into the folders of their run."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path

from platforms import checkout
from platforms.commands import find_run
from platforms.commands.find_run import Typed
from platforms.commands.job_records import RecordedJob, SchedulerPool, recorded_jobs
from platforms.commands.log_reading import Reading
from platforms.commands.logs import alone, reader_of, tell
from platforms.job import BenchError
from platforms.rundir import job_folder, locks, session_history, session_liveness


def add_fetch(parser: argparse.ArgumentParser) -> None:
    """Options of `fetch`."""
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="a run, or latest (default: the last one that is not finished)"
    )
    find_run.add_folder(parser)


def fetch(options: argparse.Namespace) -> int:
    """Bring the logs of a run's jobs into its folder, as far as they are written; `pytest --resume` reads on there.
    Returns 1 where one could not be had."""
    runs, places, typed = find_run.folder(options), SchedulerPool(checkout.site_folder(options.site)), Typed.of(options)
    run_id = _to_fetch(runs) if options.run is None else find_run.named(runs, options.run)
    sessions = [session for session in session_history.sessions(runs / run_id) if session.open]
    if not sessions:
        return _has_ended(runs, run_id)
    live = {session.path: session for session in sessions if session_liveness.lives(session)}
    for session in live.values():
        logs = f"they are in {runs / run_id}; {typed.command(f'logs -f JOB --run={run_id}')} shows one as it grows"
        print(f"run {run_id} is under way in {session}, which brings the logs of its jobs itself: {logs}")
    jobs = [job for job in recorded_jobs(runs, run_id) if job.open and job.submitted is not None]
    jobs = [job for job in jobs if job.session.path not in live]
    if not jobs:
        if not live:
            print(f"run {run_id} has no job at a scheduler of which a log could come: {typed.resume(run_id)} goes on")
        return 0
    problems = 0
    with contextlib.ExitStack() as locked:  # a scheduler's threads write until we end
        for name in dict.fromkeys(job.platform for job in jobs):
            here = [job for job in jobs if job.platform == name]
            for job, problem in _fetched(places, name, here, locked, typed).items():
                problems += bool(problem)
                so_far = f"{_size(job.folder / 'log')} bytes in {job.folder / 'log'}"
                print(f"{job.name} on {name}: {so_far}" + (f", and not all of it: {problem}" if problem else ""))
    print(f"{len(jobs) - problems} of {len(jobs)} logs; the results: {typed.resume(run_id)}")
    return int(bool(problems))


def _to_fetch(runs: Path) -> str:
    """The last run that is unfinished, rather one that no session is at, or, to say so, the last one. Raises
    RefusedError where there is none."""
    names, unread = find_run.unfinished(runs)
    for why in unread:
        tell(why)
    return next((name for name in names if _is_left(runs / name)), names[0] if names else find_run.latest(runs))


def _is_left(run: Path) -> bool:
    return any(session.open and not session_liveness.lives(session) for session in session_history.sessions(run))


def _has_ended(runs: Path, run_id: str) -> int:
    """Also where no session of it can be read, which is refused."""
    recorded_jobs(runs, run_id)
    print(f"run {run_id} has ended, so there is nothing to fetch: its logs and results are in {runs / run_id}")
    return 0


def _fetched(
    places: SchedulerPool, name: str, jobs: Sequence[RecordedJob], locked: contextlib.ExitStack, typed: Typed
) -> dict[RecordedJob, str]:
    """Read logs of one platform's jobs on. Returns what went wrong with each, or nothing."""
    found: dict[Reading, RecordedJob] = {}
    wrong: dict[RecordedJob, str] = {}
    failed = ""
    try:
        reader, in_folder = reader_of(places, name, jobs, typed, follow=False), places.scheduler(name).log_in_folder
        for job in jobs:
            assert job.submitted is not None
            try:
                locked.enter_context(alone(job))
            except locks.Taken as other:
                wrong[job] = f"{other} is bringing it just now"
            else:
                found[Reading(job.submitted, 0 if in_folder else _size(job.folder / "log"))] = job
        for reading, chunk in reader.read(list(found)):
            if not in_folder:
                job_folder.write_log_chunk(found[reading].folder / "log", chunk, reading.offset - len(chunk))
    except (BenchError, OSError) as error:
        failed = str(error)
    wrong |= {job: reading.problem or ("" if reading.done else failed) for reading, job in found.items()}
    return {job: wrong.get(job, failed) for job in jobs}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
