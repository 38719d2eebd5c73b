"""How a job without numbers ended, read from the run.json in the folder of a history."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.job import Outcome
from reporting.__main__ import main
from reporting.history.endings import LONGEST_REASON, TEST_FAILED, Ending, endings_in
from reporting.history.writer import HistoryWriter
from tests.reporting.gate_nights import failed, nights

FAILED = failed(30, provenance={"nodes": "n07"})


def test_a_test_that_has_not_ended_has_not_failed(tmp_path: Path) -> None:
    pending = HistoryWriter(tmp_path).write(replace(FAILED, outcome=Outcome.PENDING), {"state": "succeeded"})
    assert endings_in(tmp_path, [])(pending) == Ending("pending")


@pytest.mark.parametrize(
    ("run_json", "ending"),
    [
        ({"state": "node lost", "reason": "n07 is down", "problems": []}, Ending("node lost", "n07 is down")),
        ({"state": "time limit", "reason": "", "problems": []}, Ending("time limit")),
        ({"state": "a gate failed", "reason": "exit code 3", "problems": ["loss is nan\n  of rank 1", "too few"]},
         Ending("a gate failed", "loss is nan")),
        ({"state": "succeeded", "reason": "", "problems": []}, Ending(TEST_FAILED)),
        ({"state": "lost", "reason": "x" * 1000, "problems": []}, Ending("lost", "x" * (LONGEST_REASON - 1) + "…")),
        ({"state": "node lost"}, Ending("node lost")),
        ({"state": "exited with an error", "reason": "", "exit_code": 7, "signal": None},
         Ending("exited with an error", "exit code 7")),
        ({"state": "ended by a signal", "exit_code": 139, "signal": 11}, Ending("ended by a signal", "signal 11")),
        ({"state": "succeeded", "exit_code": 0}, Ending(TEST_FAILED)),
        ({}, Ending("failed")),
        (None, Ending("failed")),
    ],
)  # fmt: skip
def test_the_state_and_the_first_problem_else_the_reason(tmp_path: Path, run_json, ending) -> None:
    written = HistoryWriter(tmp_path).write(FAILED, run_json)
    problems: list[str] = []
    assert endings_in(tmp_path, problems)(written) == ending
    assert problems == []


def test_a_run_json_that_is_gone_is_a_problem_of_the_history(tmp_path: Path) -> None:
    written = HistoryWriter(tmp_path).write(FAILED, {"state": "node lost"})
    (tmp_path / written.run.file).unlink()
    problems: list[str] = []
    assert endings_in(tmp_path, problems)(written) == Ending("failed")
    assert "cannot be read" in problems[0]


def test_the_commands_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "history").mkdir()
    (tmp_path / "site.yaml").write_text("name: site\n")
    writer = HistoryWriter(tmp_path / "history")
    for job in nights(30):
        writer.write(job, {"state": "succeeded"})
    writer.write(FAILED, {"state": "device out of memory", "reason": "exit code 5", "problems": ["81 of 80 GB"]})

    assert main(["data", "--site", str(tmp_path), "-o", str(tmp_path / "report.json")]) == 0
    (incident,) = json.loads((tmp_path / "report.json").read_text())["incidents"]
    assert incident["what"].endswith("has no numbers: device out of memory")
    assert (incident["where"], incident["why"]) == ("node n07", "81 of 80 GB")
    assert main(["show", "--site", str(tmp_path), FAILED.key.test]) == 0
    assert re.search(r"no numbers: device out of memory +81 of 80 GB", capsys.readouterr().out)
    assert main(["trend", "--site", str(tmp_path), FAILED.key.test]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the last job that failed: device out of memory: 81 of 80 GB" in said
