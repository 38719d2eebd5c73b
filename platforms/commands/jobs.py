"""`python -m platforms jobs`: shows the jobs of runs, as their sessions and their schedulers report them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from platforms import checkout
from platforms.commands import find_run
from platforms.commands.find_run import TypedOptions
from platforms.commands.job_records import SchedulerPool, recorded_jobs
from platforms.job import setting_of
from platforms.output import print_errors
from platforms.printable import printable
from platforms.rundir import session_history, session_liveness


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help="a run, or latest (default: those that are not finished)")
    find_run.add_runs_dir(parser)


def main(options: argparse.Namespace) -> int:
    """Print a line for each job: what its session wrote down, or, without a living session, what its scheduler says.

    Returns 1 where a run cannot be read, or a platform cannot be asked.
    """
    runs = find_run.runs_folder(options)
    schedulers = SchedulerPool(checkout.site_folder(options.site))
    typed = TypedOptions.of(options)
    if options.run is not None:
        silent = _print_run(runs, find_run.named(runs, options.run), schedulers, typed)
        return _report_problems(silent, [])
    run_ids, unreadable = find_run.unfinished(runs)
    silent = {}
    for run_id in run_ids:
        silent.update(_print_run(runs, run_id, schedulers, typed))
    if not run_ids and not unreadable:
        if session_history.runs_with_sessions(runs):
            more = f"`{typed.command('jobs latest')}` shows the last one, and jobs RUN any other"
            print(f"no run in {runs} is unfinished; {more}")
        else:
            print(find_run.none_yet(runs))
    return _report_problems(silent, unreadable)


def _report_problems(silent: dict[str, str], unreadable: list[str]) -> int:
    """Print what went wrong, after everything else. Returns the exit code."""
    sys.stdout.flush()
    return print_errors([*unreadable, *(f"{name} cannot be asked: {reason}" for name, reason in silent.items())])


def _print_run(runs: Path, run_id: str, schedulers: SchedulerPool, typed: TypedOptions) -> dict[str, str]:
    """Print a run and its jobs. Returns which platforms cannot be asked, and why."""
    jobs = recorded_jobs(runs, run_id)
    unfinished = [session for session in session_history.read_sessions(runs / run_id) if session.open]
    living = {session.path: session for session in unfinished if session_liveness.seems_alive(session)}
    if living:
        state = f"under way in {next(iter(living.values()))}"
    elif unfinished:
        state = f"left unfinished: {typed.resume(run_id)}"
    else:
        state = "ended"
    lines = [f"run {printable(run_id)}, {state}"]
    states, silent = schedulers.states([job for job in jobs if job.open and job.session.path not in living])
    for job in jobs:
        title = " ".join(filter(None, (job.name, setting_of(job.test))))
        if job.ended is not None:
            lines.append(f"  {title} on {job.platform}: {job.ended}")
            continue
        job_id = "" if job.submitted is None else f" ({job.submitted.job_id})"
        lines.append(f"  {title} on {job.platform}{job_id}: {states.get(job, job.last_state)}")
    if not jobs:
        lines.append("  no job of it has begun")
    print("\n".join(lines))
    return silent
