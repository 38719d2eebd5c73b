"""The record of this session, which it alone writes."""

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
from platforms.rundir.session_history import BEAT_S, FOLDER, SCHEMA, SessionRecord, taken
from platforms.rundir.session_liveness import MISSED, file_system_s, this_process


class TakenOver(BenchError):
    """Another session goes on in this one's place, since it gave no sign of life."""


class Journal:
    """This session's own file. Its methods may be called by any thread.

    Args:
        folder: the run's, runs/<run id>.
        plan: what another session needs to go on: the tests, the options.
        beat_s: between two signs of life; those of a session whose scheduler is asked rarely may be rare.
    """

    def __init__(self, folder: Path, plan: Mapping[str, object], beat_s: float = BEAT_S) -> None:
        self._beat_s = max(BEAT_S, beat_s)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._torn = b""  # what ends a line of which only a part was written
        self.name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"
        self.path = folder / FOLDER / f"{self.name}.jsonl"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
        except OSError as error:
            raise _not_kept(error) from None
        head = {"schema": SCHEMA, "session": self.name, "began_s": time.time(), "host": platform.node()}
        self._write([{**head, "process": this_process(), "beat_s": self._beat_s, "plan": plan}])
        self._thread = threading.Thread(target=self._live, name="heartbeat", daemon=True)
        self._thread.start()

    @property
    def taken(self) -> str | None:
        """The session that goes on in our place."""
        return taken(self.path)

    @property
    def ended(self) -> bool:
        """Nothing is written any more, while a platform's turn may still be under way."""
        return self._file < 0

    def lost(self) -> bool:
        """Whether another session goes on in our place, looked for now: before something is done that cannot be undone,
        since a frozen process may go on there, and not at its next beat."""
        file_system_s(self.path.parent)  # a client of NFS believes for a while that a name is not there
        if self.taken is not None:
            self._over.set()
        return self.taken is not None

    def refuse_taken(self) -> None:
        """Raises TakenOver, as soon as a beat, or who looked, has found it."""
        if self._over.is_set() and (other := self.taken) is not None:
            raise TakenOver(
                f"session {self.name} gave no sign of life for {MISSED * self._beat_s:g} s, and session "
                f"{other or 'another'} goes on in its place; nothing was cancelled"
            )

    def take_over(self, past: SessionRecord) -> bool:
        """Go on in its place: then what it had is ours, though we should be killed at once. False when somebody else
        was quicker. Raises RefusedError."""
        self.jobs([{"takes": past.name}])
        return take(past, self.name)

    def jobs(self, lines: Iterable[Mapping[str, object]]) -> None:
        """What has become of some jobs, a line each, on the disk when it returns. Raises RefusedError."""
        self._write([{"at_s": time.time(), **line} for line in lines])

    def end(self, how: str) -> None:
        """DONE or PENDING; where that cannot be written, the run stays open. Nothing is written any more."""
        self._over.set()
        with contextlib.suppress(RefusedError):
            self._write([{"at_s": time.time(), "end": how}])
        with self._lock:
            os.close(self._file)
            self._file = -1

    def touched_s(self) -> float:
        """The file system's time, now."""
        os.utime(self.path)
        return self.path.stat().st_mtime

    def _write(self, lines: Sequence[Mapping[str, object]]) -> None:
        text = "".join(json.dumps(line, default=str) + "\n" for line in lines).encode()
        with self._lock:
            if self._file < 0:  # a turn that was under way has come back after the end
                return
            text, self._torn = self._torn + text, b"\n"
            try:
                while text:
                    text = text[os.write(self._file, text) :]
                os.fsync(self._file)
            except OSError as error:
                raise _not_kept(error) from None
            self._torn = b""

    def _live(self) -> None:
        while not self._over.wait(self._beat_s):
            try:
                os.utime(self.path)
            except OSError:
                continue  # the disk may be away for a while
            if self.taken is not None:
                self._over.set()


def take(past: SessionRecord, by: str) -> bool:
    """Go on in its place: False when somebody else was quicker. Raises RefusedError."""
    try:
        file = os.open(past.path.with_suffix(".taken"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    except OSError as error:
        raise _not_kept(error) from None
    with contextlib.suppress(OSError), os.fdopen(file, "w") as opened:  # that it is there counts
        opened.write(by + "\n")
        opened.flush()
        os.fsync(opened.fileno())
    return True


def _not_kept(error: OSError) -> RefusedError:
    return RefusedError(f"this session's record cannot be kept: {error}; --runs-dir names another place")
