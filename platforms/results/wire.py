"""Finds the lines of the wire (docs/wire.md) in the bytes of a log, even if it is cut, mixed, doubled or torn.

log_reader.py feeds it. Logs may be long, so the way of lines that are not ours is short.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from platforms.results.writers import MAY_BE_TAGGED, Writers

MARKER = ":::MLLOG "
_BEGIN = MARKER + "{"
NAMESPACE = "hpcml"
NODE = "hpcml_node"
NODE_WRITER = "node.py"

_MARKER = MARKER.encode()
_MAY_BE_TAGGED = MAY_BE_TAGGED.encode()
_SLICE = 1 << 20  # bytes that are split into lines at once
_LONGEST = 1 << 16  # bytes that are kept of a line without an end; no wire line has so many
_KEPT = 1024  # bytes that are kept of any other line, from its end
_PRINTED = 400  # characters of it that are printed
_ENDS_OF_PREFIX = (":", "]", "|")  # of a launcher
_TAIL = 30  # lines that are kept of the end of the log
# Of a terminal, and other control characters. The class stands first: a search for it alone is fast.
ESCAPES = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f](?:(?<=\x1b)(?:\[[0-?]*[ -/]*[@-~]|\][^\n\x07\x1b]*(?:\x07|\x1b\\)?|.))?"
)


class Event(NamedTuple):
    """One wire line: line number `seq` of rank `rank`. Numbers in `value` are finite or None."""

    key: str
    value: object
    rank: int
    seq: int


class WireReader:
    """Takes bytes, and calls `handle` with each event. A line that stands in the log twice makes one event.

    What was wrong with lines is counted; problems() says it.
    """

    def __init__(self, handle: Callable[[Event], None]) -> None:
        self._handle = handle
        self.seen: dict[int, dict[int, int]] = {}  # rank -> seq -> hash of the line
        self._pending = b""
        self._writers = Writers()
        self._tail: deque[bytes | str] = deque(maxlen=_TAIL)
        self._count: Counter[str] = Counter()
        self._not_finite = 0  # numbers in the line that is being read
        self._decoder = json.JSONDecoder(parse_float=self._finite, parse_constant=self._finite)

    @property
    def speaks_wire(self) -> bool:
        """Whether there was any wire line."""
        return bool(self.seen)

    @property
    def tail(self) -> deque[str]:
        """The last lines for people, without terminal escapes, and the problems that the job reported."""
        return deque(text for text in map(readable, self._tail) if text)

    def feed(self, chunk: bytes) -> None:
        """The next bytes, cut anywhere."""
        for start in range(0, len(chunk), _SLICE):
            block = self._pending + chunk[start : start + _SLICE]
            lines = block.split(b"\n")
            self._pending = lines.pop()
            self._read_rows(lines, block)
            if len(self._pending) > _LONGEST:
                self._shorten_pending()

    def close(self) -> None:
        """Call at the end of the log: reads a last line that has no newline."""
        self._read_rows([self._pending], self._pending)
        self._read_lines([line.encode() for line in self._writers.rest()], may_have_wire=True)
        self._pending = b""

    def problems(self) -> list[str]:
        """What is wrong with the lines themselves, one sentence for each kind."""
        kinds = {
            "torn": "wire lines that are torn or cut off",
            "malformed": "wire lines without key, rank or seq",
            "not finite": "wire lines with NaN or Infinity",
            "differ": "wire lines that differ from another of the same rank and number, as when two runs share a log",
        }
        found = [f"{text}: {self._count[kind]}" for kind, text in kinds.items() if self._count[kind]]
        missing = self._missing_lines()
        if missing:
            found.append(missing)
        return found

    def _missing_lines(self) -> str:
        """Which lines are missing, by their numbers; empty if none is."""
        seen = sorted(self.seen.items())
        gaps = [f"rank {rank}: {_describe_gaps(lines)}" for rank, lines in seen if len(lines) <= max(lines)]
        if not gaps:
            return ""
        more = f" and {len(gaps) - 3} more ranks" if len(gaps) > 3 else ""
        return f"wire lines are missing from the log ({'; '.join(gaps[:3])}{more})"

    def _read_rows(self, rows: list[bytes], block: bytes) -> None:
        """Read the rows of a block, of which mpirun may have tagged each piece."""
        tagged = bool(self._writers) or _MAY_BE_TAGGED in block
        if tagged:
            texts = [row.decode("utf-8", "replace") for row in rows]
            rows = [line.encode() for line in self._writers.lines(texts)]
        self._read_lines(rows, may_have_wire=tagged or _MARKER in block)

    def _read_lines(self, lines: list[bytes], may_have_wire: bool) -> None:
        if not may_have_wire:  # nothing but the last lines is of interest
            lines = [*islice(filter(bytes.strip, reversed(lines)), _TAIL)][::-1]
        for line in lines:
            if _MARKER in line:
                rest = self._read_wire_lines(line.decode("utf-8", "replace"))
                if rest.strip():
                    self._tail.append(rest[-_KEPT:])
            elif line.strip():
                self._tail.append(line[-_KEPT:])

    def _shorten_pending(self) -> None:
        """Keep only that part of an endless line which may still become a wire line, or else its end."""
        keep = max(0, self._pending.rfind(_MARKER) - _KEPT)
        if keep < len(self._pending) - _LONGEST // 2:
            keep = len(self._pending) - _KEPT
        head = self._pending[:keep]
        self._pending = self._pending[keep:]
        self._read_wire_lines(head.decode("utf-8", "replace"))

    def _read_wire_lines(self, text: str) -> str:
        """Read every wire line in a line of the log. Returns what follows the last one; all of it if there is none."""
        begin = 0
        for start, end, line in wire_lines(text, self._decode):
            before = text[begin:start].rstrip()
            if before and not before.endswith(_ENDS_OF_PREFIX):  # the line of a program that has left it open
                self._tail.append(before[-_KEPT:])
            if line is None:
                self._count["torn"] += 1
            else:
                self._read_wire_line(line, hash(text[start:end]))
            begin = end
        return text[begin:]

    def _read_wire_line(self, line: Mapping[str, object], line_hash: int) -> None:
        event = self._event(line)
        if event is None:
            self._count["malformed"] += 1
        elif event.key == NODE and _metadata(line).get("file") == NODE_WRITER:  # it numbers its lines by itself
            self._handle(event)
        elif self._is_new(event, line_hash):
            self._handle(event)
            if event.key == "hpcml_problem" and isinstance(event.value, dict):
                self._tail.append(clean(f"{event.value.get('gate')}: {event.value.get('text')} (rank {event.rank})"))

    def _event(self, line: Mapping[str, object]) -> Event | None:
        """The event of a wire line; None if it has no key, rank or number."""
        key = line.get("key")
        metadata = _metadata(line)
        if not isinstance(key, str):
            return None
        rank = metadata.get("rank")
        seq = metadata.get("seq")
        if type(rank) is not int or type(seq) is not int or rank < 0 or seq < 0:
            return None
        if self._not_finite:
            self._count["not finite"] += 1
        return Event(key, line.get("value"), rank, seq)

    def _decode(self, text: str) -> tuple[Any, int]:
        self._not_finite = 0
        return self._decoder.raw_decode(text)

    def _finite(self, text: str) -> float | None:
        """A number in JSON; None for NaN, Infinity and 1e999."""
        value = float(text)
        if math.isfinite(value):
            return value
        self._not_finite += 1
        return None

    def _is_new(self, event: Event, line_hash: int) -> bool:
        """Whether this line was not read before. A different line with the same number is new, and a problem."""
        lines_of_rank = self.seen.setdefault(event.rank, {})
        if event.seq not in lines_of_rank:
            lines_of_rank[event.seq] = line_hash
            return True
        if lines_of_rank[event.seq] == line_hash:
            return False
        self._count["differ"] += 1
        return True


def wire_lines(
    text: str, decode: Callable[[str], tuple[Any, int]]
) -> Iterator[tuple[int, int, Mapping[str, object] | None]]:
    """Find the suite's lines in a line of the log: where each begins and ends, and what it says; None: it is torn.

    Args:
        decode: `raw_decode` of a JSON decoder.
    """
    at = text.find(_BEGIN)
    while at >= 0:
        start = at + len(MARKER)
        following = text.find(_BEGIN, start)
        try:
            line, length = decode(text[start : start + _LONGEST])
        except (ValueError, RecursionError):
            yield at, len(text) if following < 0 else following, None
        else:
            if line.get("namespace") == NAMESPACE:
                yield at, start + length, line
                following = text.find(_BEGIN, start + length)  # its own texts may have the marker, too
        at = following


def clean(text: str) -> str:
    """Make a text one line, without terminal escapes and control characters."""
    return ESCAPES.sub("", " ".join(text.splitlines())).rstrip()


def readable(line: bytes | str) -> str:
    """A line of a log as people should read it: the last state of a progress bar, the end of a long line."""
    text = line if isinstance(line, str) else line.decode("utf-8", "replace")
    text = clean(text.rstrip().rsplit("\r", 1)[-1])
    if len(text) > _PRINTED:
        text = "…" + text[1 - _PRINTED :]
    return text


def _metadata(line: Mapping[str, object]) -> Mapping[str, object]:
    metadata = line.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _describe_gaps(numbers: Iterable[int]) -> str:
    """`4, 7-9` for what is missing between 0 and the greatest number."""
    spans: list[str] = []
    expected = 0
    for number in sorted(numbers):
        if number == expected + 1:
            spans.append(f"{expected}")
        elif number > expected:
            spans.append(f"{expected}-{number - 1}")
        expected = number + 1
    more = ", …" if len(spans) > 5 else ""
    return ", ".join(spans[:5]) + more
