"""Nights and runs of a report as Unix seconds."""

from __future__ import annotations

import datetime

from reporting.report.data import ReportData, SeriesReport, TestReport


def made_s(report: ReportData) -> float:
    """When the report was made."""
    return datetime.datetime.fromisoformat(report.made_at).timestamp()


def noon_s(report: ReportData, night: str) -> float:
    """The noon before a night, by the clock of the machine that made the report: earlier than the runs of the night."""
    zone = datetime.datetime.fromisoformat(report.made_at).tzinfo
    day = datetime.date.fromisoformat(night)
    return datetime.datetime.combine(day, datetime.time(12), zone).timestamp()


def since_s(report: ReportData, series: SeriesReport) -> float | None:
    """When the first run of a series' change started; None without a change."""
    if series.since is None:
        return None
    started = [point.started_s for point in series.points_of_change() if point.night == series.since]
    return min(started or [noon_s(report, series.since)])


def last_run_s(test: TestReport) -> float | None:
    """When the last job of a test started; None if the report has no run of it."""
    return max((point.started_s for series in test.series for point in series.points), default=None)
