"""What lies in runs/: which folders of runs are old enough to go, why the others stay, what those need elsewhere."""

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
from platforms.rundir.retention import Leftover, NeededJobs, Retention
from platforms.schedulers import supervisor

PINNED = "pinned"  # a file in a run's folder; what it says is why
ARCHIVES = "archives"  # of code
TEXTS = ("job.sh", "manifest.yaml", "run.json")  # of a job, and which may name its code
# What reading the record of a run may raise that somebody else has, or that is not whole.
UNREADABLE = (OSError, RefusedError, AttributeError, KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class Found:
    """What a folder of runs holds. `broken` are runs that a killed prune was at; `foreign` folders are no runs'; `stay`
    are the folders of both that stay."""

    runs: Sequence[Leftover]
    broken: Sequence[str]
    foreign: Sequence[str]
    stay: Sequence[Path]


def look(runs: Path, keep: Retention, only: str | None = None) -> Found:
    """Everything in it, or what belongs to one run. Raises RefusedError where it cannot be read."""
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
    found = [run(runs / name, keep, now_s) for name in names if name not in foreign and only in (None, name)]
    stay = [runs / name for name in names if name not in {each.name for each in found if each.goes}]
    return Found(found, [name for name in broken if only in (None, name)], foreign, stay)


def run(folder: Path, keep: Retention, now_s: float) -> Leftover:
    """A run's folder, by its name. What cannot be read stays."""
    try:
        size_bytes, changed_s = _measured(folder)
    except OSError as error:
        return Leftover(folder.name, 0.0, 0, f"it cannot be read: {error}")
    left = Leftover(folder.name, now_s - changed_s, size_bytes)
    if why := needed(folder):
        return replace(left, stays=why)
    if keep.young(left.age_s):
        return replace(left, young=True)
    return replace(left, stays=keep.failed(left.age_s, _wrong(folder)))


def needed_jobs(runs: Path) -> NeededJobs:
    """What must stay since somebody goes on with a run, or has pinned it, or since a run cannot be read."""
    jobs: dict[str, str] = {}
    unread: dict[str, str] = {}
    for folder in sorted(runs.iterdir()) if runs.is_dir() else ():
        if not may_be_run(folder):
            continue
        try:
            _refuse_unread(folder)
            if why := _needed(folder):
                jobs |= dict.fromkeys(_job_names(folder), f"run {folder.name}: {why}")
        except UNREADABLE as error:
            unread[folder.name] = _told(error)
    return NeededJobs(jobs, unread)


def may_be_run(folder: Path) -> bool:
    """A folder, and no link, that is none of ours."""
    ours = folder.name in session_history.NO_RUNS or folder.name.startswith(".")
    return not ours and folder.is_dir() and not folder.is_symlink()


def _is_run(folder: Path) -> bool:
    """A session has begun in it, or a job. One that cannot be read is said to be so when it is looked at."""
    try:
        return any(path.name == session_history.FOLDER or _is_job(path) for path in folder.iterdir())
    except OSError:
        return True


def _is_job(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("submitted.json", *TEXTS))


def _measured(folder: Path) -> tuple[int, float]:
    """The bytes in it, and when a file of it was last changed. Raises OSError."""
    size_bytes, changed_s = 0, 0.0
    for path, _folders, files in os.walk(folder, onerror=_raise):
        for name in files:
            with contextlib.suppress(FileNotFoundError):  # a draft of a session that lives
                info = os.lstat(os.path.join(path, name))  # noqa: PTH118 (thousands of them)
                size_bytes, changed_s = size_bytes + info.st_size, max(changed_s, info.st_mtime)
    return size_bytes, changed_s or folder.stat().st_mtime


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def needed(folder: Path) -> str:
    """Why a run stays whatever its age; empty when it need not."""
    try:
        _refuse_unread(folder)
        return _needed(folder)
    except UNREADABLE as error:
        return f"the record of its sessions cannot be read: {_told(error)}"


def _needed(folder: Path) -> str:
    """Raises what UNREADABLE names."""
    if os.path.lexists(folder / PINNED):
        return f"pinned: {why}" if (why := _first_line(folder / PINNED)) else "pinned"
    past = [session for session in session_history.sessions(folder) if session.open]
    for session in past:
        if session_liveness.lives(session):
            return f"under way in {session}"
    if past:
        name, typed = folder.name, find_run.TypedOptions.of_runs(folder.parent)
        return f"unfinished: {typed.resume(name)} goes on with it, {typed.command(f'cancel {name}')} ends it"
    running = next((job.name for job in jobs_of(folder) if _runs(job)), None)
    return f"{running} still runs, or on a machine that cannot be seen from here" if running else ""


def _refuse_unread(folder: Path) -> None:
    """Raises what UNREADABLE names where something that may be needed cannot be seen: a folder, a session's record."""
    sessions = folder / session_history.FOLDER
    for path in (folder, *jobs_of(folder), *([sessions] if sessions.exists() else ())):
        os.scandir(path).close()
        os.stat(os.path.join(path, "."))  # noqa: PTH116, PTH118 (it can be entered; a Path forgets the dot)
    session_history.sessions(folder)


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, OSError | RefusedError) else repr(error)


def _first_line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip().partition("\n")[0][:80]
    except OSError:
        return ""


def _runs(job: Path) -> bool:
    """Whether a job of the scheduler local goes on. One on another machine does until its end is known here."""
    record = supervisor.read_json(str(job / "pid"))
    if record is None or (job / "exit").exists():
        return False
    try:
        alive = supervisor.alive(record)
    except (KeyError, TypeError, ValueError):
        return True
    return not (job / "run.json").exists() if alive is None else alive


def _wrong(folder: Path) -> str:
    """What of a run is not as it should be. A run that got slower belongs here, too, once runs are compared."""
    outcomes = [job_json.read_json(job / "run.json").get("outcome", "without a result") for job in jobs_of(folder)]
    wrong = [str(outcome) for outcome in outcomes if outcome != Outcome.PASSED]
    return f"{len(wrong)} of {len(outcomes)} {', '.join(sorted(set(wrong)))}" if wrong else ""


def jobs_of(folder: Path) -> list[Path]:
    """The folders of a run's jobs."""
    jobs = [path for path in folder.iterdir() if path.name != session_history.FOLDER]
    return sorted(path for path in jobs if path.is_dir() and not path.is_symlink())


def _job_names(folder: Path) -> Iterator[str]:
    """What its jobs are called at their schedulers. Raises what UNREADABLE names."""
    for session in session_history.sessions(folder):
        yield from (str(line["name"]) for line in session.states.values() if "name" in line)
    for job in jobs_of(folder):
        yield from (str(found["name"]) for found in _records(job) if "name" in found)


def _records(job: Path) -> Iterator[Mapping[str, object]]:
    yield from (job_json.read_json(job / name) for name in ("submitted.json", "run.json"))
