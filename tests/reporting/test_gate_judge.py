"""The verdicts of the gate, beside numbers computed by hand.

The nights of these histories repeat 0, +1, -1, +.5 and -.5 per cent. So the scaled MAD is 1.4826 x .5 = .7413 %, and
the scale of twenty runs is .7413 x (1 + .7 / sqrt(20)) = .8573 %.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import random
import re
import shlex

import pytest

from platforms.job import Metric, Role, Trial
from reporting.gate.judge import judge
from reporting.gate.verdict import Kind
from reporting.history.nights import NOON
from reporting.references.answers import Acknowledgement, Author, Note, References
from tests.reporting.gate_nights import (
    AUTHOR,
    FIELDS,
    METRIC,
    PLUS_MINUS_ONE,
    TEST,
    accepted,
    night,
    nights,
    replay,
    run,
    verdict_on,
)

SCALE = 0.007413 * (1 + 0.7 / math.sqrt(20))
MIXED = {**FIELDS, "data_from": "mixed"}


def acknowledged(change, until):
    return References(acknowledgements=[Acknowledgement(TEST, METRIC, "https://tickets/7", until, change, AUTHOR)])


def at_level(level, since):
    return References(acceptances=[accepted(since, level, error=0.003, scale=SCALE)])


def in_doubt(number, value):
    return run(number, value, doubts=("crowded",))


# --- learning --------------------------------------------------------------------------------------------------------


def test_a_series_learns_for_twenty_runs():
    verdicts = replay(nights(21))
    assert [verdict.short for verdict in verdicts[:2]] == ["learning, 1 of 20 runs", "learning, 2 of 20 runs"]
    assert (verdicts[6].kind, verdicts[6].short, verdicts[6].pinned) == (Kind.LEARNING, "learning, 7 of 20 runs", False)
    assert verdicts[19].short == "learning, 20 of 20 runs"
    assert "no pin yet" in verdicts[18].text
    assert verdicts[19].text.endswith(
        " is not judged yet: this run is the last of the 20 runs of its pin, and the next run is compared with it"
    )
    assert (verdicts[20].kind, verdicts[20].short, verdicts[20].pinned) == (Kind.OK, "ok", True)


@pytest.mark.parametrize(("runs", "value", "red"), [(4, 50.0, False), (5, 89.0, True), (5, 91.0, False)])
def test_while_it_learns_a_series_sees_ten_percent_over_five_runs(runs, value, red):
    verdict = verdict_on(run(runs, value), nights(runs))
    assert verdict.red == red
    if red:
        assert (verdict.kind, verdict.limit, verdict.pinned) == (Kind.SLOWER, 0.10, False)
        assert verdict.change == pytest.approx(-0.11)


@pytest.mark.parametrize(("value", "red"), [(84.0, False), (40.0, True)])
def test_a_loud_series_that_learns_is_red_by_no_run_that_chance_explains(value, red):
    past = [run(number, value) for number, value in enumerate((100.0, 109.0, 91.0, 96.0, 104.0))]
    verdict = verdict_on(run(5, value), past)
    assert verdict.red == red
    if red:
        assert verdict.limit == pytest.approx(3.5 * 1.4826 * 0.04 * (1 + 0.7 / 5**0.5))


def test_a_run_in_doubt_clears_no_coarse_step():
    past = [*nights(10), run(10, 60.0, verdicts={METRIC: {"kind": "slower", "red": True}})]
    verdict = verdict_on(in_doubt(11, 100.0), past)
    assert (verdict.red, verdict.since) == (True, night(10))
    assert verdict.text.splitlines()[0] == (
        f"{TEST}: effective throughput of 60.0 samples/s in the night of 2026-10-12 is 40.0 % below 100.0, the median "
        "of 10 other runs. More than 10 % is red while the series has no pin"
    )
    assert verdict_on(run(11, 100.0), past).short == "learning, 11 of 20 runs"


def test_runs_in_doubt_are_not_counted():
    verdict = verdict_on(in_doubt(7, 100.0), nights(7))
    assert verdict.short == "learning, 7 of 20 runs"
    assert "This run is in doubt (crowded): it fills no pin and clears no red." in verdict.text


# --- one run ---------------------------------------------------------------------------------------------------------


def test_a_run_far_below_its_pin_is_red_at_once():
    verdict = verdict_on(run(26, 89.2), nights(26))
    assert (verdict.kind, verdict.red, verdict.since, verdict.runs) == (Kind.SLOWER, True, night(26), 20)
    assert verdict.change == pytest.approx(-0.108)
    assert verdict.limit == pytest.approx(3.5 * SCALE)
    assert verdict.short == "-10.8 %, slower since 2026-10-28"
    assert verdict.text.splitlines()[0] == (
        f"{TEST}: effective throughput 89.2 samples/s is 10.8 % below its pin of 100.0 "
        "(20 runs since 2026-10-02), slower since 2026-10-28"
    )


@pytest.mark.parametrize(("value", "red"), [(96.9, True), (97.1, False)])
def test_the_limit_of_one_run_is_three_and_a_half_scales(value, red):
    assert pytest.approx(0.030007, abs=1e-6) == 3.5 * SCALE
    assert (verdict_on(run(26, value), nights(26)).kind is Kind.SUSPECT) == red


def test_a_step_that_nothing_repeats_is_red_with_the_next_run_that_is_as_far_away():
    verdicts = replay([*nights(26), run(26, 95.0), run(27, 95.0), run(28, 100.0), run(29, 89.0)])
    assert [(verdict.kind, verdict.red) for verdict in verdicts[26:]] == [
        (Kind.SUSPECT, False),
        (Kind.SLOWER, True),
        (Kind.OK, False),
        (Kind.SLOWER, True),  # a large loss needs no second run
    ]


def test_a_red_step_stays_red_until_a_run_is_back_within_a_part_of_its_limit():
    past = [*nights(26), run(26, 94.0, verdicts={METRIC: {"kind": "slower", "red": True}})]
    limit = verdict_on(run(27, 94.0), past).limit
    assert limit == pytest.approx(0.65 * 3.5 * SCALE, rel=0.01)
    assert verdict_on(run(27, 100 - 101 * limit), past).red
    assert not verdict_on(run(27, 100 - 99 * limit), past).red


def test_a_quiet_series_has_a_limit_of_three_percent():
    quiet = [run(number, 100.0) for number in range(30)]
    assert verdict_on(run(30, 97.01), quiet).kind is Kind.OK
    verdict = verdict_on(run(30, 96.99), quiet)
    assert (verdict.kind, verdict.limit) == (Kind.SUSPECT, 0.03)
    assert "0.40 % at least (the scaled MAD of 24 runs is 0.00 %)" in verdict.text


def test_a_metric_that_is_better_when_lower_is_red_above_its_pin():
    past = nights(26, level=10.0, unit="us", better="lower")
    verdict = verdict_on(run(26, 11.0, unit="us", better="lower"), past)
    assert (verdict.kind, verdict.red) == (Kind.SLOWER, True)
    assert verdict.change == pytest.approx(-0.1)
    assert "11.00 us is 10.0 % above its pin of 10.00" in verdict.text
    assert verdict_on(run(26, 9.0, unit="us", better="lower"), past).kind is Kind.OK


# --- the last seven nights -------------------------------------------------------------------------------------------


def test_a_small_lasting_loss_is_red_once_it_fills_the_window_and_until_it_is_gone():
    verdicts = replay([*nights(30), *nights(30, level=98.0, first=30), *nights(6, first=60)])
    kinds = [verdict.kind for verdict in verdicts[30:]]
    assert kinds[:3] == [Kind.OK] * 3
    assert set(kinds[5:30]) == {Kind.DRIFTED}
    assert kinds[-1] is Kind.OK
    assert {verdict.red for verdict in verdicts[35:60]} == {True}
    assert verdicts[50].since == night(30)
    assert verdicts[50].text.splitlines()[0] == (
        f"{TEST}: effective throughput of 21 nights together, 98.0 samples/s, is 2.0 % below its pin of 100.0 "
        "(20 runs since 2026-10-02), slower since 2026-11-01"
    )


def test_the_limit_of_the_window_by_hand():
    past = [*nights(27), *nights(3, level=98.0, first=27)]
    verdict = verdict_on(run(30, 98.0), past)
    scale = 0.007413 * (1 + 0.7 / math.sqrt(23))  # the nights before the last seven at the level
    error = 1.2533 * scale * math.sqrt(1 / 7 + 1 / 20)
    assert (verdict.kind, verdict.limit) == (Kind.DRIFTED, pytest.approx(3 * error))
    assert verdict.change == pytest.approx(-0.0151)
    assert "median of 99.5 100.0 101.0 97.0 98.5 97.5 98.0" in verdict.text
    assert "0.47 % = sqrt(0.40^2 + 0.24^2) %" in verdict.text
    assert "0.85 % = 0.74 %, the scaled MAD of 23 runs, x (1 + 0.7 / sqrt(23))" in verdict.text
    assert (verdict.level, verdict.scale) == (100.0, pytest.approx(scale))


def test_a_red_ends_once_little_of_its_loss_is_left_and_says_so_beforehand():
    runs = [*nights(30), *nights(12, level=98.0, first=30), *nights(6, first=42)]
    verdicts = replay(runs)
    assert [verdict.red for verdict in verdicts[36:]] == [True] * 9 + [False] * 3
    lasting, ends_soon = verdicts[41], verdicts[43]
    said = "Slower since 2026-11-01 by 2.0 ± 0.8 %; 3 more nights at 100.0 samples/s would end it."
    assert lasting.text.splitlines()[1] == said
    assert "1 more night at 100.0 samples/s would end it." in ends_soon.text
    assert "still lost      0.89 in the last 5 nights; red until below 0.44  RED" in lasting.text
    assert "0: back at 100.0, the median of the runs before; 1: 1.72 % worse, or more" in lasting.text
    assert "1.72 % = (12 x 2.00 % + 10 x 1.39 %) / 22: its runs, and 10 as if at the limit" in lasting.text
    assert "5 nights = (8.97 x 0.40 % / 1.72 %)^2, 2 to 6" in lasting.text
    assert (lasting.limit, lasting.scale) == (verdicts[36].limit, verdicts[36].scale)
    assert "limit 1.39 % = 3 x error, at least 1 %, when the loss was found" in lasting.text


def test_a_loss_that_comes_back_within_a_week_is_the_same_loss_and_a_later_one_is_not():
    values = [*nights(30), *nights(12, 98.0, 30), *nights(4, first=42)]
    soon, late = [*values, *nights(6, 98.0, 46)], [*values, *nights(14, first=46), *nights(9, 98.0, 60)]
    verdicts = replay(soon)
    assert [verdict.red for verdict in verdicts[42:]] == [True] * 3 + [False] * 3 + [True] * 4
    assert {verdict.since for verdict in verdicts if verdict.red} == {night(30)}
    assert replay(late)[-1].since == night(60)


def test_a_red_of_a_metric_that_is_better_when_lower_ends_by_the_same_rule():
    sides = {"unit": "us", "better": "lower"}
    verdicts = replay([*nights(30, 10.0, **sides), *nights(12, 10.5, 30, **sides), *nights(6, 10.0, 42, **sides)])
    assert [verdict.red for verdict in verdicts[40:]] == [True] * 2 + [False] * 6
    assert "by 5.0 ± 0.8 %; 2 more nights at 10.00 us would end it." in verdicts[40].text


def test_a_red_of_one_run_says_which_run_ends_it_and_that_run_does():
    past = nights(30)
    ends = "The next run without doubt that is less than 1.95 % worse than the pin ends this red."
    assert ends in verdict_on(run(30, 85.0), past).text  # 10 % and more need no repeat
    assert ends not in verdict_on(run(30, 94.0), past).text  # not red: nothing has confirmed it
    verdicts = replay([*past, run(30, 85.0), run(31, 97.9), run(32, 98.1)])[30:]
    assert [verdict.red for verdict in verdicts] == [True, True, False]


def test_the_nights_of_a_loss_that_has_ended_begin_no_new_red():
    verdicts = replay([*nights(30), *nights(12, 60.0, 30), *nights(12, first=42)])
    assert [verdict.red for verdict in verdicts[42:]] == [True] + [False] * 11
    assert "are compared once 4 nights have runs without doubt after those of the loss" in verdicts[43].text


def test_what_is_left_of_a_loss_after_half_a_repair_goes_on_until_it_is_gone_and_is_told():
    runs = [*nights(30), *nights(15, 92.0, 30), *nights(20, 96.5, 45), *nights(6, first=65)]
    verdicts = replay(runs)
    assert [verdict.red for verdict in verdicts[34:65]] == [True] * 31
    assert {verdict.since for verdict in verdicts[34:65]} == {night(30)}
    assert "The loss was 8.0 % at first, and is 3.5 % since 2026-11-16." in verdicts[60].text
    assert not verdicts[-1].red


def test_a_second_loss_during_the_first_is_told():
    verdicts = replay([*nights(30), *nights(8, 97.0, 30), *nights(10, 92.0, 38)])
    assert "The loss was" not in verdicts[37].text
    assert "The loss was 3.0 % at first, and is 7.8 % since 2026-11-09." in verdicts[41].text


def test_the_level_to_come_back_to_is_that_of_the_nights_before_the_loss():
    """The pin may have been lucky; what is back where it was is repaired."""
    runs = [*nights(20, 100.7), *nights(20, first=20), *nights(12, 97.5, 40), *nights(6, first=52)]
    verdicts = replay(runs)
    assert "more nights at 100.5 samples/s would end it" in verdicts[51].text
    assert not verdicts[-1].red


def test_a_night_with_three_runs_narrows_the_limit():
    thrice = [
        run(number, 100 + PLUS_MINUS_ONE[(3 * number + place) % 5], hour=20 + place)
        for number in range(40)
        for place in range(3)
    ]
    once = verdict_on(run(40, 100.0), nights(40))
    assert once.limit == pytest.approx(3 * 1.2533 * 0.007413 * (1 + 0.7 / math.sqrt(34)) * math.sqrt(1 / 7 + 1 / 20))
    assert verdict_on(run(40, 100.0), thrice).limit == 0.01  # 3 x 1.2533 x .79 % x sqrt(1 / 19 + 1 / 20) is .96 %


def lasting(loss, seed, nights_of_loss=40, repaired=0):
    """120 calm nights with a deviation of 1.5 %, a loss, and nights at the old level."""
    source = random.Random(seed)
    levels = [100.0] * 120 + [100.0 * (1 - loss)] * nights_of_loss + [100.0] * repaired
    return [run(number, level * (1 + source.gauss(0, 0.015))) for number, level in enumerate(levels)]


def reds_after_the_first(verdicts):
    """Whether each night from a week after the first red one on is red."""
    first = next(number for number, verdict in enumerate(verdicts) if verdict.red)
    return [verdict.red for verdict in verdicts[first + 7 :]]


@pytest.mark.slow
@pytest.mark.parametrize("series", [2, pytest.param(12, marks=pytest.mark.nightly("reporting/gate"))])
def test_a_lasting_loss_never_turns_green_by_itself(series):
    red = []
    for seed in range(series):
        found = replay(lasting(0.04, seed))[100:]
        assert any(verdict.red for verdict in found), seed
        red += reds_after_the_first(found)
    assert len(red) > 20 * series
    assert sum(red) / len(red) > 0.95


def test_the_runs_of_a_loss_never_are_noise():
    for past in ({}, {METRIC: {"kind": "ok", "red": False}}):
        runs = [*nights(40, verdicts=past), *nights(80, level=96.5, first=40, verdicts=past)]
        runs += nights(20, first=120, verdicts=past)
        assert "0.74 %, the scaled MAD of" in verdict_on(runs[119], runs[:119]).text
        verdict = verdict_on(runs[-1], runs[:-1])
        assert verdict.kind is Kind.OK
        assert "0.74 %, the scaled MAD of" in verdict.text


def test_a_loss_that_is_just_within_its_limit_does_not_widen_it():
    runs = [*nights(40), *nights(80, level=98.2, first=40)]
    many = References(judged_tests=200)
    young = verdict_on(runs[50], runs[:50], many)
    old = verdict_on(runs[-1], runs[:-1], many)
    assert (young.kind, old.kind) == (Kind.OK, Kind.OK)
    assert old.limit == young.limit == pytest.approx(0.0194, abs=0.0003)
    worse = [run(number, one.metrics[METRIC].value - 1) for number, one in enumerate(runs)][110:]
    assert verdict_on(worse[-1], [*runs[:110], *worse[:-1]], many).red


def test_a_red_does_not_end_because_the_site_judges_more_tests_from_then_on():
    runs = [*nights(40), *nights(30, level=98.3, first=40)]
    stored = []
    for one, verdict in zip(runs[:60], replay(runs[:60]), strict=True):
        said = {"kind": verdict.kind, "red": verdict.red, "limit": verdict.limit, "level": verdict.level}
        stored.append(dataclasses.replace(one, verdicts={METRIC: said}))
    many = References(judged_tests=200)
    assert verdict_on(runs[60], runs[:60], many).kind is Kind.OK  # beyond no limit of such a site
    verdict = verdict_on(runs[60], stored, many)
    assert (verdict.kind, verdict.since) == (Kind.DRIFTED, night(40))
    other = dataclasses.replace(at_level(98.3, night(40)), judged_tests=200)
    assert verdict_on(runs[60], stored, other).kind is Kind.OK  # it was a loss from another level


def test_the_limits_follow_the_number_of_tests_and_what_a_site_accepts():
    past = nights(60)
    few, many = (verdict_on(run(60, 100.0), past, References(judged_tests=count)) for count in (1, 200))
    assert many.limit == pytest.approx(1.42 * few.limit, rel=0.01)
    patient = References(judged_tests=200, false_reds_a_month=200.0)
    assert verdict_on(run(60, 100.0), past, patient).limit == few.limit


def test_a_second_loss_has_a_date_of_its_own():
    runs = [*nights(40), *nights(20, 94.0, 40), *nights(15, first=60), *nights(12, 96.0, 75)]
    verdicts = replay(runs)
    assert {verdict.since for verdict in verdicts[45:60]} == {night(40)}
    assert {verdict.since for verdict in verdicts[80:]} == {night(75)}


def test_outliers_and_gaps_are_no_drift():
    runs = nights(60)
    for outlier in (22, 31, 32, 47):
        runs[outlier] = run(outlier, 89.0)
    verdicts = replay([one for number, one in enumerate(runs) if number not in (24, 25, 26, 50)])
    assert [verdict.since for verdict in verdicts if verdict.red] == [night(22), night(31), night(31), night(47)]


def test_a_lasting_gain_is_a_finding_and_not_red():
    verdicts = replay([*nights(30), *nights(10, level=105.0, first=30)])
    last = verdicts[-1]
    assert (last.kind, last.red, last.since) == (Kind.FASTER, False, night(30))
    assert last.short == "+5.0 %, faster since 2026-11-01"
    assert "reporting accept" in last.text
    assert "reporting ack" not in last.text


def test_a_bad_run_in_a_series_that_is_faster_began_in_its_own_night():
    past = [*nights(30), *nights(10, level=105.0, first=30)]
    verdict = verdict_on(run(40, 90.0), past)
    assert (verdict.kind, verdict.since) == (Kind.SLOWER, night(40))


def test_a_run_far_below_a_series_that_drifts_is_slower_since_the_drift_began():
    past = [*nights(30), *nights(10, level=97.5, first=30)]
    verdict = verdict_on(run(40, 88.0), past)
    assert (verdict.kind, verdict.since) == (Kind.SLOWER, night(30))


# --- doubts ----------------------------------------------------------------------------------------------------------


def test_a_run_in_doubt_clears_no_step():
    past = [*nights(26), run(26, 89.0)]
    verdict = verdict_on(in_doubt(27, 100.0), past)
    assert (verdict.kind, verdict.red, verdict.since) == (Kind.SLOWER, True, night(26))
    assert "was 89.0 samples/s in the night of 2026-10-28, 11.0 % below its pin" in verdict.text
    assert verdict_on(run(28, 100.0), [*past, in_doubt(27, 100.0)]).kind is Kind.OK


def test_runs_in_doubt_clear_no_drift():
    past = [*nights(30), *nights(7, level=98.0, first=30)]
    doubtful = [in_doubt(number, 100.0) for number in range(37, 44)]
    assert verdict_on(doubtful[-1], [*past, *doubtful[:-1]]).kind is Kind.DRIFTED


@pytest.mark.parametrize(("doubtful", "blind"), [(1, False), (2, False), (3, True), (4, True)])
def test_three_nights_without_an_eligible_run_are_blind(doubtful, blind):
    runs = [in_doubt(number, 100.0) for number in range(30, 30 + doubtful)]
    verdict = verdict_on(runs[-1], [*nights(30), *runs[:-1]])
    assert (verdict.blind, verdict.red) == (blind, False)
    assert verdict.kind == (Kind.BLIND if blind else Kind.OK)
    if blind:
        assert verdict.short == f"blind since 2026-11-01: no run without doubt for {doubtful} nights"
        assert "This run is in doubt (crowded)" in verdict.text


def test_a_series_that_never_had_an_eligible_run_is_blind_after_three_nights():
    verdicts = replay([in_doubt(number, 100.0) for number in range(4)])
    assert [verdict.kind for verdict in verdicts] == [Kind.LEARNING, Kind.LEARNING, Kind.BLIND, Kind.BLIND]
    assert not verdicts[-1].pinned


def test_a_red_series_may_be_blind_too():
    runs = [in_doubt(number, 80.0) for number in range(30, 34)]
    verdict = verdict_on(runs[-1], [*nights(30), *runs[:-1]])
    assert (verdict.kind, verdict.red, verdict.blind) == (Kind.SLOWER, True, True)


# --- which windows count ---------------------------------------------------------------------------------------------


def windowed(number, value, fastest, **changes):
    return run(number, value, beside={"fastest_stretch": Metric(fastest, "samples/s")}, **changes)


def test_a_run_beside_others_is_red_only_if_its_fastest_stretch_is_slow_too():
    past = [windowed(number, one.metrics[METRIC].value, 101.0) for number, one in enumerate(nights(30))]
    beside = {"doubts": ("not alone",)}
    assert verdict_on(windowed(30, 80.0, 100.0, **beside), past).kind is Kind.OK
    assert verdict_on(windowed(30, 80.0, 85.0, **beside), past).red
    assert verdict_on(windowed(30, 80.0, 100.0, doubts=("crowded",)), past).red


# --- left its series -------------------------------------------------------------------------------------------------


def test_a_run_that_leaves_a_learned_series_through_what_was_measured_is_red():
    verdicts = replay([*nights(26), run(26, 81.2, fields=MIXED), run(27, 81.0, fields=MIXED), run(28, 100.0)])
    left = verdicts[27]
    assert (left.kind, left.red, left.since, left.pinned) == (Kind.LEFT, True, night(26), False)
    assert left.short == "left its series: data came from storage, is mixed"
    assert left.text.splitlines()[:2] == [
        f"{TEST}: effective throughput has left its series: data came from storage, is mixed, since 2026-10-28",
        "This run has 81.0 samples/s, 19.0 % below the pin that the series had, 100.0 (20 runs since 2026-10-02). "
        "Runs that differ in this have no common pin.",
    ]
    assert verdicts[28].kind is Kind.OK


def test_a_run_that_has_left_stays_red_however_long_it_lasts():
    verdicts = replay([*nights(26), *nights(30, level=81.0, first=26, fields=MIXED)])
    assert {verdict.kind for verdict in verdicts[26:]} == {Kind.LEFT}


def test_what_people_ask_for_makes_a_series_of_its_own():
    verdict = verdict_on(run(26, 50.0, fields={**FIELDS, "layout": "2x4gpu"}), nights(26))
    assert verdict.short == "learning, 1 of 20 runs"


def test_a_series_that_began_before_the_other_was_learned_is_one_of_its_own():
    past = [*nights(10), run(10, 81.0, fields=MIXED), *nights(20, first=11)]
    assert verdict_on(run(31, 81.0, fields=MIXED), past).short == "learning, 2 of 20 runs"


# --- answers ---------------------------------------------------------------------------------------------------------


def test_an_acknowledged_loss_is_amber():
    verdict = verdict_on(run(26, 89.2), nights(26), acknowledged(-0.108, night(40)))
    assert (verdict.kind, verdict.red) == (Kind.ACKNOWLEDGED, False)
    assert verdict.short == "acked until 2026-11-11: -10.8 %, slower since 2026-10-28"
    assert verdict.text.splitlines()[1] == (
        "ada has acknowledged -10.8 % until 2026-11-11 (https://tickets/7), so it is not red."
    )


def test_a_verdict_names_the_worst_loss_so_that_its_acknowledgement_holds_at_once():
    runs = [*nights(30), *nights(7, 91.0, 30)]
    last = run(37, 95.0)  # a lucky one: still a step, and the seven nights together are worse
    found = verdict_on(last, runs)
    assert found.change == pytest.approx(-0.05)
    assert found.worst == pytest.approx(-0.09, abs=0.005)
    known = acknowledged(found.worst, night(60))
    assert verdict_on(last, runs, known).kind is Kind.ACKNOWLEDGED


def test_a_loss_that_was_acknowledged_by_its_first_run_stays_amber_while_the_nights_show_how_large_it_is():
    answer = dataclasses.replace(acknowledged(-0.06, night(60)).acknowledgements[0], author=Author("ada", at(31)))
    known = References(acknowledgements=[answer])
    runs = [*nights(30), run(30, 94.0), *nights(8, 92.0, 31)]
    assert verdict_on(runs[-1], runs[:-1], known).kind is Kind.ACKNOWLEDGED
    worse = [*runs, *nights(8, 88.0, 39)]
    assert verdict_on(worse[-1], worse[:-1], known).red


def at(number):
    """Noon after a night."""
    return datetime.datetime.combine(night(number), datetime.time(12)).astimezone()


@pytest.mark.parametrize(("value", "red"), [(86.3, False), (86.1, True)])
def test_an_acknowledged_loss_is_red_again_once_it_is_worse_by_more_than_its_limit(value, red):
    verdict = verdict_on(run(26, value), nights(26), acknowledged(-0.108, night(40)))  # -10.8 - 3.0 = -13.8
    assert verdict.red == red
    assert ("It is red again" in verdict.text) == red


def test_an_acknowledgement_ends_with_its_day():
    assert not verdict_on(run(26, 89.2), nights(26), acknowledged(-0.108, night(26))).red
    late = verdict_on(run(27, 89.2), nights(26), acknowledged(-0.108, night(26)))
    assert late.red
    assert "The acknowledgement of ada ended on 2026-10-28 (https://tickets/7)." in late.text


def test_a_drift_beside_an_acknowledged_step_is_compared_with_its_own_limit():
    past = [*nights(30), *nights(6, level=90.0, first=30)]
    assert not verdict_on(run(36, 90.0), past, acknowledged(-0.10, night(50))).red
    assert verdict_on(run(36, 90.0), past, acknowledged(-0.07, night(50))).red


def test_an_accepted_level_is_the_pin_and_its_error_widens_the_limit():
    past = [*nights(30), *nights(7, level=90.0, first=30)]
    verdict = verdict_on(run(37, 90.0), past, at_level(90.0, night(30)))
    assert (verdict.kind, verdict.runs) == (Kind.OK, 5)
    error = math.hypot(1.2533 * SCALE / math.sqrt(7), 0.003)
    assert verdict.limit == pytest.approx(3 * error)
    assert verdict.short == "ok (-10.0 % of the first pin)"
    assert "accepted by ada on 2026-11-20" in verdict.text
    assert "kept from the pin before" in verdict.text


def test_a_run_before_the_first_night_of_an_acceptance_has_the_pin_of_its_own_time():
    past = nights(26)
    later = at_level(90.0, night(30))
    assert verdict_on(run(26, 90.0), past, later) == verdict_on(run(26, 90.0), past)
    both = References(acceptances=[accepted(night(20), 95.0), *later.acceptances])
    assert "its pin of 95.00 (accepted by ada" in verdict_on(run(26, 80.0), past, both).text


# --- every line ------------------------------------------------------------------------------------------------------


def test_the_order_of_lines_never_matters():
    runs = [*nights(30), run(12, 99.5, hour=23), *nights(5, level=97.0, first=30), in_doubt(33, 50.0)]
    runs += [run(14, 100.0, run_id="twice", attempt=number) for number in (1, 2)]
    runs += nights(12, level=80.0, first=8, fields=MIXED)
    current = run(35, 97.0)
    expected = judge(current, runs, References(), NOON)
    source = random.Random(6)
    for _ in range(20):
        source.shuffle(runs)
        assert judge(current, runs, References(), NOON) == expected


def test_later_runs_and_the_run_itself_do_not_count():
    later = [run(27, 50.0), run(28, 50.0), run(26, 88.0)]
    assert verdict_on(run(26, 100.0), [*nights(26), *later]) == verdict_on(run(26, 100.0), nights(26))


def test_numbers_that_are_not_finite_are_left_out_of_the_past_and_refused_now():
    past = [*nights(13), run(13, math.nan), run(14, math.inf), *nights(11, first=15)]
    assert verdict_on(run(27, 100.0), past).kind is Kind.OK
    with pytest.raises(ValueError, match="effective_throughput is nan"):
        verdict_on(run(27, math.nan), past)


def test_each_metric_has_a_verdict_of_its_own():
    def both(number, triad):
        metrics = {"triad": Metric(triad, "GB/s"), "latency": Metric(1.5, "us", "lower")}
        return run(number, 1.0, metrics=metrics)

    past = [both(number, 812.0) for number in range(25)]
    verdicts = judge(both(25, 700.0), past, References(), NOON)
    assert {name: verdict.kind for name, verdict in verdicts.items()} == {"triad": Kind.SLOWER, "latency": Kind.OK}
    assert "--metric triad" in verdicts["triad"].text


def test_a_job_of_another_role_has_no_verdict():
    assert judge(run(26, 50.0, trial=Trial(Role.CONFIRM)), nights(26), References(), NOON) == {}


def test_a_pin_of_zero_is_not_judged():
    verdict = verdict_on(run(30, 1.0), [run(number, 0.0) for number in range(25)])
    assert (verdict.kind, verdict.blind, verdict.short) == (Kind.BLIND, True, "not judged: its pin is 0")
    same = verdict_on(run(30, 0.0), [run(number, 0.0) for number in range(25)])
    assert (same.kind, same.blind, same.short) == (Kind.OK, False, "0, as its pin")


def test_a_run_that_leaves_a_series_whose_pin_is_zero_is_red_without_a_fraction():
    other = {**FIELDS, "data_from": "memory"}
    verdict = verdict_on(run(30, 3.0, fields=other), [run(number, 0.0) for number in range(25)])
    assert (verdict.kind, verdict.red) == (Kind.LEFT, True)
    assert "beside the pin that the series had, 0" in verdict.text


def test_the_ack_that_is_printed_of_an_old_run_ends_after_tonight():
    past = nights(30)
    tonight = night(80)
    (verdict,) = judge(run(30, 90.0), past, References(), NOON, tonight=tonight).values()
    until = datetime.date.fromisoformat(re.findall(r"--until (\S+)", verdict.text)[0])
    assert until > tonight


# --- the text --------------------------------------------------------------------------------------------------------


def dressed(number, value, driver, fraction):
    beside = {"compute_throughput": Metric(120.0, "samples/s"), "compute_fraction": Metric(fraction, "")}
    provenance = {"driver": driver, "image": "25.10", "nodes": f"gpu{number % 3:02},gpu9"}
    return run(number, value, beside=beside, provenance=provenance)


def test_a_red_text_says_what_changed_where_it_is_what_was_noted_and_what_to_type():
    past = [*[dressed(number, one.metrics[METRIC].value, "580.82", 0.83) for number, one in enumerate(nights(30))]]
    past += [dressed(number, 89.0, "590.11", 0.74) for number in range(30, 36)]
    notes = [
        Note("eidf_a100", night(29), "firmware 4.2", AUTHOR),
        Note("eidf_a100", night(2), "long ago", AUTHOR),
        Note("other", night(29), "elsewhere", AUTHOR),
    ]
    verdict = verdict_on(dressed(36, 89.0, "590.11", 0.74), past, References(notes=notes), options="--site=centre")
    assert verdict.text.splitlines()[3:9] == [
        "What changed at that time:",
        "  driver: 580.82 -> 590.11 (first in the night of 2026-11-01)",
        "Note of 2026-10-31 on eidf_a100: firmware 4.2 (ada)",
        "Where it is (medians before and since):",
        "  compute throughput 120.0 -> 120.0 samples/s (+0.0 %)",
        "  compute fraction 0.8300 -> 0.7400 (-10.8 %)",
    ]
    (command,) = [line for line in verdict.text.splitlines() if " accept " in line]
    words = ["--since", "2026-11-01", "--reason", "WHY", "--site=centre"]
    assert shlex.split(command)[4:] == [TEST, *words]


def test_a_change_of_provenance_a_night_after_the_estimated_one_is_found():
    past = [dressed(number, one.metrics[METRIC].value, "580.82", 0.83) for number, one in enumerate(nights(30))]
    past += [dressed(number, 97.0, "580.82" if number == 30 else "590.11", 0.83) for number in range(30, 40)]
    verdict = verdict_on(dressed(40, 97.0, "590.11", 0.83), past)
    assert verdict.since == night(30)
    assert "driver: 580.82 -> 590.11 (first in the night of 2026-11-02)" in verdict.text


def test_an_unchanged_provenance_is_said_to_be_so():
    past = [dressed(number, one.metrics[METRIC].value, "580.82", 0.83) for number, one in enumerate(nights(30))]
    verdict = verdict_on(dressed(30, 89.0, "580.82", 0.83), past)
    assert "Recorded, and the same before and since: driver, image, nodes" in verdict.text
    bare = verdict_on(run(30, 89.0), nights(30))
    assert "No provenance is recorded, so it is not known what changed at that time." in bare.text


def test_the_commands_say_how_many_runs_an_acceptance_still_needs():
    verdict = verdict_on(run(26, 89.2), nights(26))
    assert "If the new level is right from now on (this needs 5 runs of it; there are 1):" in verdict.text


@pytest.mark.parametrize("changes", [{"unit": "k/s"}, {"better": "lower"}])
def test_another_unit_or_direction_of_a_learned_metric_leaves_its_series_and_hides_no_loss(changes):
    past = [*nights(26), *[run(number, 0.08, **changes) for number in range(26, 30)]]
    verdict = verdict_on(run(30, 0.08, **changes), past)
    assert (verdict.kind, verdict.red, verdict.since) == (Kind.LEFT, True, night(26))
    assert ("is in k/s now, was in samples/s" in verdict.short) == ("unit" in changes)
    assert "0.0 %" not in verdict.text
    assert "100.0 samples/s (20 runs since" in verdict.text
    assert verdict_on(run(19, 0.08, **changes), nights(19)).kind is Kind.LEARNING


def test_a_loss_is_acknowledged_with_its_size_and_a_run_that_is_clearly_worse_is_told():
    past = [*nights(30), *nights(9, level=90.0, first=30)]
    usual = verdict_on(run(39, 89.5), past)
    assert usual.worst == usual.extent.change == pytest.approx(-0.10, abs=0.005)
    assert "This run is worse than that" not in usual.text
    far = verdict_on(run(39, 70.0), past)
    assert (far.worst, far.extent.change) == (pytest.approx(-0.30), pytest.approx(-0.10, abs=0.005))
    assert "This run is worse than that: 70.0 samples/s, 30.0 % below the pin." in far.text
