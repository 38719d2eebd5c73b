"""The metrics that Prometheus gets: their names, what they mean, and their labels.

A scraped file and a backfill have the same names and labels, so that one dashboard shows both. No label of a series
holds a run, a date or a number: how many there are depends on tests and nodes. Only events and incidents have texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reporting.report.data import ReportData, SeriesReport, TestReport
from reporting.report.exports.exposition import family

Labels = Mapping[str, str]

# Of a series. A backfill has these of each run.
VALUE = family("value", "The number of the last run that has one, in the unit that the label says.")
PIN = family("pin", "What the number is compared with, in the unit that the label says.")
RUN_CHANGE = family("run_change_ratio", "The last run alone beside the pin: negative is worse, -0.05 is 5 percent.")
VALUE_TIME = family("value_timestamp_seconds", "When the last run that has a number started.")
CONDITION = family("condition", "How a series stands: 1 for the condition that holds, 0 for the others.")

# Of a series, now.
CHANGE = family(
    "change_ratio",
    "The change from the pin: of all runs since it began, else of what the gate compares; negative is worse.",
)
LIMIT = family("limit_ratio", "The change beyond which the gate is red, as a positive number.")
SINCE = family("since_timestamp_seconds", "When the first run of the change started.")
PART = family("step_part_seconds", "How long a part of a step takes since the change, or in the last run.")
PART_BEFORE = family("step_part_before_seconds", "How long a part of a step took before the change.")

# Of a test, now.
LAST_RUN = family("last_run_timestamp_seconds", "When the last job of the test started, with numbers or without.")
FAILED_NIGHTS = family("failed_nights", "How many of the last nights in a row have no numbers.")
DEVICE_SECONDS = family(
    "device_seconds",
    "The time of devices that its jobs took in the nights of the report; it falls if old nights are removed.",
)
TEST_INFO = family("test_info", "On what a test ran the last time. The value is 1.")

# Of a platform, a node, an incident, the report, now.
TESTS = family("tests", "How many tests of a platform stand in a condition.")
NODE_DEVIATION = family("node_deviation_ratio", "How far a node is from the others: negative is worse.")
NODE_ERROR = family("node_deviation_error_ratio", "The standard error of the deviation of a node.")
NODE_STANDING = family("node_standing", "What the nodes command says of a node: 1 for what holds, 0 for the others.")
INCIDENT = family("incident_timestamp_seconds", "When tests of a platform began to change together.")
PROBLEMS = family("problems", "How many things of the history and of the answers cannot be read.")
REPORT_TIME = family("report_timestamp_seconds", "When this file was made.")

# Both have it: the time is the value.
EVENT = family("event_timestamp_seconds", "When people noted something, or what runs report was not as before.")


def labels_of_test(report: ReportData, test: TestReport) -> dict[str, str]:
    """The labels of a test."""
    return {
        "site": report.site,
        "platform": test.platform,
        "test": test.id,
        "workload": test.workload,
        "layout": test.layout,
        "setting": test.setting,
    }


def labels_of_series(report: ReportData, test: TestReport, series: SeriesReport) -> dict[str, str]:
    """The labels of a series: those of its test, its metric, its unit, and which direction is better."""
    return {**labels_of_test(report, test), "metric": series.metric, "unit": series.unit, "better": series.better}


def state_set(labels: Labels, name: str, states: Iterable[str], now: str) -> list[tuple[Labels, float]]:
    """A sample for each state: 1 for the present one, 0 for the others, so that each of them has a past."""
    return [({**labels, name: state}, float(state == now)) for state in states]
