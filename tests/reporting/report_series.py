"""Series and tests of a report, made by hand for tests of what is drawn of them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from reporting.report.data import Condition, Point, SeriesReport, TestReport

TEST = "test_resnet50.py::test_resnet50[eidf_a100-1x4gpu-tuned]"
LAST = datetime.date(2026, 11, 22)
WOBBLE = (0.0, 0.6, -0.8, 0.3, -0.4, 1.1, -1.0)


def night(before: int) -> str:
    """The night that lies so many nights before the last one."""
    return str(LAST - datetime.timedelta(days=before))


def point(before: int, value: float | None, condition: Condition = Condition.OK, **changes: Any) -> Point:
    """A run, by how many nights it lies before the last one."""
    if value is None:
        condition = Condition.FAILED
    return Point(night(before), -86400.0 * before, f"run-{before}", value, condition, **changes)


def points(nights: int, level: float = 100.0) -> list[Point]:
    """A run in each night, around a level."""
    return [point(number, level * (1 + WOBBLE[number % 7] / 100)) for number in reversed(range(nights))]


def series(runs: Sequence[Point], **changes: Any) -> SeriesReport:
    values: dict[str, Any] = {
        "metric": "effective_throughput",
        "unit": "samples/s",
        "better": "higher",
        "condition": Condition.OK,
        "kind": "ok",
        "value": next((run.value for run in reversed(runs) if run.value is not None), None),
        "value_night": None,
        "pin": None,
        "change": None,
        "limit": None,
        "since": None,
        "since_run": None,
        "short": "ok",
        "text": "",
        **changes,
    }
    return SeriesReport(points=tuple(runs), **values)


def report_of(*of_metrics: SeriesReport, **changes: Any) -> TestReport:
    values: dict[str, Any] = {
        "id": TEST,
        "platform": "eidf_a100",
        "workload": "resnet50",
        "layout": "1x4gpu",
        "setting": "tuned",
        "device": "A100-SXM4-80GB",
        "devices": 4,
        "condition": of_metrics[0].condition,
        "folder": "",
        "last_run": "run-0",
        "last_outcome": "passed",
        **changes,
    }
    return TestReport(series=of_metrics, **values)
