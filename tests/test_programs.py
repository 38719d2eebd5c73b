"""A program that the machine lacks costs the tests that need it, and the end of the session says which and how many."""

from __future__ import annotations

import pytest

NEEDS = """
import pytest
from tests.programs import require

@pytest.mark.parametrize("n", [1, 2])
def test_needs(n):
    require("sh", "nosuchprogram", install="apt-get install nosuch")

def test_needs_nothing():
    require("sh", install="")
"""


@pytest.fixture(autouse=True)
def session(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(NEEDS)


def test_the_end_counts_what_was_skipped_for_want_of_a_program(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HPC_ML_BENCH_REQUIRE_REAL", raising=False)
    result = pytester.runpytest_inprocess("-p", "tests.programs")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(["2 tests were skipped for want of nosuchprogram: apt-get install nosuch"])


def test_where_real_programs_are_required_the_tests_fail(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPC_ML_BENCH_REQUIRE_REAL", "1")
    result = pytester.runpytest_inprocess("-p", "tests.programs")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*nosuchprogram is not installed (apt-get install nosuch)*"])
