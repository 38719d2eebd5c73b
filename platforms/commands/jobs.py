"""`python -m platforms jobs`: the jobs of runs, as their sessions and their schedulers tell."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from platforms import checkout
from platforms.commands import find_run
from platforms.commands.find_run import Typed
from platforms.commands.job_records import SchedulerPool, recorded_jobs
from platforms.commands.output import print_errors
from platforms.job import setting_of
from platforms.printable import printable
from platforms.rundir import session_history, session_liveness


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Options of `jobs`."""
    parser.add_argument("run", metavar="RUN", nargs="?", help="a run, or latest (default: those that are not finished)")
    find_run.add_folder(parser)


def show(options: argparse.Namespace) -> int:
    """A line a job, as its session tells it, or, where none lives, as its scheduler does. Returns 1 where a run cannot
    be read, or a platform cannot be asked."""
    runs, places, typed = find_run.folder(options), SchedulerPool(checkout.site_folder(options.site)), Typed.of(options)
    if options.run is not None:
        return _told(_show_run(runs, find_run.named(runs, options.run), places, typed))
    names, unread = find_run.unfinished(runs)
    silent: dict[str, str] = {}
    for name in names:
        silent |= _show_run(runs, name, places, typed)
    if not (names or unread):
        more = f"`{typed.command('jobs latest')}` shows the last one, and jobs RUN any other"
        some = f"no run in {runs} is unfinished; {more}"
        print(some if session_history.recorded(runs) else find_run.none_yet(runs))
    return _told(silent, *unread)


def _told(silent: dict[str, str], *unread: str) -> int:
    sys.stdout.flush()  # what is wrong comes last
    return print_errors([*unread, *(f"{name} cannot be asked: {why}" for name, why in silent.items())])


def _show_run(runs: Path, name: str, places: SchedulerPool, typed: Typed) -> dict[str, str]:
    """Returns which platforms cannot be asked, and why."""
    jobs = recorded_jobs(runs, name)
    left = [session for session in session_history.sessions(runs / name) if session.open]
    live = {session.path: session for session in left if session_liveness.lives(session)}
    asked, silent = places.states([job for job in jobs if job.open and job.session.path not in live])
    state = f"left unfinished: {typed.resume(name)}" if left else "ended"
    print(f"run {printable(name)}, " + next((f"under way in {session}" for session in live.values()), state))
    for job in jobs:
        now = str(job.ended) if job.ended is not None else asked.get(job, job.told)
        at = f" ({job.submitted.job_id})" if job.submitted is not None and job.ended is None else ""
        what = " ".join(filter(None, (job.name, setting_of(job.test))))
        print(f"  {what} on {job.platform}{at}: {now}")
    if not jobs:
        print("  no job of it has begun")
    return silent
