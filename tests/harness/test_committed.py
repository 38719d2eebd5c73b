"""Committed values in a session: no pin is needed, and a mistake in one is said before a job is submitted."""

from __future__ import annotations

import pytest

from platforms.job import Outcome
from reporting.history import reader
from tests.harness.conftest import Project
from tests.harness.test_gate import RATE

COMMITTED = """committed:
  - test: test_triad.py::test_triad[mine-1x2gpu]
    metric: rate
    value: at least 100 GB/s
    source: contract 3.2
    runs: 2
"""


@pytest.fixture
def committed(project: Project) -> Project:
    project.write("test_triad.py", RATE % {"name": "triad"})
    project.platform("mine", COMMITTED)
    return project


@pytest.mark.slow
def test_a_run_that_misses_a_committed_value_fails_and_two_that_meet_it_are_enough(
    committed: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("triad", "97")
    result = committed.pytest("-m", "mine")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "rate 97 GB/s is 3.0 % below the committed 100 (contract 3.2)",
            "*rate, at least 100 GB/s (contract 3.2): met in 0 of 2 consecutive runs so far; this run: missed, -3.0 %",
            "FAILED test_triad.py::test_triad* - rate 97 GB/s is 3.0 % below*",
        ]
    )
    (entry,) = reader.read(committed.path / "site/history")
    assert (entry.outcome, entry.sane, entry.eligible) == (Outcome.FAILED, True, True)
    monkeypatch.setenv("triad", "100")
    committed.pytest("-m", "mine").assert_outcomes(passed=1)
    result = committed.pytest("-m", "mine")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*: met in 2 consecutive runs; this run: met, +0.0 %"])


@pytest.mark.parametrize(
    ("was", "is_now", "says"),
    [
        ("test_triad.py::", "test_triads.py::", "there is no file */test_triads.py"),
        ("::test_triad[", "::test_copy[", "*/test_triad.py has no test 'test_copy'"),
        ("1x2gpu", "1x4gpu", "mine has no such layout: an id is as in test_triad[[]mine-1x2gpu]"),
    ],
)
def test_a_committed_value_of_no_test_is_refused(committed: Project, was: str, is_now: str, says: str) -> None:
    committed.platform("mine", COMMITTED.replace(was, is_now))
    said = f"*/mine.yaml:5: committed[[]0].test: {says}. Nothing was submitted"
    committed.refuses("-m", "mine", says=said)
    committed.refuses("-m", "mine", "--dry-run", says=said)


@pytest.mark.slow
def test_another_metric_is_said_by_the_next_session_before_its_test_ends(
    committed: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("triad", "100")
    committed.pytest("-m", "mine").assert_outcomes(passed=1)
    committed.platform("mine", COMMITTED.replace("metric: rate", "metric: rates"))
    result = committed.pytest("-m", "mine")
    result.assert_outcomes(failed=1)
    wrong = "*/mine.yaml:6: committed[[]0].metric: the test records no 'rates' (did you mean 'rate'?)"
    result.stdout.fnmatch_lines([wrong, "*FAILURES*", wrong])
