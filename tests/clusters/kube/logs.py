"""Container logs as containerd writes and the kubelet reads them: CRI lines in a file per start of a container.

A line is `<RFC 3339 time, nanoseconds> stdout|stderr F|P <text>`. P (partial) pieces have no newline of their own: of a
line over 16 KiB all pieces but the last, and what a container has left without a newline when it ends. A carriage
return before a newline is dropped with that. A rotation
renames the file and begins a new one; a new request reads only the current file, a follow goes on from one to the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LONGEST = 16 * 1024
IDLE_S = 1.0


@dataclass(frozen=True)
class Record:
    """One CRI line; `text` ends with a newline unless it is a piece."""

    timestamp: str
    text: bytes


def parsed(line: bytes) -> Record:
    moment, _stream, tag, text = line.split(b" ", 3)
    return Record(moment.decode(), text if tag == b"F" else text[:-1])


def nano_timestamp() -> str:
    seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanos:09d}Z"


class LogFile:
    """The log of one start of one container: written by whoever runs it, read by any number of requests."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._changed = threading.Condition()
        self._rest: dict[str, bytes] = {}
        self._written = 0
        self._rotations = 0
        self._nudges = 0
        self._closed = False
        self._file = path.open("ab", buffering=0)

    def write(self, stream: str, data: bytes) -> None:
        """What came out of `stdout` or `stderr`, in any pieces."""
        with self._changed:
            *lines, rest = (self._rest.get(stream, b"") + data).split(b"\n")
            now, out = nano_timestamp(), []
            for line in lines:
                out += self._cut(stream, now, line.removesuffix(b"\r"), b"F")
            while len(rest) > LONGEST:
                out.append(_cri(now, stream, b"P", rest[:LONGEST]))
                rest = rest[LONGEST:]
            self._rest[stream] = rest
            self._append(out)

    def _cut(self, stream: str, now: str, line: bytes, tag: bytes) -> list[bytes]:
        pieces = [line[at : at + LONGEST] for at in range(0, len(line), LONGEST)] or [b""]
        return [_cri(now, stream, b"P", piece) for piece in pieces[:-1]] + [_cri(now, stream, tag, pieces[-1])]

    def _append(self, out: list[bytes]) -> None:
        if out:
            self._file.write(b"".join(out))
            self._written += 1
            self._changed.notify_all()

    def close(self) -> None:
        """The container has ended: what it left without a newline is written now. May be called twice."""
        with self._changed:
            if not self._closed:
                now = nano_timestamp()
                self._append([_cri(now, stream, b"P", rest) for stream, rest in self._rest.items() if rest])
                self._closed = True
                self._file.close()
                self._changed.notify_all()

    def rotate(self) -> None:
        """As the kubelet does at 10 MiB by default."""
        with self._changed:
            if self._closed:
                return
            self._file.close()
            self._path.rename(self._at(self._rotations, current=False))
            self._rotations += 1
            self._file = self._path.open("ab", buffering=0)
            self._changed.notify_all()

    def _at(self, rotation: int, *, current: bool) -> Path:
        return self._path if current else self._path.with_name(f"{self._path.name}.{rotation}")

    def wake(self) -> None:
        """Lets those who follow look around."""
        with self._changed:
            self._nudges += 1
            self._changed.notify_all()

    def _state(self) -> tuple[int, bool, int, int]:
        return self._written, self._closed, self._rotations, self._nudges

    def records(self, *, follow: bool) -> Iterator[Record | None]:
        """From the beginning of the current file; None when nothing came for a while (only when following)."""
        with self._changed:
            rotation, file = self._rotations, self._path.open("rb")
        try:
            while True:
                with self._changed:
                    seen = self._state()
                yield from _whole_lines(file)
                _, closed, latest, _ = seen
                if not follow or (closed and rotation == latest):
                    return
                if rotation < latest:  # what it will ever hold has been read
                    file.close()
                    rotation += 1
                    with self._changed:
                        file = self._at(rotation, current=rotation == self._rotations).open("rb")
                    continue
                with self._changed:
                    self._changed.wait_for(lambda seen=seen: self._state() != seen, IDLE_S)  # type: ignore[misc]
                    now = self._state()
                if now[:3] == seen[:3]:
                    yield None
        finally:
            file.close()


def _cri(now: str, stream: str, tag: bytes, text: bytes) -> bytes:
    return b"%s %s %s %s\n" % (now.encode(), stream.encode(), tag, text)


def _whole_lines(file) -> Iterator[Record]:  # type: ignore[no-untyped-def]
    while (line := file.readline()).endswith(b"\n"):
        yield parsed(line)
    file.seek(-len(line), 1)


class LogSource:
    """All logs under one folder: `open()` to write one, `find()` to read it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._down: set[str] = set()
        self._outages: dict[str, int] = {}  # by node
        self._files: dict[tuple[str, str, int], LogFile] = {}

    def open(self, pod_uid: str, container: str, restart: int = 0) -> LogFile:
        """A new log, for the `restart`-th start (0: the first) of that container."""
        log = LogFile(self._folder / pod_uid / container / f"{restart}.log")
        self._files[pod_uid, container, restart] = log
        return log

    def find(self, pod_uid: str, container: str, restart: int) -> LogFile | None:
        return self._files.get((pod_uid, container, restart))

    def rotate(self, pod_uid: str) -> None:
        """Of all containers of a pod that run."""
        for (uid, _, _), log in list(self._files.items()):
            if uid == pod_uid:
                log.rotate()

    def unreachable(self, node: str) -> bool:
        """Its kubelet does not answer."""
        return node in self._down

    def outages(self, node: str) -> int:
        """How often its kubelet has gone until now."""
        return self._outages.get(node, 0)

    def disconnect(self, node: str) -> None:
        """The kubelet of that node is gone: what is read from it ends, without a word."""
        self._outages[node] = self.outages(node) + 1
        self._down.add(node)
        self.wake()

    def wake(self) -> None:
        """Lets all who follow look around."""
        for log in list(self._files.values()):
            log.wake()

    def connect(self, node: str) -> None:
        self._down.discard(node)

    def connected(self, node: str, outages: int, pieces: Iterator[bytes | None]) -> Iterator[bytes | None]:
        """As long as the kubelet stays that was there at that outage."""
        for piece in pieces:
            if self.outages(node) != outages:
                return
            yield piece

    def close(self) -> None:
        """Ends all follows."""
        for log in list(self._files.values()):
            log.close()
