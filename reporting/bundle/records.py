"""What a bundle holds of each run, and the tables that follow from it. `bundle` writes them, `verify` makes them again.

The tables are those of `python -m reporting table`, without the verdicts: a verdict depends on other runs, which are
not in the bundle. Times are in UTC, so that they are the same wherever the tables are made.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from platforms.job import Run
from platforms.printable import printable
from platforms.rundir import job_json
from reporting.history.envelope import Envelope
from reporting.history.envelope_json import from_line, to_line
from reporting.history.run_facts import envelope_of
from reporting.tables.grouped import Table, tables_of
from reporting.tables.history_rows import doubt_remarks, place_in_tables, run_without_record
from reporting.tables.markdown import markdown
from reporting.tables.row import Row
from reporting.tables.text import text
from reporting.tables.tidy import tidy

CONTENTS = "contents.json"
TABLES = ("tables/tables.txt", "tables/tables.md", "tables/tables.csv")
RUN_JSON, LINE, WIRE, LOG = "run.json", "history.json", "wire.log", "log"
STEPS = "steps-rank{rank}.csv"


@dataclass(frozen=True)
class RunRecord:
    """One run of a bundle.

    Attributes:
        folder: in the bundle, as in `jobs/20261123-041727-5bf2/test_resnet50-local-1x1cpu-gbs32`.
        content: of its run.json; empty for an imported run, which has none.
        envelope: its line of the history, without verdicts.
        ranks: of how many ranks the steps are there.
        has_wire: whether the lines of the wire are there.
        script: the rendered job, or the manifest; "" if it is not there.
        missing: what a complete bundle would have of it, each a sentence.
    """

    folder: str
    content: Mapping[str, Any]
    envelope: Envelope
    ranks: int = 0
    has_wire: bool = False
    script: str = ""
    missing: tuple[str, ...] = ()

    @property
    def run(self) -> Run:
        """The run. Raises KeyError, ValueError and TypeError if its run.json cannot be read."""
        return job_json.run_from(self.content) if self.content else run_without_record(self.envelope)


def recomputed_envelope(content: Mapping[str, Any], like: Envelope) -> Envelope:
    """The line of the history that follows from a run.json. `like` has what only the history knows of the run."""
    return envelope_of(
        content,
        site=like.key.site,
        run_id=like.key.run_id,
        attempt=like.key.attempt,
        outcome=like.outcome,
        sane=like.sane,
        revision=like.revision,
        written_s=like.written_s,
    )


def line_text(envelope: Envelope) -> str:
    """An envelope as it stands in a bundle: one key a line."""
    content = json.loads(to_line(envelope))
    return "{\n" + ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items()) + "\n}\n"


def parsed_line(content: bytes) -> Envelope:
    """Read what `line_text` has written. Raises ValueError."""
    return from_line(json.dumps(json.loads(content)).encode())


def rows_of_records(records: Sequence[RunRecord]) -> list[Row]:
    """A row for each run, in the order of the tables."""
    rows = [
        Row(record.run, {}, record.envelope, tuple(doubt_remarks(record.envelope)), zone=datetime.UTC)
        for record in records
    ]
    return sorted(rows, key=place_in_tables)


def shown_tables(records: Sequence[RunRecord]) -> list[Table]:
    return tables_of(rows_of_records(records))


def table_files(records: Sequence[RunRecord]) -> dict[str, str]:
    """The texts of the tables, by the names of their files."""
    tables = shown_tables(records)
    contents = (
        "\n".join([*map(printable, text(tables)), ""]),
        "\n".join([*markdown(tables), ""]),
        tidy(rows_of_records(records), None),
    )
    return dict(zip(TABLES, contents, strict=True))
