"""Which platforms an -m expression names by the marks of their files."""

from __future__ import annotations

import pytest

from harness.naming import is_named_by_marks
from platforms.config.schema import Platform

PLATFORM = Platform.model_validate(
    {"name": "mine", "scheduler": "local", "device": "gpu", "layouts": {"default": ("1x1",)}, "marks": ("a100",)}
)


@pytest.mark.parametrize(
    "expression",
    ["mine", "a100", "a100 or h100", "a100 and not h100", "a100 and nightly", "(h100 or a100) and nightly"],
)
def test_named(expression: str) -> None:
    assert is_named_by_marks(expression, PLATFORM)


def test_of_a_hundred_names_it_is_said_at_once() -> None:
    names = " or ".join(f"p{number}" for number in range(100))
    assert not is_named_by_marks(names, PLATFORM)
    assert is_named_by_marks(f"({names} or a100) and nightly", PLATFORM)


@pytest.mark.parametrize(
    "expression", ["", "h100", "not h100", "not a100", "nightly", "not nightly", "h100 and nightly"]
)
def test_not_named(expression: str) -> None:
    assert not is_named_by_marks(expression, PLATFORM)
