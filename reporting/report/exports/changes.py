"""One run beside the level that its series was compared with in its night."""

from __future__ import annotations

from reporting.gate.estimates import change_from
from reporting.report.data import Point, SeriesReport


def level_of(series: SeriesReport, point: Point) -> float | None:
    """The level of the night of a run; None if there was none, or if the run is not comparable with it."""
    return series.level_in(point.night) if point.comparable else None


def run_change(series: SeriesReport, value: float | None, pin: float | None) -> float | None:
    """How far a value is from a pin, as a fraction; negative is worse, whatever the metric's direction."""
    return None if value is None or not pin else change_from(pin, value, series.better)
