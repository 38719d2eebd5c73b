"""Draws a series with block characters: a picture of several lines, or one line beside others."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reporting.gate.estimates import change_from
from reporting.report.charts.scales import LATEST, ValueScale, value_range
from reporting.report.display import BLOCKS, CYAN, DIM, RED, YELLOW, Display
from reporting.report.trend_columns import NightColumn, NightMark, values_of

HEIGHT = 4  # lines of a picture: of 32 steps over 7 % of the pin, a change of 2 % is nine
# Of a line in an overview: chance alone moves most tests by one step, and losses of up to 8 % differ from larger ones.
STEP = 0.015
# The pin stands one step below the top: losses are looked for, and a gain need only be seen as one.
STEPS_ABOVE = 1
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


def scale_of(columns: Sequence[NightColumn], pin: float | None, display: Display) -> ValueScale:
    """The scale of a picture, in steps from its lower edge: the same range that the page's trend has."""
    values = values_of(columns)
    always = [column.level for column in columns if column.level is not None]
    if pin is not None:
        always.insert(0, pin)
    low, high = value_range(values, [*always, *values[-LATEST:]])
    return ValueScale(low, high, HEIGHT * len(_blocks(display)), 0)


def line_of(value: float, scale: ValueScale) -> int:
    """In which line of a picture a value stands; 0 is the lowest one."""
    return (_steps(value, scale) - 1) * HEIGHT // round(scale.top)


def _steps(value: float, scale: ValueScale) -> int:
    """How many steps a bar is high; at least 1, so that no value looks like a gap."""
    return max(1, math.ceil(scale.y(value)))


def picture(columns: Sequence[NightColumn], scale: ValueScale, labels: Sequence[str], display: Display) -> list[str]:
    """The lines of a picture, with the marks below it.

    Args:
        labels: what stands before each line, the lowest one first, all of one length.
    """
    lines = []
    for row in reversed(range(HEIGHT)):
        cells = "".join(_cell(column, row, scale, display) for column in columns)
        lines.append(f"{display.painted(labels[row], DIM)} {cells}".rstrip())
    marks = "".join(_mark(column.mark, display) for column in columns)
    if marks.strip():
        lines.append(f"{' ' * len(labels[0])} {marks}".rstrip())
    return lines


def line(columns: Sequence[NightColumn], reference: float, better: str, display: Display) -> str:
    """A series in one line, on the scale that all lines share: a step is 1.5 % of the pin, and lower is worse.

    Args:
        reference: the pin, or what stands for it.
    """
    blocks = _blocks(display)
    height = step_of_line(display)
    cells = []
    for column in columns:
        if column.value is None:
            cells.append(_mark(column.mark, display))
            continue
        change = _change(column.value, reference, better)
        step = len(blocks) - 1 - STEPS_ABOVE + round(change / height)
        cells.append(display.painted(blocks[min(len(blocks) - 1, max(0, step))], _colour(column.mark)))
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


def legend(columns: Sequence[NightColumn], display: Display) -> str:
    """The marks that occur, each with its meaning."""
    occur = {column.mark for column in columns}
    return ", ".join(f"{symbol(mark, display)} {mark.said}" for mark in NightMark if mark in occur)


def _blocks(display: Display) -> str:
    return BLOCKS if display.has_symbols else ASCII_BLOCKS


def _cell(column: NightColumn, row: int, scale: ValueScale, display: Display) -> str:
    """What a column shows in a line of the picture: a part of its bar, else its level, else nothing."""
    blocks = _blocks(display)
    if column.value is not None:
        filled = _steps(column.value, scale) - row * len(blocks)
        if filled > 0:
            return display.painted(_block(column.value, row, filled, scale, display), _colour(column.mark))
    if column.level is not None and line_of(column.level, scale) == row:
        return display.painted("┄" if display.has_symbols else "-", DIM)
    return " "


def _block(value: float, row: int, filled: int, scale: ValueScale, display: Display) -> str:
    """A part of a bar. An arrow ends one whose value lies beyond the scale."""
    if value < scale.low and row == 0:
        return "↓" if display.has_symbols else "v"
    if value > scale.high and row == HEIGHT - 1:
        return "↑" if display.has_symbols else "^"
    blocks = _blocks(display)
    return blocks[min(filled, len(blocks)) - 1]


def _mark(mark: NightMark | None, display: Display) -> str:
    return " " if mark is None else display.painted(symbol(mark, display), COLOURS[mark])


def symbol(mark: NightMark, display: Display) -> str:
    """How the terminal shows a mark."""
    return mark.symbol if display.has_symbols else mark.in_ascii


def _colour(mark: NightMark | None) -> str:
    return "" if mark is None else COLOURS[mark]
