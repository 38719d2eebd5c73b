"""Containers: processes of this machine, whose output goes to a log. One thread follows all of a cluster."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from tests.fake_kubernetes.node.logs import LogFile

MARK = "KUBE_CONTAINER"  # in the environment of all processes of a container
TOGETHER_S = 0.002  # output within this time counts as simultaneous
# containerd reads a container's two streams in two threads, so the order of two lines is open.
# Here the later one comes first.
ORDER, LAST = {"stderr": 0, "stdout": 1}, 2
FAILED = "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
FAILED += "runc create failed: unable to start container process: "
# Before a program that is to have a host name of its own. It stays the same process.
AS_ROOT = () if os.geteuid() == 0 else ("--map-root-user",)
NAMED = ("unshare", "--uts", *AS_ROOT, "sh", "-c", 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"')
Tell = Callable[[dict[str, Any]], None]


@dataclass
class Container:
    """What a container is started with."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    host_name: str = ""  # its own; else this machine's
    id: str = field(default_factory=lambda: os.urandom(32).hex())


@dataclass
class _Running:
    process: subprocess.Popen[bytes]
    log: LogFile
    tell: Tell
    open: int = 3  # two streams, and the process itself


class ContainerRuntime:
    """All containers of a cluster. Each is a session of processes of this machine."""

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}
        self._selector = selectors.DefaultSelector()
        self._wakes, self._wake = os.pipe()
        self._selector.register(self._wakes, selectors.EVENT_READ, (LAST, lambda: os.read(self._wakes, 1 << 16)))
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._follow, name="containers", daemon=True)
        self._thread.start()

    def run(self, container: Container, log: LogFile, tell: Tell) -> None:
        """Start a container. Its messages go to `tell`, its output to `log`.

        `tell` gets {"is": "running"} and later {"is": "ended", "code"}, or only {"is": "unstartable", "why"}.
        """
        try:
            process = _started(container)
        except OSError as error:
            log.close()
            tell({"is": "unstartable", "id": container.id, "t": time.time(), "why": _why(container, error)})
            return
        one = _Running(process, log, tell)
        with self._lock:
            self._running[container.id] = one
        tell({"is": "running", "id": container.id, "t": time.time()})
        assert process.stdout is not None
        assert process.stderr is not None
        for name, stream in (("stdout", process.stdout), ("stderr", process.stderr)):
            self._watch(stream.fileno(), ORDER[name], self._reader(container.id, one, name, stream.fileno()))
        exit_fd = os.pidfd_open(process.pid)
        self._watch(exit_fd, LAST, lambda: self._exited(container.id, one, exit_fd))
        os.write(self._wake, b".")

    def _watch(self, fd: int, order: int, react: Callable[[], Any]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, (order, react))

    def signal(self, container: str, number: int) -> None:
        """Send a signal to the first process of a container; SIGKILL goes to all. An ended one is no error.

        That process has the number 1 there, so no signal ends it that it does not handle, but SIGKILL.
        """
        with self._lock, contextlib.suppress(KeyError, ProcessLookupError):
            process = self._running[container].process
            if process.returncode is not None:
                return
            if number == signal.SIGKILL:
                os.killpg(process.pid, number)
            elif _handles(process.pid, number):
                os.kill(process.pid, number)

    def _follow(self) -> None:
        while not self._closed or self._running:
            self._selector.select()
            time.sleep(TOGETHER_S)
            ready = [key for key, _ in self._selector.select(0)]
            for _order, react in sorted((key.data for key in ready), key=itemgetter(0)):
                react()

    def _reader(self, container: str, one: _Running, stream: str, fd: int) -> Callable[[], None]:
        def read() -> None:
            data = os.read(fd, 1 << 16)
            one.log.write(stream, data)
            if not data:
                self._selector.unregister(fd)
                self._closes(container, one)

        return read

    def _exited(self, container: str, one: _Running, exit_fd: int) -> None:
        """What its first process has left behind ends with it."""
        self._selector.unregister(exit_fd)
        os.close(exit_fd)
        with self._lock:
            one.process.wait()
        _kill_marked(_mark(container))
        self._closes(container, one)

    def _closes(self, container: str, one: _Running) -> None:
        one.open -= 1
        if one.open:
            return
        for stream in (one.process.stdout, one.process.stderr):
            assert stream is not None
            stream.close()
        one.log.close()
        with self._lock:
            del self._running[container]
        code = one.process.returncode
        one.tell({"is": "ended", "id": container, "t": time.time(), "code": code if code >= 0 else 128 - code})

    def close(self) -> None:
        """End every process of every container, and wait for that."""
        with self._lock:
            left = list(self._running)
        for container in left:
            self.signal(container, signal.SIGKILL)
        self._closed = True
        os.write(self._wake, b".")
        self._thread.join()
        self._selector.close()
        for fd in (self._wakes, self._wake):
            os.close(fd)


def _started(container: Container) -> subprocess.Popen[bytes]:
    Path(container.cwd).mkdir(parents=True, exist_ok=True)
    name, _, value = _mark(container.id).partition("=")
    argv, program = container.argv, _found(container.argv[0], container.env.get("PATH", ""))
    if container.host_name:
        argv, program = [*NAMED, container.host_name, program, *argv[1:]], None
    return subprocess.Popen(
        argv,
        executable=program,
        env={**container.env, name: value},
        cwd=container.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _found(name: str, path: str) -> str:
    """The program's file. FileNotFoundError."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        if os.access(candidate := Path(folder or ".") / name, os.X_OK) and candidate.is_file():
            return str(candidate)
    raise FileNotFoundError(errno.ENOENT, "executable file not found in $PATH")


def _why(container: Container, error: OSError) -> str:
    """In the words of the runtime."""
    name, words = container.argv[0], (error.strerror or "").lower()
    if words == "executable file not found in $path":
        words = "executable file not found in $PATH"
    elif isinstance(error, FileNotFoundError):
        words = f"stat {name}: {words}"
    return f'{FAILED}exec: "{name}": {words}: unknown'


def _handles(pid: int, number: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def _mark(container: str) -> str:
    return f"{MARK}={os.getpid()}/{container}"


def _kill_marked(mark: str) -> None:
    """Whatever they did to escape."""
    found = True
    while found:
        found = False
        for path in Path("/proc").iterdir():
            with contextlib.suppress(ValueError, OSError):
                if path.name.isdigit() and mark.encode() in (path / "environ").read_bytes():
                    os.kill(int(path.name), signal.SIGKILL)
                    found = True
