"""The nights of a series as the columns of a picture: what each column shows, and which mark stands below it."""

from __future__ import annotations

import datetime
import math
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


@dataclass(frozen=True)
class NightColumn:
    """One night, or several that share a column.

    Attributes:
        value: the median of their runs that belong to the series; None for a gap.
        level: what they were compared with.
        mark: the most urgent one of the nights.
    """

    first: datetime.date
    value: float | None
    level: float | None
    mark: NightMark | None


@dataclass(frozen=True)
class NightColumns:
    """The columns of a picture, the last night at the right."""

    columns: Sequence[NightColumn]
    nights_each: int
    last: datetime.date

    @property
    def values(self) -> list[float]:
        return [column.value for column in self.columns if column.value is not None]


def columns_of(series: SeriesReport, last: datetime.date, count: int, each: int) -> NightColumns:
    """The columns of a series. Nights before its first run have none; nights without a run are gaps.

    Args:
        last: the night at the right.
        count: how many nights are wanted, at most.
        each: how many nights share a column.
    """
    by_night: dict[datetime.date, list[Point]] = {}
    for point in series.points:
        by_night.setdefault(_date(point.night), []).append(point)
    number = math.ceil(min(nights_of(series, last), count) / each)
    since = None if series.since is None else _date(series.since)
    columns = []
    for place in range(number):
        begin = last - datetime.timedelta(days=(number - place) * each - 1)
        days = [begin + datetime.timedelta(days=day) for day in range(each)]
        points = [point for day in days for point in by_night.get(day, ())]
        values = [point.value for point in points if point.comparable and point.value is not None]
        value = median(values) if values else None
        columns.append(NightColumn(begin, value, _level(series, days), _mark(points, since in days)))
    return NightColumns(columns, each, last)


def nights_of(series: SeriesReport, last: datetime.date) -> int:
    """From the first run of a series to the night `last`, at least 1."""
    oldest = min((_date(point.night) for point in series.points), default=last)
    return max(1, (last - oldest).days + 1)


def _date(night: str) -> datetime.date:
    return datetime.date.fromisoformat(night)


def _level(series: SeriesReport, days: Sequence[datetime.date]) -> float | None:
    """The level that counted in the last of these nights that has one."""
    levels = (series.level_in(str(day)) for day in reversed(days))
    return next((level for level in levels if level is not None), None)


def _mark(points: Sequence[Point], begins_change: bool) -> NightMark | None:
    marks = {_mark_of(point) for point in points}
    if begins_change:
        marks.add(NightMark.CHANGE)
    return next((mark for mark in NightMark if mark in marks), None)


def _mark_of(point: Point) -> NightMark | None:
    if point.value is None:
        return NightMark.FAILED
    if not point.comparable:
        return NightMark.OTHER_SERIES
    if point.condition in _OF_CONDITION:
        return _OF_CONDITION[point.condition]
    return NightMark.DOUBTED if point.doubts else None
