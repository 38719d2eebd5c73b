"""Words that mean one test: what is said where several have them."""

from __future__ import annotations

import pytest

from platforms.job import RefusedError
from reporting.commands.selection import NAMED, one_of


@pytest.mark.parametrize(("several", "more"), [(2, ""), (NAMED, ""), (NAMED + 1, "\n  and 1 more")])
def test_of_several_tests_the_first_ones_are_named(several: int, more: str) -> None:
    tests = [f"test_a.py::test_a[n{number:02}]" for number in range(several)]
    with pytest.raises(RefusedError) as refused:
        one_of(["test_a"], tests)
    assert str(refused.value).endswith(f"'{tests[min(several, NAMED) - 1]}'{more}")
    assert one_of(["n01"], tests) == tests[1]
