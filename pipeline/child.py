"""Runs the commands of a step as child processes, and remembers the session that runs, for the cleanup after a kill.

A CI system may end a job in three ways: with SIGTERM, which is passed on to the session; with SIGKILL of everything;
or by no longer listening to it, so that the session lives on while the job's cleanup begins.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from platforms import atomic_file, checkout

SIGNALS = (signal.SIGTERM, signal.SIGINT)
KILLED = 128
"""Exit codes from here on name a signal, as in a shell."""


@dataclass(frozen=True)
class SessionMark:
    """What a job writes down while its session runs, and removes when the session has ended by itself."""

    step: str
    run_id: str
    runs: str
    """The folder of runs in which the run is."""
    host: str
    pid: int | None

    @classmethod
    def read(cls, folder: Path) -> SessionMark | None:
        """The mark of the session that did not end by itself; None where there is none."""
        try:
            content = json.loads((folder / "session.json").read_text())
        except FileNotFoundError:
            return None
        return cls(**content)

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_file.write_text(folder / "session.json", json.dumps(asdict(self)))

    @staticmethod
    def remove(folder: Path) -> None:
        (folder / "session.json").unlink(missing_ok=True)

    def lives(self) -> bool:
        """Whether the session's process is on this machine. Another process that has its number now does not count."""
        if self.pid is None or self.host != socket.gethostname():
            return False
        try:
            return self.run_id.encode() in Path(f"/proc/{self.pid}/cmdline").read_bytes()
        except OSError:
            return False

    def end(self, patience_s: float) -> None:
        """Ask the session to end, and kill it after a time. Returns when it is gone."""
        assert self.pid is not None
        deadline = time.monotonic() + patience_s
        number = signal.SIGTERM
        while self.lives():
            if time.monotonic() > deadline:
                number = signal.SIGKILL
            os.kill(self.pid, number)
            for _ in range(50):
                if not self.lives():
                    return
                time.sleep(0.1)


def run_session(step: str, run_id: str, runs: Path, kept: Path, words: Sequence[str]) -> int:
    """Run pytest for a run, with a mark of it in the folder `kept`, which stays if a signal kills pytest.

    Returns the exit code.
    """

    def mark(pid: int | None) -> None:
        SessionMark(step, run_id, str(runs), socket.gethostname(), pid).write(kept)

    mark(None)
    code = run_module("pytest", words, on_start=mark)
    if code < KILLED:
        SessionMark.remove(kept)
    return code


def run_module(module: str, words: Sequence[str], on_start: Callable[[int], None] | None = None) -> int:
    """Run a module of Python in the suite's checkout, and show what is run.

    Unbuffered: both its streams go to GitLab's one log, in which a refusal must stand below what was printed before it.
    SIGTERM and SIGINT are passed on to it. Returns its exit code.
    """
    print(f"$ python -m {module} {shlex.join(words)}", flush=True)
    child = subprocess.Popen([sys.executable, "-u", "-m", module, *words], cwd=checkout.ROOT)

    def pass_on(number: int, frame: FrameType | None) -> None:
        del frame
        child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in SIGNALS}
    try:
        if on_start is not None:
            on_start(child.pid)
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else KILLED - code
