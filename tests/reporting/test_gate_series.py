"""From envelopes to a series: which runs belong to it, in which order, and what its pin is."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import math

import pytest

from platforms.job import Role, Trial
from reporting.gate.course import course_of
from reporting.gate.estimates import Strictness
from reporting.gate.series import learned, pin_of, series_of
from reporting.history.nights import NOON
from tests.reporting.gate_nights import METRIC, accepted, night, nights, run


def series(runs, night_ends=NOON):
    return series_of(METRIC, runs[0], runs, night_ends)


def values(found):
    return [one.value for one in found.runs]


def test_only_sane_measuring_runs_of_the_same_test_and_fields_belong():
    runs = [
        run(0, 100.0),
        run(1, 1.0, sane=False),
        run(2, 2.0, test="test_other.py::test_other[x]"),
        run(3, 3.0, fields={"benchmark": "resnet50"}),
        run(4, 4.0, trial=Trial(Role.CONFIRM)),
        run(5, 5.0, unit="GB/s"),
        run(6, 6.0, better="lower"),
        run(7, math.nan),
        run(8, math.inf),
        run(9, 9.0, site="another one"),
        run(10, 10.0, trial=Trial(label="after", repeat=1)),
        run(11, 99.0, trial=Trial(repeat=1)),
    ]
    assert values(series(runs)) == [100.0, 99.0]


def test_runs_stand_in_the_order_of_their_starts_whatever_the_order_of_lines():
    runs = [run(0, 100.0), run(1, 101.0), run(2, 102.0), run(3, 103.0, started_s=None)]
    for order in itertools.permutations(runs):
        assert values(series(order)) == [100.0, 101.0, 102.0, 103.0]


def test_a_run_with_several_jobs_has_their_median():
    jobs = [run(0, value, run_id="one", attempt=attempt) for attempt, value in enumerate([90.0, 100.0, 98.0])]
    assert values(series(jobs)) == [98.0]


def test_a_job_in_doubt_does_not_count_beside_one_without():
    jobs = [run(0, 90.0, run_id="one", doubts=("crowded",)), run(0, 100.0, run_id="one", attempt=2)]
    (found,) = series(jobs).runs
    assert (found.value, found.eligible) == (100.0, True)


def test_a_night_goes_across_midnight_and_ends_at_the_hour_of_the_site():
    runs = [run(0, 100.0, hour=22), run(1, 101.0, hour=3), run(1, 102.0, hour=13)]
    assert [one.night for one in series(runs).runs] == [night(0), night(0), night(1)]
    early = series(runs, datetime.time(2))
    assert [one.night for one in early.runs] == [night(0), night(1), night(1)]


def test_the_pin_is_the_median_of_the_first_twenty_eligible_runs():
    runs = nights(20)
    for doubtful in (2, 9):
        runs[doubtful] = dataclasses.replace(runs[doubtful], doubts=("unsteady",))
    assert pin_of(series(runs), None) is None
    assert len(learned(series(runs))) == 18
    pin = pin_of(series([*runs, run(20, 100.0), run(21, 100.0), run(22, 50.0)]), None)
    assert (pin.level, pin.first, pin.last, pin.runs) == (100.0, night(0), night(21), 20)


def test_a_red_run_fills_no_pin():
    runs = nights(21)
    runs[7] = dataclasses.replace(runs[7], verdicts={METRIC: {"kind": "slower", "red": True}})
    pin = pin_of(series(runs), None)
    assert pin.last == night(20)


def test_lower_is_better_has_the_same_signs():
    found = series([run(0, 10.0, unit="us", better="lower")])
    assert found.change(11.0, 10.0) == pytest.approx(-0.1)
    assert found.worse(11.0, 10.0) == 11.0


def test_the_noise_is_that_of_the_runs_before_the_window_without_those_of_a_loss():
    runs = nights(40)
    for red in range(22, 27):
        runs[red] = run(red, 60.0)
    found = series(runs)
    pin = pin_of(found, None)
    noise = course_of(found, pin, Strictness()).noise
    assert noise.runs == 33 - 7  # from the first slow night to the second one after the repair, which ends the red
    assert noise.deviation == pytest.approx(1.4826 * 0.005)  # changes of 0, 1, -1, .5 and -.5 per cent


def test_the_noise_has_at_least_the_twenty_runs_of_the_pin():
    found = series(nights(24))
    pin = pin_of(found, None)
    assert course_of(found, pin, Strictness()).noise.runs == 20


def test_after_an_acceptance_the_old_noise_is_kept_until_there_are_twenty_runs_before_the_window():
    answer = accepted(night(30), autocorrelation=0.2)
    young = series([*nights(30), *nights(26, level=90.0, first=30)])
    pin = pin_of(young, answer)
    assert (pin.level, pin.first, pin.runs) == (90.0, night(30), 5)
    kept = course_of(young, pin, Strictness()).noise
    assert (kept.scale, kept.autocorrelation, kept.runs) == (0.012, 0.2, 0)
    old = series([*nights(30), *nights(27, level=90.0, first=30)])
    assert course_of(old, pin, Strictness()).noise.runs == 20
