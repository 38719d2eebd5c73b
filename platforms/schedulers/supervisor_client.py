"""Inspects and ends jobs by the files in their folders: the other side of supervisor.py, on the same machine.

Standard library for Python 3.8 and newer, because it travels with supervisor.py to machines without a scheduler. What
it finds out about a job is a dictionary: the job's pid or exit file, and `seen`: "nothing", "elsewhere", "live",
"ended", or "unreadable" with the `reason`.
"""

# Imports take time in every poll of another machine, hence no pathlib or contextlib.
# ruff: noqa: PTH103, PTH105, PTH106, PTH108, PTH110, PTH112, PTH113, PTH123, PTH202, SIM105

from __future__ import annotations

import json
import os
import signal
import sys
import time

from platforms.schedulers import supervisor

TYPE_CHECKING = False  # type checkers take it for true
if TYPE_CHECKING:
    from typing import Any

CANCEL_LIMIT_S = 60.0  # longer than a supervisor takes from SIGTERM to its exit file


def inspect_job(folder: str) -> dict[str, Any]:
    """Return what became of a job, and `log_bytes`, the size of its log (None: no log).

    Ends what is left of a job whose supervisor was killed.
    """
    try:
        record = _job_record(folder)
    except (OSError, ValueError) as error:
        record = {"seen": "unreadable", "reason": f"what its supervisor wrote cannot be read: {error}"}
    return {**record, "log_bytes": _size(f"{folder}/log")}


def _job_record(folder: str) -> dict[str, Any]:
    ended = supervisor.read_json(f"{folder}/exit", strict=True)
    record = supervisor.read_json(f"{folder}/pid", strict=True)
    if ended is None and record is None:
        return {"seen": "nothing"}
    if ended is None and record is not None:
        alive = supervisor.alive(record)
        if alive is None:
            return {**record, "seen": "elsewhere", "reason": out_of_sight(record)}
        if alive:
            return {**record, "seen": "live"}
        ended = supervisor.read_json(f"{folder}/exit", strict=True) or lost(
            folder, record
        )  # it may have ended meanwhile
    return {**(ended or {}), "seen": "ended"}


def lost(folder: str, record: dict[str, Any]) -> dict[str, Any]:
    """End what is left of a job whose supervisor was killed or lost by a reboot, and write its exit file."""
    survivors = supervisor.members(record["folder"])
    left = end_all(record["folder"])
    gone = f"its supervisor (pid {record['pid']}) is gone"
    more = ""
    if survivors and left:
        more = f"; {len(survivors)} processes of the job still ran and {left} still do"
    elif survivors:
        more = f"; {len(survivors)} processes of the job still ran and were ended"
    reason = f"{gone} without a word, by kill -9 or a reboot{more}"
    ended = {"exit_code": None, "signal": None, "state": "lost", "reason": reason, "ended": time.time()}
    ended.update({key: record[key] for key in ("name", "host", "submitted", "started")})
    try:
        supervisor.write_json(f"{folder}/exit", ended, sync=True)
    except OSError as error:  # the next poll finds the same
        ended["reason"] = f"{gone}, and its exit file cannot be written: {error}{more}"
    return ended


def end_all(folder: str) -> list[int]:
    """Send SIGKILL to every process with the folder's mark. Returns those that are still there."""
    deadline = time.monotonic() + supervisor.KILL_S
    while True:
        left = supervisor.members(folder)
        if not left or time.monotonic() > deadline:
            return left
        supervisor.send(left, signal.SIGKILL)
        time.sleep(0.01)


def cancel(folders: list[str], limit_s: float = CANCEL_LIMIT_S) -> dict[str, str]:
    """Send SIGTERM to all supervisors, which end their jobs; SIGKILL to those that do not within `limit_s`.

    Returns by folder why something of a job may still run, with the command to type next.
    """
    why: dict[str, str] = {}
    left: dict[str, dict[str, Any]] = {}
    for folder in folders:
        try:
            record = _request_stop(folder)
        except OSError as error:
            why[folder] = f"it cannot be asked to stop: {error}"
            continue
        if record is not None and supervisor.alive(record) is None:
            why[folder] = out_of_sight(record)
        elif record is not None:
            left[folder] = record
    left = _signal_and_wait(left, signal.SIGTERM, limit_s)
    left = _signal_and_wait(left, signal.SIGKILL, supervisor.KILL_S)
    for folder, record in left.items():
        why[folder] = f"its supervisor does not go away: kill -9 {record['pid']}"
    for folder in folders:
        if folder not in why and (pids := _survivors(folder)):
            pid_list = ",".join(map(str, pids))
            why[folder] = f"not even SIGKILL ends its processes; look at them: ps -o pid,stat,wchan,cmd -p {pid_list}"
    return why


def _request_stop(folder: str) -> dict[str, Any] | None:
    """Keep a supervisor from starting its job. Returns the record of one that runs; None after the job's end."""
    if supervisor.read_json(f"{folder}/exit") is not None or not os.path.isdir(folder):
        return None
    with open(f"{folder}/cancel", "w"):
        pass
    return supervisor.read_json(f"{folder}/pid")


def _signal_and_wait(records: dict[str, dict[str, Any]], number: int, limit_s: float) -> dict[str, dict[str, Any]]:
    """Send a signal to supervisors and wait. Returns those that are still there."""
    deadline = time.monotonic() + limit_s
    left = {folder: record for folder, record in records.items() if supervisor.alive(record)}
    supervisor.send([int(record["pid"]) for record in left.values()], number)
    pause_s = 0.01
    while left and time.monotonic() < deadline:
        time.sleep(pause_s)
        pause_s = min(0.1, pause_s * 1.2)
        left = {folder: record for folder, record in left.items() if supervisor.alive(record)}
    return left


def _survivors(folder: str) -> list[int]:
    """Send SIGKILL to what a gone supervisor left, and write the exit file that it may not have written.

    Returns the processes that are still there.
    """
    inspect_job(folder)
    record = supervisor.read_json(f"{folder}/pid")
    return end_all(str(record["folder"]) if record else folder)  # as in the processes' mark: `folder` may be a link


def out_of_sight(record: dict[str, Any]) -> str:
    where = f"pid {record['pid']} of {record['host']}, which is another machine or container"
    return f"it belongs to {where}: look from there; it ends by itself at its time limit"


# --- run from another machine: one command for many jobs; the request on standard input, the answers a line a job -----


def start(request: dict[str, Any]) -> str:
    """Make the folder, write its script, and start its one supervisor, unless there is one already.

    Returns what has to be put there first: "archive", "data", or nothing. Raises OSError, and then leaves nothing.
    """
    folder, archive, data_dir = request["folder"], request["archive"], request["data_dir"]
    if os.path.exists(f"{folder}/pid"):
        return ""
    if archive is not None and not os.path.isfile(archive):
        return "archive"
    if data_dir is not None and not os.path.isdir(data_dir):
        return "data"
    draft = f"{folder}/job.sh.{os.getpid()}"
    os.environ.pop("LC_ALL", None)  # the transport set it for this command only
    os.environ.update(request["environ"])
    try:
        os.makedirs(folder, exist_ok=True)
        with open(draft, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(request["text"])
        os.replace(draft, f"{folder}/job.sh")
        why = supervisor.launch(folder, request["settings"])
        if why:
            raise OSError(why)
    except OSError:
        _forget(folder, draft)
        raise
    return ""


def _forget(folder: str, draft: str) -> None:
    """Remove the folder of a job that did not start, unless another submitter has just begun there."""
    paths = [draft]
    if not os.path.exists(f"{folder}/pid"):
        paths.append(f"{folder}/job.sh")
    for path in paths:
        try:
            os.unlink(path)
        except OSError:
            pass
    try:
        os.rmdir(folder)
    except OSError:
        pass


def main(argv: list[str]) -> int:
    """Run `start`, `status` or `cancel`. An error is one line on standard error and exit code 1."""
    try:
        request = json.load(sys.stdin)  # a connection that breaks in the middle of it starts nothing
        if argv[1] == "start":
            _answer(request["folder"], start(request))
        elif argv[1] == "cancel":
            for folder, why in cancel(request["folders"]).items():
                _answer(folder, why)
        else:
            for folder in request["folders"]:
                _answer(folder, inspect_job(folder))
    except (OSError, ValueError) as error:
        print(f"supervisor: {error}", file=sys.stderr)
        return 1
    return 0


def _answer(folder: str, value: object) -> None:
    print(json.dumps([folder, value]))


def _size(path: str) -> int | None:
    try:
        return os.path.getsize(path)
    except OSError:
        return None
