"""Which run folders in runs/ are old enough to be archived, why the others stay, and which jobs they still need."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from platforms.commands import find_run
from platforms.job import Outcome, RefusedError
from platforms.rundir import job_json, session_history, session_liveness
from platforms.rundir.accepted_runs import read_accepted_runs
from platforms.rundir.open_reds import read_open_reds
from platforms.rundir.retention import Leftover
from platforms.schedulers import supervisor

PINNED = "pinned"  # a file in a run's folder; its first line says why the run stays
# What reading a run may raise that belongs to another user, or that is incomplete.
UNREADABLE = (OSError, RefusedError, AttributeError, KeyError, TypeError, ValueError)


def named_runs(runs: Path, site: Path, history: Path) -> dict[str, str]:
    """The runs that stay because of their numbers, and why: an answer of the site's people names them, or a red does.

    Raises RefusedError where an answer or the history cannot be read, since any run may be named there.
    """
    answers = read_accepted_runs(site)
    open_reds = read_open_reds(history)
    named: dict[str, str] = {}
    for run_id in session_history.runs_with_sessions(runs):
        why = answers.why_kept(run_id)
        if run_id in open_reds:
            why = f"{open_reds[run_id]} is still red, and was red in this run"
        if why:
            named[run_id] = why
    return named


def find(runs: Path) -> list[Leftover]:
    """The folders of runs. Raises RefusedError where they cannot be listed."""
    return [_leftover(runs / name) for name in session_history.runs_with_sessions(runs)]


def needed_jobs(runs: Path, named: Mapping[str, str]) -> dict[str, str]:
    """The jobs whose leftovers on platforms must stay, and why: their run is unfinished, pinned or named.

    Raises RefusedError where a run cannot be read, since any job may be its.
    """
    jobs: dict[str, str] = {}
    for run_id in session_history.runs_with_sessions(runs):
        try:
            reason = _why_needed(runs / run_id) or named.get(run_id)
            if reason:
                for name in _job_names(runs / run_id):
                    jobs[name] = f"run {run_id}: {reason}"
        except UNREADABLE as error:
            raise RefusedError(f"run {run_id} cannot be read, so it is not known what it needs: {error}") from None
    return jobs


def why_needed(folder: Path) -> str:
    """Why a run stays whatever its age; empty when it may go."""
    try:
        return _why_needed(folder)
    except UNREADABLE as error:
        return f"it cannot be read: {error}"


def _leftover(folder: Path) -> Leftover:
    """One run's folder. A folder that cannot be read stays."""
    try:
        size_bytes, changed_s = _size_and_last_change(folder)
        failures = _failures(folder)
    except OSError as error:
        return Leftover(folder.name, 0.0, folder.name, stays=f"it cannot be read: {error}")
    age_s = time.time() - changed_s
    return Leftover(folder.name, age_s, folder.name, size_bytes, stays=why_needed(folder), unsuccessful=failures)


def _size_and_last_change(folder: Path) -> tuple[int, float]:
    """The bytes in a folder, and when one of its files changed last, in Unix seconds. Raises OSError."""
    size_bytes = 0
    changed_s = 0.0
    for path, _folders, files in os.walk(folder, onerror=_raise):
        for name in files:
            with contextlib.suppress(FileNotFoundError):  # a living session removes its drafts
                info = os.lstat(os.path.join(path, name))  # noqa: PTH118 (there may be thousands)
                size_bytes += info.st_size
                changed_s = max(changed_s, info.st_mtime)
    return size_bytes, changed_s or folder.stat().st_mtime


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _why_needed(folder: Path) -> str:
    """As why_needed, but raises what UNREADABLE names."""
    if os.path.lexists(folder / PINNED):
        reason = (folder / PINNED).read_text(errors="replace").strip().partition("\n")[0][:80]
        return f"pinned: {reason}".removesuffix(": ")
    unfinished = [session for session in session_history.read_sessions(folder) if session.open]
    for session in unfinished:
        if session_liveness.seems_alive(session):
            return f"under way in {session}"
    if unfinished:
        run_id = folder.name
        typed = find_run.TypedOptions.of_runs(folder.parent)
        return f"unfinished: {typed.resume(run_id)} goes on with it, {typed.command(f'cancel {run_id}')} ends it"
    for job in _job_folders(folder):
        if _may_run(job):
            return f"{job.name} still runs, or on a machine that cannot be seen from here"
    return ""


def _may_run(job: Path) -> bool:
    """Whether a job under our supervisor goes on. One on another machine does until its end is known here."""
    record = supervisor.read_json(str(job / "pid"))
    if record is None or (job / "exit").exists():
        return False
    try:
        alive = supervisor.alive(record)
    except (KeyError, TypeError, ValueError):
        return True
    if alive is None:
        return not (job / "run.json").exists()
    return alive


def _failures(folder: Path) -> str:
    """How many jobs of a run did not pass, and how they ended; empty when all passed."""
    jobs = _job_folders(folder)
    outcomes = [job_json.read_json(job / "run.json").get("outcome", "without a result") for job in jobs]
    failures = [str(outcome) for outcome in outcomes if outcome != Outcome.PASSED]
    if not failures:
        return ""
    return f"{len(failures)} of {len(outcomes)} {', '.join(sorted(set(failures)))}"


def _job_folders(folder: Path) -> Sequence[Path]:
    """The folders of a run's jobs. Raises OSError where one of them cannot be looked into."""
    folders = [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    for path in folders:
        os.stat(path / ".")  # noqa: PTH116 (whether we may enter it; a Path drops the dot)
        os.scandir(path).close()
    return sorted(path for path in folders if path.name != session_history.FOLDER)


def _job_names(folder: Path) -> Iterator[str]:
    """What the jobs of a run are called at their schedulers. Raises what UNREADABLE names."""
    entries: list[Mapping[str, object]] = []
    for session in session_history.read_sessions(folder):
        entries.extend(session.states.values())
    for job in _job_folders(folder):
        entries.append(job_json.read_json(job / "submitted.json"))
        entries.append(job_json.read_json(job / "run.json"))
    for entry in entries:
        if "name" in entry:
            yield str(entry["name"])
