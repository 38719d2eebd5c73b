"""No test compares a measured duration or rate with a constant: a slow, busy or older machine would miss it.

Allowed are a ratio within one run, an order of events, a simulated clock, and as a lower bound of a duration a delay
that the test itself injects. A number that is none of a measurement says so on its line: `# not measured: …`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "time"}
DURATION = re.compile(r"(^|_)(s|ms|us|ns|seconds|elapsed|took|age|latency)$")
RATE = re.compile(r"(per_s|throughput|gflops|bandwidth)$")
CONSTANT = re.compile(r"[A-Z][A-Z_0-9]*$")
ALLOWED = "# not measured: "


def names(node: ast.expr) -> list[str]:
    """All names, attributes and keys of an expression."""
    found = []
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            found.append(each.id)
        elif isinstance(each, ast.Attribute):
            found.append(each.attr)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            found.append(each.value)
    return found


def is_constant(node: ast.expr) -> bool:
    """Whether an expression is made of numbers and of names in capitals, and is not 0, beside which all may stand."""
    if isinstance(node, ast.Constant) and node.value == 0:
        return False
    leaves = [each for each in ast.walk(node) if isinstance(each, ast.Constant | ast.Name | ast.Attribute | ast.Call)]
    return all(
        isinstance(each, ast.Constant) and isinstance(each.value, int | float)
        if not isinstance(each, ast.Name)
        else CONSTANT.match(each.id) is not None
        for each in leaves
    )


def is_clock(node: ast.expr) -> bool:
    """Whether an expression asks a clock, as `time.monotonic() - began`."""
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    return any(isinstance(func, ast.Attribute) and func.attr in CLOCKS for func in calls)


def refused(source: str) -> Iterator[int]:
    """The lines on which an assertion compares a measurement with a constant that another machine may miss."""
    lines = source.splitlines()
    for statement in ast.walk(ast.parse(source)):
        if not isinstance(statement, ast.Assert):
            continue
        for compared in (each for each in ast.walk(statement.test) if isinstance(each, ast.Compare)):
            sides = [compared.left, *compared.comparators]
            for left, operator, right in zip(sides, compared.ops, sides[1:], strict=False):
                if isinstance(operator, ast.Gt | ast.GtE):
                    small, large = right, left
                elif isinstance(operator, ast.Lt | ast.LtE):
                    small, large = left, right
                else:
                    continue
                is_rate = any(map(RATE.search, names(large)))
                too_long = is_constant(large) and (is_clock(small) or any(map(DURATION.search, names(small))))
                too_slow = is_constant(small) and is_rate
                if (too_long or too_slow) and ALLOWED not in lines[compared.lineno - 1]:
                    yield compared.lineno


@pytest.mark.slow
def test_no_measurement_is_compared_with_a_constant() -> None:
    found = {path.relative_to(TESTS): list(refused(path.read_text())) for path in TESTS.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        "assert time.monotonic() - began < 10",
        "assert 0 < status.run_s < 100",
        "assert found['step_ms'] < 500",
        "assert run.samples_per_s > 3.5",
        "assert LIMIT_S >= took",
    ],
)
def test_a_new_one_is_found(line: str) -> None:
    assert list(refused(line)) == [1]


@pytest.mark.parametrize(
    "line",
    [
        "assert found['copy_s'] >= 0.5",
        "assert first_s < second_s",
        "assert window_s < 1.01 * later_s",
        "assert summary['samples_per_s'] > 0",
        "assert lag_s < 3  # not measured: recorded",
        "deadline = time.monotonic() + 60",
    ],
)
def test_a_ratio_an_injected_delay_and_a_recorded_number_are_none(line: str) -> None:
    assert list(refused(line)) == []
