"""The whole history in OpenMetrics with timestamps, for `promtool tsdb create-blocks-from openmetrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from reporting.report.data import Condition, Point, ReportData, SeriesReport, TestReport
from reporting.report.exports import families
from reporting.report.exports.changes import level_of, run_change
from reporting.report.exports.events import event_labels, events
from reporting.report.exports.exposition import Family, header, label_set, number
from reporting.report.exports.families import Labels, labels_of_series

HEAD_S = 3 * 3600
"""The time before the present into which Prometheus still writes itself. A backfill must not reach into it."""
OfPoint = Callable[[SeriesReport, Point], float | None]


def lines(report: ReportData, until_s: float) -> Iterator[str]:
    """The lines of the file, one after the other: they may be more than the memory holds.

    The families stand one after the other, as the format demands, and each series in the order of its runs. A number
    that a run does not have has no line.

    Args:
        until_s: runs that started at this time or later are left out; Unix seconds.
    """
    numbers: dict[Family, OfPoint] = {
        families.VALUE: _value,
        families.PIN: level_of,
        families.RUN_CHANGE: lambda series, point: run_change(series, point.value, level_of(series, point)),
        families.VALUE_TIME: lambda series, point: None if point.value is None else point.started_s,
    }
    for family, number_of in numbers.items():
        yield from _header(family)
        for test, series in _series(report):
            yield from _samples(family, labels_of_series(report, test, series), series, number_of, until_s)
    yield from _header(families.CONDITION)
    for test, series in _series(report):
        labels = labels_of_series(report, test, series)
        held = {point.condition for point in series.points}
        for condition in sorted(held):  # one that a series has never had would be nothing but zeros
            states = {**labels, "condition": condition.value}
            yield from _samples(families.CONDITION, states, series, _is(condition), until_s)
    yield from _header(families.EVENT)
    yield from _events(report, until_s)
    yield "# EOF"


def left_out(report: ReportData, until_s: float) -> int:
    """How many runs of series `lines` leaves out."""
    return sum(point.started_s >= until_s for _, series in _series(report) for point in series.points)


def _series(report: ReportData) -> Iterator[tuple[TestReport, SeriesReport]]:
    for test in report.tests:
        for series in test.series:
            yield test, series


def _value(series: SeriesReport, point: Point) -> float | None:
    return point.value


def _is(condition: Condition) -> OfPoint:
    return lambda series, point: float(point.condition is condition)


def _header(family: Family) -> Iterator[str]:
    yield from header(family)
    if family.unit:
        yield f"# UNIT {family.name} {family.unit}"


def _samples(family: Family, labels: Labels, series: SeriesReport, number_of: OfPoint, until_s: float) -> Iterator[str]:
    """A line for each run. Runs that started together, such as those of `--repeat`, get times 1 ms apart."""
    name = family.name + label_set(labels)
    last_ms: float = float("-inf")
    for point in sorted(series.points, key=lambda point: point.started_s):
        if point.started_s >= until_s:
            return
        time_ms = max(round(point.started_s * 1000), last_ms + 1)
        last_ms = time_ms
        value = number_of(series, point)
        if value is not None:
            yield f"{name} {number(value)} {time_ms / 1000:.3f}"


def _events(report: ReportData, until_s: float) -> Iterator[str]:
    times: dict[str, set[float]] = {}
    for event in events(report):
        if event.time_s < until_s:
            times.setdefault(label_set(event_labels(report, event)), set()).add(round(event.time_s, 3))
    for labels, of_event in times.items():
        for time_s in sorted(of_event):
            yield f"{families.EVENT.name}{labels} {number(time_s)} {time_s:.3f}"
