"""The nights of a series as the columns of a picture: what each column shows, and which mark stands below it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from reporting.report.data import Condition, Point, SeriesReport


class NightMark(Enum):
    """What is said of a night by one symbol, the most urgent first: the symbol, in ASCII, and in words."""

    CHANGE = ("▼", "V", "the change begins")
    FAILED = ("\N{MULTIPLICATION SIGN}", "x", "a run without numbers")
    SLOWER = ("!", "!", "red")
    ACKNOWLEDGED = ("k", "k", "red, and known: it has a ticket")
    SUSPECT = ("?", "?", "one run, far from the pin")
    DOUBTED = ("~", "~", "in doubt: it fills no pin")
    OTHER_SERIES = ("≠", "o", "not comparable with the last run, so not drawn")
    FASTER = ("+", "+", "faster")

    def __init__(self, symbol: str, in_ascii: str, said: str) -> None:
        self.symbol = symbol
        self.in_ascii = in_ascii
        self.said = said


_OF_CONDITION = {
    Condition.SLOWER: NightMark.SLOWER,
    Condition.ACKNOWLEDGED: NightMark.ACKNOWLEDGED,
    Condition.SUSPECT: NightMark.SUSPECT,
    Condition.FASTER: NightMark.FASTER,
}


_URGENCY = list(NightMark)


@dataclass(frozen=True)
class NightColumn:
    """One night.

    Attributes:
        value: the median of its runs that belong to the series; None for a gap.
        level: what they were compared with.
        mark: the most urgent one of its runs.
    """

    night: datetime.date
    value: float | None
    level: float | None
    mark: NightMark | None


def columns_of(series: SeriesReport, last: datetime.date, most: int) -> list[NightColumn]:
    """The last nights of a series. Nights before its first run have no column; nights without a run are gaps.

    Args:
        last: the night at the right.
        most: how many columns there is room for.
    """
    by_night: dict[str, list[Point]] = {}
    for point in series.points:
        by_night.setdefault(point.night, []).append(point)
    first = datetime.date.fromisoformat(min(by_night)) if by_night else datetime.date.min
    columns = []
    for ago in range(most):
        night = last - datetime.timedelta(days=ago)
        if night < first:
            break
        name = str(night)
        points = by_night.get(name, [])
        values = [point.value for point in points if point.comparable and point.value is not None]
        value = median(values) if values else None
        mark = _mark(points, begins_change=series.since == name)
        columns.append(NightColumn(night, value, series.level_in(name), mark))
    columns.reverse()
    return columns


def values_of(columns: Sequence[NightColumn]) -> list[float]:
    """The values of those columns that are no gaps."""
    return [column.value for column in columns if column.value is not None]


def _mark(points: Sequence[Point], *, begins_change: bool) -> NightMark | None:
    marks = [mark for point in points if (mark := _mark_of(point)) is not None]
    if begins_change:
        marks.append(NightMark.CHANGE)
    return min(marks, key=_URGENCY.index, default=None)


def _mark_of(point: Point) -> NightMark | None:
    if point.value is None:
        return NightMark.FAILED
    if not point.comparable:
        return NightMark.OTHER_SERIES
    if point.condition in _OF_CONDITION:
        return _OF_CONDITION[point.condition]
    return NightMark.DOUBTED if point.doubts else None
