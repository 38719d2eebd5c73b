"""How much memory the processes of a container hold, as a memory controller would charge it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PAGE = os.sysconf("SC_PAGESIZE")


def processes(first: int) -> list[int]:
    """A process and all its descendants; in a pid namespace nothing else is in there."""
    found, ahead = [], [first]
    while ahead:
        pid = ahead.pop()
        found.append(pid)
        with contextlib.suppress(OSError):  # it ended meanwhile
            for thread in Path(f"/proc/{pid}/task").iterdir():
                ahead += [int(word) for word in (thread / "children").read_text().split()]
    return found


def resident(pid: int) -> int:
    """Bytes that are its own; pages of shared files are nobody's."""
    try:
        words = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(words[1]) - int(words[2])) * PAGE


def largest_beyond(first: int, limit: int) -> int | None:
    """The process to kill where all together are beyond limit bytes."""
    sizes = {pid: resident(pid) for pid in processes(first)}
    return max(sizes, key=sizes.__getitem__) if sum(sizes.values()) > limit else None
