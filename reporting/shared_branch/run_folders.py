"""Unfinished runs in a branch, so that another machine goes on with them: the records of sessions and of submissions.

Of a run that has ended, the branch keeps its sessions' records for some weeks. By them another clone sees that nothing
is left to do.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from platforms import atomic_file
from platforms.job import RefusedError
from platforms.printable import printable
from platforms.rundir import session_history, session_liveness
from platforms.rundir.job_folder import CARRIED, RENDERED
from platforms.rundir.session_history import FOLDER, SessionRecord
from reporting.shared_branch.history_files import complete
from reporting.shared_branch.scratch import Tree

TOP = "runs/"  # in the branch
KEPT_S = 30 * 86400.0  # so long the branch keeps a run after the last sign of life of its sessions
LARGEST = 8 << 20  # bytes of a log that is carried, if it can be read from its machine again
_CREATED = "created.json"  # of a job of Kubernetes
_RESULT = "run.json"
_IN_HISTORY = "in_history"
_RECORDS = frozenset(("submitted.json", _CREATED, _RESULT, _IN_HISTORY, *RENDERED))
_OF_JOB = "|".join([*map(re.escape, sorted(_RECORDS)), "log", r"logs/[\w.-]+"])
_NAME = re.compile(
    rf"[\w+][\w.+=,@-]*/({FOLDER}/\w[\w-]*\.(jsonl|taken)|\w[\w.+=@-]*/({_OF_JOB}))",  # a run's id before it
    re.ASCII,
)


@dataclass
class CarriedRuns:
    """What a push or a pull does with runs.

    Attributes:
        files: the new content of files by their paths in the branch or below runs/; None: removed.
        runs: the unfinished ones that are carried.
        finished: runs that have ended and whose records were brought up to date.
        said: sentences on runs that are not carried.
    """

    files: dict[str, bytes | None] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def to_push(tree: Tree, runs: Path, bound: Collection[str], now_s: float) -> CarriedRuns:
    """What a branch shall hold of the unfinished runs, and of those that have ended since it holds them.

    Args:
        runs: the folder of runs.
        bound: platforms whose jobs only this machine can follow.
        now_s: Unix seconds.
    """
    result = CarriedRuns()
    remote = _remote_runs(tree)
    with tree.reader() as read:
        for run_id in session_history.runs_with_sessions(runs):
            try:
                _push_run(result, run_id, runs / run_id, remote.get(run_id, {}), read, bound, now_s)
            except (RefusedError, OSError) as error:
                result.said.append(f"run {printable(run_id)} is not pushed: {error}")
        for run_id, paths in remote.items():
            is_pushed = run_id in (*result.runs, *result.finished)
            if not is_pushed and now_s - _last_sign_s(_sessions_of(paths, read)) > KEPT_S:
                result.files |= dict.fromkeys(paths.values())
    return result


def to_pull(tree: Tree, runs: Path) -> CarriedRuns:
    """What of the branch's runs is missing in the folder of runs. The paths are below that folder."""
    result = CarriedRuns()
    with tree.reader() as read:
        for run_id, paths in _remote_runs(tree).items():
            folder = runs / run_id
            unfinished = _is_open(_sessions_of(paths, read))
            if not unfinished and not (folder / FOLDER).is_dir():
                continue
            is_newer = _session_names(paths) > _local_session_names(folder)
            changed = False
            for name, path in paths.items():
                content = read(path)
                if _shall_replace(folder / name, name, content, is_newer=is_newer):
                    result.files[f"{run_id}/{name}"] = content
                    changed = True
            if changed and unfinished:
                result.files[f"{run_id}/{CARRIED}"] = b"from a branch, by python -m reporting pull --runs\n"
                result.runs.append(run_id)
            elif changed:
                result.finished.append(run_id)
    return result


def write(runs: Path, carried: CarriedRuns) -> None:
    """Write what `to_pull` has found. A run's sessions come last: without them there is no run yet. Raises OSError."""
    for name, content in sorted(carried.files.items(), key=lambda item: f"/{FOLDER}/" in item[0]):
        assert content is not None
        path = runs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write_bytes(path, content, sync=True)
        if path.suffix == ".jsonl":
            last_s = _last_line_s(content)
            os.utime(path, (last_s, last_s))  # its session has given no sign of life since


def carried_files(folder: Path) -> dict[str, bytes]:
    """What a branch carries of an unfinished run, by the paths below its folder. Raises OSError."""
    sessions = _local_sessions(folder) if (folder / FOLDER).is_dir() else {}
    return sessions | _job_files(folder)


def _push_run(
    result: CarriedRuns,
    run_id: str,
    folder: Path,
    remote: Mapping[str, str],
    read: Callable[[str], bytes],
    bound: Collection[str],
    now_s: float,
) -> None:
    records = session_history.read_sessions(folder)
    sessions = _local_sessions(folder)
    unfinished = any(record.open for record in records)
    if not unfinished and not remote:
        return
    if unfinished:
        why_not = _why_not(run_id, records, bound, now_s)
        if why_not:
            result.said.append(why_not)
            return
        if remote and not _is_open(_sessions_of(remote, read)):
            result.said.append(f"run {run_id} has ended elsewhere: python -m reporting pull --runs brings that here")
            return
    files = dict(sessions)
    if unfinished:
        files |= _job_files(folder)
    is_newer = sessions.keys() >= _session_names(remote)
    for name, content in files.items():
        path = f"{TOP}{run_id}/{name}"
        if not _NAME.fullmatch(f"{run_id}/{name}"):
            raise RefusedError(f"the name {printable(name)} has a character that cannot be carried")
        if name in remote and (not is_newer or _is_session(name)) and read(path).startswith(content):
            continue
        if name in remote and not is_newer and not _is_session(name):
            continue
        result.files[path] = content
    if is_newer:
        result.files |= {path: None for name, path in remote.items() if name not in files}
    (result.runs if unfinished else result.finished).append(run_id)


def _why_not(run_id: str, records: Iterable[SessionRecord], bound: Collection[str], now_s: float) -> str:
    """Why an unfinished run is not carried; "" if it is."""
    unfinished = [record for record in records if record.open]
    for record in unfinished:
        if session_liveness.seems_alive(record):
            return f"run {run_id} is not pushed: {record} works on it; push it when that has ended"
    if now_s - max(record.beat_at_s for record in unfinished) > KEPT_S:
        return f"run {run_id} is not pushed: it was left {KEPT_S / 86400:.0f} days ago, or before"
    for record in unfinished:
        for line in record.states.values():
            if line.get("platform") in bound:
                return (
                    f"run {run_id} is not pushed: its jobs on {line['platform']} are processes of this machine, which "
                    f"no other one can follow: pytest --resume={run_id} here"
                )
    return ""


def _local_sessions(folder: Path) -> dict[str, bytes]:
    """The records of a run's sessions, by their paths below the folder of the run."""
    found = {}
    for path in sorted((folder / FOLDER).iterdir()):
        if path.suffix == ".jsonl":
            found[f"{FOLDER}/{path.name}"] = complete(path.read_bytes())
        elif path.suffix == ".taken":
            found[f"{FOLDER}/{path.name}"] = path.read_bytes()
    return {name: content for name, content in found.items() if content or name.endswith(".taken")}


def _job_files(folder: Path) -> dict[str, bytes]:
    """What another machine needs of a run's jobs."""
    found: dict[str, bytes] = {}
    for job in sorted(path for path in folder.iterdir() if path.is_dir() and path.name != FOLDER):
        for path in _files_of_job(job):
            found[f"{job.name}/{path.relative_to(job).as_posix()}"] = path.read_bytes()
    return found


def _files_of_job(job: Path) -> list[Path]:
    """The files of a job that another machine needs.

    If a job has ended, its test reads result and log again. Without a result the other machine asks the scheduler,
    and has the log from there. Kubernetes may have neither any more.
    """
    records = [job / name for name in sorted(_RECORDS) if (job / name).is_file()]
    logs = [path for path in (job / "log", *(job / "logs").glob("*.log"), job / "logs/.state.json") if path.is_file()]
    if job / _CREATED in records:
        return records + logs
    if job / _RESULT in records and sum(path.stat().st_size for path in logs) <= LARGEST:
        return records + logs
    return [path for path in records if path.name not in (_RESULT, _IN_HISTORY)]


def _remote_runs(tree: Tree) -> dict[str, dict[str, str]]:
    """By run id, the paths in the branch of its files by their paths below its folder.

    Only what a push carries is taken: whoever can write to the branch shall not choose what is written elsewhere.
    """
    found: dict[str, dict[str, str]] = {}
    for path in tree.files:
        run_id, _, name = path.removeprefix(TOP).partition("/")
        if path.startswith(TOP) and run_id not in session_history.NOT_RUNS and _NAME.fullmatch(f"{run_id}/{name}"):
            found.setdefault(run_id, {})[name] = path
    return found


def _is_session(name: str) -> bool:
    return name.startswith(f"{FOLDER}/")


def _session_names(names: Iterable[str]) -> set[str]:
    return {name for name in names if _is_session(name)}


def _local_session_names(folder: Path) -> set[str]:
    with contextlib.suppress(OSError):
        return {f"{FOLDER}/{path.name}" for path in (folder / FOLDER).iterdir() if path.suffix in (".jsonl", ".taken")}
    return set()


def _sessions_of(paths: Mapping[str, str], read: Callable[[str], bytes]) -> dict[str, bytes]:
    return {name: read(path) for name, path in paths.items() if _is_session(name)}


def _is_open(sessions: Mapping[str, bytes]) -> bool:
    """Whether a run with these records of sessions is unfinished. What cannot be read counts as unfinished."""
    with tempfile.TemporaryDirectory(prefix="hpc-ml-bench-run-") as scratch:
        folder = Path(scratch)
        (folder / FOLDER).mkdir()
        for name, content in sessions.items():
            (folder / name).write_bytes(content)
        try:
            return any(record.open for record in session_history.read_sessions(folder))
        except RefusedError:
            return True


def _last_sign_s(sessions: Mapping[str, bytes]) -> float:
    return max((_last_line_s(content) for name, content in sessions.items() if name.endswith(".jsonl")), default=0.0)


def _last_line_s(content: bytes) -> float:
    """When a session wrote its last line, in Unix seconds; now if it does not say."""
    try:
        line = json.loads(content.rstrip(b"\n").rpartition(b"\n")[2])
        return float(line.get("at_s") or line["began_s"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return time.time()


def _shall_replace(path: Path, name: str, content: bytes, *, is_newer: bool) -> bool:
    """Whether a file of the branch goes to its place here."""
    try:
        ours = path.read_bytes()
    except FileNotFoundError:
        return True
    if ours == content:
        return False
    if _is_session(name):
        return content.startswith(complete(ours))
    return is_newer
