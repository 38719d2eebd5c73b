"""A series as a small picture without text, for the cell of a table."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from reporting.report.charts.markup import described, dots, path, polyline, short
from reporting.report.charts.prose import prose
from reporting.report.charts.scales import LATEST, ValueScale, day, value_range
from reporting.report.data import Condition, Point, SeriesReport

COLOURED = (Condition.SLOWER, Condition.SUSPECT, Condition.ACKNOWLEDGED, Condition.FASTER)


def spark(series: SeriesReport, *, nights: int = 90, width: int = 120, height: int = 28, last: str = "") -> str:
    """The last nights of a series: a line with gaps, its pin, coloured dots for what is not ok, ticks for failures.

    A night with several runs shows the last one.

    Args:
        nights: how many.
        width, height: in px.
        last: the last night that is shown, as `2026-11-17`; "" for that of the last run.
    """
    if not series.points:
        return _svg(width, height, described(f"{series.metric.replace('_', ' ')}: no run"))
    end = datetime.date.fromisoformat(last or max(point.night for point in series.points))
    first = end - datetime.timedelta(days=nights - 1)
    earliest, latest = str(first), str(end)
    shown = [point for point in series.points if earliest <= point.night <= latest]
    of_night = {point.night: point for point in shown if point.value is not None and point.comparable}
    with_values = list(of_night.values())
    failed = sorted({point.night for point in shown if point.value is None} - {point.night for point in with_values})

    def x(night: str) -> float:
        passed = (datetime.date.fromisoformat(night) - first).days
        return round(4 + (width - 8) * (passed / max(nights - 1, 1)), 1)

    parts = [described(_title(series, len(shown), failed))]
    if with_values:
        values = [point.value for point in with_values if point.value is not None]
        always = [] if series.pin is None else [series.pin]
        low, high = value_range(values, [*always, *values[-LATEST:]])
        scale = ValueScale(low, high, 3, height - 6)
        if series.pin is not None:
            parts.append(path("grid", f"M0 {short(round(scale.y(series.pin), 1))}h{width}"))
        places = [(x(point.night), round(scale.y(point.value or 0.0))) for point in with_values]
        parts.append(path("spark-line", _line_with_gaps(with_values, places)))
        for condition in COLOURED:
            chosen = [place for place, point in zip(places, with_values, strict=True) if point.condition is condition]
            parts.append(path(f"dots k-{condition}", dots(chosen)))
        parts.append(path(f"last k-{series.condition}", dots(places[-1:])))
    ticks = "".join(f"M{short(x(night))} {height - 5}v5" for night in failed)
    parts.append(path(f"failures k-{Condition.FAILED}", ticks))
    return _svg(width, height, "".join(parts))


def _line_with_gaps(points: Sequence[Point], places: Sequence[tuple[float, float]]) -> str:
    """A line from run to run; nights without a run interrupt it."""
    text = ""
    stretch: list[tuple[float, float]] = []
    previous = ""
    for point, place in zip(points, places, strict=True):
        night = datetime.date.fromisoformat(point.night)
        if previous and (night - datetime.date.fromisoformat(previous)).days > 1:
            text += polyline(stretch)
            stretch = []
        stretch.append(place)
        previous = point.night
    return text + polyline(stretch)


def _title(series: SeriesReport, runs: int, failed: Sequence[str]) -> str:
    parts = [f"{series.metric.replace('_', ' ')}: {prose(series.short) or series.condition}"]
    if runs:
        parts.append("1 run" if runs == 1 else f"{runs} runs")
    if failed:
        nights = "1 night" if len(failed) == 1 else f"{len(failed)} nights"
        parts.append(f"{nights} without numbers, the last one {day(failed[-1])}")
    return ", ".join(parts)


def _svg(width: int, height: int, inside: str) -> str:
    return (
        f'<svg class="chart spark" role="img" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f"{inside}</svg>"
    )
