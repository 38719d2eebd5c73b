"""What the files of jobs say on the machine where those jobs run, and how to end them: the other side of supervisor.py.

Standard library for Python 3.8 and newer, since it travels with supervisor.py to machines without a scheduler. What it
finds of a job is a dictionary, the job's pid or exit file with `seen` beside: "nothing", "elsewhere", "live", "ended".
"""

# Imports cost a machine far away as much as they cost a supervisor, hence no pathlib or contextlib.
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

CANCEL_LIMIT_S = 60.0  # longer than a supervisor takes from SIGTERM to its last word


def look(folder: str) -> dict[str, Any]:
    """What became of a job, and `log_bytes`, the size of its log, None where there is none. One whose supervisor was
    killed is brought to its end first: nothing of it is left."""
    found = _look(folder)
    return {**found, "log_bytes": _size(f"{folder}/log")}


def _look(folder: str) -> dict[str, Any]:
    ended = supervisor.read_json(f"{folder}/exit")
    record = supervisor.read_json(f"{folder}/pid")
    if ended is None and record is None:
        return {"seen": "nothing"}
    if ended is None and record is not None:
        alive = supervisor.alive(record)
        if alive is None:
            return {**record, "seen": "elsewhere", "reason": out_of_sight(record)}
        if alive:
            return {**record, "seen": "live"}
        ended = supervisor.read_json(f"{folder}/exit") or lost(folder, record)  # it may have ended meanwhile
    return {**(ended or {}), "seen": "ended"}


def lost(folder: str, record: dict[str, Any]) -> dict[str, Any]:
    """The supervisor was killed or the machine booted: end what is left and write the exit file in its place."""
    found = supervisor.members(record["folder"])
    left = end_all(record["folder"])
    gone, more = f"its supervisor (pid {record['pid']}) is gone", ""
    if found:
        more = f"; {len(found)} processes of the job still ran and " + (f"{left} still do" if left else "were ended")
    reason = f"{gone} without a word, by kill -9 or a reboot{more}"
    ended = {"exit_code": None, "signal": None, "state": "lost", "reason": reason, "ended": time.time()}
    ended.update({key: record[key] for key in ("name", "host", "submitted", "started")})
    try:
        supervisor.write_json(f"{folder}/exit", ended, sync=True)
    except OSError as error:  # the next look will say the same
        ended["reason"] = f"{gone}, and its exit file cannot be written: {error}{more}"
    return ended


def end_all(folder: str) -> list[int]:
    """SIGKILL to whatever carries the folder's mark. Returns what is still there."""
    deadline = time.monotonic() + supervisor.KILL_S
    while True:
        left = supervisor.members(folder)
        if not left or time.monotonic() > deadline:
            return left
        supervisor.send(left, signal.SIGKILL)
        time.sleep(0.01)


def cancel(folders: list[str], limit_s: float = CANCEL_LIMIT_S) -> dict[str, str]:
    """SIGTERM to all supervisors, which end everything; SIGKILL to those that fail to within `limit_s`.

    Returns, by folder, why something of a job may still run, with the command to type next.
    """
    why: dict[str, str] = {}
    left: dict[str, dict[str, Any]] = {}
    for folder in folders:
        try:
            record = _told_to_stop(folder)
        except OSError as error:
            why[folder] = f"it cannot be told to stop: {error}"
            continue
        if record is not None and supervisor.alive(record) is None:
            why[folder] = out_of_sight(record)
        elif record is not None:
            left[folder] = record
    for number, patience_s in ((signal.SIGTERM, limit_s), (signal.SIGKILL, supervisor.KILL_S)):
        left = _gone(left, number, patience_s)
    for folder, record in left.items():
        why[folder] = f"its supervisor does not go away: kill -9 {record['pid']}"
    for folder in folders:
        if folder not in why and (pids := _survivors(folder)):
            pid_list = ",".join(map(str, pids))
            why[folder] = f"not even SIGKILL ends its processes; look at them: ps -o pid,stat,wchan,cmd -p {pid_list}"
    return why


def _told_to_stop(folder: str) -> dict[str, Any] | None:
    """Leave word for a supervisor that is about to start. The record of one that is there; None after the job's end."""
    if supervisor.read_json(f"{folder}/exit") is not None or not os.path.isdir(folder):
        return None
    with open(f"{folder}/cancel", "w"):
        pass
    return supervisor.read_json(f"{folder}/pid")


def _gone(records: dict[str, dict[str, Any]], number: int, patience_s: float) -> dict[str, dict[str, Any]]:
    """Send a signal to supervisors and wait; returns those that are there nevertheless."""
    deadline = time.monotonic() + patience_s
    left = {folder: record for folder, record in records.items() if supervisor.alive(record)}
    supervisor.send([int(record["pid"]) for record in left.values()], number)
    pause_s = 0.01
    while left and time.monotonic() < deadline:
        time.sleep(pause_s)
        pause_s = min(0.1, pause_s * 1.2)
        left = {folder: record for folder, record in left.items() if supervisor.alive(record)}
    return left


def _survivors(folder: str) -> list[int]:
    """What is left though the supervisor is gone, after SIGKILL; writes the exit file that it may not have written."""
    look(folder)
    record = supervisor.read_json(f"{folder}/pid")
    return end_all(str(record["folder"]) if record else folder)  # as its processes carry it: ours may be a link


def out_of_sight(record: dict[str, Any]) -> str:
    where = f"pid {record['pid']} of {record['host']}, which is another machine or container"
    return f"it belongs to {where}: look from there; it ends by itself at its time limit"


# --- asked from far away: one command for many jobs, the question on standard input, the answer a line a job ----------


def start(question: dict[str, Any]) -> str:
    """Make the folder, write its script, and start its one supervisor, unless there has been one.

    Returns what has to be put there first: "archive", "data", or nothing. Raises OSError, and then leaves nothing.
    """
    folder, archive, data_dir = question["folder"], question["archive"], question["data_dir"]
    if os.path.exists(f"{folder}/pid"):
        return ""
    if archive is not None and not os.path.isfile(archive):
        return "archive"
    if data_dir is not None and not os.path.isdir(data_dir):
        return "data"
    draft = f"{folder}/job.sh.{os.getpid()}"
    os.environ.pop("LC_ALL", None)  # came with the command, so that its words can be understood
    os.environ.update(question["environ"])
    try:
        os.makedirs(folder, exist_ok=True)
        with open(draft, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(question["text"])
        os.replace(draft, f"{folder}/job.sh")
        why = supervisor.launch(folder, question["settings"])
        if why:
            raise OSError(why)
    except OSError:
        _forget(folder, draft)
        raise
    return ""


def _forget(folder: str, draft: str) -> None:
    """A job that never was leaves no folder, unless another submitter has just begun there."""
    for path in (draft, *([] if os.path.exists(f"{folder}/pid") else [f"{folder}/job.sh"])):
        try:
            os.unlink(path)
        except OSError:
            pass
    try:
        os.rmdir(folder)
    except OSError:
        pass


def main(argv: list[str]) -> int:
    """`start`, `status` or `cancel`; an error is one line on standard error and exit code 1."""
    try:
        question = json.load(sys.stdin)  # a connection that breaks in the middle of it starts nothing
        if argv[1] == "start":
            _answer(question["folder"], start(question))
        elif argv[1] == "cancel":
            for folder, why in cancel(question["folders"]).items():
                _answer(folder, why)
        else:
            for folder in question["folders"]:
                _answer(folder, look(folder))
    except (OSError, ValueError) as error:
        print(f"supervisor: {error}", file=sys.stderr)
        return 1
    return 0


def _answer(folder: str, said: object) -> None:
    print(json.dumps([folder, said]))


def _size(path: str) -> int | None:
    try:
        return os.path.getsize(path)
    except OSError:
        return None
