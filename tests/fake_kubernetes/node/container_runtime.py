"""The client of the container runtime: starts the runtime, requests containers, writes their logs."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

PATIENCE_S = 60.0
TOGETHER_S = 0.002  # output within this time counts as simultaneous
# containerd reads a container's two streams in two threads, so the order of two lines is open.
# Here the later one comes first.
ORDER, LAST = {"stderr": 0, "stdout": 1}, 2
Tell = Callable[[dict[str, Any]], None]


class Log(Protocol):
    """The log that gets a container's output."""

    def write(self, stream: str, data: bytes) -> None: ...

    @property
    def size(self) -> int: ...

    def rotate(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class _Open:
    """A container that still runs, or whose output has not ended."""

    log: Log
    tell: Tell
    log_max: int
    log_every_s: float
    rotated_s: float
    pipes: int = 2
    last: dict[str, Any] | None = None


class ContainerRuntime:
    """All containers of a cluster. The first container waits until the runtime has started.

    If `isolated`, each container has its own Linux namespaces; else it is a plain process.
    """

    def __init__(self, folder: Path, *, plain: bool = False) -> None:
        self._socket, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-S", str(Path(__file__).parent / "runtime"), *(["--plain"] if plain else [])]
        self.errors = folder / "runtime.log"
        with self.errors.open("wb") as errors, theirs:
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=errors, stderr=errors, cwd="/")
        self._open: dict[str, _Open] = {}
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._partial = b""
        self._isolated = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ, (LAST, self._messages))
        self._thread = threading.Thread(target=self._pump, name="containers", daemon=True)
        self._thread.start()

    @property
    def isolated(self) -> bool:
        """Wait until the runtime knows whether this machine permits namespaces."""
        if not self._ready.wait(PATIENCE_S):
            raise RuntimeError(f"the container runtime does not start: {self.errors.read_text()}")
        return self._isolated

    def run(self, spec: dict[str, Any], log: Log, tell: Tell, *, log_max: int = 0, log_every_s: float = 0.0) -> None:
        """Start a container. Its messages go to `tell`, its output to `log`.

        `tell` gets {"is": "running"} and later {"is": "ended", "code", "oom"}, or only {"is": "unstartable", "why"}.
        The log is rotated at `log_max` bytes (0: never), but not within `log_every_s` of the last rotation.
        """
        pipes = [os.pipe() for _ in range(2)]
        one = self._open[spec["id"]] = _Open(log, tell, log_max, log_every_s, time.monotonic())
        for stream, (read, _) in zip(("stdout", "stderr"), pipes, strict=True):
            reader = self._reader(spec["id"], one, stream, read)
            self._selector.register(read, selectors.EVENT_READ, (ORDER[stream], reader))
        self._send({"do": "run", **spec}, [write for _, write in pipes])
        for _, write in pipes:
            os.close(write)

    def signal(self, container: str, number: int) -> None:
        """Send a signal to the first process of a container. An ended container is no error."""
        self._send({"do": "signal", "container": container, "number": int(number)})

    def tmpfs(self, path: Path, size: int) -> None:
        """Mount a file system in memory for later containers. `size` is in bytes, 0 means no limit."""
        self._send({"do": "tmpfs", "path": str(path), "size": size})

    def unmount(self, path: Path) -> None:
        self._send({"do": "unmount", "path": str(path)})

    def _send(self, request: dict[str, Any], files: list[int] | None = None) -> None:
        with self._lock, contextlib.suppress(OSError):  # the runtime is closed, and all containers have ended
            if files:
                socket.send_fds(self._socket, [b"\n"], files)
            self._socket.sendall(json.dumps(request).encode() + b"\n")

    def _pump(self) -> None:
        while self._selector.get_map():
            self._selector.select()
            time.sleep(TOGETHER_S)
            ready = [key for key, _ in self._selector.select(0)]
            for _order, react in sorted((key.data for key in ready), key=itemgetter(0)):
                react()

    def _messages(self) -> None:
        data = self._socket.recv(1 << 16)
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message["is"] == "ready":
                self._isolated = message["isolated"]
                self._ready.set()
            elif message["is"] == "running":
                self._open[message["id"]].tell(message)
            else:
                self._open[message["id"]].last = message
                self._finish_if_ended(message["id"])
        if not data:
            self._selector.unregister(self._socket)
            self._ready.set()

    def _reader(self, container: str, one: _Open, stream: str, fd: int) -> Callable[[], None]:
        def read() -> None:
            data = os.read(fd, 1 << 16)
            one.log.write(stream, data)
            now_s = time.monotonic()
            if 0 < one.log_max < one.log.size and now_s - one.rotated_s >= one.log_every_s:
                one.log.rotate()
                one.rotated_s = now_s
            if not data:
                self._selector.unregister(fd)
                os.close(fd)
                one.pipes -= 1
                self._finish_if_ended(container)

        return read

    def _finish_if_ended(self, container: str) -> None:
        one = self._open[container]
        if one.last is not None and not one.pipes:
            one.log.close()
            del self._open[container]
            one.tell(one.last)

    def close(self) -> None:
        """End every process of every container, and wait for that."""
        self._socket.shutdown(socket.SHUT_WR)
        self._process.wait(PATIENCE_S)
        self._thread.join(PATIENCE_S)
        self._socket.close()
        self._selector.close()
