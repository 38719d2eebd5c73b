"""How the page writes numbers."""

from __future__ import annotations

import pytest

from reporting.report.page import words


@pytest.mark.parametrize(
    ("change", "text"), [(-0.084, "\N{MINUS SIGN}8.4"), (0.0213, "+2.1"), (-0.0004, "+0.0"), (1.0, "+100.0")]
)
def test_a_change_is_in_per_cent_with_its_sign(change: float, text: str) -> None:
    assert words.percent(change) == f"{text}{words.NARROW}%"


def test_a_change_that_is_not_known_is_no_zero() -> None:
    assert words.percent(None) == words.MISSING
