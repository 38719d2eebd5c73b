"""`python -m reporting trend`: a test as a picture in the terminal, and many tests in a line each."""

from __future__ import annotations

import datetime
import io
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from reporting.__main__ import main
from reporting.history.writer import HistoryWriter
from reporting.references.answers import Note, References
from reporting.report.data import Condition, Level, Point, ReportData, SeriesReport
from reporting.report.display import BLOCKS, SYMBOLS, Display, display_of
from reporting.report.trend_columns import NightMark, columns_of
from reporting.report.trend_picture import scale_of
from reporting.report.trend_text import many_tests, one_test
from tests.reporting.gate_nights import AUTHOR, FIELDS, METRIC, TEST, failed, night, nights, run
from tests.reporting.report_series import series
from tests.reporting.test_report_build import report_of

ROOT = Path(__file__).resolve().parents[2]
OTHER = "test_deepcam.py::test_deepcam[eidf_a100-1x4gpu-tuned]"
DASH = "┄"


def slower(first: int, count: int, level: float, **changes):
    """Nights with another driver that the gate calls red."""
    verdicts = {METRIC: {"kind": "slower", "red": True}}
    return nights(count, level, first, verdicts=verdicts, provenance={"driver": "580.65"}, **changes)


def picture_of(report: ReportData) -> str:
    return "\n".join(one_test(report, report.tests[0], Display()))


def series_with(*values: float | None, pin: float | None = 100.0) -> SeriesReport:
    """A series with a run in each night from the first of November on; None is a night without a run."""
    days = [datetime.date(2026, 11, 1) + datetime.timedelta(days=number) for number in range(len(values))]
    points = [
        Point(str(day), 0.0, f"run-{day}", value, Condition.OK)
        for day, value in zip(days, values, strict=True)
        if value is not None
    ]
    levels = () if pin is None else (Level(pin, "2026-11-01", None, "median of 20 runs"),)
    return series(points, pin=pin, levels=levels)


def last_of(series: SeriesReport) -> datetime.date:
    return datetime.date.fromisoformat(series.points[-1].night)


def test_a_slow_test_shows_the_four_answers_below_its_picture():
    driver = {"driver": "570.124"}
    note = Note("eidf_a100", night(29), "new firmware", AUTHOR)
    report = report_of([*nights(30, provenance=driver), *slower(30, 5, 92.0)], References(notes=[note]))
    shown = picture_of(report)
    assert shown.startswith(f"{TEST}\n\neffective_throughput, samples/s, higher is better\n")
    answers = re.sub(r"\s+", " ", shown.partition("Is it slower?")[2])
    assert answers.startswith(f" YES -8.0 %, slower since {night(30)} ")
    assert "the median of 5 nights, 92.0, is -8.0 % from the pin of 100.0, limit" in answers
    assert f"Since when? {night(30)} " in answers
    assert f"Why? changed at that time: driver 570.124 -> 580.65; noted on {night(29)}: new firmware" in answers
    assert shown.endswith(f"python -m reporting show '{TEST}'")


def test_gaps_are_gaps_and_marks_stand_below_their_nights():
    runs = [one for one in nights(30) if one.key.run_id not in ("nightly-005-22", "nightly-006-22")]
    runs[10] = replace(runs[10], doubts=("crowded",))
    lines = picture_of(report_of([*runs, failed(30), *slower(31, 4, 92.0)])).splitlines()
    top = next(line for line in lines if line.startswith("pin 100.0 "))
    bottom, marks = lines[lines.index(top) + 3], lines[lines.index(top) + 4]
    indent = len("pin 100.0 ")
    assert len(top) == len(bottom) == indent + 35
    assert top[indent:][5:7] == 2 * DASH  # the pin, where nothing is
    assert bottom[indent:][4:8] == "█  █"
    assert top[-4:] == 4 * DASH
    assert marks[indent:] == " " * 12 + "~" + " " * 17 + f"{NightMark.FAILED.symbol}▼!!!"
    assert f"{NightMark.FAILED.symbol} a run without numbers" in "\n".join(lines)


def test_two_per_cent_are_seen_beside_one_night_that_is_far_away():
    calm = 60 * [100.0] + 10 * [98.0]
    calm[30] = 40.0
    series = series_with(*calm)
    shown = columns_of(series, last_of(series), 70)
    scale = scale_of(shown, 100.0, Display())
    assert scale.low > 40.0
    assert scale.y(98.0) < scale.y(100.0) - 1
    text = "\n".join(one_test(*_only(series), Display()))
    assert "↓" in text
    assert "beyond the scale: 1" in " ".join(text.split())


def test_a_quiet_series_is_not_made_dramatic():
    series = series_with(*30 * [100.0, 100.1])
    scale = scale_of(columns_of(series, last_of(series), 60), 100.0, Display())
    assert scale.high - scale.low > 4.0


@pytest.mark.parametrize("value", [0.0, -5.0, 1e-9, 1e12])
def test_any_number_can_be_drawn(value):
    for pin in (None, value):
        assert picture_of_series(series_with(value, value, pin=pin))


def picture_of_series(series: SeriesReport) -> str:
    return "\n".join(one_test(*_only(series), Display()))


def _only(series: SeriesReport):
    report = report_of(nights(3))
    test = replace(report.tests[0], series=(series,))
    last = series.points[-1].night if series.points else report.night
    return replace(report, tests=(test,), night=last), test


def test_runs_of_another_series_are_marked_and_not_drawn():
    series = series_with(100.0, 100.0, 100.0)
    other = replace(series.points[0], comparable=False, value=7.0)
    shown = columns_of(replace(series, points=(other, *series.points[1:])), last_of(series), 10)
    assert [column.value for column in shown] == [None, 100.0, 100.0]
    assert shown[0].mark is NightMark.OTHER_SERIES


def test_there_are_as_many_nights_as_there_is_room_for():
    series = series_with(*100 * [100.0])
    (bottom,) = [line for line in picture_of_series(series).splitlines() if line.strip().startswith("96")]
    assert len(bottom) == 80 - 1
    assert len(columns_of(series, last_of(series), 200)) == 100


def test_several_tests_have_a_line_each_and_the_worst_is_first():
    runs = [*nights(30, 100.0, test=OTHER, hour=23.0), *slower(30, 7, 95.0, test=OTHER, hour=23.0)]
    runs += [*nights(30), *slower(30, 7, 90.0)]
    third = "test_cosmoflow.py::test_cosmoflow[eidf_a100-1x4gpu-tuned]"
    runs += [*nights(36, test=third, hour=21.0), failed(36, test=third, hour=21.0)]
    head, blank, above, *lines = many_tests(report_of(runs), Display(100))
    assert (head, blank) == ("2 of 3 tests are slower, on eidf_a100; cosmoflow on eidf_a100 has failed", "")
    assert above.endswith(f"  to {night(36)}")
    words = [line.split()[0] for line in lines[:3]]
    assert words == ["SLOWER", "SLOWER", "FAILED"]
    assert [line.split()[1] for line in lines[:2]] == ["-10.0", "-5.0"]
    assert lines[0].endswith("  ▇█▆▇▇" + 5 * "▇█▆▇▇" + 7 * "▁")
    assert lines[1].endswith("▇▄▄▃▄▃▄▄")
    assert lines[2].endswith("▇" + NightMark.FAILED.symbol)


@pytest.mark.parametrize("width", [30, 40, 60, 80, 200])
@pytest.mark.parametrize("has_symbols", [True, False])
def test_nothing_but_ids_and_what_is_to_be_typed_is_wider_than_the_terminal(width, has_symbols):
    note = Note("eidf_a100", night(29), "new firmware on all of the switches, as announced in the autumn", AUTHOR)
    runs = [*nights(30, provenance={"driver": "570.124"}), *slower(30, 5, 92.0), *nights(35, test=OTHER, hour=23.0)]
    report = report_of(runs, References(notes=[note]))
    display = Display(width, has_symbols)
    lines = one_test(report, report.tests[1], display)[1:-1]
    lines += many_tests(report, display)
    assert max(map(len, lines)) <= width
    if not has_symbols:
        assert "\n".join(lines).isascii()


def test_tests_that_would_have_one_name_are_told_apart_by_their_ids():
    both = [f"stream %size={size}@daint:gpu+gnu" for size in ("large", "small")]
    runs = [one for test in both for one in nights(25, test=test)]
    lines = "\n".join(many_tests(report_of(runs), Display(200)))
    assert [lines.count(test) for test in both] == [1, 1]


def test_the_last_night_stands_below_itself():
    runs = [*nights(30, test=OTHER, hour=23.0), *nights(12, first=18)]
    _head, _blank, _above, short, long, *_rest = many_tests(report_of(runs), Display(80))
    assert len(short) == len(long)
    assert (len(short.split()[-1]), len(long.split()[-1])) == (12, 30)


def test_a_metric_where_lower_is_better_goes_down_when_it_is_worse():
    runs = [*nights(30, better="lower", unit="ms"), *slower(30, 3, 110.0, better="lower", unit="ms")]
    report = report_of([*runs, *nights(33, test=OTHER, hour=23.0)])
    (line,) = [line for line in many_tests(report, Display(100)) if "resnet50" in line]
    assert line.endswith("▇▁▁▁")


def test_a_test_without_numbers_says_so():
    report = report_of([failed(0), failed(1)])
    assert "The last 2 nights have no numbers; the last job that failed: failed" in picture_of(report)
    assert "no numbers" in "\n".join(many_tests(report_of([failed(0), run(0, 1.0, test=OTHER)]), Display()))


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "centre"
    folder.mkdir()
    runs = [*nights(30, provenance={"driver": "570.124"}), *slower(30, 5, 92.0)]
    runs += nights(35, test=OTHER, hour=23.0, fields={**FIELDS, "benchmark": "deepcam"}, benchmark="deepcam")
    for envelope in sorted(runs, key=lambda envelope: envelope.time_s):
        HistoryWriter(folder / "history").write(envelope, None)
    return folder


def trend(site: Path, *words: str) -> int:
    return main(["trend", f"--site={site}", f"--tonight={night(34)}", *words])


def test_one_test_is_a_picture_and_several_are_lines(site, capsys):
    assert trend(site, "eidf_a100", "resnet50") == 0
    assert "Is it slower?" in capsys.readouterr().out
    assert trend(site, OTHER) == 0
    assert capsys.readouterr().out.startswith(OTHER)
    assert trend(site) == 0
    out = capsys.readouterr().out
    assert out.startswith("1 of 2 tests is slower, on eidf_a100\n")
    assert "\x1b" not in out


class Stream(io.TextIOWrapper):
    """Where a command prints: a terminal or a pipe."""

    def __init__(self, encoding: str = "utf-8", *, is_terminal: bool = True) -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self.isatty = lambda: is_terminal


def test_a_terminal_gets_colours_and_block_characters(site, monkeypatch):
    terminal = Stream()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert trend(site, "resnet50") == 0
    terminal.seek(0)
    text = terminal.read()
    assert "\x1b[31mYES\x1b[0m" in text
    assert set(BLOCKS) & set(text)


def test_colours_stand_only_on_a_terminal_that_wants_them():
    assert display_of(Stream(), {"TERM": "xterm"}).has_colours
    for environ in ({"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}, {}):
        assert not display_of(Stream(), environ).has_colours
    assert not display_of(Stream(is_terminal=False), {"TERM": "xterm"}).has_colours


def test_what_the_encoding_lacks_is_replaced():
    display = display_of(Stream("latin-1"), {})
    assert not display.has_symbols
    assert display.plain("grün → rot\n") == "grün ? rot?"
    assert all(mark.symbol in SYMBOLS or mark.symbol.isascii() for mark in NightMark)
