"""The journal of the session that runs now: what becomes of its jobs, and a sign of life every few seconds.

The main thread and the worker threads of the platforms write to it. A thread of its own gives the signs of life.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from platforms.job import BenchError, RefusedError
from platforms.rundir.session_history import BEAT_S, FOLDER, SCHEMA, SessionRecord, read_successor
from platforms.rundir.session_liveness import MISSED_BEATS, file_system_s, this_process


class TakenOver(BenchError):
    """Another session has taken over this one, because it gave no sign of life."""


class Journal:
    """This session's own file. Any thread may call its methods.

    Args:
        run_folder: runs/<run id>.
        plan: what another session needs to go on with this one: the tests, the options.
        beat_s: between two signs of life. If its schedulers are asked rarely, a session may give fewer.
    """

    def __init__(self, run_folder: Path, plan: Mapping[str, object], beat_s: float = BEAT_S) -> None:
        self._beat_s = max(BEAT_S, beat_s)
        self._lock = threading.Lock()
        self._stop_beating = threading.Event()
        self._line_end = b""  # what completes a line of which only a part was written
        self.name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"
        self.path = run_folder / FOLDER / f"{self.name}.jsonl"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
        except OSError as error:
            raise _cannot_be_kept(error) from None
        first_line = {
            "schema": SCHEMA,
            "session": self.name,
            "began_s": time.time(),
            "host": platform.node(),
            "process": this_process(),
            "beat_s": self._beat_s,
            "plan": plan,
        }
        try:
            self._write([first_line])
        except OSError as error:
            raise _cannot_be_kept(error) from None
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    @property
    def successor(self) -> str | None:
        """The session that has taken over this one."""
        return read_successor(self.path)

    @property
    def ended(self) -> bool:
        """end() was called, so nothing is written any more; a worker may still be busy."""
        return self._file < 0

    def is_taken_over(self) -> bool:
        """Whether another session has taken over this one, seen now and not only at the next sign of life.

        Ask before something is done that cannot be undone: a process that was frozen for a while wakes up anywhere.
        """
        file_system_s(self.path.parent)  # otherwise an NFS client may believe for a while that a file is missing
        if self.successor is None:
            return False
        self._stop_beating.set()
        return True

    def refuse_taken_over(self) -> None:
        """Raise TakenOver if is_taken_over(), or the thread of signs of life, has found that out."""
        successor = self.successor if self._stop_beating.is_set() else None
        if successor is not None:
            raise TakenOver(
                f"session {self.name} gave no sign of life for {MISSED_BEATS * self._beat_s:g} s, and session "
                f"{successor or 'another'} goes on in its place; nothing was cancelled"
            )

    def take_over(self, record: SessionRecord) -> bool:
        """Go on in place of another session. If we are killed next, its jobs are found in our record.

        Returns False if another session was quicker. Raises RefusedError.
        """
        try:
            self.write_jobs([{"takes": record.name}])
        except OSError as error:
            raise _cannot_be_kept(error) from None
        return take_over(record, self.name)

    def write_jobs(self, lines: Iterable[Mapping[str, object]]) -> None:
        """Write a line for each job. They are on the disk when this returns. Raises OSError."""
        self._write([{"at_s": time.time(), **line} for line in lines])

    def end(self, how: str) -> None:
        """End the record with DONE or PENDING.

        If the disk is full, another session may take over this one.
        """
        self._stop_beating.set()
        with contextlib.suppress(OSError):
            self._write([{"at_s": time.time(), "end": how}])
        with self._lock:
            os.close(self._file)
            self._file = -1

    def touch(self) -> float:
        """Give a sign of life. Returns the file system's time, in seconds."""
        os.utime(self.path)
        return self.path.stat().st_mtime

    def _write(self, lines: Sequence[Mapping[str, object]]) -> None:
        content = "".join(json.dumps(line, default=str) + "\n" for line in lines).encode()
        with self._lock:
            if self._file < 0:  # a worker that was busy has come back after the end
                return
            content = self._line_end + content
            self._line_end = b"\n"
            while content:
                content = content[os.write(self._file, content) :]
            os.fsync(self._file)
            self._line_end = b""

    def _beat(self) -> None:
        """Body of the thread: give signs of life until the end, or until another session has taken over."""
        while not self._stop_beating.wait(self._beat_s):
            try:
                os.utime(self.path)
            except OSError:
                continue  # the disk may be away for a while
            if self.successor is not None:
                self._stop_beating.set()


def take_over(record: SessionRecord, successor: str) -> bool:
    """Let a session go on in place of another.

    Returns False if another one was quicker. Raises RefusedError.
    """
    try:
        descriptor = os.open(record.path.with_suffix(".taken"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    except OSError as error:
        raise _cannot_be_kept(error) from None
    with contextlib.suppress(OSError), os.fdopen(descriptor, "w") as file:  # the existence of the file decides
        file.write(successor + "\n")
        file.flush()
        os.fsync(file.fileno())
    return True


def _cannot_be_kept(error: OSError) -> RefusedError:
    return RefusedError(f"this session's record cannot be kept: {error}; --runs-dir names another place")
