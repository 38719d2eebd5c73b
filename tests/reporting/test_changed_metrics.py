"""A metric that is no longer recorded, or whose unit or direction has changed, is said."""

from __future__ import annotations

from platforms.job import Metric
from reporting.gate.changed_metrics import changed_metrics
from reporting.history.envelope import Envelope
from reporting.history.nights import NOON
from tests.reporting.gate_nights import night, run

COPY = Metric(812.0, "GB/s", "higher")
TRIAD = Metric(1530.0, "GB/s", "higher")


def lines(*runs: Envelope) -> list[str]:
    return changed_metrics(runs[-1], runs, NOON)


def test_a_metric_that_is_no_longer_recorded_is_named_with_its_last_value() -> None:
    both = run(4, 1.0, metrics={"copy": COPY, "triad": TRIAD})
    found = lines(run(3, 1.0, metrics={"other": COPY}), both, run(5, 1.0, metrics={"copy": COPY}))
    assert found == [f"triad is no longer recorded; its last value, 1530 GB/s, is of {night(4)}"]


def test_another_unit_and_another_direction_begin_a_series() -> None:
    before = run(4, 1.0, metrics={"copy": COPY, "triad": TRIAD})
    now = {"copy": Metric(812e3, "MB/s", "higher"), "triad": Metric(1530.0, "GB/s", "lower")}
    assert lines(before, run(5, 1.0, metrics=now)) == [
        "copy is in MB/s now, was in GB/s: a new series",
        "triad is better when it is lower now, was when higher: a new series",
    ]


def test_what_is_equal_new_or_of_another_test_is_not_said() -> None:
    now = run(5, 1.0, metrics={"copy": COPY, "triad": TRIAD})
    assert lines(now) == []
    others = {"sane": False}, {"site": "other"}, {"test": "test_a.py::test_a[x]"}, {"run_id": now.key.run_id}
    strangers = [run(4, 1.0, metrics={"gone": TRIAD}, **other) for other in others]
    later = run(6, 1.0, metrics={"gone": TRIAD})
    assert lines(run(3, 1.0, metrics={"copy": COPY}), *strangers, later, now) == []
