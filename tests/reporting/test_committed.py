"""Committed values of a platform's file: what meets them, and in how many runs in a row."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from platforms.config.keys import CommittedKeys
from platforms.job import Metric, Outcome, Role, Trial
from reporting.__main__ import main
from reporting.gate.committed import Commitment, counted, standing
from reporting.history.envelope import Envelope
from reporting.history.writer import HistoryWriter
from tests.reporting.history_lines import BEGAN_S, envelope

TEST = "catalogue/test_hpl.py::test_hpl[mine-1x4gpu]"


def commitment(value: str = "at least 1500 GFLOP/s", file: Path = Path("mine.yaml")) -> Commitment:
    keys: dict[str, Any] = {"test": TEST, "metric": "hpl", "value": value, "source": "contract 4711, 3.2"}
    return Commitment(CommittedKeys(**keys), file, 0)


def run(night: int, value: float | None, **changes: Any) -> Envelope:
    values: dict[str, Any] = {"run_id": f"nightly-{night}", "started_s": BEGAN_S + 86400 * night}
    values["metrics"] = {} if value is None else {"hpl": Metric(value, "GFLOP/s", "higher")}
    return envelope(TEST, **{**values, **changes})


def said(*runs: Envelope) -> str:
    return standing(commitment(), counted(commitment(), runs))


def test_a_value_is_met_once_enough_runs_in_a_row_have_met_it() -> None:
    assert said() == "met in 0 of 3 consecutive runs so far"
    assert said(run(0, 1500.0), run(1, 1700.0)) == "met in 2 of 3 consecutive runs so far"
    assert said(run(2, 1500.0), run(0, 1500.0), run(1, 1700.0)) == "met in 3 consecutive runs"
    assert said(run(0, 1600.0), run(1, 1600.0), run(2, 1499.0), run(3, 1600.0)).startswith("met in 1 of 3")


def test_a_run_in_doubt_and_one_that_the_machine_lost_count_neither_way() -> None:
    in_doubt = run(1, 900.0, doubts=("not alone",))
    lost = run(2, None, sane=False, outcome=Outcome.ERROR)
    assert said(run(0, 1600.0), in_doubt, lost, run(3, 1600.0), run(4, 1600.0)) == "met in 3 consecutive runs"
    assert [one.said for one in counted(commitment(), [in_doubt, lost])] == ["in doubt: not alone", "no number: error"]


def test_a_test_that_failed_on_its_own_ends_the_row() -> None:
    wrong = run(1, None, sane=False, outcome=Outcome.FAILED)
    assert said(run(0, 1600.0), wrong, run(2, 1600.0)) == "met in 1 of 3 consecutive runs so far"


def test_the_runs_of_another_site_that_shares_the_history_are_none_of_them() -> None:
    other, own = run(0, 1600.0), run(1, 1600.0)
    other = replace(other, key=other.key._replace(site="other"))
    assert said(other, own) == "met in 1 of 3 consecutive runs so far"


def test_several_jobs_of_a_run_are_their_median_and_repeats_of_suspects_are_none_of_them() -> None:
    jobs = [run(0, value, attempt=number) for number, value in enumerate((1400.0, 1550.0, 1600.0), 1)]
    repeat = run(0, 100.0, trial=Trial(Role.CONFIRM, repeat=1))
    (one,) = counted(commitment(), [*jobs, repeat])
    assert (one.value, one.said) == (1550.0, "met, +3.3 %")


@pytest.mark.parametrize(
    ("text", "value", "sentence"),
    [
        ("at least 1500 GFLOP/s", 1449.6, "hpl 1449.6 GFLOP/s is 3.4 % below the committed 1500 (contract 4711, 3.2)"),
        ("at most 5 us", 5.2, "hpl 5.2 us is 4.0 % above the committed 5 (contract 4711, 3.2)"),
    ],
)
def test_a_miss_says_by_how_much_and_of_which_clause(text: str, value: float, sentence: str) -> None:
    assert commitment(text).missed(value) == sentence


def test_what_cannot_be_compared_is_named_with_file_line_and_key(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("device: gpu\ncommitted:\n  - test: it\n    metric: hpl\n    value: at most 5 us\n")
    wrong = commitment("at most 5 us", file)
    assert wrong.misfit({"hlp": Metric(5.0, "us", "lower")}) == (
        f"{file}:4: committed[0].metric: the test records no 'hpl' (did you mean 'hlp'?)"
    )
    assert wrong.misfit({"hpl": Metric(1500.0, "GFLOP/s")}) == (
        f"{file}:5: committed[0].value: its unit is GFLOP/s, and higher is better (write at least … GFLOP/s)"
    )
    assert wrong.misfit({"hpl": Metric(4.0, "us", "lower")}) is None


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_one_page_has_the_runs_of_each_committed_value(
    tmp_path: Path, utc: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "platforms").mkdir()
    (tmp_path / "platforms" / "mine.yaml").write_text(
        "device: gpu\nlayouts: {default: [1x4]}\ncommitted:\n"
        f"  - {{test: '{TEST}', metric: hpl, value: at least 1500 GFLOP/s, source: contract 3.2, runs: 2}}\n"
    )
    machine = {"nodes": "n01,n02", "device": "NVIDIA H100", "driver": "580.65"}
    in_doubt = run(3, 1400.0, doubts=("not alone",), provenance=machine)
    runs = [run(1, 1600.0), run(2, 1602.5, provenance=machine), in_doubt, run(4, 1640.0, provenance=machine)]
    for one in runs:
        HistoryWriter(tmp_path / "history").write(one, None)
    assert main(["table", "--committed", f"--site={tmp_path}", "--tonight=2026-11-27"]) == 0
    assert (
        capsys.readouterr().out
        == f"""\
Committed values of site, 2026-11-27

{TEST}: hpl, at least 1500 GFLOP/s (contract 3.2): met in 3
consecutive runs
started           run        nodes     value GFLOP/s  verdict
-------------------------------------------------------------
2026-11-24 23:26  nightly-2  n01, n02         1602.5  met, +6.8 %
2026-11-25 23:26  nightly-3  n01, n02           1400  in doubt: not alone
2026-11-26 23:26  nightly-4  n01, n02           1640  met, +9.3 %
device: NVIDIA H100; cpu: not recorded; driver: 580.65; kernel: not recorded
"""
    )
    (tmp_path / "platforms" / "mine.yaml").unlink()
    assert main(["table", "--committed", f"--site={tmp_path}"]) == 2
    assert "no platform has `committed:` values" in capsys.readouterr().err
