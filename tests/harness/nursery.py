"""Sessions and commands in processes of their own, forked from one that has imported pytest and the suite already.

A session that is killed or interrupted must be a process. To start one anew takes a second, most of it for imports; a
fork takes none of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]

# Reads one line of JSON for each session. A process between them waits for the session and notes its exit status.
NURSERY = """
import json, os, pkgutil, runpy, signal, sys
from importlib import import_module
import pytest

pytest.main(["-c", sys.argv[1] + "/pytest.ini", "--collect-only", "-p", "no:cacheprovider", sys.argv[1]])
for name in ("harness", "platforms", "reporting"):
    for module in pkgutil.walk_packages(import_module(name).__path__, name + "."):
        if not module.name.endswith("__main__"):
            import_module(module.name)

from tests.harness import node_facts
sys.modules["harness.spec"]._has_facts = node_facts.where_asked

def look_after(request):
    if request["terminal"]:  # it stays open until the session has opened it: whoever reads it would see its end
        os.open(request["terminal"], os.O_RDWR | os.O_NOCTTY)
    session = os.fork()
    if session == 0:
        run(request)
    note(request["files"] + "/pid", session)
    note(request["files"] + "/status", os.waitstatus_to_exitcode(os.waitpid(session, 0)[1]))
    os._exit(0)

def note(path, number):
    with open(path + ".draft", "w") as file:
        file.write(str(number))
    os.rename(path + ".draft", path)

def run(request):
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and children inherit that
    if request["terminal"]:
        standard = [os.open(request["terminal"], os.O_RDWR)] * 3
    else:
        standard = [os.open(os.devnull, os.O_RDONLY)]
        standard += [os.open(f"{request['files']}/{name}", os.O_WRONLY | os.O_CREAT) for name in ("out", "errors")]
    for place, descriptor in enumerate(standard):
        os.dup2(descriptor, place)
    for descriptor in set(standard):
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.path.insert(0, request["folder"])
    sys.argv[1:] = request["arguments"]
    runpy.run_module(request["program"], run_name="__main__", alter_sys=True)
    sys.exit()

print("ready", flush=True)
children = []
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        look_after(json.loads(line))
    children.append(child)
for child in children:
    os.waitpid(child, 0)
"""


@dataclass(frozen=True)
class Session:
    """A session of pytest, or a command, in a process of its own, and the files in which it is described."""

    folder: Path

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())

    @property
    def status(self) -> int | None:
        """Its exit status, or minus the signal that has ended it; None while it lives."""
        path = self.folder / "status"
        return int(path.read_text()) if path.exists() else None

    @property
    def out(self) -> str:
        return self._read("out")

    @property
    def errors(self) -> str:
        return self._read("errors")

    @property
    def said(self) -> str:
        return self.out + self.errors

    def _read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def until(self, true: Callable[[], object]) -> None:
        """Wait until this is true, which the session brings about."""
        until(lambda: true() or self.status is not None)
        assert true(), self.said

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it without a word, if it lives."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                self.send(signal.SIGKILL)
            self.ends()

    def ends(self) -> int:
        """Wait for its end. Returns its exit status."""
        until(lambda: self.status is not None, f"a session ends: {self.said}")
        assert self.status is not None
        return self.status


class Nursery:
    """The process that forks them. Each of them is ended by whoever begins it."""

    def __init__(self, folder: Path) -> None:
        """folder: an empty one."""
        self.folder, self.count = folder, 0
        (folder / "test_none.py").write_text("")
        (folder / "pytest.ini").write_text((ROOT / "pytest.ini").read_text())
        command = [sys.executable, "-c", NURSERY, str(folder)]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=folder, env=environ, text=True)
        assert self.process.stdout is not None
        said = []
        while not said or said[-1] != "ready\n":
            said.append(self.process.stdout.readline())
            assert said[-1], "".join(said)

    def begin(
        self,
        folder: Path,
        *arguments: str,
        program: str = "pytest",
        terminal: str | None = None,
        without: str = "nothing",
        **environ: str,
    ) -> Session:
        """Begin a session in a folder, as `pytest ARGUMENTS` typed there.

        Args:
            program: pytest, or a package that has commands.
            terminal: the path of a terminal that it controls; without one, its words go into a file.
            without: what begins with this is none of its variables.
            environ: variables beside those of this process.
        """
        self.count += 1
        session = Session(self.folder / str(self.count))
        session.folder.mkdir()
        request = {
            "files": str(session.folder),
            "folder": str(folder),
            "program": program,
            "arguments": arguments,
            "terminal": terminal,
            "environ": {name: value for name, value in os.environ.items() if not name.startswith(without)} | environ,
        }
        assert self.process.stdin is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        until((session.folder / "pid").exists, "a session begins")
        return session

    def end(self) -> None:
        self.process.communicate()
