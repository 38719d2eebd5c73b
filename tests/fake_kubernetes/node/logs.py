"""Container logs as containerd writes and the kubelet reads them: CRI lines in a file per start of a container.

A line is `<RFC 3339 time, nanoseconds> stdout|stderr F|P <text>`. P (partial) pieces have no newline of their own: of a
line over 16 KiB all pieces but the last, and what a container has left without a newline when it ends or its log is
rotated. A carriage return before a newline is dropped with that. A rotation renames the file and begins a new one; a
request reads only the newest file.

A follow reads its file to the end and then waits for news: that lines were written, or that there is a new file. For
each new file that it is told of it opens the newest. So one that is held up by its reader skips files, and begins the
newest more than once. It is told nothing before it has read its first file to the end. When the container is over it
ends with the file that it has open, whether there is a newer one or not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

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


def nano_timestamp(unix_ns: int) -> str:
    seconds, nanos = divmod(unix_ns, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanos:09d}Z"


class LogFile:
    """The log of one start of one container: written by whoever runs it, read by any number of requests. `clock`: in
    nanoseconds."""

    def __init__(self, path: Path, clock: Callable[[], int] = time.time_ns) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._clock = path, clock
        self._stamped_ns = 0
        self.size = 0  # of the newest file
        self.waiting = 0  # follows that have read all there is
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
            out = []
            for line in lines:
                out += self._cut(stream, line.removesuffix(b"\r"), b"F")
            while len(rest) > LONGEST:
                out.append(self._cri(stream, b"P", rest[:LONGEST]))
                rest = rest[LONGEST:]
            self._rest[stream] = rest
            self._append(out)

    def _cut(self, stream: str, line: bytes, tag: bytes) -> list[bytes]:
        pieces = [line[at : at + LONGEST] for at in range(0, len(line), LONGEST)] or [b""]
        return [*(self._cri(stream, b"P", piece) for piece in pieces[:-1]), self._cri(stream, tag, pieces[-1])]

    def _cri(self, stream: str, tag: bytes, text: bytes) -> bytes:
        """No two have the same time."""
        self._stamped_ns = max(self._clock(), self._stamped_ns + 1)
        return b"%s %s %s %s\n" % (nano_timestamp(self._stamped_ns).encode(), stream.encode(), tag, text)

    def _append(self, out: list[bytes]) -> None:
        if out:
            self.size += self._file.write(b"".join(out))
            self._written += 1
            self._changed.notify_all()

    def _flush(self) -> None:
        """What has no newline yet."""
        self._append([self._cri(stream, b"P", rest) for stream, rest in self._rest.items() if rest])
        self._rest.clear()

    def close(self) -> None:
        """The container has ended: what it left without a newline is written now. May be called twice."""
        with self._changed:
            if not self._closed:
                self._flush()
                self._closed = True
                self._file.close()
                self._changed.notify_all()

    def rotate(self) -> None:
        """As the kubelet does at 10 MiB by default. A line that is half written is cut in two pieces."""
        with self._changed:
            if self._closed:
                return
            self._flush()
            self._file.close()
            self._path.rename(self._path.with_name(f"{self._path.name}.{self._rotations}"))
            self._rotations += 1
            self.size = 0
            self._file = self._path.open("ab", buffering=0)
            self._changed.notify_all()

    def wake(self) -> None:
        """Lets those who follow look around."""
        with self._changed:
            self._nudges += 1
            self._changed.notify_all()

    def _state(self) -> tuple[int, bool, int, int]:
        return self._written, self._closed, self._rotations, self._nudges

    def records(self, *, follow: bool) -> Iterator[Record | None]:
        """From the beginning of the newest file; None when nothing came for a while (only when following)."""
        if not follow:
            with self._path.open("rb") as file:
                yield from _whole_lines(file)
            return
        seen = self._state()
        for record in self.followed():
            if record is not None:
                yield record
                continue
            with self._changed:
                self.waiting += 1
                self._changed.wait_for(lambda: self._state() != seen, IDLE_S)  # noqa: B023
                self.waiting -= 1
                before, seen = seen, self._state()
            if before[:3] == seen[:3]:
                yield None

    def followed(self) -> Iterator[Record | None]:
        """As a follow gives it; None: there is nothing for now."""
        told: int | None = None  # of how many new files
        file, runs = self._path.open("rb"), True
        try:
            while True:
                yield from _whole_lines(file)
                if not runs:
                    return
                if told is None:
                    told = self._rotations
                elif self._closed:
                    runs = False
                elif told < self._rotations:
                    told += 1
                    file.close()
                    file = self._path.open("rb")
                else:
                    yield None
        finally:
            file.close()


def _whole_lines(file: BinaryIO) -> Iterator[Record]:
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
