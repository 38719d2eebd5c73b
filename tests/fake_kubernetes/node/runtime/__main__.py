"""The container runtime of the test cluster: one process that starts containers, and enforces their memory.

Talks JSON lines over the socket that is its standard input; with each container to run come the two files that it is to
write to. It and all containers end when that socket is closed. Run by its folder's path, and imports nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import container
import resident
import syscalls

FAILED = "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
FAILED += "runc create failed: unable to start container process: "
LOOK_S = 0.05  # at the memory of those that have a limit


@dataclass
class Running:
    """A container from fork to exit."""

    id: str
    pid: int
    exit: int  # pidfd
    word: int  # pipe that ends at the exec, or says why there is none
    memory: int  # bytes, 0: any
    complaint: bytes = b""
    oom: bool = False


class Runtime:
    """The loop and what it serves."""

    def __init__(self, control: socket.socket, *, isolated: bool) -> None:
        self.isolated = isolated
        self._control = control
        self._partial = b""
        self._files: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._containers: dict[str, Running] = {}
        self._pause_s = LOOK_S
        self._watch(control.fileno(), self._requests)
        self._tell({"is": "ready", "isolated": isolated})

    def _watch(self, fd: int, react: Callable[[], None]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, react)

    def _forget(self, fd: int) -> None:
        self._selector.unregister(fd)
        os.close(fd)

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.sendall(json.dumps(message).encode() + b"\n")

    def serve(self) -> None:
        """Until nobody speaks to us any more; then every container is dead."""
        while self._control.fileno() >= 0:
            limited = any(one.memory for one in self._containers.values())
            for key, _ in self._selector.select(self._pause_s if limited else None):
                key.data()
            if limited:
                self._limit_memory()

    def _requests(self) -> None:
        data, files, _, _ = socket.recv_fds(self._control, 1 << 16, 64)
        for fd in files:
            os.set_inheritable(fd, False)  # no other container may hold what this one's end closes
        self._files += files
        if not data:
            self._end_all()
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in filter(None, lines):
            request = json.loads(line)
            getattr(self, "do_" + request.pop("do"))(**request)

    def _end_all(self) -> None:
        for one in self._containers.values():
            self.do_signal(one.id, signal.SIGKILL)
        for one in self._containers.values():
            os.waitpid(one.pid, 0)
        if not self.isolated:
            _kill_marked(self._mark())
        self._control.close()

    def _mark(self, container: str = "") -> str:
        """In the environment of processes that no namespace holds together."""
        return f"KUBE_CONTAINER={os.getpid()}/{container}"

    def do_run(self, **spec: Any) -> None:
        """The next two files that came are its output and its errors."""
        if not self.isolated:
            name, _, value = self._mark(spec["id"]).partition("=")
            spec["env"][name] = value
        files, self._files = self._files[:2], self._files[2:]
        word, write = os.pipe()
        pid = syscalls.fork(syscalls.NEW_PIDS) if self.isolated else os.fork()
        if not pid:
            self._child(spec, files, write)
        for fd in (write, *files):
            os.close(fd)
        one = Running(spec["id"], pid, os.pidfd_open(pid), word, spec["memory"])
        self._containers[one.id] = one
        self._watch(one.word, lambda: self._spoke(one))

    def _child(self, spec: dict[str, Any], files: list[int], word: int) -> None:
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            for number, fd in enumerate([os.open("/dev/null", os.O_RDONLY), *files]):
                os.dup2(fd, number)
            container.start(spec, isolated=self.isolated)
        except container.CannotStart as error:
            os.write(word, f"{error}: unknown".encode())
        except BaseException as error:
            os.write(word, f"{type(error).__name__}: {error}: unknown".encode())
        finally:
            os._exit(128)

    def _spoke(self, one: Running) -> None:
        data = os.read(one.word, 1 << 16)
        one.complaint += data
        if data:
            return
        self._forget(one.word)
        if not one.complaint:
            self._tell({"is": "running", "id": one.id, "pid": one.pid, "t": time.time()})
        self._watch(one.exit, lambda: self._exited(one))

    def _exited(self, one: Running) -> None:
        _, status = os.waitpid(one.pid, 0)
        if not self.isolated:
            _kill_marked(self._mark(one.id))
        self._forget(one.exit)
        del self._containers[one.id]
        said = {"id": one.id, "t": time.time()}
        if one.complaint:
            self._tell(said | {"is": "unstartable", "why": FAILED + one.complaint.decode(errors="replace")})
        else:
            code = os.waitstatus_to_exitcode(status)
            self._tell(said | {"is": "ended", "code": code if code >= 0 else 128 - code, "oom": one.oom})

    def do_signal(self, container: str, number: int) -> None:
        """To the container's first process; SIGKILL ends all of it."""
        if container in self._containers:
            pid = self._containers[container].pid
            with contextlib.suppress(ProcessLookupError):
                try:
                    (os.kill if self.isolated else os.killpg)(pid, number)
                except ProcessLookupError:  # it has no group yet: it was forked this moment
                    os.kill(pid, number)

    def do_tmpfs(self, path: str, size: int) -> None:
        """A file system in memory (size in bytes, 0: any), which containers that start later can be given."""
        Path(path).mkdir(parents=True, exist_ok=True)
        if self.isolated:
            syscalls.mount("none", path, "tmpfs", data=f"mode=1777,size={size}" if size else "mode=1777")

    def do_unmount(self, path: str) -> None:
        with contextlib.suppress(OSError):
            syscalls.unmount(path)

    def _limit_memory(self) -> None:
        began = time.monotonic()
        for one in self._containers.values():
            victim = resident.largest_beyond(one.pid, one.memory) if one.memory else None
            if victim is not None:
                one.oom = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
        self._pause_s = max(LOOK_S, 20 * (time.monotonic() - began))


def _kill_marked(mark: str) -> None:
    """Whatever they did to escape."""
    found = True
    while found:
        found = False
        for path in Path("/proc").iterdir():
            with contextlib.suppress(ValueError, OSError):
                alive = path.name.isdigit() and mark.encode() in (path / "environ").read_bytes()
                if alive:
                    os.kill(int(path.name), signal.SIGKILL)
                    found = True


def isolate() -> bool:
    """Namespaces for all that is started from here; False where this machine does not let us make any."""
    uid, gid = os.geteuid(), os.getegid()
    try:
        if uid:
            syscalls.unshare(syscalls.NEW_USERS | syscalls.NEW_MOUNTS)
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        else:
            syscalls.unshare(syscalls.NEW_MOUNTS)
        syscalls.mount("none", "/", flags=syscalls.PRIVATE | syscalls.RECURSIVE)
    except OSError:
        return False
    return _probe()


def _probe() -> bool:
    """Whether a root can be made for a container here."""
    with tempfile.TemporaryDirectory() as folder:
        pid = syscalls.fork(syscalls.NEW_PIDS)
        if not pid:
            try:
                container.enter({"folder": folder, "hostname": "probe", "hosts": "/dev/null", "mounts": []})
                os._exit(0)
            finally:
                os._exit(1)
        return os.waitpid(pid, 0)[1] == 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the tests
    Runtime(socket.socket(fileno=0), isolated="--plain" not in sys.argv and isolate()).serve()
