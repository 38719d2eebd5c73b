"""Finds the wire's lines (docs/wire.md) in the bytes of a log, however it is cut, mixed, doubled or torn."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

MARKER = ":::MLLOG "
NAMESPACE = "hpcml"

_MARKER = MARKER.encode()
_SLICE = 1 << 20  # what is split into lines at once
_LONGEST = 1 << 16  # what is kept of a line without an end, and more than any wire line has
_KEPT = 1024  # bytes of a foreign line's end
_SHOWN = 400  # characters of it
_TAIL = 30
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Event(NamedTuple):
    """One wire line: what rank `rank` wrote as its line number `seq`. Numbers in `value` are finite or None."""

    key: str
    value: object
    rank: int
    seq: int


class WireReader:
    """Bytes in, events to `take`; identical doubled lines come once. What was wrong is counted: see `problems`."""

    def __init__(self, take: Callable[[Event], None]) -> None:
        self._take = take
        self.seen: dict[int, dict[int, int]] = {}  # rank -> seq -> what the line was
        self._pending = b""
        self._tail: deque[bytes | str] = deque(maxlen=_TAIL)
        self._count: Counter[str] = Counter()
        self._spoilt = 0
        self._decoder = json.JSONDecoder(parse_float=self._finite, parse_constant=self._finite)

    @property
    def speaks_wire(self) -> bool:
        """Whether there was any line of ours."""
        return bool(self.seen)

    @property
    def tail(self) -> deque[str]:
        """The last lines that people wrote for people, without escapes, and the problems that the job reported."""
        return deque(text for text in map(readable, self._tail) if text)

    def feed(self, chunk: bytes) -> None:
        """The next bytes, cut anywhere."""
        for start in range(0, len(chunk), _SLICE):
            block = self._pending + chunk[start : start + _SLICE]
            lines = block.split(b"\n")
            self._pending = lines.pop()
            self._lines(lines, _MARKER in block)
            if len(self._pending) > _LONGEST:
                self._shorten()

    def close(self) -> None:
        """There is no more: read a last line that has no end."""
        self._lines([self._pending], _MARKER in self._pending)
        self._pending = b""

    def problems(self) -> list[str]:
        """What is wrong with the lines themselves, one sentence a kind."""
        kinds = {
            "torn": "wire lines that are torn or cut off",
            "malformed": "wire lines without key, rank or seq",
            "not finite": "wire lines with NaN or Infinity",
            "differ": "wire lines that differ from another of the same rank and number, as when two runs share a log",
        }
        return [f"{text}: {self._count[kind]}" for kind, text in kinds.items() if self._count[kind]] + self._missing()

    def _missing(self) -> list[str]:
        gaps = {rank: _gaps(numbers) for rank, numbers in sorted(self.seen.items()) if len(numbers) <= max(numbers)}
        if not gaps:
            return []
        shown = "; ".join(f"rank {rank}: {text}" for rank, text in list(gaps.items())[:3])
        more = f" and {len(gaps) - 3} more ranks" if len(gaps) > 3 else ""
        return [f"wire lines are missing from the log ({shown}{more})"]

    def _lines(self, lines: list[bytes], marked: bool) -> None:
        if not marked:  # the way of long foreign logs: nothing but the last lines is looked at
            last: list[bytes] = []
            for line in reversed(lines):
                if len(last) == _TAIL:
                    break
                if not line.isspace() and line:
                    last.append(line[-_KEPT:])
            self._tail.extend(reversed(last))
            return
        for line in lines:
            if _MARKER in line:
                rest = self._marked(line.decode("utf-8", "replace"))
                if rest.strip():
                    self._tail.append(rest[-_KEPT:])
            elif line and not line.isspace():
                self._tail.append(line[-_KEPT:])

    def _shorten(self) -> None:
        """Keep of an endless line only what may still become a wire line, or its end."""
        keep = self._pending.rfind(_MARKER)
        if keep < len(self._pending) - _LONGEST // 2:
            keep = len(self._pending) - _KEPT
        head, self._pending = self._pending[:keep], self._pending[keep:]
        if _MARKER in head:
            self._marked(head.decode("utf-8", "replace"))

    def _marked(self, text: str) -> str:
        """Read every wire line in a line; returns what else stands there for people: all of it, or what follows."""
        rest = text
        at = text.find(MARKER)
        while at >= 0:
            end = self._read(text, at + len(MARKER))
            if end is not None:
                rest = text[end:]
            at = text.find(MARKER, at + len(MARKER) if end is None else end)
        return rest

    def _read(self, text: str, start: int) -> int | None:
        """Read one wire line from `start`; returns where it ends, None when somebody merely writes the marker."""
        if not text.startswith("{", start):
            return None
        self._spoilt = 0
        try:
            line, end = self._decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + _LONGEST + 1
        if end - start > _LONGEST:
            self._count["torn"] += 1
            following = text.find(MARKER, start)
            return len(text) if following < 0 else following
        if line.get("namespace") != NAMESPACE:
            return None
        event = self._event(line)
        if event is None:
            self._count["malformed"] += 1
        elif self._is_new(event, hash(text[start:end])):
            self._take(event)
            if event.key == "hpcml_problem" and isinstance(event.value, dict):
                self._tail.append(clean(f"{event.value.get('gate')}: {event.value.get('text')} (rank {event.rank})"))
        return int(end)

    def _event(self, line: Mapping[str, object]) -> Event | None:
        key, metadata = line.get("key"), line.get("metadata")
        rank, seq = (metadata.get("rank"), metadata.get("seq")) if isinstance(metadata, dict) else (None, None)
        if not isinstance(key, str) or type(rank) is not int or type(seq) is not int or rank < 0 or seq < 0:
            return None
        if self._spoilt:
            self._count["not finite"] += 1
        return Event(key, line.get("value"), rank, seq)

    def _finite(self, text: str) -> float | None:
        """A number of JSON as Python reads it, None for NaN, Infinity and 1e999."""
        value = float(text)
        if math.isfinite(value):
            return value
        self._spoilt += 1
        return None

    def _is_new(self, event: Event, line: int) -> bool:
        """Whether this line was not seen before; one that differs from what was seen is new, and a problem."""
        known = self.seen.setdefault(event.rank, {})
        if event.seq not in known:
            known[event.seq] = line
            return True
        self._count["differ"] += known[event.seq] != line
        return known[event.seq] != line


def clean(text: str) -> str:
    """One line without terminal escapes and control characters, whoever wrote it."""
    return _ESCAPES.sub("", " ".join(text.splitlines())).rstrip()


def readable(line: bytes | str) -> str:
    """A line of a log as text; of a progress bar its last state, of a long line its end."""
    text = line if isinstance(line, str) else line.decode("utf-8", "replace")
    text = clean(text.rstrip().rsplit("\r", 1)[-1])
    return text if len(text) <= _SHOWN else "…" + text[1 - _SHOWN :]


def _gaps(numbers: Iterable[int]) -> str:
    """`4, 7-9` for what is missing between 0 and the greatest number."""
    present = sorted(numbers)
    spans: list[str] = []
    for before, after in zip([-1, *present], present, strict=False):
        if after - before > 1:
            spans.append(f"{before + 1}-{after - 1}" if after - before > 2 else f"{before + 1}")
    return ", ".join(spans[:5]) + (", …" if len(spans) > 5 else "")
