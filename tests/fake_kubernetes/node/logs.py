"""Container logs as containerd writes and the kubelet reads them: CRI lines in a file per start of a container.

A line is `<RFC 3339 time, nanoseconds> stdout|stderr F|P <text>`. P (partial) pieces have no newline of their own. They
are all pieces but the last of a line over 16 KiB, and an unterminated line when the container ends or its log is
rotated. A carriage return before a newline is dropped. A rotation renames the file and starts a new one.
A request reads only the newest file.

A follow reads its file to the end and then waits for new lines or a new file. For each rotation that it learns of it
opens the newest file. So a follow with a slow reader skips files and reads the newest more than once. It learns of no
rotation before it has read its first file to the end. When the container has ended it stops after the file that it has
open, even if there is a newer one.
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
    """The log of one start of a container, with one writer and any number of readers. `clock` is in nanoseconds."""

    def __init__(self, path: Path, clock: Callable[[], int] = time.time_ns) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._clock = path, clock
        self._stamped_ns = 0
        self.size = 0  # of the newest file
        self._changed = threading.Condition()
        self._rest: dict[str, bytes] = {}
        self._written = 0
        self._rotations = 0
        self._nudges = 0
        self._closed = False
        self._file = path.open("ab", buffering=0)

    def write(self, stream: str, data: bytes) -> None:
        """Write output of `stdout` or `stderr`, in any pieces."""
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
        """Return one CRI line. No two lines have the same time."""
        self._stamped_ns = max(self._clock(), self._stamped_ns + 1)
        return b"%s %s %s %s\n" % (nano_timestamp(self._stamped_ns).encode(), stream.encode(), tag, text)

    def _append(self, out: list[bytes]) -> None:
        if out:
            self.size += self._file.write(b"".join(out))
            self._written += 1
            self._changed.notify_all()

    def _flush(self) -> None:
        """Write the unterminated lines."""
        self._append([self._cri(stream, b"P", rest) for stream, rest in self._rest.items() if rest])
        self._rest.clear()

    def close(self) -> None:
        """Write the unterminated lines and close the file. May be called twice."""
        with self._changed:
            if not self._closed:
                self._flush()
                self._closed = True
                self._file.close()
                self._changed.notify_all()

    def rotate(self) -> None:
        """Start a new file, as the kubelet does at 10 MiB by default. An unterminated line is cut into two pieces."""
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
        """Wake all follows."""
        with self._changed:
            self._nudges += 1
            self._changed.notify_all()

    def _state(self) -> tuple[int, bool, int, int]:
        return self._written, self._closed, self._rotations, self._nudges

    def records(self, *, follow: bool) -> Iterator[Record | None]:
        """Yield the records from the start of the newest file; a follow yields None after a while without new ones."""
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
                self._changed.wait_for(lambda: self._state() != seen, IDLE_S)  # noqa: B023
                before, seen = seen, self._state()
            if before[:3] == seen[:3]:
                yield None

    def followed(self) -> Iterator[Record | None]:
        """Yield records as a follow sends them; None when there is nothing more for now."""
        known_rotations: int | None = None
        file, runs = self._path.open("rb"), True
        try:
            while True:
                yield from _whole_lines(file)
                if not runs:
                    return
                if known_rotations is None:
                    known_rotations = self._rotations
                elif self._closed:
                    runs = False
                elif known_rotations < self._rotations:
                    known_rotations += 1
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
    """All logs below one folder. open() returns a log to write, find() one to read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._down: set[str] = set()
        self._outages: dict[str, int] = {}  # by node
        self._files: dict[tuple[str, str, int], LogFile] = {}

    def open(self, pod_uid: str, container: str, restart: int = 0) -> LogFile:
        """Create the log for a start of a container; 0 is the first start."""
        log = LogFile(self._folder / pod_uid / container / f"{restart}.log")
        self._files[pod_uid, container, restart] = log
        return log

    def find(self, pod_uid: str, container: str, restart: int) -> LogFile | None:
        return self._files.get((pod_uid, container, restart))

    def unreachable(self, node: str) -> bool:
        """Return whether the node's kubelet is down."""
        return node in self._down

    def outages(self, node: str) -> int:
        """Return how often the node's kubelet has gone down."""
        return self._outages.get(node, 0)

    def disconnect(self, node: str) -> None:
        """Take a node's kubelet down: reads from it end silently."""
        self._outages[node] = self.outages(node) + 1
        self._down.add(node)
        self.wake()

    def wake(self) -> None:
        """Wake all follows of all logs."""
        for log in list(self._files.values()):
            log.wake()

    def connect(self, node: str) -> None:
        self._down.discard(node)

    def connected(self, node: str, outages: int, pieces: Iterator[bytes | None]) -> Iterator[bytes | None]:
        """Yield the pieces until the kubelet goes down once more."""
        for piece in pieces:
            if self.outages(node) != outages:
                return
            yield piece

    def close(self) -> None:
        """End all follows."""
        for log in list(self._files.values()):
            log.close()
