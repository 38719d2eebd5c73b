"""Which runs the gate's explanation compares: those that lie surely before and surely since the start of a change."""

from __future__ import annotations

from typing import Any

import pytest

from reporting.gate.explanation import around


@pytest.mark.parametrize(
    ("start", "before", "since"),
    [
        (15, range(5, 12), range(18, 20)),
        (8, range(0, 5), range(11, 20)),
        (2, range(0, 2), range(5, 20)),
        (18, range(8, 15), range(19, 20)),
        (19, range(12, 19), range(19, 20)),
    ],
)
def test_runs_near_the_start_of_a_change_are_left_out(start: int, before: range, since: range) -> None:
    runs: list[Any] = list(range(20))
    assert around(runs, start) == (list(before), list(since))
