"""Lines of a container's log with time stamps: cut from a stream, and found again when the log is opened again.

A line is `<RFC 3339 time> <content>`. The node splits long lines and stamps only their first piece. `sinceTime` selects
pieces by whole seconds. So a log that is opened again repeats lines, and may begin in the middle of one.
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

KEEP = 100  # lines that are remembered; of a shorter log that is all, so that no clock matters
SLACK_S = 2  # stamps may be out of order by so much: output and errors are stamped apart, and clocks are set
SECOND = 1_000_000_000  # nanoseconds
HELD_MAX = 32 << 20  # bytes of lines that are held until it shows whether they are new
UNSTAMPED = -1
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")


class LogLine(NamedTuple):
    """`nanos` is its stamp in Unix nanoseconds by the node's clock, or UNSTAMPED; `raw` is stamp and content."""

    nanos: int
    raw: bytes
    content: bytes

    @property
    def second(self) -> int:
        return self.nanos // SECOND if self.nanos != UNSTAMPED else UNSTAMPED

    @property
    def mark(self) -> bytes:
        """Eight bytes that stand for stamp and content."""
        return hashlib.blake2b(self.raw, digest_size=8).digest()


def line_of(raw: bytes) -> LogLine:
    """Parse one line as it came, with its newline if it has one."""
    match = _STAMP.match(raw)
    if match is None:
        return LogLine(UNSTAMPED, raw, raw)
    second = _unix_second(match[1], match[3])
    if second == UNSTAMPED:
        return LogLine(UNSTAMPED, raw, raw)
    fraction = match[2] or b"0"
    nanos = second * SECOND + int(fraction.ljust(9, b"0"))
    return LogLine(nanos, raw, raw[match.end() :])


@lru_cache(maxsize=256)
def _unix_second(date_and_time: bytes, zone: bytes) -> int:
    try:
        second = calendar.timegm(time.strptime(date_and_time.decode(), "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return UNSTAMPED
    if zone == b"Z":
        return second
    offset_s = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
    return second - offset_s if zone[:1] == b"+" else second + offset_s


def rfc3339(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


class LineSplitter:
    """Cuts a stream that comes in chunks of any size into lines."""

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []
        self.size = 0  # bytes of the stream until now

    def feed(self, chunk: bytes) -> list[LogLine]:
        """Return the lines that the chunk finishes."""
        self.size += len(chunk)
        finished, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._unfinished.append(chunk)
            return []
        data = b"".join([*self._unfinished, finished])
        self._unfinished = [rest] if rest else []
        return [line_of(raw + b"\n") for raw in data.split(b"\n")]

    @property
    def rest(self) -> bytes:
        """The bytes after the last newline: the beginning of a line, or a whole one if the log ends there."""
        return b"".join(self._unfinished)


class Overlap:
    """The last known lines of a log: they must come again when it is opened again."""

    def __init__(
        self, recent: Iterable[tuple[int, bytes]] = (), top: int | None = None, last: int | None = None
    ) -> None:
        self._recent = deque(recent)  # second and mark of each line
        self._top = top  # the latest second of a line that is not remembered any more
        self.last = last  # the last line's stamp, in nanoseconds

    def __bool__(self) -> bool:
        return bool(self._recent)

    def extend(self, lines: Sequence[LogLine]) -> None:
        """Remember the last of these lines, which follow those that are known."""
        for line in lines[:-KEEP]:
            self._forget(line.second)
        for line in lines[-KEEP:]:
            self._recent.append((line.second, line.mark))
        if lines:
            self.last = lines[-1].nanos
        # Lines that are equal to the nanosecond differ only in their number, so all copies of the last one are kept.
        while len(self._recent) > KEEP and self._recent[0][1] != self._recent[-1][1]:
            second, _mark = self._recent.popleft()
            self._forget(second)

    def _forget(self, second: int) -> None:
        self._top = second if self._top is None else max(self._top, second)

    def since(self, rest: bytes = b"") -> int | None:
        """Return the second from which the log must be asked for so that no line is left out; None: from its beginning.

        The node's clock may have been set back. `rest` is the beginning of the next line, if it is known: its stamp may
        show that.
        """
        if self._top is None:
            return None
        last_second = self._recent[-1][0]
        rest_second = line_of(rest).second
        if rest_second != UNSTAMPED and (last_second == UNSTAMPED or rest_second < last_second):
            last_second = rest_second
        return min(self._top + 1, last_second - SLACK_S)

    def is_ahead_of(self, second: float) -> bool:
        """Say whether lines were stamped later than that, so that a clock was set back."""
        return any(known > second + SLACK_S for known, _mark in self._recent)

    def search(self, since: int | None, *, patient: bool = True) -> OverlapSearch:
        """Search a log that is opened at `since` for these lines.

        If the search is not `patient`, the log's first unknown line is taken for new at once.
        """
        known = [entry for entry in self._recent if since is None or entry[0] >= since]
        late = None  # after a line of a later second the last known line comes no more
        if known:
            late = max(second for second, _mark in known) + SLACK_S
            if self._top is not None and self._top > late:
                late = None  # a forgotten line was stamped later, so the clock was set back: seconds say nothing
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
        """Raises ValueError, TypeError for something that to_json has not made."""
        known = []
        for second, marks in recent:
            for mark in marks.split(" "):
                known.append((int(second), bytes.fromhex(mark)))
        return cls(known, top, last)


class OverlapSearch:
    """Sorts the lines of a log that was opened again into known and new ones.

    The last known line comes again, and new lines follow it. If it does not come, the node has rotated it away, and
    perhaps further lines that were never read: that is a `gap`. Unknown lines are held until either shows.
    """

    def __init__(self, known: Sequence[bytes], late: int | None, *, patient: bool) -> None:
        self._pending = Counter(known)
        self._last = known[-1] if known else b""
        self._late = late
        self._patient = patient
        self._held: list[LogLine] = []
        self._held_bytes = 0
        self.knows_nothing = not known  # no line has to come again
        self.met = not known  # the last known line has come again
        self.gap = False
        self.strange = b""  # a message of the node: the lines of a container are stamped

    @property
    def over(self) -> bool:
        return self.met or self.gap

    def new_lines(self, lines: Sequence[LogLine]) -> Sequence[LogLine]:
        """Return those of the lines, and of the held ones, that are new."""
        position = 0
        released: list[LogLine] = []
        while position < len(lines) and not self.over:
            released += self._examine(lines[position])
            position += 1
        rest = lines[position:]
        unstamped = [line for line in rest if line.nanos == UNSTAMPED]
        if unstamped:
            self.strange = unstamped[-1].content
            rest = [line for line in rest if line.nanos != UNSTAMPED]
        return [*released, *rest] if released else rest

    def _examine(self, line: LogLine) -> list[LogLine]:
        """Look at a line before the search is over. Returns all held lines when it turns out that they are new."""
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
        self._held_bytes += len(line.content)
        too_late = self._late is not None and line.second > self._late
        if self._patient and not too_late and self._held_bytes < HELD_MAX:
            return []
        self.gap = True
        released = self._held
        self._held = []
        return released
