"""`python -m reporting compare`: two selections of runs, on made histories."""

from __future__ import annotations

import datetime
import io
import json
import sys
from pathlib import Path

import pytest

from platforms.job import Metric, Outcome, Role, Trial
from reporting.__main__ import main
from reporting.references import store
from reporting.references.answers import Author, Note
from tests.reporting.campaigns import TEST, campaign, parts, session, site_with
from tests.reporting.gate_nights import FIELDS, METRIC, run

Capture = pytest.CaptureFixture[str]

OLD = {"driver": "570.124", "commit": "abc1234def0"}
NEW = {"driver": "580.65", "commit": "abc1234def0"}
BEFORE = [100.0, 100.6, 99.5]
AFTER = [95.9, 96.3, 95.6]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def upgraded(tmp_path: Path) -> Path:
    """Three sessions before and three after an upgrade of the driver, which makes the device step 4 ms longer."""
    before = campaign("before", BEFORE, 0, provenance=OLD, beside=parts(2, 1, 96))
    after = campaign("after", AFTER, 4, provenance=NEW, beside=parts(2, 1, 100))
    return site_with(tmp_path / "centre", [*before, *after])


def compare(site: Path, *words: str) -> int:
    return main(["compare", f"--site={site}", *words])


def test_one_sentence_says_change_interval_split_and_what_changed(upgraded: Path, capsys: Capture) -> None:
    assert compare(upgraded, "before", "after") == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first == (
        "deepcam, a100-1x4gpu-tuned: -4.1 % [-5.2, -3.0], all of it in the device step; input unchanged; "
        "changed: driver 570.124 -> 580.65"
    )


def test_the_printed_numbers_give_the_interval_by_hand(upgraded: Path, capsys: Capture) -> None:
    compare(upgraded, "before", "after")
    out = capsys.readouterr().out
    assert "before        100.03 samples/s, the geometric mean of 3 sessions" in out
    assert "100.00 (4), 100.60 (4), 99.50 (4)" in out
    assert "change        -4.1 % = 95.93 / 100.03 - 1" in out
    assert "error         0.38 % = sqrt(0.550^2 / 3 + 0.366^2 / 3) %" in out
    assert "interval      [-5.2, -3.0] % = exp(-4.18 % -+ 2.95 x 0.38 %) - 1; t of 3.5 degrees of freedom" in out
    assert "device step 96.0 -> 100.0" in out


def test_the_other_direction_is_faster_and_ends_with_0(upgraded: Path, capsys: Capture) -> None:
    assert compare(upgraded, "after", "before") == 0
    assert "+4.3 % [+3.1, +5.5]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("label=before", "label=after,platform=a100"),
        ("driver=570.124", "driver=580.65"),
        ("date=2026-10-02..2026-10-04", "date=2026-10-05.."),
        ("label=before,commit=abc1234", "label=after,commit=abc"),
        ("label=before,nodes=n01..n04", "nodes=n[01-03],n04,label=after"),
    ],
)
def test_a_selection_has_conditions(upgraded: Path, before: str, after: str, capsys: Capture) -> None:
    assert compare(upgraded, before, after) == 1
    out = capsys.readouterr().out
    assert "-4.1 % [-5.2, -3.0]" in out
    assert f"before: {before} (12 jobs of 3 sessions, 2026-10-02 to 2026-10-04)" in out


def test_a_single_night_is_a_selection(upgraded: Path, capsys: Capture) -> None:
    assert compare(upgraded, "date=2026-10-02", "date=2026-10-06") == 0
    assert "before: date=2026-10-02 (4 jobs of 1 session, 2026-10-02)" in capsys.readouterr().out


def with_drivers(folder: Path, *drivers: str) -> Path:
    """A site with a campaign of three sessions for each driver."""
    runs = []
    for number, driver in enumerate(drivers):
        levels = BEFORE if number == 0 else AFTER
        runs += campaign(f"c{number}", levels, 4 * number, provenance={"driver": driver}, beside=parts(2, 1, 96))
    return site_with(folder, runs)


def test_the_beginning_of_a_version_means_all_versions_that_begin_so(tmp_path: Path, capsys: Capture) -> None:
    site = with_drivers(tmp_path / "centre", "570.124.06", "570.124.09", "570.1240", "580.65.06")
    assert compare(site, "driver=570.124", "driver=580") == 0
    out = capsys.readouterr().out
    assert "before: driver=570.124 (24 jobs of 6 sessions" in out
    assert "changed: driver 570.124.06, 570.124.09 -> 580.65.06" in out
    assert compare(site, "driver=570.12", "driver=580.65") == 2
    assert "no run has driver=570.12; driver of these tests: 570.124.06, 570.124.09, 570.1240, 580.65.06" in (
        capsys.readouterr().err
    )


def test_one_session_a_side_has_no_verdict(tmp_path: Path, capsys: Capture) -> None:
    site = site_with(tmp_path, [*session(0, [100, 101, 99], "before"), *session(1, [90, 91, 89], "after")])
    assert compare(site, "before", "after") == 0
    out = capsys.readouterr().out
    assert ": -10.0 %, no verdict: one session a side cannot tell the change from the day; " in out
    assert "no verdict" in out
    assert compare(site, "run=night-000", "after") == 0


def test_one_session_on_one_side_has_no_verdict_either(tmp_path: Path, capsys: Capture) -> None:
    site = site_with(tmp_path, [*campaign("before", BEFORE, 0), *session(5, [90, 91, 89], "after")])
    assert compare(site, "before", "after") == 0
    assert "no verdict: one session after cannot tell the change from the day" in capsys.readouterr().out


def test_sides_of_the_same_sessions_are_compared_within_them(tmp_path: Path, capsys: Capture) -> None:
    runs = []
    for number, day in enumerate([1.0, 1.05, 0.94]):
        runs += session(number, [100 * day, 95 * day * (1 + number / 1000)])
    site = site_with(tmp_path, runs)
    assert compare(site, "node=n01", "node=n02") == 1
    out = capsys.readouterr().out
    assert "-4.9 % [-5.1, -4.7]" in out
    assert "the change within each of 3 sessions, in %: -5.00, -4.91, -4.81\n" in out


def test_of_many_sessions_the_first_ones_are_shown(tmp_path: Path, capsys: Capture) -> None:
    runs = [one for number in range(25) for one in session(number, [100, 95 * (1 + number / 10_000)])]
    assert compare(site_with(tmp_path, runs), "node=n01", "node=n02") == 1
    out = capsys.readouterr().out
    assert out.count("and 5 more\n") == 3


def test_both_sides_of_one_session_have_no_verdict(tmp_path: Path, capsys: Capture) -> None:
    site = site_with(tmp_path, session(0, [100, 95]))
    assert compare(site, "node=n01", "node=n02") == 0
    assert "no verdict: both sides are of one session" in capsys.readouterr().out


def test_what_is_not_comparable_is_said(tmp_path: Path, capsys: Capture) -> None:
    mixed = {**FIELDS, "data_from": "mixed"}
    before = campaign("before", BEFORE, 0)
    after = [*campaign("after", AFTER, 4), *session(8, [50.0], "after", fields=mixed)]
    broken = session(9, [50.0, 51.0], "after", sane=False, outcome=Outcome.FAILED)
    doubted = session(10, [60.0], "after", doubts=("crowded",))
    site = site_with(tmp_path / "one", [*before, *after, *broken, *doubted])
    assert compare(site, "before", "after") == 1
    out = capsys.readouterr().out
    assert "-4.1 % [-5.2, -3.0]" in out
    assert "after, 1 run is not comparable: data came from storage, is mixed" in out
    assert "after, 2 runs are without numbers (2 failed)" in out
    assert "after, 1 run is in doubt left out (crowded)" in out

    site = site_with(tmp_path / "two", [*before, *campaign("after", AFTER, 4, fields=mixed)])
    assert compare(site, "before", "after") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert (
        "nothing can be compared:\n  deepcam, a100-1x4gpu-tuned: effective throughput is not compared: " in printed.err
    )
    assert "data came from storage, is mixed" in printed.err


def test_a_test_that_ran_on_one_side_alone_is_named(upgraded: Path, capsys: Capture) -> None:
    site_with(upgraded, session(0, [1.0], "before", test="test_new.py::test_new[a100-1x1gpu]"))
    compare(upgraded, "before", "after")
    assert "test_new.py::test_new[a100-1x1gpu]: not compared: it ran only before" in capsys.readouterr().out


def test_two_tests_with_the_same_short_name_are_named_by_their_ids(tmp_path: Path, capsys: Capture) -> None:
    runs = []
    for test in ("one/test_it.py::test_it[a100-1x1gpu]", "two/test_it.py::test_it[a100-1x1gpu]"):
        runs += campaign("before", BEFORE, 0, test=test, benchmark=None)
        runs += campaign("after", AFTER, 4, test=test, benchmark=None)
    compare(site_with(tmp_path, runs), "before", "after")
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("one/test_it.py::test_it[a100-1x1gpu]: -4.1 %")
    assert second.startswith("two/test_it.py::test_it[a100-1x1gpu]: -4.1 %")


def test_a_metric_that_is_better_when_it_is_lower_is_called_slower(tmp_path: Path, capsys: Capture) -> None:
    both = [
        *campaign("before", [10.0, 10.1, 9.9], 0, better="lower", unit="s"),
        *campaign("after", [11.0, 11.1, 10.9], 4, better="lower", unit="s"),
    ]
    assert compare(site_with(tmp_path, both), "before", "after") == 1
    out = capsys.readouterr().out
    assert ": -10.0 % [-12.4, -7.6], slower; " in out
    assert "  change        -10.0 % = 1 - 10.9997 / 9.9997\n" in out
    assert compare(site_with(tmp_path, both), "before", "after", "--format", "json") == 1
    row = json.loads(capsys.readouterr().out)["rows"][0]
    assert row["change_fraction"] == pytest.approx(-0.1, abs=0.001)
    assert row["low_fraction"] < row["change_fraction"] < row["high_fraction"] < 0


def test_a_test_with_several_metrics_names_them(tmp_path: Path, capsys: Capture) -> None:
    metrics = {"copy": Metric(700.0, "GB/s"), "triad": Metric(800.0, "GB/s"), "zero": Metric(0.0, "")}
    runs = [*campaign("before", BEFORE, 0, metrics=metrics), *campaign("after", AFTER, 4, metrics=metrics)]
    assert compare(site_with(tmp_path, runs), "before", "after") == 0
    out = capsys.readouterr().out
    assert "deepcam, a100-1x4gpu-tuned: copy +0.0 % [+0.0, +0.0], no change that these runs can show" in out
    assert "zero is not compared: a value is not above 0" in out


def test_only_the_jobs_that_tests_asked_for_count(upgraded: Path, capsys: Capture) -> None:
    repeat = run(12, 10.0, test=TEST, platform="a100", trial=Trial(Role.CONFIRM, label="after", repeat=1))
    site_with(upgraded, [repeat])
    compare(upgraded, "before", "after")
    assert "after: after (12 jobs of 3 sessions" in capsys.readouterr().out


def test_notes_from_between_are_said(upgraded: Path, capsys: Capture) -> None:
    author = Author("ada", datetime.datetime(2026, 10, 6, 9, 0, tzinfo=datetime.UTC))
    for day, text in ((5, "new pumps"), (20, "a fire drill")):
        store.append(upgraded, Note("a100", datetime.date(2026, 10, day), text, author))
    compare(upgraded, "before", "after")
    out = capsys.readouterr().out
    assert "noted on 2026-10-05: new pumps" in out
    assert "fire" not in out


def test_what_changed_in_some_of_the_runs_is_said(upgraded: Path, capsys: Capture) -> None:
    site_with(upgraded, campaign("after", [96.0], 9, provenance={**OLD, "nodes": "n05"}, beside=parts(2, 1, 100)))
    compare(upgraded, "before", "after")
    out = capsys.readouterr().out
    assert "; changed in part: driver\n" in out
    assert "in part       driver 570.124 -> 570.124, 580.65" in out


def test_no_line_is_longer_than_the_terminal(upgraded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    assert compare(upgraded, "before", "after") == 1
    assert max(map(len, terminal.getvalue().splitlines())) <= 80
    assert "\n    input unchanged; changed: driver 570.124 -> 580.65\n" in terminal.getvalue()


def test_json_has_all_digits(upgraded: Path, capsys: Capture) -> None:
    compare(upgraded, "before", "after", "--format=json")
    (content,) = json.loads(capsys.readouterr().out)["rows"]
    assert content["metric"] == METRIC
    assert content["low_fraction"] < content["change_fraction"] < content["high_fraction"] < 0
    assert (content["runs_before"], content["sessions_after"], content["verdict"]) == (12, 3, "slower")
    assert (content["step_ms_before"], content["step_ms_after"]) == (96, 100)
    assert content["changed"] == "driver 570.124 -> 580.65"


@pytest.mark.parametrize("words", [("--format", "csv"), ("--format", "markdown"), ("-o", "x.txt")])
def test_shapes_that_are_gone_are_answered_with_those_that_remain(
    upgraded: Path, words: tuple[str, ...], capsys: Capture
) -> None:
    assert compare(upgraded, "before", "after", *words) == 2
    assert f"`python -m reporting compare {words[0]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("before", "later"), "later: no run has later; label of these tests: after, before"),
        (("before", "driver=1"), "driver=1: no run has driver=1; driver of these tests: 570.124, 580.65"),
        (("before", "label=after,node=n09"), "no run has node=n09 among those with label=after; nodes of these tests"),
        (("before", "drvier=1"), "no run has a 'drvier' (did you mean 'driver'?)"),
        (("before", "label=after,a100"), "'a100' is no condition; write NAME=VALUE"),
        (("before", ""), "'' is no selection"),
        (("before", "label="), "'label=' has no value: write label=VALUE"),
        (("before", "date=yesterday"), "'yesterday' is no night: write 2026-11-17"),
        (("before", "date=2026-11-20..2026-11-17"), "has no night in it"),
        (("before", "nodes=n[01"), "a bracket is not closed"),
        (("before", "driver=570.124"), "12 runs are in both 'before' and 'driver=570.124', such as test_deepcam.py"),
        (("before", "after", "--treated=n01"), "--treated and --control belong together"),
        (("before", "after", "--treated=n01..n03", "--control=n03"), "n03 cannot be in both"),
        (("before", "after", "--treated=n01", "--control=n0[2"), "--control: "),
    ],
)
def test_bad_input_is_refused_in_a_sentence(
    upgraded: Path, words: tuple[str, ...], message: str, capsys: Capture
) -> None:
    assert compare(upgraded, *words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err


def test_labelled_runs_have_no_pin_and_no_table_of_nights(upgraded: Path, capsys: Capture) -> None:
    assert main(["show", f"--site={upgraded}", "deepcam"]) == 2
    assert "`python -m reporting compare LABEL LABEL`" in capsys.readouterr().err
    site_with(upgraded, session(8, [95.0, 97.0]))
    assert main(["show", f"--site={upgraded}", "deepcam", "--tonight=2026-10-10"]) == 0
    assert "1 of the 20 runs are there" in capsys.readouterr().out
    assert main(["table", f"--site={upgraded}", "--all", "--format=csv"]) == 0
    assert capsys.readouterr().out.count("a100-1x4gpu-tuned") > len(BEFORE) + len(AFTER)
