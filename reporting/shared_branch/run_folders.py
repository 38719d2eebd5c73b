"""Unfinished runs in a branch, so that another machine goes on with them: the records of sessions and of submissions.

Of a run that has ended, the branch keeps its sessions' records for some weeks. By them another clone sees that nothing
is left to do.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from platforms import atomic_file
from platforms.job import RefusedError
from platforms.printable import printable
from platforms.rundir import session_history, session_liveness
from platforms.rundir.job_folder import CARRIED, RENDERED
from platforms.rundir.session_history import FOLDER as SESSIONS
from platforms.rundir.session_history import SessionRecord
from reporting.shared_branch.history_files import complete_lines

FOLDER = "runs"  # in the branch
KEPT_S = 30 * 86400.0  # so long the branch keeps a run after its last session began
LARGEST = 8 << 20  # bytes of a log that is carried, if it can be read from its machine again
_CREATED = "created.json"  # of a job of Kubernetes
_RESULT = "run.json"
_IN_HISTORY = "in_history"
_RECORDS = ("submitted.json", _CREATED, _RESULT, _IN_HISTORY, *RENDERED)


@dataclass
class CarriedRuns:
    """What a push or a pull has done with runs.

    Attributes:
        unfinished: those that are carried.
        finished: those that have ended since the other side had them.
        said: sentences on runs that are not carried.
    """

    unfinished: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def push(runs: Path, branch: Path, bound: Collection[str], now_s: float) -> CarriedRuns:
    """Bring the unfinished runs into a branch, and take out those that have ended.

    Args:
        runs, branch: the folder of runs here, and the one in the branch.
        bound: platforms whose jobs only this machine can follow.
        now_s: Unix seconds.
    """
    carried = CarriedRuns()
    for run_id in session_history.runs_with_sessions(runs):
        try:
            _push_run(carried, runs / run_id, branch / run_id, bound, now_s)
        except (RefusedError, OSError) as error:
            carried.said.append(f"run {printable(run_id)} is not pushed: {error}")
    for run_id in session_history.runs_with_sessions(branch):
        if _is_old(branch / run_id, now_s):
            shutil.rmtree(branch / run_id)
    return carried


def pull(branch: Path, runs: Path) -> CarriedRuns:
    """Bring the branch's unfinished runs here, and the ends of those that are here. Raises OSError."""
    carried = CarriedRuns()
    for run_id in session_history.runs_with_sessions(branch):
        theirs, ours = branch / run_id, runs / run_id
        unfinished = _is_unfinished(theirs)
        if (unfinished or (ours / SESSIONS).is_dir()) and _pull_run(theirs, ours):
            if unfinished:
                atomic_file.write_text(ours / CARRIED, "from a branch, by python -m reporting pull --runs\n")
                carried.unfinished.append(run_id)
            else:
                carried.finished.append(run_id)
    return carried


def _push_run(carried: CarriedRuns, ours: Path, theirs: Path, bound: Collection[str], now_s: float) -> None:
    run_id = ours.name
    records = session_history.read_sessions(ours)
    unfinished = [record for record in records if record.open]
    if not unfinished and not any(path.name != SESSIONS for path in theirs.glob("*")):
        return
    why_not = _why_not(run_id, unfinished, bound)
    if unfinished and _is_old(ours, now_s):
        why_not = f"run {run_id} is not pushed: it was left {KEPT_S / 86400:.0f} days ago, or before"
    if not _session_names(theirs) <= _session_names(ours):
        why_not = f"run {run_id} has gone on elsewhere: python -m reporting pull --runs brings that here"
    if why_not:
        carried.said.append(why_not)
        return
    shutil.rmtree(theirs, ignore_errors=True)
    for path in carried_files(ours):
        if unfinished or path.parent.name == SESSIONS:
            target = theirs / path.relative_to(ours)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    if unfinished:
        carried.unfinished.append(run_id)
    else:
        carried.finished.append(run_id)


def _pull_run(theirs: Path, ours: Path) -> bool:
    """Copy what is missing of a run, or newer in the branch. Returns whether anything was."""
    is_newer = _session_names(theirs) > _session_names(ours)
    changed = False
    for path in carried_files(theirs):  # a run's sessions come last: without them there is no run yet
        content = path.read_bytes()
        target = ours / path.relative_to(theirs)
        if target.exists():
            may_replace = is_newer
            if path.parent.name == SESSIONS:
                may_replace = content.startswith(complete_lines(target))
            if not may_replace or content == target.read_bytes():
                continue
        target.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write_bytes(target, content, sync=True)
        if path.suffix == ".jsonl":  # its session has given no sign of life since its last line
            last_s = _last_line_s(content)
            os.utime(target, (last_s, last_s))
        changed = True
    return changed


def _why_not(run_id: str, unfinished: Sequence[SessionRecord], bound: Collection[str]) -> str:
    """Why an unfinished run is not carried; "" if it is."""
    for record in unfinished:
        if session_liveness.seems_alive(record):
            return f"run {run_id} is not pushed: {record} works on it; push it when that has ended"
        for line in record.states.values():
            if line.get("platform") in bound:
                return (
                    f"run {run_id} is not pushed: its jobs on {line['platform']} are processes of this machine, which "
                    f"no other one can follow: pytest --resume={run_id} here"
                )
    return ""


def _is_unfinished(run: Path) -> bool:
    """Whether a run is unfinished. One with a record of a later version of the suite counts as unfinished."""
    try:
        return any(record.open for record in session_history.read_sessions(run))
    except RefusedError:
        return True


def _is_old(run: Path, now_s: float) -> bool:
    """Whether no session of a run began in the last weeks. The name of a session's file begins with that time."""
    return max(_session_names(run), default="") < time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s - KEPT_S))


def _session_names(run: Path) -> set[str]:
    return {path.name for path in run.glob(f"{SESSIONS}/*") if path.suffix in (".jsonl", ".taken")}


def carried_files(run: Path) -> Iterator[Path]:
    """What a branch carries of an unfinished run. Whoever writes into the branch chooses no other files here."""
    for job in sorted(path for path in run.iterdir() if path.is_dir() and path.name != SESSIONS):
        yield from _files_of_job(job)
    yield from sorted(run.glob(f"{SESSIONS}/*.taken"))
    yield from sorted(run.glob(f"{SESSIONS}/*.jsonl"))


def _files_of_job(job: Path) -> list[Path]:
    """The files of a job that another machine needs.

    If a job has ended, its test reads result and log again. Without a result the other machine asks the scheduler,
    and has the log from there. Kubernetes may have neither any more.
    """
    records = [job / name for name in _RECORDS if (job / name).is_file()]
    logs = [path for path in (job / "log", *(job / "logs").glob("*.log"), job / "logs/.state.json") if path.is_file()]
    if job / _CREATED in records:
        return records + logs
    if job / _RESULT in records and sum(path.stat().st_size for path in logs) <= LARGEST:
        return records + logs
    return [path for path in records if path.name not in (_RESULT, _IN_HISTORY)]


def _last_line_s(content: bytes) -> float:
    """When a session wrote its last line, in Unix seconds; 0 if it does not say."""
    try:
        line = json.loads(content.rstrip(b"\n").rpartition(b"\n")[2])
        return float(line.get("at_s") or line["began_s"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return 0.0
