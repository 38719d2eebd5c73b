"""Which runs show the noise of a pin's level: none that a loss, a node or an outlier has moved."""

from __future__ import annotations

import pytest

from reporting.gate.course import course_of
from reporting.gate.estimates import Strictness
from reporting.gate.series import pin_of, series_of
from reporting.gate.verdict import Kind
from reporting.history.nights import NOON
from tests.reporting.gate_nights import METRIC, nights, run


@pytest.mark.parametrize("kind", [Kind.NODE, Kind.TRANSIENT, Kind.SUSPECT])
def test_a_run_that_a_node_or_an_outlier_has_moved_shows_no_noise(kind: Kind) -> None:
    runs = nights(40)
    runs[25] = run(25, 98.0, verdicts={METRIC: {"kind": kind, "red": False}})
    series = series_of(METRIC, runs[0], runs, NOON)
    pin = pin_of(series, None)
    assert course_of(series, pin, Strictness()).noise.runs == 33 - 1  # seven of the forty are the window
