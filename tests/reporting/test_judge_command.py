"""`python -m reporting judge`: what a person reads in the morning, and the exit code that a pipeline gets."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from platforms.job import Metric
from reporting.__main__ import main
from reporting.commands import judged
from reporting.history.writer import HistoryWriter
from reporting.references import store
from reporting.references.answers import Author, Pause
from tests.reporting.history_lines import envelope
from tests.reporting.table_history import record, record_nights

ROOT = Path(__file__).resolve().parents[2]
TEST = "test_resnet50.py::test_resnet50[a100-1x4gpu-tuned]"
DEEPCAM = {"test": "test_deepcam.py::test_deepcam[a100-1x4gpu-tuned]", "benchmark": "deepcam"}
AUTHOR = Author("ada", datetime.datetime(2026, 10, 1, 9, 0, tzinfo=datetime.UTC))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site whose series has 22 good nights, the last one on 2026-10-22."""
    folder = tmp_path / "centre"
    record_nights(folder / "history", 22)
    return folder


def judge(site: Path, tonight: str, *words: str) -> int:
    return main(["judge", f"--site={site}", f"--tonight={tonight}", *words])


def pause(site: Path, name: str, until: str) -> None:
    store.append(site, Pause(name, datetime.date.fromisoformat(until), "the node is away", AUTHOR))


# --- what is read and compared ---------------------------------------------------------------------------------------


def test_a_run_is_compared_with_those_of_its_own_test_alone(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of tests it would take hours to look through the runs of all of them for each one."""
    record(site / "history", 21, 100.0, **DEEPCAM)
    compared = {}
    monkeypatch.setattr(
        judged,
        "changed_metrics",
        lambda current, past, _: compared.setdefault(current.key.test, {run.key.test for run in past}) and [],
    )
    judge(site, "2026-10-22")
    assert compared == {TEST: {TEST}, DEEPCAM["test"]: {DEEPCAM["test"]}}


# --- series that are blind -------------------------------------------------------------------------------------------


def test_a_series_without_a_run_for_three_nights_is_blind(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judge(site, "2026-10-25", "--require") == 0, "the third night is not over"
    assert capsys.readouterr().out == "1 ok\n"
    assert judge(site, "2026-10-26") == 0
    out = capsys.readouterr().out
    assert "blind since 2026-10-23: no run without doubt for 3 nights\n" in out
    assert out.endswith("\n1 blind\n")
    assert judge(site, "2026-10-26", "--require") == 1
    assert main(["table", f"--site={site}", "--tonight=2026-10-26"]) == 0
    assert "blind since 2026-10-23" in capsys.readouterr().out


def test_nights_whose_runs_all_failed_are_blind(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for night in range(22, 35):
        record(site / "history", night, 400.0, sane=False)
    assert judge(site, "2026-11-04") == 0
    out = capsys.readouterr().out
    assert "blind since 2026-10-23: no run without doubt for 12 nights\n" in out
    assert "later runs have no numbers: error (13)" in out


def test_a_red_series_stays_red_when_it_is_blind(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(site / "history", 22, 300.0)
    assert judge(site, "2026-11-04") == 1
    out = capsys.readouterr().out
    assert "-25.0 %, slower since 2026-10-23; blind since 2026-10-24" in out
    assert out.endswith("\n1 red\n")


def test_a_test_that_never_recorded_a_number_is_blind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "history", 0, 400.0, sane=False)
    assert judge(tmp_path, "2026-10-01") == 0
    assert capsys.readouterr().out == f"{TEST}: no run has numbers, so it is blind\n\n1 blind\n"
    assert judge(tmp_path, "2026-10-01", "--require") == 1


def test_a_try_in_vain_is_not_blind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "history", 0, 400.0, sane=False, asked={"unsupported": "it does not compile"})
    assert judge(tmp_path, "2026-10-01", "--require") == 0
    out = capsys.readouterr().out
    assert out == f"{TEST}: tried in vain where it cannot run, so it is not judged\n\nnothing is judged\n"
    assert main(["show", f"--site={tmp_path}", TEST]) == 2
    assert "says that it cannot run there; it was tried, and no job recorded a number" in capsys.readouterr().err


def test_require_asks_for_a_pin(tmp_path: Path) -> None:
    record_nights(tmp_path / "history", 5)
    assert judge(tmp_path, "2026-10-05") == 0
    assert judge(tmp_path, "2026-10-05", "--require") == 1


# --- pauses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [TEST, "a100"])
def test_what_is_paused_is_neither_red_nor_blind(site: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    record(site / "history", 22, 300.0)
    record(site / "history", 22, 400.0, sane=False, **DEEPCAM)
    pause(site, name, "2026-11-04")
    if name == TEST:
        pause(site, DEEPCAM["test"], "2026-11-04")
    assert judge(site, "2026-11-04", "--require") == 0
    out = capsys.readouterr().out
    assert f"{DEEPCAM['test']}: paused until 2026-11-04: the node is away" in out
    assert "  paused until 2026-11-04: the node is away\n" in out
    assert out.endswith("\n1 paused\n")
    assert judge(site, "2026-11-05") == 1


def test_an_imported_platform_can_be_paused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = envelope("stream@daint:gpu+gnu", platform="daint:gpu", metrics={"triad": Metric(812.0, "GB/s")})
    HistoryWriter(tmp_path / "history").write(line, None)
    assert main(["pause", "daint:gpu", "--until=2999-01-01", "--reason=cooling", f"--site={tmp_path}"]) == 0
    assert main(["judge", f"--site={tmp_path}"]) == 0
    assert "  paused until 2999-01-01: cooling\n" in capsys.readouterr().out


# --- what is printed -------------------------------------------------------------------------------------------------


def test_red_comes_first_and_what_is_ok_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = HistoryWriter(tmp_path / "history")
    for night in range(22):
        started_s = datetime.datetime(2026, 10, 1 + night, 22).timestamp()
        for test in ("a", "b"):
            metrics = {
                "copy": Metric(700.0, "GB/s"),
                "triad": Metric(600.0 if (test, night) == ("b", 21) else 800.0, "GB/s"),
            }
            line = envelope(test, run_id=str(night), started_s=started_s, submitted_s=started_s, metrics=metrics)
            writer.write(line, None)
    assert judge(tmp_path, "2026-10-22") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["b, 2026-10-22", "  RED  triad  600.0  GB/s  -25.0 %, slower since 2026-10-22"]
    assert lines[-1] == "1 red, 3 ok"
    assert judge(tmp_path, "2026-10-22", "-v") == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[2:6]] == [
        ["copy", "700.0", "GB/s", "ok"],
        ["a,", "2026-10-22"],
        ["copy", "700.0", "GB/s", "ok"],
        ["triad", "800.0", "GB/s", "ok"],
    ]


# --- a damaged history -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["judge", "table"])
def test_a_damaged_line_is_named_and_is_not_red(site: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = site / "history" / "2026-10" / "damaged-0.jsonl"
    path.write_text("no JSON\n")
    words = [command, f"--site={site}", "--tonight=2026-10-22"]
    assert main(words) == 0
    error = capsys.readouterr().err
    assert f"warning: {path}:1: this line of the history is skipped: " in error
    assert "(copy the file again from a backup, or delete this line)" in error
    if command == "judge":
        assert main([*words, "--require"]) == 1
