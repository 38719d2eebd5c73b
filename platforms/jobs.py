"""`python -m platforms jobs | cancel`: the jobs of runs, looked at and ended without pytest."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from platforms import checkout, journal, which_run
from platforms.job import BenchError, RefusedError
from platforms.journal import Past
from platforms.keeping import shown
from platforms.recorded import Known, Places, known, on

# --- jobs ------------------------------------------------------------------------------------------------------------


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Options of `jobs`."""
    parser.add_argument("run", metavar="RUN", nargs="?", help="a run, or latest (default: those that are not finished)")
    which_run.add_folder(parser)


def show(options: argparse.Namespace) -> int:
    """A line a job, as its session tells it, or, where none lives, as its scheduler does. Returns 1 where a run cannot
    be read."""
    runs, places = which_run.folder(options), Places(checkout.site_folder(options.site))
    if options.run:
        _show_run(runs, which_run.named(runs, options.run), places)
        return 0
    names, unread = which_run.unfinished(runs)
    for name in names:
        _show_run(runs, name, places)
    for why in unread:
        print(f"error: {why}", file=sys.stderr)
    if not (names or unread):
        more = "`python -m platforms jobs latest` shows the last one, and jobs RUN any other"
        some = f"no run in {runs} is unfinished; {more}"
        print(some if journal.recorded(runs) else which_run.none_yet(runs))
    return int(bool(unread))


def _show_run(runs: Path, name: str, places: Places) -> None:
    jobs = known(runs, name)
    left = [session for session in journal.sessions(runs / name) if session.open]
    live = {session.path: session for session in left if journal.lives(session)}
    asked = places.states([job for job in jobs if job.open and job.session.path not in live])
    state = f"left unfinished: pytest --resume={name}" if left else "ended"
    print(f"run {shown(name)}, " + next((f"under way in {session}" for session in live.values()), state))
    for job in jobs:
        now = str(job.ended) if job.ended is not None else asked.get(job, job.told)
        at = f" ({job.submitted.job_id})" if job.submitted is not None and job.ended is None else ""
        print(f"  {job.name} on {job.platform}{at}: {now}")
    if not jobs:
        print("  no job of it has begun")


# --- cancel ----------------------------------------------------------------------------------------------------------


def add_cancel(parser: argparse.ArgumentParser) -> None:
    """Options of `cancel`."""
    parser.add_argument("run", metavar="RUN", help="a run that its session has left unfinished, or latest")
    parser.add_argument("--platform", action="append", metavar="NAME", help="only its jobs there (repeatable)")
    which_run.add_folder(parser)


def cancel(options: argparse.Namespace) -> int:
    """End what is left of a run, and see that it is gone; then the run has ended. Returns 1 where something is left."""
    runs, places = which_run.folder(options), Places(checkout.site_folder(options.site))
    run_id = which_run.named(runs, options.run)
    all_jobs = [job for job in known(runs, run_id) if job.open]
    sessions = [session for session in journal.sessions(runs / run_id) if session.open]
    if not sessions:
        print(f"run {run_id} had ended before: nothing of it is left to be ended")
        return 0
    refuse_lives(run_id, sessions)
    jobs = on(all_jobs, options.platform, run_id)
    left = [job for name in dict.fromkeys(job.platform for job in jobs) for job in _ended(places, name, jobs)]
    unsure = [job.name for job in jobs if job.submitted is None and job.asked]
    if unsure:
        print(f"nobody knows whether these were submitted: {', '.join(unsure)}; pytest --resume={run_id} finds out")
    if others := len(all_jobs) - len(jobs):
        print(f"{others} jobs elsewhere are left alone: run {run_id} is not finished")
    if left:
        print(f"run {run_id} has not ended: python -m platforms cancel {run_id} tries again")
    if left or unsure or others:
        return int(bool(left or unsure))
    return _close(run_id, sessions)


def _ended(places: Places, name: str, jobs: Sequence[Known]) -> list[Known]:
    """End the jobs of one platform. Returns those that cannot be seen to be gone."""
    here = {job.submitted.job_id: job for job in jobs if job.platform == name and job.submitted is not None}
    try:
        remains = places.scheduler(name).cancel([job.submitted for job in here.values() if job.submitted])
    except BenchError as error:
        remains = dict.fromkeys(here, str(error))
    for job_id, job in here.items():
        print(f"{job.name} on {name}: {remains.get(job_id, 'gone')}", flush=True)
    return [job for job_id, job in here.items() if job_id in remains]


def _close(run_id: str, sessions: Sequence[Past]) -> int:
    taken = [journal.take(session, "python -m platforms cancel") for session in sessions]
    if all(taken):
        print(f"run {run_id} has ended")
        return 0
    print(f"run {run_id} is gone on with since a moment ago: python -m platforms jobs {run_id}")
    return 1


def refuse_lives(run_id: str, sessions: Sequence[Past]) -> None:
    """Raises RefusedError where a session of the run goes on."""
    for session in sessions:
        if journal.lives(session):
            raise RefusedError(f"run {run_id} is under way in {session}: end that session first (kill -INT, or Ctrl-C)")
