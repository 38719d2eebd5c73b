"""Draws a series with block characters: a picture of several lines, or one line beside others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from reporting.gate.estimates import change_from
from reporting.report.data import SeriesReport
from reporting.report.display import BLOCKS, CYAN, DIM, RED, YELLOW, Display
from reporting.report.trend_columns import NightColumn, NightColumns, NightMark

HEIGHT = 4  # lines of a picture
LEAST_SPAN = 0.04  # of the pin: less would make chance look like a change
FINE_SPAN = 0.32  # of the pin: over four lines of eight steps, 2 % are then two steps
STEP = 0.015  # of a line in an overview
STEPS_ABOVE = 1  # the pin is in the middle of the last step but one
ASCII_BLOCKS = "_.:|"
COLOURS = {
    NightMark.CHANGE: RED,
    NightMark.FAILED: RED,
    NightMark.SLOWER: RED,
    NightMark.ACKNOWLEDGED: YELLOW,
    NightMark.SUSPECT: YELLOW,
    NightMark.DOUBTED: DIM,
    NightMark.OTHER_SERIES: DIM,
    NightMark.FASTER: CYAN,
}


@dataclass(frozen=True)
class Scale:
    """What the picture's lowest and highest edge stand for, in the metric's unit."""

    low: float
    high: float

    def height(self, value: float, steps: int) -> int:
        """How many of so many steps a bar is high; at least 1, so that no value looks like a gap."""
        share = (value - self.low) / (self.high - self.low)
        return min(steps, max(1, math.ceil(share * steps)))


def scale_of(nights: NightColumns, pin: float | None) -> Scale:
    """A scale on which 2 % can be seen: single nights that are far from all others do not stretch it."""
    levels = [column.level for column in nights.columns if column.level is not None]
    anchors = [*levels, *nights.values[-1:]]
    if pin is not None:
        anchors.append(pin)
    values = nights.measured
    reference = abs(median(anchors if pin is None else [pin])) or 1.0
    low, high = min([*values, *anchors]), max([*values, *anchors])
    if high - low > FINE_SPAN * reference and len(values) > 2:
        cuts = quantiles(values, n=20, method="inclusive")
        low, high = min(cuts[0], *anchors), max(cuts[-1], *anchors)
    missing = LEAST_SPAN * reference - (high - low)
    if missing > 0:
        low -= missing / 2
        high += missing / 2
    margin = 0.02 * (high - low)
    return Scale(low - margin, high + margin)


def picture(nights: NightColumns, scale: Scale, labels: Sequence[str], display: Display) -> list[str]:
    """The lines of a picture, with the marks and the events below it.

    Args:
        labels: what stands before each line, all of one length.
    """
    steps = _blocks(display)
    lines = []
    for row in range(HEIGHT - 1, -1, -1):
        cells = [_cell(column, row, scale, steps, display) for column in nights.columns]
        lines.append(f"{display.painted(labels[HEIGHT - 1 - row], DIM)} {''.join(cells)}".rstrip())
    indent = " " * (len(labels[0]) + 1)
    marks = "".join(_mark(column.mark, display) for column in nights.columns)
    if marks.strip():
        lines.append((indent + marks).rstrip())
    names = "".join(column.event or " " for column in nights.columns)
    if names.strip():
        lines.append((indent + names).rstrip())
    return lines


def line(nights: NightColumns, reference: float, series: SeriesReport, display: Display) -> str:
    """A series in one line, on the scale that all lines share: a step is 1.5 % of the pin, and lower is worse.

    Args:
        reference: the pin, or what stands for it.
    """
    steps = _blocks(display)
    cells = []
    for column in nights.columns:
        if column.value is None:
            cells.append(_mark(column.mark, display))
            continue
        change = _change(column.value, reference, series.better)
        step = len(steps) - 1 - STEPS_ABOVE + round(change / step_of_line(display))
        cells.append(display.painted(steps[min(len(steps) - 1, max(0, step))], _colour(column.mark)))
    return "".join(cells)


def _change(value: float, reference: float, better: str) -> float:
    """A value relative to its reference, negative is worse. From 0 any change is larger than what a line shows."""
    if reference:
        return change_from(reference, value, better)
    sign = (value > 0) - (value < 0)
    return float(sign if better == "higher" else -sign)


def step_of_line(display: Display) -> float:
    """The change that is one step of a line, as a fraction."""
    return STEP * len(BLOCKS) / len(_blocks(display))


def legend(nights: Sequence[NightColumns], display: Display) -> list[str]:
    """The marks that occur, each with its meaning."""
    occur = {column.mark for of_series in nights for column in of_series.columns}
    return [f"{symbol(mark, display)} {mark.said}" for mark in NightMark if mark in occur]


def _blocks(display: Display) -> str:
    return BLOCKS if display.has_symbols else ASCII_BLOCKS


def _cell(column: NightColumn, row: int, scale: Scale, steps: str, display: Display) -> str:
    """What a column shows in a line of the picture; line 0 is the lowest one."""
    total = HEIGHT * len(steps)
    level = " "
    if column.level is not None and (scale.height(column.level, total) - 1) // len(steps) == row:
        level = display.painted("┄" if display.has_symbols else "-", DIM)
    if column.value is None:
        return level
    if column.value < scale.low:
        below = "↓" if display.has_symbols else "v"
        return display.painted(below, _colour(column.mark)) if row == 0 else level
    if column.value > scale.high and row == HEIGHT - 1:
        return display.painted("↑" if display.has_symbols else "^", _colour(column.mark))
    filled = scale.height(column.value, total) - row * len(steps)
    if filled <= 0:
        return level
    return display.painted(steps[min(filled, len(steps)) - 1], _colour(column.mark))


def _mark(mark: NightMark | None, display: Display) -> str:
    return " " if mark is None else display.painted(symbol(mark, display), COLOURS[mark])


def symbol(mark: NightMark, display: Display) -> str:
    """How the terminal shows a mark."""
    return mark.symbol if display.has_symbols else mark.in_ascii


def _colour(mark: NightMark | None) -> str:
    return "" if mark is None else COLOURS[mark]
