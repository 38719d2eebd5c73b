"""Which metrics a test may record: a name, a finite value above 0, a unit and a direction."""

from __future__ import annotations

from typing import Any

import pytest

from harness import own_metrics
from platforms.job import Metric


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"triad": 812}, r"triad: write \(value, unit, direction\).*and not 812"),
        ({"triad": (812, "GB/s")}, "triad: write "),
        ({"triad": (float("nan"), "GB/s", "higher")}, "triad: nan cannot be judged"),
        ({"triad": (0, "GB/s", "higher")}, "triad: 0 cannot be judged"),
        ({"triad": (1e308, "GB/s", "higher")}, "triad: 1e\\+308 cannot be judged"),
        ({"triad": ("fast", "GB/s", "higher")}, "triad: 'fast' cannot be judged"),
        ({"triad": (True, "GB/s", "higher")}, "triad: True cannot be judged"),
        ({"triad": (812, "", "higher")}, "triad: '' is no unit"),
        ({"triad": (812, "GB/s", "up")}, "triad: 'up' is no direction"),
        ({"my triad": (812, "GB/s", "higher")}, "'my triad' can be no name of a metric"),
        ({"effective_throughput": (812, "GB/s", "higher")}, "effective_throughput is a number of the suite"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_its_name(metrics: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        own_metrics.checked(metrics)


def test_a_number_as_a_log_has_it_is_a_value() -> None:
    assert own_metrics.checked({"triad": ("812.5", "GB/s", "higher")}) == {"triad": Metric(812.5, "GB/s", "higher")}
