"""Tables as Markdown, for an issue or a merge request."""

from __future__ import annotations

import re
from collections.abc import Sequence

from reporting.tables.grouped import Table


def markdown(tables: Sequence[Table]) -> list[str]:
    """Lines to write: of each table the title in bold, the table, and its notes as a list."""
    lines: list[str] = []
    for table in tables:
        lines += ["", f"**{_escaped(table.title)}**", "", *_table(table)]
        if table.notes:
            lines += ["", *(f"- {_escaped(note)}" for note in table.notes)]
    return lines[1:]


def _table(table: Table) -> list[str]:
    rules = [":---" if column in table.text_columns else "---:" for column in range(len(table.headings))]
    rows = [[_escaped(cell) for cell in row] for row in table.rows]
    return [f"| {' | '.join(cells)} |" for cells in (table.headings, rules, *rows)]


def _escaped(text: str) -> str:
    """Text that is shown as it is: no cell ends, nothing is set in italics, no person or issue is referred to."""
    return re.sub(r"([\\|`*<\[\]@#~$]|\b_|_\b)", r"\\\1", " ".join(text.split()))
