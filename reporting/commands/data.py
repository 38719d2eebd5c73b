"""`python -m reporting data [WORD…]`: what a report says, as JSON for other programs; `--schema` describes it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from platforms import atomic_file
from platforms.job import RefusedError
from reporting.commands import answering
from reporting.commands.output_file import refuse_place
from reporting.commands.reported import add_month, add_report, report_of
from reporting.report.report_json import json_schema, to_json


def add_options(parser: argparse.ArgumentParser) -> None:
    add_report(parser)
    add_month(parser, "also")
    parser.add_argument("--schema", action="store_true", help="write the JSON Schema of a report, and read no history")
    parser.add_argument(
        "-o", "--output", metavar="FILE.json", type=Path, help="write it to FILE (default: to the terminal)"
    )


def main(options: argparse.Namespace) -> int:
    """Write the data of a report, or its schema. Returns 0."""
    refuse_place(options.output, "report.json")
    if options.schema:
        if options.selection:
            raise RefusedError(f"--schema: {options.selection[0]!r}: the schema is the same for all tests")
        _write(options.output, json.dumps(json_schema(), indent=1).encode() + b"\n")
        return 0
    report = report_of(options).report
    _write(options.output, to_json(report))
    answering.warn(report.problems)
    return 0


def _write(output: Path | None, content: bytes) -> None:
    if output is None:
        sys.stdout.write(content.decode())
        sys.stdout.flush()
    else:
        atomic_file.write_bytes(output, content, mode=0o644)
        print(f"written to {output}", file=sys.stderr)
