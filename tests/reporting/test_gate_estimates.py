"""The gate's arithmetic, beside numbers computed by hand."""

from __future__ import annotations

import math
import random
from statistics import median

import pytest

from reporting.compare.robust import scaled_mad
from reporting.gate import estimates
from reporting.gate.estimates import Noise

FIVE = [0.0, 0.01, -0.01, 0.02, -0.02]
PLAIN = Noise(deviation=0.009, scale=0.01, autocorrelation=0.0, runs=20)


def test_the_scaled_mad_is_the_median_distance_from_the_median_times_1_4826():
    assert scaled_mad(FIVE) == pytest.approx(0.014826)  # distances 0, 1, 1, 2, 2 %
    assert scaled_mad([*FIVE[:4], -5.0]) == pytest.approx(0.014826)  # however far one run lies


def test_the_scale_is_wider_than_the_mad_by_its_own_uncertainty():
    noise = estimates.noise_of(FIVE)
    assert noise.scale == pytest.approx(0.014826 * (1 + 0.7 / math.sqrt(5)))
    assert (noise.deviation, noise.runs) == (pytest.approx(0.014826), 5)


def test_runs_that_agree_by_luck_have_a_deviation_of_0_4_percent():
    noise = estimates.noise_of([0.0] * 20)
    assert noise == Noise(0.0, pytest.approx(0.004 * (1 + 0.7 / math.sqrt(20))), 0.0, 20)


@pytest.mark.parametrize("runs", [1, 2, 3, 20, 21, 59, 60, 61, 200])
@pytest.mark.parametrize("grain", [0, 2])
def test_the_noise_of_sorted_runs_is_what_the_definitions_say_to_the_last_digit(runs, grain):
    source = random.Random(runs)
    values = [round(source.gauss(0, 0.02) * source.choice([1, 3]), grain or 17) for _ in range(runs)]
    noise = estimates.noise_without_memory(sorted(values), tail=0.05)
    below = [noise.level - value for value in values if value < noise.level]
    deviation = 1.4826 * median(below) if noise.skewed else scaled_mad(values)
    assert (noise.level, noise.deviation) == (median(values), deviation)
    whole = estimates.noise_of(values, tail=0.05)
    assert (whole.scale, whole.tail, whole.level) == (noise.scale, noise.tail, noise.level)


def test_autocorrelation_by_hand():
    slow = [-1.0] * 8 + [1.0] * 8  # 15 products: 14 of 1, one of -1; their mean over a power of 1 is 13 / 15
    raw = 13 / 15
    assert estimates.autocorrelation(slow, 1.0) == pytest.approx(min(raw + (1 + 3 * raw) / 16 - 0.7 / 4, 0.9))
    assert estimates.autocorrelation([-1.0, 1.0] * 8, 1.0) == 0.0


def test_an_outlier_counts_as_two_and_a_half_scales_away():
    near, far = [0.0, 1.0, 2.5, 1.0, 0.0, -1.0, -1.0], [0.0, 1.0, 99.0, 1.0, 0.0, -1.0, -1.0]
    assert estimates.autocorrelation(near, 1.0) == estimates.autocorrelation(far, 1.0)


def test_noise_without_memory_has_nearly_always_none():
    source = random.Random(3)
    found = [estimates.noise_of([source.gauss(0, 0.015) for _ in range(60)]).autocorrelation for _ in range(200)]
    assert sum(found) / 200 < 0.06


def test_runs_that_resemble_their_neighbours_are_found_out():
    source = random.Random(4)
    values = [0.0]
    for _ in range(300):
        values.append(0.5 * values[-1] + source.gauss(0, 0.013))
    assert estimates.noise_of(values).autocorrelation == pytest.approx(0.5, abs=0.12)


def test_the_variance_of_three_runs_with_an_autocorrelation_of_a_half():
    assert estimates.inflation(0.5, 3) == pytest.approx(1 + 2 * (2 / 3 * 0.5 + 1 / 3 * 0.25))
    assert estimates.inflation(0.0, 7) == 1.0
    assert estimates.inflation(0.5, 1) == 1.0


def test_the_error_of_window_and_pin_together_by_hand():
    of_window = estimates.error_of_median(PLAIN, 7)
    of_pin = estimates.error_of_median(PLAIN, 20)
    assert of_window == pytest.approx(0.004737, abs=1e-6)  # 1.2533 x 1 % / sqrt(7)
    assert of_pin == pytest.approx(0.002802, abs=1e-6)
    error = estimates.standard_error_of_change(PLAIN, 7, of_pin)
    assert error == pytest.approx(0.005504, abs=1e-6)
    assert estimates.drift_limit(error) == pytest.approx(0.016512, abs=1e-6)


def test_no_limit_is_below_its_floor():
    quiet = Noise(0.0, 0.0, 0.0, 20)
    assert estimates.drift_limit(0.0001) == 0.01
    assert estimates.step_limit(quiet) == 0.03
    assert estimates.step_limit(PLAIN) == pytest.approx(0.035)


@pytest.mark.parametrize(
    ("changes", "found", "first"),
    [
        ([0.01, -0.01, 0.0, -0.06, -0.05, -0.07], -0.06, 3),
        ([0.01, -0.01, 0.0, -0.06], -0.06, 3),
        ([-0.08, 0.0, 0.01, -0.01, -0.05, -0.06, -0.05], -0.05, 4),  # an outlier long before
        ([0.0, -0.1, -0.1, 0.0, 0.01, 0.0, 0.0, -0.05, -0.06], -0.05, 7),  # a regression that is over
        ([0.0, -0.05, -0.06, 0.01, -0.05, -0.06, -0.06], -0.05, 1),  # one good run within
        ([0.0, -0.01, -0.02, -0.01, -0.02, -0.01, -0.1], -0.1, 6),  # a level that is a little low for weeks
        ([0.0, 0.01, 0.05, 0.05], 0.05, 2),  # for the better
        ([-0.05], -0.05, 0),
    ],
)
def test_where_a_change_that_still_lasts_began(changes, found, first):
    assert estimates.start_of_change(changes, found) == first
