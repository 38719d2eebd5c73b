"""The files of one job's logs: FOLDER/log, FOLDER/logs/<pod>.log, and how far they are complete, so that another
process goes on from there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from platforms import atomic_file
from platforms.job import RefusedError
from platforms.schedulers.kubernetes.log.lines import Overlap, moment
from platforms.schedulers.kubernetes.log.starts import ContainerStart

MERGED = "log"
FOLDER = "logs"
STATE = f"{FOLDER}/.state.json"
FLUSH_S = 0.25
FLUSH_BYTES = 1 << 20
STATE_S = 1.0
STATE_SHARE = 20  # writing the state takes at most one part in so many of the time
LONGEST = 200  # bytes of a file's name
GAPS = 5  # of a container's log are listed


@dataclass
class LogProgress:
    """How far one container's log is read: of which start of it, to which line, and what of it is lost."""

    pod: str
    container: str
    file: str
    run: str = ""
    count: int = -1
    complete: bool = False  # this start of it is read to its end, as far as it can be
    overlap: Overlap = field(default_factory=Overlap)
    lost: list[str] = field(default_factory=list)
    size: int = 0  # bytes of this start of it on its node, as far as they are known
    gaps: list[list[int]] = field(default_factory=list)  # two stamps, in nanoseconds, and where in the file

    @property
    def name(self) -> str:
        """For people."""
        return f"container {self.container} of pod {self.pod}"

    def begin(self, run: str, count: int) -> None:
        self.run, self.count, self.complete, self.overlap, self.size = run, count, False, Overlap(), 0

    @property
    def problems(self) -> tuple[str, ...]:
        """All that is lost of it."""
        if not self.gaps:
            return tuple(self.lost)
        shown = [f"{moment(after)} and {moment(until)} (at byte {at})" for after, until, at in self.gaps[:GAPS]]
        if len(self.gaps) > GAPS:
            shown.append(f"others up to {moment(self.gaps[-1][1])}, {len(self.gaps)} times in all")
        where = f"lines may be missing in {self.file} between {', between '.join(shown)}"
        return (*self.lost, f"{self.name}: {where}: its node had rotated them away before they could be read")

    def to_json(self) -> dict[str, object]:
        return {**self.__dict__, "overlap": self.overlap.to_json()}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> LogProgress:
        """Raises KeyError, TypeError, ValueError when it is something else."""
        return cls(**{**saved, "overlap": Overlap.from_json(**saved["overlap"])})


class LogFiles:
    """Buffers in memory, files, and the state; `lock` is to be held for everything that concerns two of them.

    Raises RefusedError where files cannot be written; what was to be written is kept, and written the next time.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self.lock = threading.RLock()
        self.tracks: dict[str, LogProgress] = {}
        self._sizes: dict[str, int] = {}
        self._open_line = False  # the last line of the merged log has no newline yet
        self._buffers: dict[str, list[bytes]] = {}
        self._buffered = 0
        self._flushed_s = self._saved_s = clock()
        self._save_cost_s = 0.0
        self.trouble = ""  # why what has come is not in the files
        self._changed = False  # since the state was saved
        with self._refusing():
            (folder / FOLDER).mkdir(parents=True, exist_ok=True)
            self._load()

    def track(self, seen: ContainerStart) -> LogProgress:
        """That of a container. Another pod of the same name goes on in the same file."""
        with self.lock:
            if seen.key not in self.tracks:
                self.tracks[seen.key] = LogProgress(seen.pod, seen.container, self._name(seen))
            return self.tracks[seen.key]

    def _name(self, seen: ContainerStart) -> str:
        name = seen.pod if seen.alone else f"{seen.pod}.{seen.container}"
        others = {each.file for each in self.tracks.values() if each.name != seen.name}
        if len(name) > LONGEST or f"{FOLDER}/{name}.log" in others:
            digest = hashlib.sha256(f"{seen.pod}/{seen.container}".encode()).hexdigest()[:8]
            name = f"{name[:LONGEST]}-{digest}"
        return f"{FOLDER}/{name}.log"

    # --- writing -----------------------------------------------------------------------------------------------------

    def add(self, track: LogProgress, data: bytes) -> None:
        """Whole lines, or the last one. What `track` says of them is to be set before the lock is let go."""
        with self.lock:
            self._buffers.setdefault(track.file, []).append(data)
            self._buffers.setdefault(MERGED, []).append(b"\n" + data if self._open_line else data)
            self._open_line = not data.endswith(b"\n")
            self._buffered += len(data)
            self.note()

    def note(self) -> None:
        """A track has changed."""
        self._changed = True

    @property
    def due(self) -> bool:
        return self._buffered >= FLUSH_BYTES or self._clock() - self._flushed_s >= FLUSH_S

    def flush(self, *, save: bool = False) -> None:
        """Buffers to files, and the state where it is time, or to be saved in any case."""
        with self.lock, self._refusing():
            for name, chunks in list(self._buffers.items()):
                self._write(name, b"".join(chunks))
                del self._buffers[name]
            self._buffered, self._flushed_s = 0, self._clock()
            pause_s = max(STATE_S, STATE_SHARE * self._save_cost_s)
            if self._changed and (save or self._flushed_s - self._saved_s >= pause_s):
                self._save()
            self.trouble = ""

    def _write(self, name: str, data: bytes) -> None:
        """At the place where it belongs, whatever an attempt that failed has left there."""
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
        begun_s = self._clock()
        state = {
            "schema": 1,
            "sizes": self._sizes,
            "open_line": self._open_line,
            "containers": {key: track.to_json() for key, track in self.tracks.items()},
        }
        path = self._folder / STATE
        atomic_file.write_text(path, json.dumps(state, separators=(",", ":")))
        self._saved_s, self._changed = self._clock(), False
        self._save_cost_s = self._saved_s - begun_s

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.trouble = f"{self._folder}: its logs cannot be written: {error.strerror or error}"
            raise RefusedError(self.trouble) from None

    # --- going on ----------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """What a process before has left; whatever came after its last word is cut off, to be read again."""
        try:
            state = json.loads((self._folder / STATE).read_bytes())
            sizes = {str(name): int(size) for name, size in state["sizes"].items()}
            tracks = {str(key): LogProgress.from_json(saved) for key, saved in state["containers"].items()}
            open_line = bool(state["open_line"])
            whole = all((self._folder / name).stat().st_size >= size for name, size in sizes.items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            whole = False
        if whole:
            self._sizes, self.tracks, self._open_line = sizes, tracks, open_line
        for path in [self._folder / MERGED, *(self._folder / FOLDER).glob("*.log")]:
            if path.exists():
                os.truncate(path, self._sizes.get(str(path.relative_to(self._folder)), 0))

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by its path within the folder."""
        with self.lock:
            waiting = {name: sum(map(len, chunks)) for name, chunks in self._buffers.items()}
            return {name: self._sizes.get(name, 0) + waiting.get(name, 0) for name in {*self._sizes, *waiting}}

    def read(self, offset: int, limit: int) -> bytes:
        """Of the merged log."""
        with self.lock:
            self.flush()
            size = self._sizes.get(MERGED, 0)
        if offset >= size:
            return b""
        with self._refusing(), (self._folder / MERGED).open("rb") as file:
            file.seek(offset)
            return file.read(min(limit, size - offset))
