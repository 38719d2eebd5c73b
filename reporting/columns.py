"""Aligns the columns of a table."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], text_columns: Collection[int]) -> list[str]:
    """A line for each row. Text columns are aligned to the left, the others, numbers, to the right.

    All rows have the same number of cells.
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for column, cell in enumerate(row):
            pad = cell.ljust if column in text_columns else cell.rjust
            cells.append(pad(widths[column]))
        lines.append("  ".join(cells).rstrip())
    return lines
