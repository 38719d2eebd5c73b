"""`python -m reporting show TEST`: the nights of one test, what changed before each, and the gate's whole text."""

from __future__ import annotations

import copy
import datetime
from pathlib import Path
from typing import Any

import pytest

from platforms.job import Metric
from reporting.__main__ import main
from reporting.history.reader import read
from reporting.history.writer import HistoryWriter
from reporting.references import store
from reporting.references.answers import Author, Note, References
from reporting.tables.nights import changes_before, night_tables
from reporting.tables.text import text
from tests.reporting.history_lines import BEGAN_S, envelope
from tests.reporting.table_history import record, record_nights


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site with 22 nights at 400 samples/s, then one with a new driver and two with 340 samples/s."""
    folder = tmp_path / "centre"
    record_nights(folder / "history", 22)
    record(folder / "history", 22, 402.0, start__device__driver="570.86")
    record(folder / "history", 23, 340.0, start__device__driver="570.86")
    record(folder / "history", 24, 340.0, sane=False, start__device__driver="570.86")
    record(folder / "history", 25, 340.0, start__device__driver="570.86", warnings=["crowded: 2 threads share a core"])
    return folder


def show(site: Path, *words: str) -> int:
    return main(["show", f"--site={site}", *words])


def night(out: str, date: str) -> str:
    (line,) = [line for line in out.splitlines() if line.startswith(f"{date} ")]
    return line


def test_each_night_has_its_value_its_verdict_and_what_changed(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(site, "resnet50", "a100") == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "test_resnet50.py::test_resnet50[a100-1x4gpu-tuned]: effective_throughput, higher is better\n"
    )
    assert " ".join(night(out, "2026-10-22").split()) == "2026-10-22 nightly-021 404.0 +1.0 % 425.3 0.950 ok -"
    assert " ".join(night(out, "2026-10-23").split()).endswith(" 0.950 ok driver 550.54 -> 570.86")
    assert "340.0  -15.0 %" in night(out, "2026-10-24")
    assert "  RED -15.0 %, slower since 2026-10-24 " in night(out, "2026-10-24")
    assert " ".join(night(out, "2026-10-25").split()) == "2026-10-25 nightly-024 - - - - no numbers: error -"
    assert night(out, "2026-10-26").endswith("  in doubt: crowded")
    assert "\npin 400.0 samples/s: 20 runs since 2026-10-01\n" in out


def test_the_whole_text_of_the_verdict_follows(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(site, "test_resnet50.py::test_resnet50[a100-1x4gpu-tuned]") == 0
    text = capsys.readouterr().out.partition("\n\n")[2]
    assert text.startswith("test_resnet50.py::test_resnet50[a100-1x4gpu-tuned]: effective throughput 340.0 samples/s")
    assert "How it was computed" in text
    assert f"--site={site}" in text


def test_the_last_runs_or_all(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(site, "resnet50", "--runs=3") == 0
    assert capsys.readouterr().out.count("  nightly-") == 3
    assert show(site, "resnet50", "--all") == 0
    assert capsys.readouterr().out.count("  nightly-") == 26


def test_no_run_at_all_is_refused(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(site, "resnet50", "--runs=0") == 2
    assert "--runs: 0 is less than 1" in capsys.readouterr().err


def test_one_metric_of_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = {"copy": Metric(700.0, "GB/s"), "triad": Metric(800.0, "GB/s")}
    HistoryWriter(tmp_path / "history").write(envelope("stream", metrics=metrics), None)
    assert show(tmp_path, "stream", "--metric=triad") == 0
    out = capsys.readouterr().out
    assert "stream: triad, higher is better" in out
    assert "copy" not in out
    assert show(tmp_path, "stream", "--metric=scale") == 2
    assert "--metric: stream has no 'scale'" in capsys.readouterr().err


def test_in_80_columns_each_line_of_a_run_has_a_heading(site: Path) -> None:
    tables = night_tables(read(site / "history"), 1, References(), datetime.time(12))
    lines = text(tables, 80)
    assert lines[2:] == [
        "night, run",
        "    value              compute   compute",
        "samples/s   to pin  throughput  fraction  the gate",
        "  doubts and changes",
        "-" * 80,
        "2026-10-26, nightly-025",
        "    340.0  -15.0 %       357.9     0.950  RED -15.0 %, slower since 2026-10-24",
        "  in doubt: crowded",
        "pin 400.0 samples/s: 20 runs since 2026-10-01",
    ]


def test_notes_on_the_platform_stand_below(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    author = Author("ada", datetime.datetime(2026, 10, 24, 9, 0, tzinfo=datetime.UTC))
    store.append(site, Note("a100", datetime.date(2026, 10, 23), "new firmware of the switches", author))
    assert show(site, "resnet50") == 0
    assert "note of 2026-10-23 on a100: new firmware of the switches (ada)" in capsys.readouterr().out


def test_a_test_that_never_recorded_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "history", 0, 400.0, sane=False)
    assert show(tmp_path, "resnet50") == 2
    assert "]: no job of it in the history has numbers; the last one: error\n" in capsys.readouterr().err


def test_lines_without_a_verdict_are_judged_when_they_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = HistoryWriter(tmp_path / "history")
    for number in range(22):
        started_s = BEGAN_S - (30 - number) * 86400
        metrics = {"triad": Metric(812.0 if number < 21 else 600.0, "GB/s")}
        writer.write(envelope("stream", run_id=str(number), metrics=metrics, started_s=started_s), None)
    assert show(tmp_path, "stream") == 0
    out = capsys.readouterr().out
    assert "learning, 1 of 20 runs" in out
    assert "RED -26.1 %, slower since" in out


def test_a_run_is_compared_with_the_last_one_that_has_numbers() -> None:
    runs = [envelope(run_id="0"), envelope(run_id="1", sane=False, provenance={}, fields={}), envelope(run_id="2")]
    assert changes_before(runs) == ([[], [], []], [])


def test_a_change_is_one_of_the_text_whether_the_runs_share_an_object_or_not() -> None:
    alone: dict[str, Any] = {"driver": "550.54", "cores": 1, "versions": {"torch": "2.1", "cuda": "12.1"}}
    others: list[dict[str, Any]] = [copy.deepcopy(alone) | {"cores": True}, alone, alone, copy.deepcopy(alone)]
    others.append(copy.deepcopy(alone) | {"versions": {"torch": "2.2"}})
    runs = [envelope(provenance=provenance) for provenance in (alone, alone, alone, *others)]
    assert changes_before(runs)[0][2:] == [
        [],
        ["cores 1 -> true"],
        ["cores true -> 1"],
        [],
        [],
        ["versions.cuda 12.1 -> not recorded", "versions.torch 2.1 -> 2.2"],
    ]


def test_what_changes_from_run_to_run_is_not_shown() -> None:
    runs = [envelope(run_id=str(number), provenance={"nodes": [f"gpu{number}"], "driver": "1"}) for number in range(8)]
    runs.append(envelope(run_id="8", provenance={"nodes": ["gpu1"], "driver": "2"}, fields={"data_from": "mixed"}))
    changes, restless = changes_before(runs)
    assert restless == ["nodes"]
    assert changes[:8] == [[]] * 8
    assert changes[8][-1] == "driver 1 -> 2"
    assert any("data came from" in change for change in changes[8])
