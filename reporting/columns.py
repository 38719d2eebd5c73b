"""Rows of cells as lines whose columns stand below each other."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], words: Collection[int]) -> list[str]:
    """A line a row, all rows being as long. The cells of the columns `words` begin below each other; those of the
    others, numbers, end below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_padded(row, widths, words)).rstrip() for row in rows]


def _padded(row: Sequence[str], widths: Sequence[int], words: Collection[int]) -> list[str]:
    return [
        cell.ljust(width) if column in words else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
