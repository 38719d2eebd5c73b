"""A container's log as the log endpoint gives it with time stamps: cut into lines, and found again where it was left.

A line is `<RFC 3339 time> <words>`. The node splits long lines and stamps only their first piece. `sinceTime` selects
pieces by whole seconds, so that a log that is opened again repeats lines, and may begin in the middle of one.
"""

from __future__ import annotations

import calendar
import hashlib
import re
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

KEEP = 100  # lines that are remembered: of a short log all, so that no clock matters
SLACK_S = 2  # by how much stamps may be out of order: standard output and error are stamped apart, clocks are set
SWAPPED = 200_000_000  # nanoseconds by which stamps may be out of order without a clock that is set
SECOND = 1_000_000_000  # nanoseconds
HELD_MAX = 32 << 20  # bytes of lines that may be old or new, until it shows
UNSTAMPED = -1
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")


class LogLine(NamedTuple):
    """`nanos` is its stamp in Unix nanoseconds by the node's clock, or UNSTAMPED; `raw` is stamp and words."""

    nanos: int
    raw: bytes
    words: bytes

    @property
    def second(self) -> int:
        return self.nanos // SECOND if self.nanos != UNSTAMPED else UNSTAMPED

    @property
    def mark(self) -> bytes:
        """Eight bytes that stand for stamp and words."""
        return hashlib.blake2b(self.raw, digest_size=8).digest()


def line_of(raw: bytes) -> LogLine:
    """One line as it came, with its newline if it has one."""
    match = _STAMP.match(raw)
    second = _second(match[1], match[3]) if match else UNSTAMPED
    if match is None or second == UNSTAMPED:
        return LogLine(UNSTAMPED, raw, raw)
    fraction = match[2] or b"0"
    return LogLine(second * SECOND + int(fraction.ljust(9, b"0")), raw, raw[match.end() :])


@lru_cache(maxsize=256)
def _second(when: bytes, zone: bytes) -> int:
    try:
        second = calendar.timegm(time.strptime(when.decode(), "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return UNSTAMPED
    if zone == b"Z":
        return second
    offset_s = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
    return second - offset_s if zone[:1] == b"+" else second + offset_s


def rfc3339(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


def moment(nanos: int) -> str:
    """For people, to the millisecond."""
    second, part = divmod(nanos, SECOND)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)) + f".{part // 1_000_000:03d}Z"


class LineSplitter:
    """Whole lines of a stream that comes in any pieces."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size = 0

    def feed(self, chunk: bytes) -> list[LogLine]:
        self.size += len(chunk)
        whole, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._pieces.append(chunk)
            return []
        data = b"".join([*self._pieces, whole])
        self._pieces = [rest] if rest else []
        return [line_of(raw + b"\n") for raw in data.split(b"\n")]

    @property
    def rest(self) -> bytes:
        """What came after the last newline: the beginning of a line, or a whole one if the log ends there."""
        return b"".join(self._pieces)


class Overlap:
    """The last lines of a log that are known: what must come again when it is opened again."""

    def __init__(
        self, recent: Iterable[tuple[int, bytes]] = (), top: int | None = None, last: int | None = None
    ) -> None:
        self._recent = deque(recent)
        self._top = top  # the latest second of a line that is not remembered any more
        self.last = last  # the last line's stamp, in nanoseconds

    def __bool__(self) -> bool:
        return bool(self._recent)

    def extend(self, lines: Sequence[LogLine]) -> None:
        for line in lines[:-KEEP]:
            self._forget(line.second)
        recent = self._recent
        recent.extend((line.second, line.mark) for line in lines[-KEEP:])
        self.last = lines[-1].nanos if lines else self.last
        # lines that are the same to the nanosecond are told apart by their number
        while len(recent) > KEEP and recent[0][1] != recent[-1][1]:
            self._forget(recent.popleft()[0])

    def _forget(self, second: int) -> None:
        self._top = second if self._top is None else max(self._top, second)

    def ends_with(self, line: LogLine) -> bool:
        return bool(self._recent) and self._recent[-1][1] == line.mark

    def since(self, rest: bytes = b"", *, small: bool = True) -> int | None:
        """From which second on to ask, so that no line is left out though the node's clock was set back; None: for all.

        `rest` is the beginning of the next line, when it is known: its stamp may say that the clock was set back. Of a
        log that is not `small` as little as possible: a file may be rotated while it is read.
        """
        if self._top is None:
            return None
        if not small and self.last is not None:
            return (self.last - SWAPPED) // SECOND
        seconds = [self._recent[-1][0], line_of(rest).second]
        return min(self._top + 1, min(second for second in seconds if second != UNSTAMPED) - SLACK_S)

    def ahead_of(self, second: float) -> bool:
        """Lines were stamped later than that: a clock was set back."""
        return any(known > second + SLACK_S for known, _mark in self._recent)

    def search(self, since: int | None, *, patient: bool = True) -> OverlapSearch:
        """For a log that is opened at `since`. Not `patient`: what it begins with is new when it is not known."""
        known = [(second, mark) for second, mark in self._recent if since is None or second >= since]
        late = max(second for second, _mark in known) + SLACK_S if known else None
        if late is not None and self._top is not None and self._top > late:
            late = None  # what is forgotten was stamped later: the clock was set back
        return OverlapSearch([mark for _second, mark in known], late, patient=patient)

    def to_json(self) -> dict[str, object]:
        groups: list[tuple[int, list[bytes]]] = []
        for second, mark in self._recent:
            if not groups or groups[-1][0] != second:
                groups.append((second, []))
            groups[-1][1].append(mark)
        recent = [[second, b"".join(marks).hex(" ", 8)] for second, marks in groups]
        return {"top": self._top, "recent": recent, "last": self.last}

    @classmethod
    def from_json(cls, top: int | None, recent: Sequence[tuple[int, str]], last: int | None = None) -> Overlap:
        """Raises ValueError, TypeError for something else than to_json has made."""
        known = [(int(second), bytes.fromhex(mark)) for second, marks in recent for mark in marks.split(" ")]
        return cls(known, top, last)


class OverlapSearch:
    """Sorts what a log that was opened again says into what is known and what is new.

    The last known line comes again, and new is what follows it. When it does not come, it has been rotated away, and
    others may have been with it that nobody has read: that is `gap`. Until either shows, unknown lines are held.
    """

    def __init__(self, known: Sequence[bytes], late: int | None, *, patient: bool) -> None:
        self._pending = Counter(known)
        self._last = known[-1] if known else b""
        self._late, self._patient = late, patient
        self._held: list[LogLine] = []
        self._held_bytes = 0
        self.anew = not known  # nothing is to come again
        self.met = not known  # it has come again
        self.gap = False
        self.strange = b""  # words of the node: what a container says is stamped

    @property
    def over(self) -> bool:
        return self.met or self.gap

    def sift(self, lines: Sequence[LogLine]) -> Sequence[LogLine]:
        """Those that are new."""
        at, new = 0, list[LogLine]()
        while at < len(lines) and not self.over:
            new += self._look(lines[at])
            at += 1
        rest = lines[at:]
        if any(line.nanos == UNSTAMPED for line in rest):
            self.strange = [line.words for line in rest if line.nanos == UNSTAMPED][-1]
            rest = [line for line in rest if line.nanos != UNSTAMPED]
        return [*new, *rest] if new else rest

    def _look(self, line: LogLine) -> list[LogLine]:
        if line.nanos == UNSTAMPED:  # the end of a line that began earlier
            return []
        mark = line.mark
        if self._pending[mark]:
            self._pending[mark] -= 1
            self.met = mark == self._last and not self._pending[mark]
            if self.met:
                self._held = []
            return []
        self._held.append(line)
        self._held_bytes += len(line.words)
        too_late = self._late is not None and line.second > self._late
        if self._patient and not too_late and self._held_bytes < HELD_MAX:
            return []
        self.gap, held, self._held = True, self._held, []
        return held
