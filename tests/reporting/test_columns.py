"""Columns: words begin below each other, numbers end below each other."""

from __future__ import annotations

from reporting.columns import aligned


def test_columns() -> None:
    rows = [("job", "ran", "note"), ("a-long-name", "5", ""), ("b", "12.5 s", "x")]
    assert aligned(rows, {0, 2}) == ["job             ran  note", "a-long-name       5", "b            12.5 s  x"]
    assert aligned([("a", "b")], ()) == ["a  b"]
