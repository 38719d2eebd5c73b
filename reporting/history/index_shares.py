"""Reads the lines of a large history with several processes, each of which writes an index of its share of the files.

A process whose parent was killed goes on to the end of its share. Its file is left behind like any other copy.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

LEAST = 1 << 24  # bytes: to start a process for fewer does not pay
MOST = 8  # processes: people share a login node


def shares_of(sizes: Mapping[str, int]) -> list[list[str]]:
    """Distribute files over as many processes as help, given their sizes in bytes.

    A process with threads is not to fork: a lock that another thread holds would stay locked in the child.
    """
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1  # macOS may crash in a child that was forked
    many = min(MOST, cores, sum(sizes.values()) // LEAST)
    if many < 2 or threading.active_count() > 1:
        return [list(sizes)]
    by_size = sorted(sizes, key=sizes.__getitem__)
    return [by_size[first::many] for first in range(many)]


class Share:
    """A share that another process reads.

    Args:
        files: of the share.
        path: where the process writes its index.
        read: brings an index without rows to what these files say. False if that is incomplete.
    """

    def __init__(self, files: list[str], path: Path, read: Callable[[sqlite3.Connection, list[str]], bool]) -> None:
        self.files = files
        self.path = path
        try:
            self._pid = os.fork()
        except OSError:  # so many processes are not allowed
            self._pid = -1
        if not self._pid:
            is_complete = False
            try:
                with contextlib.closing(sqlite3.connect(path)) as index:
                    is_complete = read(index, files)
                    index.commit()
            finally:
                os._exit(not is_complete)  # what the parent has opened is not to be closed here

    def is_complete(self) -> bool:
        """Wait for the process, and say whether its index has all of the share."""
        if self._pid < 0:
            return False
        pid, self._pid = self._pid, -1
        with contextlib.suppress(ChildProcessError):  # the system collects the children of a process that ignores them
            return os.waitpid(pid, 0)[1] == 0
        return False

    def remove(self) -> None:
        """End the process, if nobody has waited for it, and remove its index."""
        if self._pid > 0:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
        self.path.unlink(missing_ok=True)
