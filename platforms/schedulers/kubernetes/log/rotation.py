"""Notices what a kubelet leaves out of a log, and what it sends twice, when it rotates the log's file.

A kubelet follows a file and is notified of each new one. At the end of a file it opens the newest, once for each
notification: when its reader is slow it skips the files between, and begins the newest again. It is not notified before
it has read its first file to the end. The API shows only the newest file, so what is skipped is lost; it can only be
noticed.

A kubelet's files live for seconds (containerLogMonitorInterval is three or more), so the stamps jump where a whole file
is missing. The beginning of a line that the container wrote before a rotation stands at the end of a file. The first
bytes of the file that is read next continue it, whether they belong to it or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from platforms.schedulers.kubernetes.log.lines import SECOND, LogLine

SMALL = 256 << 10  # bytes on the node: less than any kubelet rotates (its default is 10 MiB)
UNDECIDED_MAX = 8 << 20  # bytes on the node that are held until it shows whether there was more
ROTATED = 1 << 20  # bytes on the node: a file that a kubelet rotates has more
JUMP = 1 * SECOND  # of stamps: a shorter jump hides no file
BEHIND_S = 1.0  # a line that arrives so long after it was written was held up
FIRST_S = 2.0  # a kubelet may take so long to read what exists when a log is opened
STARTS = 100  # lines after jumps that are remembered
OVERHEAD = 10  # bytes of a line on the node beside its stamp and content

Gap = tuple[int, int]  # two stamps, in nanoseconds: lines between them are missing, perhaps these two included


def size_on_node(lines: Sequence[LogLine]) -> int:
    """Return how many bytes of the node's file the lines take."""
    return sum(len(line.raw) for line in lines) + OVERHEAD * len(lines)


class ArrivalDelay:
    """The delay with which lines arrive: this machine's clock less their stamps.

    Nodes' clocks may be ahead of ours, which shows in lines that seem to arrive early. That they are behind is not
    assumed.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._ahead_s = 0.0  # how far the node's clock is ahead, at least

    def of(self, line: LogLine, arrived_s: float) -> float:
        """Return the seconds between the line's stamp and its arrival."""
        late_s = arrived_s - line.nanos / SECOND
        self._ahead_s = max(self._ahead_s, -late_s)
        return late_s + self._ahead_s

    def stamp(self, now_s: float) -> int:
        """Return the stamp that the node gives a line at that time."""
        return int((now_s + self._ahead_s) * SECOND)


class LostBeginning:
    """Finds out whether a log that is opened for the first time begins where its container did.

    A program may be silent at first. So the beginning counts as lost only where the log was opened late and where, at
    the pace of the lines that came, a file would have been rotated since the container began.
    """

    def __init__(self, began_s: float | None, delay: ArrivalDelay, opened_s: float) -> None:
        """`began_s`: when the container began, in Unix seconds. None: there is nothing to find out."""
        self._began = None if began_s is None else int(began_s * SECOND)
        self._delay = delay
        self._opened_s = opened_s
        self._held: list[LogLine] = []
        self._size = 0
        self._over = self._began is None
        self.lost: Gap | None = None

    def accept(self, lines: Sequence[LogLine]) -> Sequence[LogLine]:
        """Return the lines that are certain by now, and hold the others: the lines of a late log's first second."""
        if self._over or not lines:
            return lines
        self._held += lines
        self._size += size_on_node(lines)
        is_first_second = lines[-1].nanos - self._held[0].nanos < SECOND
        if self._was_opened_late() and is_first_second and self._size < UNDECIDED_MAX:
            return []
        return self.flush()

    def _was_opened_late(self) -> bool:
        return self._held[0].nanos < self._delay.stamp(self._opened_s) + JUMP

    def flush(self) -> Sequence[LogLine]:
        """Decide, and return all lines that were held: nothing more comes for now."""
        if self._over or self._began is None or not self._held:
            return []
        self._over = True
        was_opened_late = self._was_opened_late()
        held = self._held
        self._held = []
        first = held[0]
        covered_s = max(1.0, (held[-1].nanos - first.nanos) / SECOND)
        before_s = (first.nanos - self._began) / SECOND - 0.5  # it began within that second
        if was_opened_late and self._size / covered_s * before_s >= ROTATED:
            self.lost = (self._began, first.nanos)
            return held[1:]  # the first may be the end of a line
        return held


class SkipDetector:
    """Finds what one followed stream leaves out, and drops what it repeats, from the first new line on.

    `top` is the stamp of the last known line. `newest_stamp` asks for that of the first line of the node's newest file.
    The gaps are added to `lost`.
    """

    def __init__(self, top: int | None, delay: ArrivalDelay, newest_stamp: Callable[[], int | None]) -> None:
        self._top = top  # the latest stamp until now
        self._delay = delay
        self._newest_stamp = newest_stamp
        self._last: LogLine | None = None
        self._arrived_s = delay.clock()
        self._opened = delay.stamp(self._arrived_s)
        self._backward: LogLine | None = None  # a line that is stamped earlier than the one before it
        self._held: LogLine | None = None  # a late line: the next one shows whether it is whole
        self._after_jumps: dict[bytes, Gap] = {}  # by the mark of the line after a jump
        self._reported: set[Gap] = set()
        self._repeats = False  # the stream repeats known lines, up to the last one
        self.lost: list[Gap] = []

    @property
    def behind(self) -> bool:
        """True if the last line came late."""
        return self._last is not None and self._delay.of(self._last, self._arrived_s) >= BEHIND_S

    def accept(self, lines: Sequence[LogLine], arrived_s: float, *, small: bool) -> list[LogLine]:
        """Return those of the lines that are new and certain. `small`: by its size the log was never rotated."""
        new = self._release_held()
        for line in lines:
            follows_simply = self._top is None or 0 < line.nanos - self._top < JUMP
            if small or (follows_simply and not self._repeats and self._backward is None):
                self._pass(line, new)
            else:
                self._examine(line, new)
            self._arrived_s = arrived_s
        if new and not small and self.behind:
            self._held = new.pop()
        return new

    def flush(self) -> list[LogLine]:
        """Return the lines that were held because of what might follow."""
        new = self._release_held()
        if self._backward is not None:
            self._pass(self._backward, new)
        self._backward = None
        return new

    def _release_held(self) -> list[LogLine]:
        released = [] if self._held is None else [self._held]
        self._held = None
        return released

    def _pass(self, line: LogLine, new: list[LogLine]) -> None:
        new.append(line)
        self._last = line
        self._top = line.nanos if self._top is None else max(self._top, line.nanos)

    def _examine(self, line: LogLine, new: list[LogLine]) -> None:
        """Sort a line that does not simply follow the one before it."""
        top = line.nanos if self._top is None else self._top
        backward = self._backward
        self._backward = None
        known_gap = self._after_jumps.get(line.mark) if line.nanos <= top else None
        if known_gap is not None:  # the kubelet begins its newest file again
            self._report(known_gap)
            self._repeats = not self._is_last(line)
            return
        if self._repeats:
            self._repeats = line.nanos <= top and not self._is_last(line)
            if line.nanos > top:  # before the end of that file it went on to one that is newer still
                self._report(self._remember_jump(line))
                self._drop(line)
            return
        if backward is not None:
            self._pass(backward, new)
        if line.nanos < top:  # the next line shows whether the file begins again
            self._backward = line
            return
        if line.nanos - top >= JUMP:
            jump = self._remember_jump(line)
            if self._may_hide_a_file(line, top):
                self._judge(jump, line, new)
                return
        self._pass(line, new)

    def _drop(self, line: LogLine) -> None:
        """Leave out a line that may be torn, but go on from it."""
        self._pass(line, [])

    def _is_last(self, line: LogLine) -> bool:
        return self._last is not None and self._last.raw == line.raw

    def _remember_jump(self, line: LogLine) -> Gap:
        while len(self._after_jumps) >= STARTS:
            oldest = next(iter(self._after_jumps))
            del self._after_jumps[oldest]
        jump = (self._top or line.nanos, line.nanos)
        self._after_jumps[line.mark] = jump
        return jump

    def _may_hide_a_file(self, line: LogLine, top: int) -> bool:
        """Say whether a file may have been skipped: the lines before the jump came late, or just after the opening."""
        if line.nanos <= self._opened:
            return False
        came_late = self._delay.stamp(self._arrived_s) >= line.nanos - JUMP // 5
        return came_late or top <= self._opened + int(FIRST_S * SECOND)

    def _judge(self, jump: Gap, line: LogLine, new: list[LogLine]) -> None:
        """Decide by the node's newest file whether a jump is a skip or only a silence of the container.

        Of a skip the lines before and after are left out where they may be torn. The first bytes of a file continue the
        line before, if that had no newline. If it had one, they may be the end of another line.
        """
        before, after = jump
        newest = self._newest_stamp()
        if newest is not None and newest <= before:  # both lines are of one file
            self._pass(line, new)
            return
        self._report(jump)
        if newest != after and new:
            new.pop()
        if newest is not None and newest < after:
            self._pass(line, new)
        else:
            self._drop(line)

    def _report(self, gap: Gap) -> None:
        if gap not in self._reported:
            self._reported.add(gap)
            self.lost.append(gap)
