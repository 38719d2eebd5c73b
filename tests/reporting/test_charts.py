"""The charts of a report: what they show of a series, and that any series can be drawn."""

from __future__ import annotations

import dataclasses
import datetime
import re
from xml.etree import ElementTree

import pytest

from reporting.report.charts.bars import bars
from reporting.report.charts.flags import flags
from reporting.report.charts.markup import dots, mark, polyline
from reporting.report.charts.prose import number
from reporting.report.charts.scales import NightScale, exponent_of, round_ticks, scaled_unit, tick_labels, value_range
from reporting.report.charts.spark import spark
from reporting.report.charts.split_bars import split_bars
from reporting.report.charts.trend import trend
from reporting.report.charts.trend_runs import runs_beyond
from reporting.report.data import Condition, Level, NoteReport, Part
from tests.reporting.report_series import TEST, night, point, points, report_of, series

SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ElementTree.Element:
    """The chart as XML. In a page it has the namespace of SVG without saying so."""
    return ElementTree.fromstring(svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


def with_class(svg: str, name: str) -> list[ElementTree.Element]:
    return [element for element in parsed(svg).iter() if name in element.get("class", "").split()]


def circles(svg: str) -> list[ElementTree.Element]:
    """The rings of the flags."""
    return list(parsed(svg).iter(SVG + "circle"))


def said(svg: str) -> str:
    return " ".join(filter(None, (element.text for element in parsed(svg).iter(SVG + "text"))))


def drawn(one, notes=(), **options):
    return trend(report_of(one), one, notes, **options)


# --- scales ----------------------------------------------------------------------------------------------------------


def test_a_loss_of_two_per_cent_takes_a_good_part_of_the_height():
    low, high = value_range([100.0, 100.1, 99.9, 98.0], [100.0])
    assert 0.2 < 2.0 / (high - low) < 0.5


def test_one_run_far_away_does_not_hide_the_noise_of_the_others():
    low, high = value_range([*[100.0, 101.0, 99.0] * 40, 20.0], [100.0])
    assert low > 90
    assert high < 110


def test_what_must_be_seen_widens_the_range():
    low, _high = value_range([100.0, 101.0, 99.0] * 40, [100.0, 20.0])
    assert low < 20


@pytest.mark.parametrize("values", [[0.0], [5.0, 5.0], [-3.0], [1e-6, 2e-6], [1e9], [-1.0, 1.0]])
def test_any_values_have_a_range_with_round_ticks_in_it(values):
    low, high = value_range(values, [])
    assert low < min(values)
    assert max(values) < high
    ticks = round_ticks(low, high)
    assert 3 <= len(ticks) <= 9
    assert low <= ticks[0]
    assert ticks[-1] <= high
    labels = tick_labels(ticks, exponent_of(low, high))
    assert len(set(labels)) == len(labels)
    assert max(map(len, labels)) <= 7


def test_small_and_large_values_have_a_power_of_ten_in_their_unit():
    assert tick_labels([1.5e-6, 1.6e-6], exponent_of(1.4e-6, 1.7e-6)) == ["1.5", "1.6"]
    assert scaled_unit("s", exponent_of(1.4e-6, 1.7e-6)) == "10⁻⁶ s"
    assert scaled_unit("samples/s", exponent_of(90.0, 110.0)) == "samples/s"


def test_nights_are_labelled_with_round_dates_that_have_room():
    year = NightScale(datetime.date(2025, 11, 23), datetime.date(2026, 11, 22))
    assert [label for _number, label in year.ticks(300)] == ["2026", "Apr", "Jul", "Oct"]
    assert len(year.ticks(600)) == 12
    week = NightScale(datetime.date(2026, 11, 16), datetime.date(2026, 11, 22))
    assert week.ticks(600)[-1] == (6, "22 Nov")
    assert week.percent(0) == "7.1%"


def test_values_below_zero_have_a_true_minus_sign():
    assert tick_labels([-1.0, 0.0, 1.0], 0) == ["\u22121", "0", "1"]
    assert number(-3.0) == "\u22123.00"


def test_paths_are_short():
    assert dots([(1, 2), (2, 1.5), (3, 0.5)]) == "M1 2h0m1-.5h0m1-1h0"
    assert polyline([(1, 2), (2, 1), (3, 1)]) == "M1 2l1-1 1 0"
    assert dots([]) == ""


# --- the spark -------------------------------------------------------------------------------------------------------


def test_missing_nights_interrupt_the_line_of_a_spark():
    [line] = with_class(
        spark(series([point(4, 100.0), point(3, 100.0), point(1, 100.0), point(0, 100.0)])), "spark-line"
    )
    assert line.get("d", "").count("M") == 2


def test_a_spark_shows_failed_nights_and_what_is_not_ok():
    svg = spark(series([point(2, 100.0), point(1, None), point(0, 90.0, Condition.SLOWER)], condition=Condition.SLOWER))
    assert len(with_class(svg, "failures")) == 1
    assert len(with_class(svg, "k-slower")) == 2
    assert "1 night without numbers, the last one 21 Nov" in ElementTree.tostring(parsed(svg), "unicode")


def test_a_spark_shows_the_last_nights_only_and_ends_with_the_given_one():
    old = series([*points(200)])
    assert "90 runs" in spark(old)
    assert "80 runs" in spark(old, last=night(-10))


# --- the trend -------------------------------------------------------------------------------------------------------


def test_runs_are_dots_of_their_condition_and_in_doubt_they_are_hollow():
    svg = drawn(
        series(
            [
                point(4, 100.0, Condition.LEARNING),
                point(3, 100.0),
                point(2, 99.0, doubts=("crowded",)),
                point(1, 90.0, Condition.SLOWER, doubts=("unsteady",)),
                point(0, 90.0, Condition.SLOWER),
            ]
        )
    )
    assert len(with_class(svg, "squares")) == 1
    assert with_class(svg, "rings")[0].get("class") == "rings k-ok"
    assert [len(group) for group in with_class(svg, "mark")] == [1]
    assert [len(group) for group in with_class(svg, "hollow")] == [1]


def test_the_median_of_seven_nights_has_gaps_where_nights_are_missing():
    whole = [run for run in points(20) if run.night not in (night(8), night(7))]
    [line] = with_class(drawn(series(whole)), "recent")
    assert line.get("d", "").count("M") == 2


def test_runs_of_another_series_are_pale_and_do_not_widen_the_range():
    svg = drawn(series([point(9, 5.0, comparable=False), *points(8)]))
    assert [path.get("class") for path in with_class(svg, "pale")] == ["dots pale", "beyond pale"]
    assert said(svg).startswith("97 98 99")


def test_failed_nights_are_ticks_on_the_baseline():
    [ticks] = with_class(drawn(series([point(3, 100.0), point(2, None), point(1, None), point(0, 100.0)])), "failures")
    assert ticks.get("d", "").count("M") == 2


def test_levels_go_from_night_to_night_and_the_present_one_has_its_name():
    levels = (
        Level(100.0, night(30), night(11), "median of 20 runs"),
        Level(90.0, night(10), None, "driver must stay (ada)", is_accepted=True),
    )
    svg = drawn(series(points(31), levels=levels, pin=90.0, limit=0.03))
    first, second = with_class(svg, "level")
    assert first.get("d", "").endswith("h20")
    assert second.get("d", "").endswith("h11")
    assert second.get("class") == "level accepted"
    assert "driver must stay (ada)" in ElementTree.tostring(second, "unicode")
    assert "accepted 90.0" in said(svg)
    assert len(with_class(svg, "band")) == 1


def test_the_first_night_of_a_change_is_marked():
    one = series(points(31), since=night(5), condition=Condition.SLOWER)
    assert "slower since 17 Nov" in said(drawn(one))


def test_direction_and_unit_stand_above_the_values():
    assert "s, lower is better" in said(drawn(series([point(0, 3.0)], unit="s", better="lower")))
    assert "higher is better" in said(drawn(series([point(0, 3.0)], unit="")))


def test_the_last_night_shows_that_a_test_has_not_run_lately():
    assert "12 Dec" in said(drawn(series(points(20)), last=night(-20)))


def test_runs_beyond_the_range_stand_at_its_edge_with_a_short_line():
    far = points(100)
    far[50] = point(49, 5.0)
    one = series(far)
    [stub] = with_class(drawn(one), "beyond")
    assert stub.get("d", "").count("M") == 1
    assert runs_beyond(one, night(0)) == [far[50]]


def test_few_runs_are_all_within_the_range_also_those_in_doubt():
    one = series([point(1, 6.9, doubts=("not alone",)), point(0, 1.14, doubts=("not alone",))])
    assert runs_beyond(one, night(0)) == []
    assert not with_class(drawn(one), "beyond")


@pytest.mark.parametrize(
    "runs",
    [
        [],
        [point(0, 5.0)],
        [point(0, None)],
        [point(1, None), point(0, None)],
        [point(1, 0.0), point(0, 0.0)],
        [point(1, -3.0), point(0, -4.0)],
        [point(1, 1e-6), point(0, 1.1e-6)],
        [point(1, 1e9), point(0, 1.2e9)],
        [point(0, 5.0, comparable=False)],
        [point(0, 5.0), dataclasses.replace(point(0, 6.0), run_id="again")],
    ],
)
def test_any_series_can_be_drawn(runs):
    for changes in ({}, {"pin": 0.0, "limit": 0.03}, {"pin": 5.0, "limit": 0.03, "since": night(400)}):
        one = series(runs, **changes)
        for svg in (drawn(one), spark(one), bars([report_of(one)], one.metric), split_bars([report_of(one)])):
            parsed(svg)
            assert not re.search("nan|inf|None", svg.lower())


def test_texts_from_anywhere_are_escaped():
    evil = "<script>alert(1)</script>\x1b[0m\"'&"
    one = series(
        [point(1, 100.0), point(0, 90.0, Condition.SLOWER, said=evil, nodes=(evil,), doubts=(evil,), changes=(evil,))],
        metric=evil,
        unit=evil,
        short=evil,
        levels=(Level(100.0, night(1), None, evil),),
        parts=(Part("wait_ms", 1.0, 2.0),),
    )
    test = report_of(one, id=evil, platform=evil, workload=evil, layout=evil, setting=evil, device=evil)
    notes = [NoteReport(night(0), "note", evil, evil, evil)]
    for svg in (trend(test, one, notes), spark(one), bars([test], evil), split_bars([test])):
        parsed(svg)
        assert "<script" not in svg
        assert "\x1b" not in svg


# --- flags -----------------------------------------------------------------------------------------------------------


def test_each_night_with_a_note_or_a_change_has_one_flag():
    one = series([point(9, 100.0), point(5, 100.0, changes=("driver 1 -> 2",)), point(0, 100.0)])
    notes = [
        NoteReport(night(5), "note", "eidf_a100", "new pumps", "ada"),
        NoteReport(night(2), "accept", TEST, "driver must stay", "bob"),
        NoteReport(night(2), "note", "archer2", "not here", "ada"),
        NoteReport(night(20), "note", "eidf_a100", "before the first run", "ada"),
    ]
    first, second = flags(report_of(one), one, notes)
    assert (first.number, first.night) == (1, night(5))
    assert first.sentences == ("new pumps (ada)", "changed: driver 1 -> 2")
    assert second.sentences == ("accepted: driver must stay (bob)",)
    svg = drawn(one, notes)
    assert len(circles(svg)) == 2


def test_what_changes_often_is_flagged_at_last_and_where_a_change_begins():
    runs = [
        dataclasses.replace(run, changes=(f"commit {place} -> {place + 1}",)) for place, run in enumerate(points(10))
    ]
    one = series(runs, since=night(5))
    found = flags(report_of(one), one, [])
    assert [flag.night for flag in found] == [*[night(number) for number in (7, 6, 5, 4, 3)], night(0)]
    assert found[-1].sentences == ("changed: commit 9 -> 10 (the last of 10 such changes; the others have no flag)",)


def test_neighbouring_flags_stand_in_rows():
    changed = [dataclasses.replace(run, changes=("kernel",)) for run in points(365)[-3:]]
    rings = circles(drawn(series([*points(365)[:-3], *changed])))
    assert len({ring.get("cy") for ring in rings}) == 3


def test_notes_after_the_last_run_stand_at_its_night_below_each_other():
    notes = [
        NoteReport(night(-1), "note", "eidf_a100", "one", ""),
        NoteReport(night(-2), "note", "eidf_a100", "two", ""),
    ]
    first, second = list(parsed(drawn(series(points(30)), notes)).iter(SVG + "circle"))
    assert first.get("cx") == second.get("cx")
    assert first.get("cy") != second.get("cy")


def test_short_histories_have_larger_dots():
    assert with_class(drawn(series(points(60))), "few")
    assert not with_class(drawn(series(points(61))), "few")


# --- bars ------------------------------------------------------------------------------------------------------------


def test_bars_begin_at_zero_and_share_the_scale_of_their_unit():
    fast = report_of(series([point(0, 200.0)]), platform="fast", devices=8)
    slow = report_of(series([point(0, 100.0)]), platform="slow", devices=2)
    svg = bars([fast, slow], "effective_throughput")
    assert [bar.get("width") for bar in with_class(svg, "bar")] == ["48%", "24%", "24%", "48%"]
    assert "of each device" in said(svg)


def test_a_time_has_no_bar_for_a_device():
    svg = bars([report_of(series([point(0, 3.0)], metric="latency", unit="s", better="lower"))], "latency")
    assert [bar.get("width") for bar in with_class(svg, "bar")] == ["100%"]


def test_a_long_name_of_a_device_stays_in_the_second_column():
    device = "AMD EPYC 9825 144-Core Processor " * 3
    svg = bars([report_of(series([point(0, 3.0)]), device=device)], "effective_throughput")
    [wide] = with_class(svg, "wide")
    assert wide.text == "4 x AMD EPYC 9825 144-Core Pr…"
    assert wide.get("x") == "52%"
    [narrow] = with_class(svg, "narrow")
    assert len(narrow.text or "") <= 20
    time = bars([report_of(series([point(0, 3.0)], unit="s", better="lower"), device=device)], "effective_throughput")
    assert "eidf_a100 1x4gpu, 4 x AMD EPYC 9825 144-Core Pro…" in "".join(parsed(time).itertext())


def test_the_bar_of_a_failed_test_says_of_which_night_it_is():
    one = series([point(1, 200.0), point(0, None)], value_night=night(1))
    svg = bars([report_of(one, condition=Condition.FAILED)], "effective_throughput")
    assert len(with_class(svg, "past")) == 2
    assert "200.0 on 21 Nov 2026" in said(svg)
    assert ", failed" in "".join(parsed(svg).itertext())


def test_a_setting_that_compares_no_hardware_says_so():
    svg = bars([report_of(series([point(0, 200.0)]), setting="gbs32-subset")], "effective_throughput")
    assert "compares no hardware" in said(svg)
    assert "compares no hardware" not in said(bars([report_of(series([point(0, 200.0)]))], "effective_throughput"))


def test_the_split_of_a_run_in_doubt_says_so():
    parts = (Part("wait_ms", None, 20.0), Part("step_ms", None, 80.0))
    sure, doubted = (series([point(0, 3.0, doubts=doubts)], parts=parts) for doubts in ((), ("not alone",)))
    assert "in doubt" not in said(split_bars([report_of(sure)]))
    assert "last run in doubt: not alone" in said(split_bars([report_of(doubted)]))


def test_a_missing_number_is_no_bar():
    svg = bars([report_of(series([point(0, None)], condition=Condition.FAILED))], "effective_throughput")
    assert not with_class(svg, "bar")
    assert "no number" in said(svg)


def test_the_parts_of_a_step_before_and_now_share_a_scale():
    parts = (Part("wait_ms", 50.0, 100.0), Part("h2d_ms", None, 0.0), Part("step_ms", 50.0, 100.0))
    svg = split_bars([report_of(series(points(3), parts=parts, since=night(1)))])
    assert [bar.get("width") for bar in with_class(svg, "part-step")[1:]] == ["25%", "50%"]
    assert "50.0 → 100.0" in said(svg)


def test_a_rest_below_zero_has_no_length():
    parts = (Part("stall_ms", None, 20.0), Part("step_ms", None, 80.0), Part("other_ms", None, -1.0))
    svg = split_bars([report_of(series(points(3), parts=parts))])
    assert [bar.get("width") for bar in with_class(svg, "part-wait")[1:]] == ["20%"]
    assert len(with_class(svg, "part-rest")) == 1
    assert "20.0 with copies" in said(svg)


def test_every_condition_has_a_picture_for_a_legend():
    assert len({mark(condition).partition("<g")[2] for condition in Condition}) >= 6
