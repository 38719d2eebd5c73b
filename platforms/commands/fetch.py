"""`python -m platforms fetch`: brings the logs of a run's jobs into its folder."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path

from platforms import checkout
from platforms.commands import find_run
from platforms.commands.find_run import TypedOptions
from platforms.commands.job_records import RecordedJob, SchedulerPool, recorded_jobs
from platforms.commands.log_reading import LogReading
from platforms.commands.logs import logs_reader, notify, sole_writer
from platforms.job import BenchError
from platforms.rundir import job_folder, locks, session_history, session_liveness


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="a run, or latest (default: the last one that is not finished)"
    )
    find_run.add_runs_dir(parser)


def main(options: argparse.Namespace) -> int:
    """Bring the logs of a run's jobs into its folder, as far as they are written; `pytest --resume` reads on there.

    Returns 1 where a log could not be read to its end.
    """
    runs = find_run.runs_folder(options)
    schedulers = SchedulerPool(checkout.site_folder(options.site))
    typed = TypedOptions.of(options)
    run_id = _default_run(runs) if options.run is None else find_run.named(runs, options.run)
    sessions = [session for session in session_history.read_sessions(runs / run_id) if session.open]
    if not sessions:
        recorded_jobs(runs, run_id)  # raises where no session of the run can be read
        print(f"run {run_id} has ended, so there is nothing to fetch: its logs and results are in {runs / run_id}")
        return 0
    living = {session.path: session for session in sessions if session_liveness.seems_alive(session)}
    for session in living.values():
        print(
            f"run {run_id} is under way in {session}, which brings the logs of its jobs itself: they are in "
            f"{runs / run_id}; {typed.command(f'logs -f JOB --run={run_id}')} shows one as it grows"
        )
    jobs = [
        job
        for job in recorded_jobs(runs, run_id)
        if job.open and job.submitted is not None and job.session.path not in living
    ]
    if not jobs and not living:
        print(f"run {run_id} has no job at a scheduler of which a log could come: {typed.resume(run_id)} goes on")
    if not jobs:
        return 0
    incomplete = 0
    with contextlib.ExitStack() as locked:  # until we end, because a scheduler's threads write until then
        for name in dict.fromkeys(job.platform for job in jobs):
            jobs_there = [job for job in jobs if job.platform == name]
            problems = _fetch(schedulers, name, jobs_there, locked, typed)
            for job in jobs_there:
                log = job.folder / "log"
                line = f"{job.name} on {name}: {_size(log)} bytes in {log}"
                if problems[job]:
                    incomplete += 1
                    line += f", and not all of it: {problems[job]}"
                print(line)
    print(f"{len(jobs) - incomplete} of {len(jobs)} logs; the results: {typed.resume(run_id)}")
    return int(incomplete > 0)


def _default_run(runs: Path) -> str:
    """The last unfinished run that no living session works on, else the last unfinished one, else the last one.

    Raises RefusedError where there is no run.
    """
    unfinished, unreadable = find_run.unfinished(runs)
    for reason in unreadable:
        notify(reason)
    for run_id in unfinished:
        sessions = session_history.read_sessions(runs / run_id)
        if any(session.open and not session_liveness.seems_alive(session) for session in sessions):
            return run_id
    return unfinished[0] if unfinished else find_run.latest(runs)


def _fetch(
    schedulers: SchedulerPool,
    name: str,
    jobs: Sequence[RecordedJob],
    locked: contextlib.ExitStack,
    typed: TypedOptions,
) -> dict[RecordedJob, str]:
    """Fetch the logs of one platform's jobs. Returns for each why it is incomplete, empty where it is complete."""
    problems = dict.fromkeys(jobs, "")
    job_of: dict[LogReading, RecordedJob] = {}
    error_text = ""
    try:
        reader = logs_reader(schedulers, name, jobs, typed, follow=False)
        log_in_folder = schedulers.scheduler(name).log_in_folder
        for job in jobs:
            assert job.submitted is not None
            try:
                locked.enter_context(sole_writer(job))
            except locks.Taken as holder:
                problems[job] = f"{holder} is bringing it just now"
                continue
            offset = 0 if log_in_folder else _size(job.folder / "log")
            job_of[LogReading(job.submitted, offset)] = job
        for reading, chunk in reader.read(list(job_of)):
            if not log_in_folder:
                job_folder.write_log_chunk(job_of[reading].folder / "log", chunk, reading.offset - len(chunk))
    except (BenchError, OSError) as error:
        error_text = str(error)
    for reading, job in job_of.items():
        problems[job] = reading.problem or ("" if reading.done else error_text)
    unread = set(jobs).difference(job_of.values())
    for job in unread:
        problems[job] = problems[job] or error_text
    return problems


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
