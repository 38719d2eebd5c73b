"""How things stand now, in Prometheus's text format 0.0.4 without timestamps, for node_exporter's textfile collector.

The file holds the whole state. What it no longer names is stale for Prometheus at the next scrape.
"""

from __future__ import annotations

from collections.abc import Iterator

from reporting.report.data import Condition, ReportData, SeriesReport, TestReport
from reporting.report.exports import families
from reporting.report.exports.changes import run_change
from reporting.report.exports.events import event_labels, events
from reporting.report.exports.exposition import Family, header, label_set, number, shortened
from reporting.report.exports.families import Labels, labels_of_series, labels_of_test, state_set
from reporting.report.exports.times import last_run_s, made_s, noon_s, since_s

STANDINGS = ("fit", "suspect", "slow", "not judged")  # of a node
EVENT_DAYS = 90  # older events are in the past of the metrics, or in a backfill
EVENTS = 100  # at most, the latest ones
LONGEST_TEXT = 200  # characters of an incident's texts

Sample = tuple[Family, Labels, float | None]


def lines(report: ReportData, selection: str = "") -> Iterator[str]:
    """The lines of the file. A number that is not known has no line.

    Args:
        selection: the words that chose the tests. They are a label of what is said of the whole file, so that a
            folder may hold several files of a site. Two samples with the same labels are an error there.
    """
    for family, samples in _by_family(report, selection).items():
        yield from header(family)
        for labels, value in samples.items():
            yield f"{family.name}{labels} {number(value)}"


def _by_family(report: ReportData, selection: str) -> dict[Family, dict[str, float]]:
    """The samples of each family, by their labels: two of one name would make Prometheus refuse the whole file."""
    grouped: dict[Family, dict[str, float]] = {}
    for family, labels, value in _samples(report, selection):
        if value is not None:
            grouped.setdefault(family, {})[label_set(labels)] = value
    return grouped


def _samples(report: ReportData, selection: str) -> Iterator[Sample]:
    of_file = {"site": report.site, "selection": selection}
    yield families.REPORT_TIME, of_file, made_s(report)
    yield families.PROBLEMS, of_file, len(report.problems)
    for platform in report.platforms:
        of_platform = {"site": report.site, "platform": platform.name}
        for condition in Condition:
            labels = {**of_platform, "condition": condition.value}
            yield families.TESTS, labels, platform.conditions.get(condition.value, 0)
    for test in report.tests:
        yield from _of_test(report, test)
        for series in test.series:
            yield from _of_series(report, test, series)
    yield from _of_nodes(report)
    yield from _of_incidents(report)
    yield from _of_events(report)


def _of_test(report: ReportData, test: TestReport) -> Iterator[Sample]:
    labels = labels_of_test(report, test)
    devices = "" if test.devices is None else str(test.devices)
    yield families.TEST_INFO, {**labels, "device": test.device or "", "devices": devices}, 1
    yield families.LAST_RUN, labels, last_run_s(test)
    yield families.FAILED_NIGHTS, labels, test.failed_nights
    yield families.DEVICE_SECONDS, labels, test.device_hours * 3600
    if not test.series:  # it has never had a number, and must stand in the condition nevertheless
        yield from _conditions(labels, test.condition)


def _of_series(report: ReportData, test: TestReport, series: SeriesReport) -> Iterator[Sample]:
    labels = labels_of_series(report, test, series)
    value_times = [point.started_s for point in series.points if point.value is not None]
    yield families.VALUE, labels, series.value
    yield families.PIN, labels, series.pin
    yield families.RUN_CHANGE, labels, run_change(series, series.value, series.pin)
    yield families.VALUE_TIME, labels, max(value_times, default=None)
    yield families.CHANGE, labels, series.change
    yield families.LIMIT, labels, series.limit
    yield families.SINCE, labels, since_s(report, series)
    yield from _conditions(labels, series.condition)
    for part in series.parts:
        of_part = {**labels, "part": part.name.removesuffix("_ms")}
        yield families.PART, of_part, part.now / 1000
        yield families.PART_BEFORE, of_part, None if part.before is None else part.before / 1000


def _conditions(labels: Labels, now: Condition) -> Iterator[Sample]:
    for sample in state_set(labels, "condition", Condition, now):
        yield families.CONDITION, *sample


def _of_nodes(report: ReportData) -> Iterator[Sample]:
    for node in report.nodes:
        labels = {"site": report.site, "platform": node.platform, "node": node.name}
        yield families.NODE_DEVIATION, labels, node.deviation
        yield families.NODE_ERROR, labels, node.error
        for sample in state_set(labels, "standing", STANDINGS, node.standing):
            yield families.NODE_STANDING, *sample


def _of_incidents(report: ReportData) -> Iterator[Sample]:
    for incident in report.incidents:
        labels = {
            "site": report.site,
            "platform": incident.platform,
            "condition": incident.condition.value,
            "where": shortened(incident.where, LONGEST_TEXT),
            "why": shortened(incident.why, LONGEST_TEXT),
        }
        yield families.INCIDENT, labels, None if incident.since is None else noon_s(report, incident.since)


def _of_events(report: ReportData) -> Iterator[Sample]:
    first = made_s(report) - EVENT_DAYS * 24 * 3600
    for event in [event for event in events(report) if event.time_s >= first][-EVENTS:]:
        yield families.EVENT, event_labels(report, event), event.time_s
