"""The nights of a series as the columns of a picture: what each column shows, and which mark stands below it."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from reporting.report.data import Condition, NoteReport, Point, SeriesReport

EVENT_NAMES = "123456789abcdefghijklmnopqrstuvwxyz"
"""What stands below a night with an event; the last 35 events have one."""


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
    Condition.FAILED: NightMark.FAILED,
    Condition.SLOWER: NightMark.SLOWER,
    Condition.ACKNOWLEDGED: NightMark.ACKNOWLEDGED,
    Condition.SUSPECT: NightMark.SUSPECT,
    Condition.FASTER: NightMark.FASTER,
}


@dataclass(frozen=True)
class Happening:
    """Something that happened in a night: a change of provenance, or what a person noted."""

    night: datetime.date
    said: str


@dataclass(frozen=True)
class NightColumn:
    """One night, or several that share a column.

    Attributes:
        value: the median of `runs`; None for a gap.
        level: what they were compared with.
        mark: the most urgent one of the nights.
        event: the name of the last event of these nights, which the list below the picture explains; "" for none.
        runs: the values of the runs that belong to the series.
    """

    first: datetime.date
    value: float | None
    level: float | None
    mark: NightMark | None
    event: str = ""
    runs: tuple[float, ...] = ()


@dataclass(frozen=True)
class NightColumns:
    """The columns of a picture, the last night at the right, and its events by their names."""

    columns: Sequence[NightColumn]
    nights_each: int
    last: datetime.date
    events: Sequence[tuple[str, Happening]]
    earlier_events: int

    @property
    def values(self) -> list[float]:
        return [column.value for column in self.columns if column.value is not None]

    @property
    def measured(self) -> list[float]:
        """What the scale must hold: every run where a column is a night, else what the columns show."""
        if self.nights_each > 1:
            return self.values
        return [value for column in self.columns for value in column.runs]

    @property
    def crowded(self) -> list[NightColumn]:
        """The nights that have several runs; none if a column is several nights anyway."""
        return [column for column in self.columns if len(column.runs) > 1] if self.nights_each == 1 else []

    @property
    def nights(self) -> int:
        """How many nights are shown."""
        return (self.last - self.columns[0].first).days + 1


def columns_of(
    series: SeriesReport,
    notes: Sequence[NoteReport],
    last: datetime.date,
    most: int,
    nights: int | None = None,
    each: int | None = None,
) -> NightColumns:
    """The columns of a series. Nights before its first run have none; nights without a run are gaps.

    Args:
        notes: on the test and its platform.
        last: the night at the right.
        most: how many columns there is room for.
        nights: how many nights are wanted; None for as many as there is room for.
        each: how many nights share a column; None for as few as possible.
    """
    by_night: dict[datetime.date, list[Point]] = {}
    for point in series.points:
        by_night.setdefault(_date(point.night), []).append(point)
    count = min(nights_of(series, last), nights or most)
    if each is None:
        each = math.ceil(count / most)
    number = math.ceil(count / each)
    first = last - datetime.timedelta(days=number * each - 1)
    events = _events(series, notes, first, last)
    shown = events[-len(EVENT_NAMES) :]
    named = list(zip(EVENT_NAMES, shown, strict=False))
    since = None if series.since is None else _date(series.since)
    columns = []
    for position in range(number):
        begin = first + datetime.timedelta(days=position * each)
        days = [begin + datetime.timedelta(days=day) for day in range(each)]
        points = [point for day in days for point in by_night.get(day, ())]
        values = [point.value for point in points if point.comparable and point.value is not None]
        names = [name for name, event in named if event.night in days]
        columns.append(
            NightColumn(
                begin,
                median(values) if values else None,
                _level(series, days),
                _mark(points, since in days),
                names[-1] if names else "",
                tuple(values),
            )
        )
    return NightColumns(columns, each, last, named, len(events) - len(shown))


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
    marks = {NightMark.CHANGE} if begins_change else set()
    for point in points:
        if point.value is None:
            marks.add(NightMark.FAILED)
        elif not point.comparable:
            marks.add(NightMark.OTHER_SERIES)
        elif point.condition in _OF_CONDITION:
            marks.add(_OF_CONDITION[point.condition])
        elif point.doubts:
            marks.add(NightMark.DOUBTED)
    return next((mark for mark in NightMark if mark in marks), None)


def _events(
    series: SeriesReport, notes: Sequence[NoteReport], first: datetime.date, last: datetime.date
) -> list[Happening]:
    """What happened in these nights, in their order. What several runs or people say of one night stands once."""
    found = [Happening(_date(point.night), change) for point in series.points for change in point.changes]
    for note in notes:
        kind = "" if note.kind == "note" else f"{note.kind}: "
        found.append(Happening(_date(note.night), f"{kind}{note.text} ({note.by})"))
    together: dict[datetime.date, list[str]] = {}
    for event in sorted(dict.fromkeys(found), key=lambda event: event.night):
        if first <= event.night <= last:
            together.setdefault(event.night, []).append(event.said)
    return [Happening(night, "; ".join(said)) for night, said in together.items()]
