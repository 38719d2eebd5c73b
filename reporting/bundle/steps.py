"""The raw values of every rank, one row for each step, and the windows that follow from them.

This computes what docs/measuring.md defines, a second time: models/meter.py does it inside the job, from the values
that it had before they were written with nine digits behind the point.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

HEADER = "step,window,wait,h2d,busy\n"
HEADER_WHOLE = "step,window,wait,h2d,busy,whole\n"  # of a device that does not tell waiting from computing
LONGEST_LINE = 200
ROUNDED_S = 0.5e-9  # a value is written with nine digits, so it may be so far from the one that was measured
_NUMBERED = r"(0|[1-9]\d{0,8}),(0|[1-9]\d{0,8}|),"
_SECONDS = r"(\d{1,9}\.\d{9})"
_ROW = re.compile(rf"{_NUMBERED}{_SECONDS},{_SECONDS},{_SECONDS}\n", re.ASCII)
_ROW_WHOLE = re.compile(rf"{_NUMBERED}()(),,,{_SECONDS}\n", re.ASCII)


@dataclass(frozen=True)
class StepRow:
    """One optimiser step of one rank, in seconds. `window` is None for a step of the warm-up, or behind the windows.

    Without a split the whole step stands in `busy_s`.
    """

    step: int
    window: int | None
    wait_s: float
    h2d_s: float
    busy_s: float
    has_split: bool = True

    @property
    def stall_s(self) -> float:
        return self.wait_s + self.h2d_s


@dataclass
class WindowOfSteps:
    """What the steps say of one window, in seconds.

    Attributes:
        stall_s: the sum of each step's longest stall.
        compute_s, stall_h2d_s: busy time and copy of the rank that stalled longest, as the least and the most that
            they can be: if two ranks stalled equally long, as far as nine digits tell, either may have been it.
        waits_s, copies_s, busies_s: of each rank, its sum.
        has_split: whether the steps tell waiting from computing. Without that none of these times means anything.
    """

    steps: int = 0
    has_split: bool = True
    stalls: list[float] = field(default_factory=list)
    compute_s: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    stall_h2d_s: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    waits_s: list[float] = field(default_factory=list)
    copies_s: list[float] = field(default_factory=list)
    busies_s: list[float] = field(default_factory=list)

    def add(self, ranks: Sequence[StepRow]) -> None:
        """Take one step of all ranks."""
        longest = max(row.stall_s for row in ranks)
        pace = [row for row in ranks if row.stall_s >= longest - 4 * ROUNDED_S]
        self.steps += 1
        self.has_split = ranks[0].has_split
        self.stalls.append(longest)
        for choose, computing, copying in zip((min, max), self.compute_s, self.stall_h2d_s, strict=True):
            computing.append(choose(row.busy_s for row in pace))
            copying.append(choose(row.h2d_s for row in pace))
        if not self.waits_s:
            self.waits_s, self.copies_s, self.busies_s = ([0.0] * len(ranks) for _span in range(3))
        for rank, row in enumerate(ranks):
            self.waits_s[rank] += row.wait_s
            self.copies_s[rank] += row.h2d_s
            self.busies_s[rank] += row.busy_s

    @property
    def tolerance_s(self) -> float:
        """By how much a sum over the steps may differ from one of values that were not rounded."""
        return (2 * ROUNDED_S + 1e-12) * self.steps + 1e-12


@dataclass
class AllSteps:
    """What the steps of all ranks say: the windows in order, the steps before the first one, and all steps.

    Attributes:
        durations_s: of the steps in windows on rank 0, in no order.
    """

    windows: list[WindowOfSteps] = field(default_factory=list)
    warmup_steps: int = 0
    optimizer_steps: int = 0
    durations_s: list[float] = field(default_factory=list)


def rows_of(lines: Iterable[bytes]) -> Iterator[StepRow]:
    """The rows of one rank's file. Raises ValueError, with the number of the line, if it is none of models/meter.py's.

    Steps are numbered from 0 without a gap, and so are the windows.
    """
    window = -1
    step = -1
    row = _ROW
    for number, raw in enumerate(lines, 1):
        line = raw.decode("utf-8", "replace")
        if number == 1:
            if line not in (HEADER, HEADER_WHOLE):
                raise ValueError(f"line 1: {line.strip()[:60]!r} stands there, and {HEADER.strip()!r} must")
            header = line
            row = _ROW if header == HEADER else _ROW_WHOLE
            continue
        match = row.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number}: {line.strip()[:60]!r} is no row of {header.strip()}")
        step += 1
        of_window = int(match[2]) if match[2] else None
        if int(match[1]) != step:
            raise ValueError(f"line {number}: step {match[1]} stands where step {step} must")
        if of_window is not None and of_window not in (window, window + 1):
            raise ValueError(f"line {number}: window {of_window} follows window {window}")
        window = window if of_window is None else of_window
        wait_s, h2d_s, busy_s = (float(seconds or 0) for seconds in match.groups()[2:])
        yield StepRow(step, of_window, wait_s, h2d_s, busy_s, row is _ROW)
    if step < 0:
        raise ValueError("it has no row")


def all_steps(ranks: Sequence[Iterable[StepRow]]) -> AllSteps:
    """The windows of all ranks together.

    Raises ValueError if the ranks have different steps, or if a file cannot be read.
    """
    found = AllSteps()
    for rows in zip_longest(*ranks):
        if None in rows:
            raise ValueError(f"rank {rows.index(None)} has fewer steps than another rank")
        first = rows[0]
        if any(row.window != first.window for row in rows):
            raise ValueError(f"step {first.step} is in window {first.window} on rank 0, and elsewhere on another rank")
        if any(row.has_split != first.has_split for row in rows):
            raise ValueError(f"step {first.step} tells waiting from computing on some ranks only")
        found.optimizer_steps += 1
        if first.window is None:
            found.warmup_steps += not found.windows
            continue
        if first.window == len(found.windows):
            found.windows.append(WindowOfSteps())
        found.windows[-1].add(rows)
        found.durations_s.append(first.wait_s + first.h2d_s + first.busy_s)
    return found


def percentiles(values: Sequence[float]) -> list[float]:
    """The 5th, 50th, 95th and 99th percentile: the smallest value that so many of the values do not exceed."""
    ordered = sorted(values)
    return [ordered[math.ceil(len(ordered) * share) - 1] for share in (0.05, 0.5, 0.95, 0.99)]
