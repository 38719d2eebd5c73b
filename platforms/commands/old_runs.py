"""Decides which run folders in runs/ are old enough to be archived, and why the others stay."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from platforms.commands import find_run
from platforms.job import Outcome, RefusedError
from platforms.rundir import job_json, run_archive, session_history, session_liveness
from platforms.rundir.accepted_runs import AcceptedRuns
from platforms.rundir.retention import Leftover, NeededJobs, Retention
from platforms.schedulers import supervisor

PINNED = "pinned"  # a file in a run's folder; its first line says why the run stays
ARCHIVES = "archives"  # the folder of code archives
TEXTS = ("job.sh", "manifest.yaml", "run.json")  # files of a job that may name its code archive
# What reading a run may raise that belongs to another user, or that is incomplete.
UNREADABLE = (OSError, RefusedError, AttributeError, KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class RunsFolder:
    """What a folder of runs holds.

    Attributes:
        runs: the runs, some of which go.
        broken: runs whose removal an earlier prune began and did not finish.
        foreign: folders that are not runs.
        staying: the folders, of runs and others, that stay.
    """

    runs: Sequence[Leftover]
    broken: Sequence[str]
    foreign: Sequence[str]
    staying: Sequence[Path]


def look(runs: Path, retention: Retention, only: str | None = None) -> RunsFolder:
    """List a folder of runs; with `only` just that run. Raises RefusedError where the folder cannot be read."""
    now_s = time.time()
    try:
        names = sorted(path.name for path in runs.iterdir() if may_be_run(path))
        going = runs / run_archive.GOING
        broken = sorted(path.name for path in going.iterdir()) if going.is_dir() else []
    except OSError as error:
        raise RefusedError(f"{runs} cannot be read: {error} (--runs-dir names another folder)") from None
    if only is not None and only not in (*names, *broken):
        raise RefusedError(find_run.missing(runs, only))
    foreign = [name for name in names if not _is_run(runs / name)]
    chosen = [name for name in names if name not in foreign and only in (None, name)]
    listed = [run_leftover(runs / name, retention, now_s) for name in chosen]
    going_names = {leftover.name for leftover in listed if leftover.goes}
    staying = [runs / name for name in names if name not in going_names]
    return RunsFolder(listed, [name for name in broken if only in (None, name)], foreign, staying)


def run_leftover(folder: Path, retention: Retention, now_s: float) -> Leftover:
    """One run's folder, and whether it goes. A folder that cannot be read stays."""
    try:
        size_bytes, changed_s = _size_and_last_change(folder)
    except OSError as error:
        return Leftover(folder.name, 0.0, 0, f"it cannot be read: {error}")
    leftover = Leftover(folder.name, now_s - changed_s, size_bytes)
    reason = why_needed(folder) or retention.accepted.why_kept(folder.name)
    if reason:
        return replace(leftover, stays=reason)
    if retention.young(leftover.age_s):
        return replace(leftover, young=True)
    return replace(leftover, stays=retention.failed(leftover.age_s, _failures(folder)))


def needed_jobs(runs: Path, accepted: AcceptedRuns) -> NeededJobs:
    """The jobs whose leftovers on platforms must stay, because their run is unfinished, pinned or accepted.

    Runs that cannot be read are listed as such: any job might be theirs.
    """
    jobs: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    folders = sorted(runs.iterdir()) if runs.is_dir() else []
    for folder in folders:
        if not may_be_run(folder):
            continue
        try:
            _refuse_unreadable(folder)
            reason = _why_needed(folder) or accepted.why_kept(folder.name)
            if reason:
                for name in _job_names(folder):
                    jobs[name] = f"run {folder.name}: {reason}"
        except UNREADABLE as error:
            unreadable[folder.name] = _message(error)
    return NeededJobs(jobs, unreadable)


def may_be_run(folder: Path) -> bool:
    """Whether a path may be a run: a real folder, and none of those that lie beside the runs."""
    if folder.name in session_history.NOT_RUNS or folder.name.startswith("."):
        return False
    return folder.is_dir() and not folder.is_symlink()


def _is_run(folder: Path) -> bool:
    """Whether a session or a job has begun in the folder. One that cannot be read counts, and is reported later."""
    try:
        return any(path.name == session_history.FOLDER or _is_job(path) for path in folder.iterdir())
    except OSError:
        return True


def _is_job(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("submitted.json", *TEXTS))


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


def why_needed(folder: Path) -> str:
    """Why a run stays whatever its age; empty when it may go."""
    try:
        _refuse_unreadable(folder)
        return _why_needed(folder)
    except UNREADABLE as error:
        return f"the record of its sessions cannot be read: {_message(error)}"


def _why_needed(folder: Path) -> str:
    """As why_needed, but raises what UNREADABLE names."""
    if os.path.lexists(folder / PINNED):
        reason = _first_line(folder / PINNED)
        return f"pinned: {reason}" if reason else "pinned"
    unfinished = [session for session in session_history.read_sessions(folder) if session.open]
    for session in unfinished:
        if session_liveness.seems_alive(session):
            return f"under way in {session}"
    if unfinished:
        run_id = folder.name
        typed = find_run.TypedOptions.of_runs(folder.parent)
        return f"unfinished: {typed.resume(run_id)} goes on with it, {typed.command(f'cancel {run_id}')} ends it"
    for job in jobs_of(folder):
        if _may_run(job):
            return f"{job.name} still runs, or on a machine that cannot be seen from here"
    return ""


def _refuse_unreadable(folder: Path) -> None:
    """Raise what UNREADABLE names where a part of a run cannot be seen: a job's folder, or a session's record."""
    folders = [folder, *jobs_of(folder)]
    if (folder / session_history.FOLDER).exists():
        folders.append(folder / session_history.FOLDER)
    for path in folders:
        os.scandir(path).close()
        os.stat(os.path.join(path, "."))  # noqa: PTH116, PTH118 (whether we may enter it; a Path drops the dot)
    session_history.read_sessions(folder)


def _message(error: Exception) -> str:
    return str(error) if isinstance(error, OSError | RefusedError) else repr(error)


def _first_line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip().partition("\n")[0][:80]
    except OSError:
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
    outcomes = [job_json.read_json(job / "run.json").get("outcome", "without a result") for job in jobs_of(folder)]
    failures = [str(outcome) for outcome in outcomes if outcome != Outcome.PASSED]
    if not failures:
        return ""
    return f"{len(failures)} of {len(outcomes)} {', '.join(sorted(set(failures)))}"


def jobs_of(folder: Path) -> list[Path]:
    """The folders of a run's jobs."""
    folders = [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    return sorted(path for path in folders if path.name != session_history.FOLDER)


def _job_names(folder: Path) -> Iterator[str]:
    """What the jobs of a run are called at their schedulers. Raises what UNREADABLE names."""
    entries: list[Mapping[str, object]] = []
    for session in session_history.read_sessions(folder):
        entries.extend(session.states.values())
    for job in jobs_of(folder):
        entries.append(job_json.read_json(job / "submitted.json"))
        entries.append(job_json.read_json(job / "run.json"))
    for entry in entries:
        if "name" in entry:
            yield str(entry["name"])
