"""The files of one job's logs, FOLDER/log and FOLDER/logs/<pod>.log, and a file that says how far they are complete.

Another process goes on from there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from platforms import atomic_file
from platforms.job import RefusedError
from platforms.schedulers.kubernetes.log.lines import SECOND, LogLine, Overlap
from platforms.schedulers.kubernetes.log.starts import ContainerStart

MERGED = "log"
FOLDER = "logs"
STATE = f"{FOLDER}/.state.json"
FLUSH_S = 0.25
FLUSH_BYTES = 1 << 20
STATE_S = 1.0
STATE_SHARE = 20  # writing the state takes at most this fraction of the time: one in 20
LONGEST = 200  # bytes of a file's name
NODE_BYTES = 10  # of a line on the node, beside its stamp and content


@dataclass
class LogProgress:
    """The progress of one container's log: which start of the container is read, to which line, and what is lost.

    The names of the fields are the keys of the state file.
    """

    pod: str
    container: str
    file: str
    run: str = ""  # the start of the container, as ContainerStart.run names it
    count: int = -1  # its number; the first is 0
    complete: bool = False  # the log of this start is read to its end, as far as that is possible
    overlap: Overlap = field(default_factory=Overlap)
    lost: list[str] = field(default_factory=list)  # sentences about what will never come
    began: int | None = None  # stamp of this start, if it is known
    first: int | None = None  # stamp of its first line that came
    size: int = 0  # bytes that its lines take on the node
    longest: int = 0  # bytes on the node, at a guess, of the longest log of an earlier start

    @property
    def name(self) -> str:
        """The container's name for people."""
        return f"container {self.container} of pod {self.pod}"

    def begin(self, run: str, count: int, began_s: float | None) -> None:
        """Begin with the log of another start of the container, which began at `began_s` in Unix seconds."""
        self.longest = self.node_bytes
        self.run = run
        self.count = count
        self.complete = False
        self.overlap = Overlap()
        self.began = None if began_s is None else int(began_s * SECOND)
        self.first = None
        self.size = 0

    def extend(self, lines: Sequence[LogLine]) -> None:
        """Count lines, which follow those that are known, and remember the last of them."""
        if self.first is None:
            self.first = lines[0].nanos
        self.size += sum(len(line.raw) + NODE_BYTES for line in lines)
        self.overlap.extend(lines)

    @property
    def node_bytes(self) -> int:
        """How long the container's longest log was on its node, at a guess.

        What came before the first line, if anything, was as dense as what came after it: of a log that a node has
        rotated it shows only the end.
        """
        if self.first is None or self.overlap.last is None:
            return self.longest
        began = self.first if self.began is None else self.began
        unseen = max(0, self.first - began)
        seen = max(SECOND, self.overlap.last - self.first)
        return max(self.longest, self.size + self.size * unseen // seen)

    def to_json(self) -> dict[str, object]:
        return {**self.__dict__, "overlap": self.overlap.to_json()}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> LogProgress:
        """Raises KeyError, TypeError, ValueError for something that to_json has not made."""
        return cls(**{**saved, "overlap": Overlap.from_json(**saved["overlap"])})


class LogFiles:
    """Buffers in memory, the files, and their state.

    Hold `lock` while you change the progress of a container together with its file. Methods raise RefusedError when the
    files cannot be written. What was to be written is kept then, and written the next time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.lock = threading.RLock()
        self.containers: dict[str, LogProgress] = {}  # by ContainerStart.key
        self._sizes: dict[str, int] = {}  # bytes by file, without the buffers
        self._open_line = False  # the last line of the merged log has no newline yet
        self._buffers: dict[str, list[bytes]] = {}
        self._buffered = 0
        self._flushed_s = time.monotonic()
        self._saved_s = self._flushed_s
        self._save_cost_s = 0.0
        self.trouble = ""  # why the files could not be written, if the last attempt failed
        self._changed = False  # whether the state differs from the saved one
        with self._refusing():
            (folder / FOLDER).mkdir(parents=True, exist_ok=True)
            self._load()

    def progress(self, start: ContainerStart) -> LogProgress:
        """Return the progress of a container. Another pod of the same name goes on in the same file."""
        with self.lock:
            if start.key not in self.containers:
                self.containers[start.key] = LogProgress(start.pod, start.container, self._file_of(start))
            return self.containers[start.key]

    def _file_of(self, start: ContainerStart) -> str:
        name = start.pod
        if not start.alone:
            name += f".{start.container}"
        others = {progress.file for progress in self.containers.values() if progress.name != start.name}
        if len(name) > LONGEST or f"{FOLDER}/{name}.log" in others:
            digest = hashlib.sha256(f"{start.pod}/{start.container}".encode()).hexdigest()[:8]
            name = f"{name[:LONGEST]}-{digest}"
        return f"{FOLDER}/{name}.log"

    # --- writing -----------------------------------------------------------------------------------------------------

    def add(self, progress: LogProgress, data: bytes) -> None:
        """Add whole lines, or the last one, to a container's file and to the merged log.

        The caller holds the lock until `progress` says that it has these lines.
        """
        with self.lock:
            self._buffers.setdefault(progress.file, []).append(data)
            merged = self._buffers.setdefault(MERGED, [])
            if self._open_line:
                merged.append(b"\n")
            merged.append(data)
            self._open_line = not data.endswith(b"\n")
            self._buffered += len(data)
            self.mark_changed()

    def mark_changed(self) -> None:
        """Note that the progress of a container has changed."""
        self._changed = True

    @property
    def due(self) -> bool:
        return self._buffered >= FLUSH_BYTES or time.monotonic() - self._flushed_s >= FLUSH_S

    def flush(self, *, save: bool = False) -> None:
        """Write the buffers to the files, and the state when it is due or `save` is set."""
        with self.lock, self._refusing():
            for name, chunks in list(self._buffers.items()):
                self._write(name, b"".join(chunks))
                del self._buffers[name]
            self._buffered = 0
            self._flushed_s = time.monotonic()
            pause_s = max(STATE_S, STATE_SHARE * self._save_cost_s)
            if self._changed and (save or self._flushed_s - self._saved_s >= pause_s):
                self._save()
            self.trouble = ""

    def _write(self, name: str, data: bytes) -> None:
        """Write where the data belongs: a failed attempt may have left some of it there."""
        size = self._sizes.get(name, 0)
        path = self._folder / name
        path.touch()
        with path.open("r+b", buffering=0) as file:
            file.seek(size)
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
        self._sizes[name] = size + len(data)

    def _save(self) -> None:
        began_s = time.monotonic()
        state = {
            "schema": 1,
            "sizes": self._sizes,
            "open_line": self._open_line,
            "containers": {key: progress.to_json() for key, progress in self.containers.items()},
        }
        path = self._folder / STATE
        atomic_file.write_text(path, json.dumps(state, separators=(",", ":")))
        self._saved_s = time.monotonic()
        self._changed = False
        self._save_cost_s = self._saved_s - began_s

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.trouble = f"{self._folder}: its logs cannot be written: {error.strerror or error}"
            raise RefusedError(self.trouble) from None

    # --- going on ----------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Load what an earlier process has left, and cut off what it wrote after it saved its state: it comes again."""
        try:
            state = json.loads((self._folder / STATE).read_bytes())
            sizes = {str(name): int(size) for name, size in state["sizes"].items()}
            containers = {str(key): LogProgress.from_json(saved) for key, saved in state["containers"].items()}
            open_line = bool(state["open_line"])
            is_usable = all((self._folder / name).stat().st_size >= size for name, size in sizes.items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            is_usable = False
        if is_usable:
            self._sizes = sizes
            self.containers = containers
            self._open_line = open_line
        for path in [self._folder / MERGED, *(self._folder / FOLDER).glob("*.log")]:
            if path.exists():
                os.truncate(path, self._sizes.get(str(path.relative_to(self._folder)), 0))

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, offset: int, limit: int) -> bytes:
        """Return bytes of the merged log."""
        with self.lock:
            self.flush()
            size = self._sizes.get(MERGED, 0)
        if offset >= size:
            return b""
        with self._refusing(), (self._folder / MERGED).open("rb") as file:
            file.seek(offset)
            return file.read(min(limit, size - offset))
