"""Which runs show the noise of a pin's level: none that a loss, a node or an outlier has moved."""

from __future__ import annotations

import random

import pytest

from reporting.gate import estimates
from reporting.gate.course import Course, Walk, course_of
from reporting.gate.estimates import Noise, Strictness
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


class WalkInFull(Walk):
    """Computes in each night all that a walk leaves out where it cannot decide anything."""

    def _is_near(self, first: int) -> bool:
        return abs(self._window_change()) <= estimates.LEAST_DRIFT

    def _noise_at_least(self) -> Noise:
        return self.noise_before(self.level_from)


@pytest.mark.parametrize("seed", range(8))
def test_what_a_walk_leaves_out_decides_nothing(seed: int) -> None:
    """Losses come, end and come back; some nights have two runs; the noise remembers, or wanders."""
    source = random.Random(seed)
    runs = []
    value = 0.0
    for number in range(160):
        level = 100 - (number % 60 > 40) * source.choice([3, 4, 6]) - 0.5 * (seed % 2) * (number // 7 % 3)
        value = 0.5 * value + source.gauss(0, 0.8)
        for hour in (20, 22)[: 1 + (source.random() < 0.3)]:
            said = {"kind": source.choice([Kind.OK] * 20 + [Kind.NODE, Kind.DRIFTED]), "limit": 0.012, "level": 100.0}
            runs.append(run(number, level + value, hour=hour, verdicts={METRIC: said}))
    series = series_of(METRIC, runs[0], runs, NOON)
    pin = pin_of(series, None)
    assert pin is not None

    def course(walk: type[Walk]) -> Course:
        return walk(series, pin, Strictness(3.5, 0.02)).to_the_end().course()

    assert course(Walk) == course(WalkInFull)
    assert course(Walk).losses
