"""Whether the session that keeps a record lives: by its process where that can be seen, else by its beats."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from platforms.rundir.session_history import SessionRecord

MISSED = 3  # beats, after which a session is taken for dead
POLL_S = 0.5


def alive(
    past: SessionRecord,
    now_s: Callable[[], float],
    tell: Callable[[str], None] = lambda text: None,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Whether an open session goes on. Asks its process where that can be seen, else watches for its next beat, which
    takes three beats where it is dead. `now_s` gives the file system's time, Journal.touched_s."""
    if past.how is not None:
        return False
    if (seen := _seen_here(past)) is not None:
        return seen
    beat_s = past.beat_at_s
    if (rest_s := MISSED * past.beat_s - (now_s() - beat_s)) > 0:
        tell(f"whether {past} still lives is known in {rest_s:.0f} s at the latest")
    while now_s() - beat_s <= MISSED * past.beat_s:
        sleep(POLL_S)
        if past.beat_at_s > beat_s:
            return True
    return past.beat_at_s > beat_s


def lives(past: SessionRecord) -> bool:
    """Whether an open session seems to go on, without waiting for its next beat."""
    if past.how is not None or past.taken is not None:
        return False
    if (seen := _seen_here(past)) is not None:
        return seen
    now_s = file_system_s(past.path.parent)
    return now_s - past.beat_at_s <= MISSED * past.beat_s


def file_system_s(folder: Path) -> float:
    """The time of the file system, or where we may only read our own; a client of NFS looks at the folder anew."""
    probe = folder / f".now.{os.getpid()}.{threading.get_ident()}"
    try:
        probe.touch()
        now_s = probe.stat().st_mtime
        probe.unlink()
    except OSError:
        return time.time()
    return now_s


def this_process() -> dict[str, object]:
    pid = os.getpid()
    return {"pid": pid, "began": _began(pid), "boot": _boot(), "space": _space()}


def _seen_here(past: SessionRecord) -> bool | None:
    """Whether a process of this machine, and of this container, lives; None for others, and where another user's are
    hidden (hidepid)."""
    process = past.process
    if process.get("boot") is None or (process["boot"], process.get("space")) != (_boot(), _space()):
        return None
    if (began := _began(int(process["pid"]))) is None and os.getuid() not in (0, past.path.stat().st_uid):
        return None
    return began == process.get("began")


def _began(pid: int) -> str | None:
    """When, in ticks since the machine was started: a pid is given again."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def _boot() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _space() -> str | None:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None
