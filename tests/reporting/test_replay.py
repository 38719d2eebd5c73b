"""The gate's verdicts on a series' own nights in shuffled order."""

from __future__ import annotations

import random
from itertools import pairwise
from unittest import mock

from reporting.gate.estimates import strictness
from reporting.gate.replay import BLOCK, begun, nights_together, replay, shuffled
from reporting.gate.series import pin_of
from reporting.gate.verdict import Kind
from tests.reporting import gate_nights
from tests.reporting.gate_nights import METRIC, nights, run
from tests.reporting.test_power import noisy, series_and_pin


def test_the_reds_that_begin_are_those_of_the_runs_one_by_one():
    runs = [*noisy(40, 1.5, 7, outliers=0.1), *(run(night, 93.0) for night in range(40, 48))]
    verdicts = gate_nights.replay(runs, repeats={one.key.run_id: one for one in runs})
    expected = [now.kind for before, now in pairwise(verdicts) if now.red and now.pinned and not before.red]
    assert Kind.SLOWER in expected
    assert list(begun(*series_and_pin(runs), strictness(1))) == expected


def test_shuffled_nights_are_the_same_nights_whole_and_in_blocks():
    runs = noisy(30, 1.5, 8, hours=(20.0, 23.0))
    series, _ = series_and_pin(runs)
    values = [one.value for one in series.runs]
    pairs = set(zip(values[::2], values[1::2], strict=True))
    for block in (1, BLOCK):
        mixed = shuffled(series.runs, block, random.Random(1))
        found = [one.value for one in mixed]
        assert sorted(found) == sorted(values)
        assert found != values
        assert set(zip(found[::2], found[1::2], strict=True)) == pairs
        assert [one.night for one in mixed] == [one.night for one in series.runs]
    neighbours = set(pairwise(values))
    kept = sum(pair in neighbours for pair in pairwise(found))
    assert kept >= 59 - 2  # 30 nights are three blocks


def test_steady_nights_cry_for_nothing_never():
    said = replay(*series_and_pin(nights(50)), shuffles=4)
    assert (said.nights, said.alarms) == (120, 0)


def test_outliers_cry_as_often_as_they_come():
    runs = nights(50)
    runs[30] = run(30, 88.0, verdicts={METRIC: {"kind": "slower", "red": True}})
    said = replay(*series_and_pin(runs), shuffles=20)
    assert 6 <= said.alarms <= 18  # it is in the pin in two of five orders


def test_a_lasting_change_is_left_out():
    runs = [
        *nights(40),
        *(run(night, 90.0, verdicts={METRIC: {"kind": "slower", "red": True}}) for night in range(40, 50)),
    ]
    said = replay(*series_and_pin(runs), shuffles=2)
    assert (said.nights, said.alarms) == (40, 0)


def test_nights_that_resemble_each_other_stay_together():
    """Where each night remembers the one before it, single nights in shuffled order would hide the drifts."""
    assert (nights_together(0.0), nights_together(0.1)) == (1, BLOCK)
    with_memory = [series_and_pin(noisy(120, 1.5, seed, memory=0.9)) for seed in range(4)]
    kept = sum(replay(*one, shuffles=5).alarms for one in with_memory)
    with mock.patch("reporting.gate.replay.BLOCK", 1):
        mixed = sum(replay(*one, shuffles=5).alarms for one in with_memory)
    assert kept > mixed


def test_the_order_of_few_nights_shows_nothing():
    hours = [12.0 + number / 10 for number in range(30)]
    assert replay(*series_and_pin(noisy(1, 1.5, 1, hours=hours)), shuffles=2) is None
    assert replay(*series_and_pin(noisy(9, 1.5, 1, hours=(20.0, 21.0, 22.0))), shuffles=2) is None
    assert replay(*series_and_pin(noisy(10, 1.5, 1, hours=(20.0, 21.0, 22.0))), shuffles=2) is not None


def test_a_step_that_repeats_have_cleared_is_no_red_in_any_order():
    runs = nights(50)
    said = {"kind": "transient", "red": False, "confirmation": {"short": "", "text": ""}}
    runs[30] = run(30, 88.0, verdicts={METRIC: said})
    found = replay(*series_and_pin(runs), shuffles=20)
    assert (found.nights, found.alarms) == (600, 0)


def test_a_pin_alone_has_nothing_to_judge():
    runs = nights(20)
    series, pin = series_and_pin(runs)
    assert pin == pin_of(series, None)
    assert replay(series, pin, shuffles=2) is None
