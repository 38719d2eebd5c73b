"""Suspect runs are repeated in their session: on this machine, where there is one node, and for many tests at once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from platforms.job import Outcome, Role
from reporting.__main__ import main
from reporting.history.envelope import Envelope
from tests.harness.conftest import Project
from tests.harness.test_gate import CALM, RateSeries
from tests.waiting import until

COUNTING = """
import pytest
from platforms.results import numbers

# The n-th job of this test prints the n-th rate of the file.
PROGRAM = '''
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
rates = (folder / "rates").read_text().split()
number = len(list(folder.glob("job-*")))
(folder / f"job-{number}").touch()
while (folder / "gate").exists() and number: time.sleep(0.05)
print("rate:", rates[number])
'''

@pytest.mark.workload(command=["{python}", "-c", PROGRAM, "{root}/counter"])
def test_triad(run, record):
    rate, = numbers(run.log, r"rate: (.+)")
    record(run, metrics={"rate": (rate, "GB/s", "higher")})
"""


class CountingSeries(RateSeries):
    """A test whose jobs print one rate after the other, and its twenty calm nights."""

    def __init__(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(project, monkeypatch)
        project.write("test_triad.py", COUNTING)
        self.tell(100.0)
        self.past(CALM)

    def tell(self, *rates: float) -> None:
        for path in (self.project.path / "counter").glob("job-*"):
            path.unlink()
        self.project.write("counter/rates", " ".join(map(str, rates)))

    def tonight(self) -> list[Envelope]:
        return [entry for entry in self.entries() if not entry.key.run_id.startswith("night-")]


@pytest.fixture
def series(project: Project, monkeypatch: pytest.MonkeyPatch) -> CountingSeries:
    return CountingSeries(project, monkeypatch)


def test_a_run_whose_repeat_is_normal_passes_and_is_marked(
    series: CountingSeries, capsys: pytest.CaptureFixture[str]
) -> None:
    series.tell(89.0, 99.5)
    result = series.run("--benchmark-json=saved.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_triad*: rate: transient: -11.0 %, then -0.5 %*"])
    first, again = series.tonight()
    assert (first.trial.role, first.outcome, first.metrics["rate"].value) == (Role.MEASURE, Outcome.PASSED, 89.0)
    assert (again.trial.key, again.outcome, again.metrics["rate"].value) == ("confirm-1", Outcome.PASSED, 99.5)
    assert (first.verdicts["rate"]["kind"], first.verdicts["rate"]["red"]) == ("transient", False)
    assert again.verdicts == {}
    (saved,) = json.loads((series.project.path / "saved.json").read_text())["benchmarks"]
    assert saved["stats"]["rounds"] == 1  # the repeat is no part of what was measured
    capsys.readouterr()
    assert main(["judge", f"--site={series.project.path}/site"]) == 0  # the command says what the session has said
    assert "transient: -11.0 %, then -0.5 %" in capsys.readouterr().out


def test_a_run_that_is_slow_again_fails_its_test(series: CountingSeries) -> None:
    series.tell(89.0, 88.0)
    result = series.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            *("*rate 89.0 GB/s is 11.* % below its pin*", "*It is slow again, -12.* %, in a repeat*no other node*"),
            *("*this run * 89.0 GB/s*slow*", "*confirm-1 * 88.0 GB/s*slow*", "FAILED *rate: -11.*"),
        ]
    )
    first, again = series.tonight()
    assert (first.outcome, first.verdicts["rate"]["kind"]) == (Outcome.FAILED, "slower")
    assert (again.outcome, again.sane) == (Outcome.PASSED, True)


def test_a_regression_that_is_known_is_not_repeated_every_night(series: CountingSeries) -> None:
    series.tell(89.0, 88.0)
    series.run().assert_outcomes(failed=1)
    series.recede()
    series.tell(88.5, 100.0)
    series.run().assert_outcomes(failed=1)
    assert len(series.tonight()) == 3


def test_a_run_that_is_normal_costs_no_repeat(series: CountingSeries) -> None:
    series.tell(99.0)
    series.run().assert_outcomes(passed=1)
    assert len(series.tonight()) == 1


@pytest.mark.parametrize("words", [["--gate=off"], ["--repeat=2"]])
def test_nothing_is_confirmed_without_the_gate_or_beside_repeats(series: CountingSeries, words: list[str]) -> None:
    series.tell(89.0, 89.0)
    series.run(*words)
    assert {entry.trial.role for entry in series.tonight()} == {Role.MEASURE}


@pytest.mark.parametrize(("rate", "failed"), [(94.0, False), (85.0, True)])
def test_a_repeat_that_fails_leaves_a_suspect_that_is_red_only_if_it_is_large(
    series: CountingSeries, rate: float, failed: bool
) -> None:
    series.tell(rate)  # the second job finds no rate
    result = series.run()
    result.assert_outcomes(passed=not failed, failed=failed)
    result.stdout.fnmatch_lines(["*suspect: -*confirm-1 has no numbers: exited with an error*"])
    assert series.tonight()[0].verdicts["rate"]["kind"] == "suspect"


def test_require_fails_a_suspect(series: CountingSeries) -> None:
    series.tell(94.0)
    series.run("--gate=require").assert_outcomes(failed=1)


def test_a_confirmation_is_found_again_after_its_session_was_killed(series: CountingSeries) -> None:
    series.tell(89.0, 99.5)
    gate = series.project.write("counter/gate", "")
    command = [sys.executable, "-m", "pytest", "--run-id=night"]
    with subprocess.Popen(command, cwd=series.project.path, stdout=subprocess.DEVNULL) as session:
        try:
            until(lambda: (series.project.path / "counter/job-1").exists())
        finally:
            session.kill()
    gate.unlink()
    result = series.run("--resume=night")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*rate: transient: -11.0 %, then -0.5 %*"])
    assert len(list((series.project.path / "counter").glob("job-*"))) == 2
    assert [entry.trial.key for entry in series.tonight()] == ["", "confirm-1"]
