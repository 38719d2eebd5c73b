"""Where things stand in a trend: which nights and which values it shows, and the rows above and below them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from reporting.report.charts.scales import LATEST, NightScale, ValueScale, value_range
from reporting.report.data import Level, SeriesReport

LEAST_NIGHTS = 7
BELOW = 36  # px, for the ticks of nights without numbers and the labels of the nights


@dataclass(frozen=True)
class Frame:
    """Where things stand in a trend, in px.

    Attributes:
        values: None if no run has a value.
        top: where the place of the values begins; flags stand above it.
        height: of the whole chart.
    """

    nights: NightScale
    values: ValueScale | None
    top: int
    height: int

    @property
    def baseline(self) -> int:
        """Ticks for nights without numbers stand on it, and the labels of the nights below it."""
        return self.height - 20


def nights_of(series: SeriesReport, last: str) -> NightScale:
    """The nights of a series with runs, to its last one or a later one, at least a week."""
    known = [point.night for point in series.points]
    end = datetime.date.fromisoformat(max(*known, last))
    first = min(datetime.date.fromisoformat(min(known)), end - datetime.timedelta(days=LEAST_NIGHTS - 1))
    return NightScale(first, end)


def frame_of(series: SeriesReport, nights: NightScale, top: int, height: int) -> Frame:
    """The frame of a series with runs."""
    values = [point.value for point in series.points if point.value is not None and point.comparable]
    values = values or [point.value for point in series.points if point.value is not None]
    if not values:
        return Frame(nights, None, top, height)
    always = [] if series.pin is None else [series.pin]
    always += [level.value for level in series.levels if _is_seen(level, nights)]
    low, high = value_range(values, [*always, *values[-LATEST:]])
    return Frame(nights, ValueScale(low, high, top + 4, height - BELOW - 4), top, height)


def _is_seen(level: Level, nights: NightScale) -> bool:
    return level.to_night is None or level.to_night >= str(nights.first)
