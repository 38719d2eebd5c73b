"""Whether the session that wrote a record still lives: by its process if that can be seen, else by its signs of life.

supervisor.py travels alone and has its own copy of how a process is recognised.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from platforms.rundir.session_history import SessionRecord

MISSED_BEATS = 3  # after so many missing signs of life a session counts as dead
POLL_S = 0.5


def wait_if_alive(
    record: SessionRecord,
    now_s: Callable[[], float],
    report: Callable[[str], None] = lambda text: None,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Find out for certain whether an open session lives.

    If its process cannot be seen, this waits for its next sign of life. If it is dead, that takes three beats.

    Args:
        now_s: the file system's time (Journal.touch).
        report: called with a sentence if this takes a while.
    """
    if record.end is not None:
        return False
    process_lives = _process_lives(record)
    if process_lives is not None:
        return process_lives
    last_beat_s = record.beat_at_s
    patience_s = MISSED_BEATS * record.beat_s
    rest_s = patience_s - (now_s() - last_beat_s)
    if rest_s > 0:
        report(f"whether {record} still lives is known in {rest_s:.0f} s at the latest")
    while now_s() - last_beat_s <= patience_s:
        sleep(POLL_S)
        if record.beat_at_s > last_beat_s:
            return True
    return record.beat_at_s > last_beat_s


def seems_alive(record: SessionRecord) -> bool:
    """Whether an open session seems to live, without waiting for its next sign of life."""
    if record.end is not None or record.successor is not None:
        return False
    process_lives = _process_lives(record)
    if process_lives is not None:
        return process_lives
    now_s = file_system_s(record.path.parent)
    return now_s - record.beat_at_s <= MISSED_BEATS * record.beat_s


def file_system_s(folder: Path) -> float:
    """The file system's time, or this machine's where the folder may only be read.

    As a side effect, an NFS client looks at the folder again.
    """
    probe = folder / f".now.{os.getpid()}.{threading.get_ident()}"
    try:
        probe.touch()
        now_s = probe.stat().st_mtime
        probe.unlink()
    except OSError:
        return time.time()
    return now_s


def this_process() -> dict[str, object]:
    """What identifies this process, for the first line of a journal."""
    pid = os.getpid()
    return {"pid": pid, "began": _start_of_process(pid), "boot": _boot_id(), "space": _pid_namespace()}


def _process_lives(record: SessionRecord) -> bool | None:
    """Whether the process of a session lives.

    None if that cannot be seen: it runs on another machine or in another container, or belongs to another user whose
    processes are hidden (hidepid).
    """
    process = record.process
    if process.get("boot") is None or process["boot"] != _boot_id() or process.get("space") != _pid_namespace():
        return None
    start = _start_of_process(int(process["pid"]))
    if start is None and os.getuid() not in (0, record.path.stat().st_uid):
        return None
    return start == process.get("began")


def _start_of_process(pid: int) -> str | None:
    """When a process was started, in clock ticks since the boot: its pid may be given to another one later."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    state, start = fields[0], fields[19]
    return None if state in ("Z", "X") else start


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _pid_namespace() -> str | None:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None
