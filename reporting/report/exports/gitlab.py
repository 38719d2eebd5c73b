"""GitLab's metrics report: two lines for each series, which a merge request's widget compares as texts.

GitLab splits a line as a shell does, takes the first word for the name and the second one for the value, and drops what
follows a `#`. Two equal texts are *unchanged*, all others are *changed*. So equal speed must give equal text: a change
that the gate has not found is 0, and one that it has found is in whole percent.
"""

from __future__ import annotations

from collections.abc import Iterator

from reporting.report.data import Condition, ReportData, SeriesReport, TestReport
from reporting.report.exports.exposition import Family, family, header, label_set, number

RESULT = family("result", "What a series reaches: its pin and the change in whole percent; without a pin its number.")
CHANGE = family(
    "change_percent", "How far a series is from its pin: 0 if the gate has found nothing; negative is worse."
)
UNCHANGED = frozenset({Condition.OK, Condition.SUSPECT})
"""Conditions in which the gate has found no change. One run that was far from the pin is none yet."""


def lines(report: ReportData) -> Iterator[str]:
    """The lines of the file. A test whose last jobs have no numbers has no line: GitLab shows it as removed."""
    yield from header(RESULT)
    for test, series in _series(report):
        result = result_of(series)
        if result is not None:
            yield _line(RESULT, test, series, result)
    yield from header(CHANGE)
    for test, series in _series(report):
        percent = change_percent(series)
        if percent is not None:
            yield _line(CHANGE, test, series, percent)
    yield "# EOF"


def change_percent(series: SeriesReport) -> int | None:
    """The change in whole percent; None without a pin, and for a run that is not comparable with it."""
    if series.pin is None:
        return None
    if series.condition in UNCHANGED:
        return 0
    return None if series.change is None else round(100 * series.change)


def result_of(series: SeriesReport) -> float | None:
    """The number that stands for a series, in its unit."""
    percent = change_percent(series)
    if series.pin is None or percent is None:
        return None if series.value is None else float(f"{series.value:.2g}")
    direction = -1 if series.better == "lower" else 1
    return float(f"{series.pin + direction * percent / 100 * abs(series.pin):.3g}")


def _series(report: ReportData) -> Iterator[tuple[TestReport, SeriesReport]]:
    for test in report.tests:
        if not test.failed_nights:
            for series in test.series:
                yield test, series


def _line(of: Family, test: TestReport, series: SeriesReport, value: float) -> str:
    labels = {"test": test.id, "metric": series.metric, "unit": series.unit}
    without_comment = {name: text.replace("#", "%23") for name, text in labels.items()}
    return f"{of.name}{label_set(without_comment)} {number(value)}"
