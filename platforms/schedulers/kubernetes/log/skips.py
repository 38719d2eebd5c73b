"""What a kubelet leaves out of a log, and what it says twice, when it rotates the log's file.

A kubelet follows a file and is told of each new one. At the end of a file it opens the newest, once for each that it
was told of: when its reader is slow it skips the files between, and begins the newest again. It is told of nothing
before it has read its first file to the end. The API shows only the newest file, so what is skipped is lost; what can
be done is to notice it. Files of a kubelet live for seconds (containerLogMonitorInterval is three or more), so that
where a whole file is missing the stamps jump. What a container has written of a line before a rotation stands at the
end of a file: the first words of the file that is read next continue it, whether they belong to it or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from platforms.schedulers.kubernetes.log.lines import SECOND, LogLine

SMALL = 256 << 10  # bytes on the node: less than any kubelet rotates (its default is 10 MiB)
UNDECIDED_MAX = 8 << 20  # bytes on the node: what is held until it shows whether there was more
ROTATED = 1 << 20  # bytes on the node: what a kubelet rotates has more
JUMP = 1 * SECOND  # of stamps: shorter ones hide no file
BEHIND_S = 1.0  # what arrives so long after it was written was held up
FIRST_S = 2.0  # how long a kubelet may take to read what there is when a log is opened
STARTS = 100  # lines after jumps that are remembered
OVERHEAD = 10  # bytes of a line on the node beside stamp and words

Range = tuple[int, int]  # stamps, in nanoseconds: something between them is missing, these lines perhaps included


def on_node(lines: Sequence[LogLine]) -> int:
    """Bytes of its file."""
    return sum(len(line.raw) for line in lines) + OVERHEAD * len(lines)


class ArrivalDelay:
    """How late lines arrive: this machine's clock less their stamps. Clocks of nodes may be ahead of ours; that they
    are behind is not assumed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._ahead_s = 0.0

    def of(self, line: LogLine, arrived_s: float) -> float:
        late_s = arrived_s - line.nanos / SECOND
        self._ahead_s = max(self._ahead_s, -late_s)
        return late_s + self._ahead_s

    def stamp(self, now_s: float) -> int:
        """What the node would write now."""
        return int((now_s + self._ahead_s) * SECOND)


class LostBeginning:
    """Whether a log that is opened for the first time begins where its container did.

    A program may be silent at first. So it counts as lost only where the log was opened late, and where at the pace of
    what is there a file would have been rotated since the container began.
    """

    def __init__(self, began_s: float | None, lag: ArrivalDelay, opened_s: float) -> None:
        self._began = None if began_s is None else int(began_s * SECOND)
        self._lag, self._opened_s = lag, opened_s
        self._held: list[LogLine] = []
        self._size = 0
        self._over = self._began is None
        self.lost: Range | None = None

    def sift(self, lines: Sequence[LogLine]) -> Sequence[LogLine]:
        """What is certain by now: of a log that was opened late, nothing before its first second is there."""
        if self._over or not lines:
            return lines
        self._held += lines
        self._size += on_node(lines)
        young = lines[-1].nanos - self._held[0].nanos < SECOND
        return [] if self._late and young and self._size < UNDECIDED_MAX else self.rest()

    @property
    def _late(self) -> bool:
        return self._held[0].nanos < self._lag.stamp(self._opened_s) + JUMP

    def rest(self) -> Sequence[LogLine]:
        """All that was held: nothing more comes for now."""
        if self._over or self._began is None or not self._held:
            return []
        self._over, late = True, self._late
        first, held, self._held = self._held[0], self._held, []
        age_s = max(1.0, (held[-1].nanos - first.nanos) / SECOND)
        before_s = (first.nanos - self._began) / SECOND - 0.5  # it began within the second
        if late and self._size / age_s * before_s >= ROTATED:
            self.lost = (self._began, first.nanos)
            return held[1:]  # the first may be the end of a line
        return held


class Skips:
    """One stream that is followed, from the first line that is new: what it leaves out, and without what it repeats.

    `top` is the stamp of the last line that is known, `newest` asks for that of the first line of the newest file.
    `lost` is what has been skipped.
    """

    def __init__(self, top: int | None, lag: ArrivalDelay, newest: Callable[[], int | None]) -> None:
        self._top, self._lag, self._newest = top, lag, newest
        self._last: LogLine | None = None
        self._arrived_s = lag.clock()
        self._opened = lag.stamp(self._arrived_s)
        self._backward: LogLine | None = None  # it is stamped earlier than the one before it
        self._held: LogLine | None = None  # it came late: with the next line it shows whether it is whole
        self._starts: dict[bytes, Range] = {}  # by the mark of a line after a jump
        self._said: set[Range] = set()
        self._repeats = False  # what comes is known, up to the last line
        self.lost: list[Range] = []

    @property
    def behind(self) -> bool:
        """Whether the last line came late."""
        return self._last is not None and self._lag.of(self._last, self._arrived_s) >= BEHIND_S

    def sift(self, lines: Sequence[LogLine], arrived_s: float, *, small: bool) -> list[LogLine]:
        """What is new of them, and certain. `small`: the log was never rotated, by its size."""
        new = [] if self._held is None else [self._held]
        self._held = None
        for line in lines:
            ordinary = self._top is None or 0 < line.nanos - self._top < JUMP
            if small or (ordinary and not self._repeats and self._backward is None):
                self._pass(line, new)
            else:
                self._look(line, new)
            self._arrived_s = arrived_s
        if new and not small and self.behind:
            self._held = new.pop()
        return new

    def rest(self) -> list[LogLine]:
        """What was held because of what might follow."""
        new = [] if self._held is None else [self._held]
        if self._backward is not None:
            self._pass(self._backward, new)
        self._held = self._backward = None
        return new

    def _pass(self, line: LogLine, new: list[LogLine]) -> None:
        new.append(line)
        self._last = line
        self._top = line.nanos if self._top is None else max(self._top, line.nanos)

    def _look(self, line: LogLine, new: list[LogLine]) -> None:
        """At a line that does not simply follow the one before it."""
        top = line.nanos if self._top is None else self._top
        backward, self._backward = self._backward, None
        start = self._starts.get(line.mark) if line.nanos <= top else None
        if start is not None:  # the newest file from its beginning, again
            self._say(start)
            self._repeats = not self._is_last(line)
            return
        if self._repeats:
            self._repeats = line.nanos <= top and not self._is_last(line)
            if line.nanos > top:  # and then, before its end, one that is newer still
                self._say(self._jumped(line))
                self._pass(line, [])
            return
        if backward is not None:
            self._pass(backward, new)
        if line.nanos < top:  # the next line tells whether the file begins again
            self._backward = line
            return
        if line.nanos - top >= JUMP:
            jump = self._jumped(line)
            if self._suspicious(line, top):
                self._judge(jump, line, new)
                return
        self._pass(line, new)

    def _is_last(self, line: LogLine) -> bool:
        return self._last is not None and self._last.raw == line.raw

    def _jumped(self, line: LogLine) -> Range:
        while len(self._starts) >= STARTS:
            del self._starts[next(iter(self._starts))]
        jump = self._starts[line.mark] = (self._top or line.nanos, line.nanos)
        return jump

    def _suspicious(self, line: LogLine, top: int) -> bool:
        """Whether a file may have been skipped: what came before the jump came late, or just after the beginning."""
        if line.nanos <= self._opened:
            return False
        late = self._lag.stamp(self._arrived_s) >= line.nanos - JUMP // 5
        return late or top <= self._opened + int(FIRST_S * SECOND)

    def _judge(self, jump: Range, line: LogLine, new: list[LogLine]) -> None:
        """A silence within one file is no skip. Of a skip the lines before and after are left out that may be torn: the
        first words of a file hang on the line before, if that had no end; if not, they may be the end of another."""
        newest = self._newest()
        if newest is not None and newest <= jump[0]:
            return self._pass(line, new)
        self._say(jump)
        if newest != jump[1] and new:
            new.pop()
        return self._pass(line, new if newest is not None and newest < jump[1] else [])

    def _say(self, jump: Range) -> None:
        if jump not in self._said:
            self._said.add(jump)
            self.lost.append(jump)
