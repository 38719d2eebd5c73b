"""Tables for a terminal or a log. Where one row does not fit into one line, it takes two, and remains aligned."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from reporting.columns import aligned
from reporting.tables.grouped import WARNINGS, Table

GAP = "  "
LEAST_WIDTH = 20  # of a column that is wrapped: in a narrower one most words would stand alone


def text(tables: Sequence[Table], width: int | None = None) -> list[str]:
    """Lines to print, with a blank line between two tables.

    Args:
        width: columns of the terminal; None for a log, whose lines may be long.
    """
    lines: list[str] = []
    for table in tables:
        lines += ["", *_lines(table, width)]
    return lines[1:]


def _lines(table: Table, width: int | None) -> list[str]:
    head, *rows = aligned([table.headings, *table.rows], table.text_columns)
    body = [head, "-" * len(head), *rows]
    if width is None:
        return [table.title, *body, *table.notes]
    shared: list[str] = []
    if max(map(len, body)) > width:
        table, shared = _without_shared_columns(table)
        head, *rows = aligned([table.headings, *table.rows], table.text_columns)
        body = [head, "-" * len(head), *rows]
    if max(map(len, body)) > width:
        body = _two_lines_a_row(table, width)
    above = [line for paragraph in (table.title, *shared) for line in textwrap.wrap(paragraph, width)]
    below = [line for note in table.notes for line in textwrap.wrap(note, width, subsequent_indent="    ")]
    return [*above, *body, *below]


def _without_shared_columns(table: Table) -> tuple[Table, list[str]]:
    """The table without what all of its rows say of themselves in the same words, and a line that says it once."""
    if len(table.rows) < 2:
        return table, []
    shared = [column for column in range(table.identity) if len({row[column] for row in table.rows}) == 1]
    if not shared:
        return table, []
    kept = [column for column in range(len(table.headings)) if column not in shared]
    smaller = replace(
        table,
        headings=tuple(table.headings[column] for column in kept),
        rows=tuple(tuple(row[column] for column in kept) for row in table.rows),
        identity=table.identity - len(shared),
    )
    said = ", ".join(f"{table.headings[column]} {table.rows[0][column]}" for column in shared)
    return smaller, [f"all rows: {said}"]


def _two_lines_a_row(table: Table, width: int) -> list[str]:
    """Say in one line which run a row is, with the marks of its warnings, and its numbers in the next one.

    The headings stand in the same order. One that is wider than its column takes two lines. The last column is wrapped,
    unless it is one of numbers. Where no room is left for it, it has lines of its own.
    """
    columns = [column for column in range(table.identity, len(table.headings)) if table.headings[column] != WARNINGS]
    last = columns[-1]
    is_wrapped = table.headings[last] not in table.numbers
    if is_wrapped:
        columns.remove(last)
    top = []
    bottom = []
    for column in columns:
        before, after = _heading(table.headings[column], [row[column] for row in table.rows])
        top.append(before)
        bottom.append(after)
    cells = [[row[column] for column in columns] for row in table.rows]
    text_columns = [place for place, column in enumerate(columns) if table.headings[column] not in table.numbers]
    above, below, *numbers = aligned([top, bottom, *cells], text_columns)
    indent = max(map(len, [above, below, *numbers])) + len(GAP)
    is_beside = width - indent >= LEAST_WIDTH
    if is_wrapped and is_beside:
        below = f"{below:<{indent}}{table.headings[last]}"
    lines = textwrap.wrap(", ".join(table.headings[: table.identity]), width)
    lines += filter(None, [above, below])
    if is_wrapped and not is_beside:
        lines.append(GAP + table.headings[last])
    lines.append("-" * width)
    previous = ""
    for row, number_line in zip(table.rows, numbers, strict=True):
        who = _who(table, row)
        if who != previous:
            lines += textwrap.wrap(who, width, subsequent_indent=GAP)
            previous = who
        at_end = row[last] if is_wrapped else ""
        if is_beside:
            wrapped = textwrap.wrap(at_end, width - indent) or [""]
            lines.append(f"{number_line:<{indent}}{wrapped[0]}".rstrip())
            lines += [f"{'':<{indent}}{more}" for more in wrapped[1:]]
        else:
            lines.append(number_line)
            lines += textwrap.wrap(at_end if at_end != "-" else "", width, initial_indent=GAP, subsequent_indent=GAP)
    return lines


def _heading(heading: str, cells: Sequence[str]) -> tuple[str, str]:
    """The two lines of a heading; the first one is empty if it is no wider than its column."""
    if len(heading) <= max(map(len, cells)):
        return "", heading
    before, _, after = heading.rpartition(" ")
    return before, after


def _who(table: Table, row: Sequence[str]) -> str:
    """Which run a row is, in one text, with the marks of its warnings."""
    named = [cell for cell in row[: table.identity] if cell not in ("-", "unknown")]
    if table.headings[-1] != WARNINGS or row[-1] == "none":
        return ", ".join(named)
    return f"{', '.join(named)} {row[-1]}"
