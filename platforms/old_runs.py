"""What lies in runs/: which run folders and code archives are old enough to go, and why the others stay."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from platforms import journal, run_archive
from platforms.job import Outcome, RefusedError
from platforms.keeping import Keep, Left, shown
from platforms.runner import evidence
from platforms.schedulers import supervisor

PINNED = "pinned"  # a file in a run's folder; what it says is why
ARCHIVES = "archives"
CODE = re.compile(rb"(?:models|node-report)-[0-9a-f]{12}\.pyz?")
# of a session that was killed while it wrote one, or of a prune while it removed one
_DRAFT = re.compile(rb"\.(?:models|node-report)-[0-9a-f]{12}\.pyz?\.(?:\d+|going)")
_TEXTS = ("job.sh", "manifest.yaml", "run.json")  # of a job, and which may name its code


@dataclass(frozen=True)
class Found:
    """What a folder of runs holds. `broken` are runs that a killed prune was at; `foreign` folders are no runs'."""

    runs: Sequence[Left]
    code: Sequence[Left]
    broken: Sequence[str]
    foreign: Sequence[str]


def look(runs: Path, keep: Keep, only: str | None = None) -> Found:
    """Everything in it, or what belongs to one run. Raises RefusedError where it cannot be read."""
    now_s = time.time()
    try:
        names = sorted(path.name for path in runs.iterdir() if _may_be_run(path))
        going = runs / run_archive.GOING
        broken = sorted(path.name for path in going.iterdir()) if going.is_dir() else []
    except OSError as error:
        raise RefusedError(f"{runs} cannot be read: {error} (--runs-dir names another folder)") from None
    if only is not None and only not in (*names, *broken):
        raise RefusedError(f"there is no run {shown(only)} in {runs} (--runs-dir names another folder)")
    foreign = [name for name in names if not _is_run(runs / name)]
    found = [run(runs / name, keep, now_s) for name in names if name not in foreign and only in (None, name)]
    stay = [runs / name for name in names if name not in {each.name for each in found if each.goes}]
    code = _code(runs, keep, now_s, stay) if only is None else []
    return Found(found, code, [name for name in broken if only in (None, name)], foreign)


def run(folder: Path, keep: Keep, now_s: float) -> Left:
    """A run's folder, by its name. What cannot be read stays."""
    try:
        size_bytes, changed_s = _measured(folder)
    except OSError as error:
        return Left(folder.name, 0.0, 0, f"it cannot be read: {error}")
    left = Left(folder.name, now_s - changed_s, size_bytes)
    if why := needed(folder):
        return replace(left, stays=why)
    if keep.young(left.age_s):
        return replace(left, young=True)
    return replace(left, stays=keep.failed(left.age_s, _wrong(folder)))


def needed_jobs(runs: Path) -> dict[str, str]:
    """By name, the jobs whose folders on other machines must stay, and why: somebody goes on with their run, or has
    pinned it."""
    found: dict[str, str] = {}
    for folder in sorted(runs.iterdir()) if runs.is_dir() else ():
        if _may_be_run(folder) and (why := needed(folder)):
            found |= dict.fromkeys(_job_names(folder), f"run {folder.name}: {why}")
    return found


def take_code(runs: Path, name: str) -> None:
    """Remove a code archive, unless a run has begun meanwhile that needs it. Raises RefusedError."""
    path, aside = runs / ARCHIVES / name, runs / ARCHIVES / f".{name}.going"
    try:
        path.rename(aside)
        try:
            if any(os.fsencode(name) in _named(folder) for folder in runs.iterdir() if _may_be_run(folder)):
                raise RefusedError(f"{name} stays: a run that has just begun needs it")
        except BaseException:
            aside.rename(path)
            raise
        aside.unlink()
    except OSError as error:
        raise RefusedError(f"{path} cannot be removed: {error}") from None


def _may_be_run(folder: Path) -> bool:
    """A folder, and no link, that is none of ours."""
    ours = folder.name in (run_archive.OLD, ARCHIVES) or folder.name.startswith(".")
    return not ours and folder.is_dir() and not folder.is_symlink()


def _is_run(folder: Path) -> bool:
    """A session has begun in it, or a job."""
    try:
        marks = (journal.FOLDER, *(f"*/{name}" for name in ("submitted.json", *_TEXTS)))
        return any(next(folder.glob(mark), None) is not None for mark in marks)
    except OSError:
        return True  # which is said when it is looked at


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
    if os.path.lexists(folder / PINNED):
        return f"pinned: {why}" if (why := _first_line(folder / PINNED)) else "pinned"
    try:
        past = [session for session in journal.sessions(folder) if session.open]
        for session in past:
            if journal.lives(session):
                return f"under way in {session}"
    except (OSError, KeyError, TypeError, ValueError) as error:
        return f"the record of its sessions cannot be read: {error!r}"
    if past:
        name = folder.name
        return f"unfinished: pytest --resume={name} goes on with it, python -m platforms cancel {name} ends it"
    running = next((job.name for job in _jobs(folder) if _runs(job)), None)
    return f"{running} still runs, or on a machine that cannot be seen from here" if running else ""


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
    outcomes = [evidence.read_json(job / "run.json").get("outcome", "without a result") for job in _jobs(folder)]
    wrong = [str(outcome) for outcome in outcomes if outcome != Outcome.PASSED]
    return f"{len(wrong)} of {len(outcomes)} {', '.join(sorted(set(wrong)))}" if wrong else ""


def _jobs(folder: Path) -> list[Path]:
    """The folders of a run's jobs."""
    jobs = [path for path in folder.iterdir() if path.name != journal.FOLDER]
    return sorted(path for path in jobs if path.is_dir() and not path.is_symlink())


def _job_names(folder: Path) -> Iterator[str]:
    """What its jobs are called at their schedulers."""
    try:
        for session in journal.sessions(folder):
            yield from (str(line["name"]) for line in session.states.values() if "name" in line)
        for job in _jobs(folder):
            yield from (str(found["name"]) for found in _records(job) if "name" in found)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise RefusedError(f"{folder}: nobody can tell which jobs are needed, so none is removed: {error!r}") from None


def _records(job: Path) -> Iterator[Mapping[str, object]]:
    yield from (evidence.read_json(job / name) for name in ("submitted.json", "run.json"))


def _code(runs: Path, keep: Keep, now_s: float, folders: Sequence[Path]) -> list[Left]:
    """Code archives that no run needs which is still there; the others are not worth a line."""
    old = []
    for path in sorted((runs / ARCHIVES).iterdir()) if (runs / ARCHIVES).is_dir() else ():
        info, name = path.lstat(), os.fsencode(path.name)
        ours = CODE.fullmatch(name) or _DRAFT.fullmatch(name)
        if ours and stat.S_ISREG(info.st_mode) and not keep.young(now_s - info.st_mtime):
            old.append(Left(path.name, now_s - info.st_mtime, info.st_size))
    named = {name for folder in folders for name in _named(folder)} if old else set()
    return [each for each in old if os.fsencode(each.name) not in named]


def _named(folder: Path) -> set[bytes]:
    """The code archives that a run's files name. Raises RefusedError: what cannot be read may name any."""
    try:
        paths = [*folder.glob(f"{journal.FOLDER}/*.jsonl"), *(job / name for job in _jobs(folder) for name in _TEXTS)]
        return {name for path in paths if path.is_file() for name in CODE.findall(path.read_bytes())}
    except OSError as error:
        raise RefusedError(f"nobody can tell which code archives are needed: {error}") from None
