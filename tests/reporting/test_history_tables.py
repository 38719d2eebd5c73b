"""`python -m reporting table`: what the history holds, as text, Markdown and CSV."""

from __future__ import annotations

import csv
import datetime
import io
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.job import Metric
from reporting.__main__ import main
from reporting.gate.verdict import Kind
from reporting.history.writer import HistoryWriter
from reporting.tables.history_rows import stored_verdicts
from reporting.tables.tidy import COLUMNS
from tests.reporting.history_lines import BEGAN_S, envelope
from tests.reporting.table_history import record, record_nights

Capture = pytest.CaptureFixture[str]

DOCS = Path(__file__).resolve().parents[2] / "docs"
DEEPCAM = {"test": "test_deepcam.py::test_deepcam[a100-1x4gpu-tuned]", "benchmark": "deepcam"}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site with an empty history."""
    folder = tmp_path / "centre"
    folder.mkdir()
    return folder


def table(site: Path, *words: str, tonight: str = "2026-10-24") -> int:
    return main(["table", f"--site={site}", f"--tonight={tonight}", *words])


def rows(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("a100 ")]


# --- the latest run of each test -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_latest_run_of_each_test_stands_against_its_pin(site: Path, capsys: Capture) -> None:
    record_nights(site / "history", 22)
    record(site / "history", 22, 340.0)
    record(site / "history", 22, 50.0, **DEEPCAM)
    assert table(site) == 0
    out = capsys.readouterr().out
    assert [line.split(":")[0] for line in out.splitlines() if "throughputs in" in line] == [
        "deepcam, v1.5, subset, overlap, tuned",
        "resnet50, v1.5, subset, overlap, tuned",
    ]
    deepcam, resnet50 = rows(out)
    assert "learning, 1 of 20 runs" in deepcam
    assert "2026-10-23 22:00" in resnet50
    assert " 357.9        95.0%           340.0 " in resnet50
    assert "-15.0 %, slower since 2026-10-23" in resnet50


def test_later_runs_without_numbers_are_counted(site: Path, capsys: Capture) -> None:
    record_nights(site / "history", 2)
    record(site / "history", 2, 400.0, sane=False)
    record(site / "history", 3, 400.0, sane=False)
    assert table(site) == 0
    out = capsys.readouterr().out
    assert "2026-10-02 22:00" in rows(out)[0]
    assert "[1] later runs have no numbers: error (2)" in out


def test_a_run_in_doubt_says_why(site: Path, capsys: Capture) -> None:
    record(site / "history", 0, 400.0, warnings=["crowded: 2 of our threads share a core"])
    assert table(site) == 0
    out = capsys.readouterr().out
    assert "[2] it fills no pin, since it is in doubt: crowded" in out


def test_layouts_of_one_session_stand_below_the_runs(site: Path, capsys: Capture) -> None:
    record(site / "history", 0, 400.0)
    two = {"test": "test_resnet50.py::test_resnet50[a100-2x4gpu-tuned]", "layout": "2x4gpu"}
    record(site / "history", 0, 600.0, **two)
    assert table(site) == 0
    *_runs, scaling = capsys.readouterr().out.split("\n\n")
    assert "resnet50 tuned on a100: scaling against 1x4gpu, session nightly-000" in scaling
    assert re.search(r" 1\.50  strong +75\.0% +the device step 95 % \(31\.7 ms\) +none\n", scaling)


def test_sites_that_share_a_history_have_tables_of_their_own(site: Path, capsys: Capture) -> None:
    ours = envelope(metrics={"triad": Metric(812.0, "GB/s")})
    theirs = replace(ours, key=ours.key._replace(site="theirs"), metrics={"triad": Metric(400.0, "GB/s")})
    HistoryWriter(site / "history").write_all([ours, theirs])
    assert table(site, tonight="2026-11-23") == 0
    out = capsys.readouterr().out
    assert "812.0" in out
    assert "400.0" not in out


@pytest.mark.parametrize(
    "command",
    [
        ["judge"],
        ["table"],
        ["show", "resnet50"],
        ["power"],
        ["accept", "resnet50", "--since=2026-10-01", "--reason=why"],
        ["ack", "resnet50", "--ticket=17", "--until=2100-01-01"],
        ["carry", "resnet50"],
    ],
    ids=lambda command: command[0],
)
def test_the_runs_of_another_site_are_not_ours(site: Path, command: list[str], capsys: Capture) -> None:
    """After a rename of the site, too: the message names the site that the runs are of."""
    record_nights(site / "history", 8)
    (site / "site.yaml").write_text("name: campus\n")
    assert main([*command, f"--site={site}"]) == 2
    error = capsys.readouterr().err
    assert "the history has no run of the site campus, only those of site; `name:` in " in error
    assert not (site / "references").exists()


def test_a_verdict_of_a_later_version_is_left_out(site: Path, capsys: Capture) -> None:
    of_later_version = envelope(verdicts={"effective throughput": {"kind": "gone with the wind", "red": True}})
    latest = envelope(run_id="nightly-2", started_s=BEGAN_S + 86400)
    HistoryWriter(site / "history").write_all([of_later_version, latest])
    assert table(site, "--all", tonight="2026-11-23") == 0
    first, _ = rows(capsys.readouterr().out)
    assert first.split()[-2:] == ["-", "none"]


# --- many nights -----------------------------------------------------------------------------------------------------


def test_all_runs_or_those_since_a_night(site: Path, capsys: Capture) -> None:
    record_nights(site / "history", 22)
    record(site / "history", 22, 340.0)
    assert table(site, "--all") == 0
    every = rows(capsys.readouterr().out)
    assert len(every) == 23
    assert "learning" in every[0]
    assert "-15.0 %, slower since 2026-10-23" in every[-1]
    assert table(site, "--since=2026-10-22") == 0
    assert len(rows(capsys.readouterr().out)) == 2


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Kind.DRIFTED, "seven nights -5.0 %, slower since 2026-10-01"),
        (Kind.FASTER, "seven nights -5.0 %, faster since 2026-10-01"),
        (Kind.ACKNOWLEDGED, "acknowledged: -5.0 %, slower since 2026-10-01"),
        (Kind.LEFT, "left its series"),
        (Kind.OK, "ok"),
    ],
)
def test_what_the_gate_said_in_a_night(kind: Kind, said: str) -> None:
    stored = {"triad": {"kind": kind.value, "red": False, "change": -0.05, "since": "2026-10-01"}}
    assert stored_verdicts(envelope(verdicts=stored))["triad"].short == said


def record_imported(site: Path, nights: int) -> None:
    """Runs of another program, which records neither starts nor verdicts."""
    for night in range(nights):
        ended_s = datetime.datetime(2026, 10, 1, 22).timestamp() + night * 86400
        line = envelope(
            "stream@daint:gpu+gnu",
            run_id=f"reframe-{night}",
            submitted_s=ended_s - 60,
            started_s=None,
            ended_s=ended_s,
            metrics={"triad": Metric(800.0 + night % 3, "GB/s")},
            source="reframe",
        )
        HistoryWriter(site / "history").write(line, None)


def test_the_csv_of_imported_runs_has_nights_and_the_latest_verdict(site: Path, capsys: Capture) -> None:
    record_imported(site, 3)
    assert table(site, "--all", "--format=csv", "--tonight=2026-10-04") == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    (index,) = re.findall(r'index="(\w+)"', (DOCS / "exports.md").read_text())
    assert [line[index] for line in lines] == ["2026-10-01", "2026-10-02", "2026-10-03"]
    assert [line["against_pin"] for line in lines] == ["", "", "learning, 3 of 20 runs"]
    assert [line["verdict"] for line in lines] == ["", "", "learning"]


def test_a_night_after_the_last_one_is_said(site: Path, capsys: Capture) -> None:
    record(site / "history", 0, 400.0)
    assert table(site, "--since=2027-01-01") == 2
    assert "no run since the night of 2027-01-01: the last one of these tests is of" in capsys.readouterr().err


def test_a_date_that_is_none_is_named(site: Path, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        table(site, "--since=yesterday")
    assert "'yesterday' is no date: write it as in 2026-11-17" in capsys.readouterr().err


# --- other metrics, other programs -----------------------------------------------------------------------------------


# --- formats ---------------------------------------------------------------------------------------------------------


def test_csv_has_a_line_for_each_run_and_metric(site: Path, capsys: Capture) -> None:
    record_nights(site / "history", 22, metrics={"triad": {"value": 812.0, "unit": "GB/s", "better": "higher"}})
    record(site / "history", 22, 340.0, sane=False)
    assert table(site, "--all", "--format=csv") == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(lines) == 22 * 10
    first, triad, *beside = lines[:10]
    metrics = "effective_throughput triad compute_throughput compute_fraction wait_ms h2d_ms step_ms other_ms"
    metrics += " fastest_stretch effective_throughput_of_all_windows"
    assert [line["metric"] for line in lines[:10]] == metrics.split()
    said = ("value", "unit", "better", "is_judged", "night", "run_id", "provenance_driver")
    assert [first[name] for name in said] == [
        *("400.0", "samples/s", "higher", "True"),
        *("2026-10-01", "nightly-000", "550.54"),
    ]
    assert (triad["value"], triad["unit"]) == ("812.0", "GB/s")
    assert {line["is_judged"] for line in beside} == {"False"}
    assert {(line["unit"], line["better"]) for line in beside[2:6]} == {("ms", "lower")}
    started = datetime.datetime.fromisoformat(first["started"])
    assert started.tzinfo is not None
    assert started == datetime.datetime(2026, 10, 1, 22, 0).astimezone()
    assert {line["verdict"] for line in lines} == {"learning", "ok", ""}


@pytest.mark.slow
def test_csv_has_the_pin_that_the_verdict_compares_with(site: Path, capsys: Capture) -> None:
    record_nights(site / "history", 30)
    record_nights(site / "history", 8, 360.0, first=30)
    accept = ["accept", "resnet50", "--since=2026-10-31", "--reason=the driver must stay", "--by=ada"]
    assert main([*accept, f"--site={site}"]) == 0
    capsys.readouterr()
    assert table(site, "--all", "--format=csv", tonight="2026-11-23") == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    pins = [line["pin"] for line in lines if line["metric"] == "effective_throughput"]
    assert pins == [""] * 20 + ["400.0"] * 17 + ["360.0"]
    assert {line["pin"] for line in lines if line["is_judged"] == "False"} == {""}


def test_csv_says_what_ran_where_without_any_run_json(site: Path, capsys: Capture) -> None:
    record(site / "history", 0, 400.0)
    for kept in (site / "history").glob("*/*.runs.jsonl"):
        kept.unlink()
    table(site, "--all", "--format=csv")
    line = next(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert (line["configuration"], line["size"], line["device"]) == ("tuned", "subset", "NVIDIA A100-SXM4-80GB")
    assert line["nodes"]
    assert line["value"] == "400.0"


def test_csv_is_harmless_in_a_spreadsheet_and_has_every_text(site: Path, capsys: Capture) -> None:
    tests = ["=cmd|' /C calc'!A0", '+"1,2"\nthree', "@SUM(1)", "bytes\udcff.py::test"]
    for test in tests:
        HistoryWriter(site / "history").write(
            envelope(test, metrics={"-x": Metric(-1.5, "1/s")}, source="reframe"), None
        )
    assert table(site, "--all", "--format=csv", "-o", str(site / "runs.csv"), tonight="2026-11-23") == 0
    content = (site / "runs.csv").read_bytes().decode()
    lines = list(csv.DictReader(io.StringIO(content, newline="")))
    assert {line["test"] for line in lines} == {
        "'=cmd|' /C calc'!A0",
        '\'+"1,2"\\nthree',
        "'@SUM(1)",
        "bytes\\udcff.py::test",
    }
    assert {(line["metric"], line["value"]) for line in lines} == {("'-x", "-1.5")}


def test_markdown_is_a_table_that_shows_each_character(site: Path, capsys: Capture) -> None:
    record(site / "history", 0, 400.0, warnings=["slow|path of @someone in _one_ run"])
    assert table(site, "--format=markdown") == 0
    title, _, head, rule, row, _, *notes = capsys.readouterr().out.splitlines()
    assert title.startswith("**resnet50, v1.5, subset, overlap, tuned: ")
    assert head.count("|") == rule.count("|") == row.count("|")
    assert rule.split("|")[7:9] == [" ---: ", " ---: "]
    assert "- \\[1\\] slow\\|path of \\@someone in \\_one\\_ run" in notes


def test_it_is_written_to_a_file(site: Path, tmp_path: Path, capsys: Capture) -> None:
    record(site / "history", 0, 400.0)
    file = tmp_path / "table.csv"
    assert table(site, "--format=csv", "-o", str(file)) == 0
    assert file.read_text().splitlines()[1].startswith("test_resnet50.py::")
    assert capsys.readouterr().out == ""


def test_published_numbers_stand_below_the_tables(site: Path, capsys: Capture) -> None:
    record(site / "history", 0, 400.0, start__request__shape="224x224")
    assert table(site, "--anchors") == 0
    out = capsys.readouterr().out
    assert "published numbers beside ours: effective throughput of one device" in out
    assert "precision fp16, ours bf16" in out
    assert table(site) == 0
    assert "published" not in capsys.readouterr().out
    assert table(site, "--anchors", "--format=csv") == 2
    assert "--anchors: CSV has our own runs only" in capsys.readouterr().err


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_has_every_column_of_the_csv() -> None:
    named = set(re.findall(r"`([a-z_]+)`", (DOCS / "exports.md").read_text()))
    assert [column for column in COLUMNS if column not in named] == []


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_an_empty_history_says_what_fills_it(site: Path, capsys: Capture) -> None:
    assert table(site) == 2
    assert (
        f"{site}/history: the history is empty, since there is no such folder; pytest writes a line"
        in capsys.readouterr().err
    )


def test_tests_without_numbers_give_no_empty_table(site: Path, capsys: Capture) -> None:
    record(site / "history", 0, 400.0, sane=False)
    assert table(site) == 2
    assert "/history: no job of these tests has numbers\n" in capsys.readouterr().err


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_mistake(site: Path) -> None:
    record_nights(site / "history", 3)
    command = [sys.executable, "-m", "reporting", "table", "--all", f"--site={site}"]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        ended = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")


def test_a_lost_run_json_is_named_and_the_rest_is_shown(site: Path, capsys: Capture) -> None:
    record(site / "history", 0, 400.0)
    for path in (site / "history").rglob("*.runs.jsonl"):
        path.unlink()
    record(site / "history", 0, 50.0, **DEEPCAM)
    assert table(site) == 0
    captured = capsys.readouterr()
    assert "the run.json of test_resnet50.py::test_resnet50[a100-1x4gpu-tuned] cannot be read" in captured.err
    assert "deepcam, v1.5, subset, overlap, tuned: " in captured.out
    assert "effective_throughput  400.0  samples/s" in captured.out


def test_tonight_leaves_out_later_runs(site: Path, capsys: Capture) -> None:
    record_nights(site / "history", 30)
    assert table(site, "--all", tonight="2026-10-24") == 0
    assert len(rows(capsys.readouterr().out)) == 24
    assert table(site, tonight="2020-01-01") == 2
    assert "--tonight 2020-01-01: the first run of these tests is of the night of" in capsys.readouterr().err
