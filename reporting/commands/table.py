"""`python -m reporting table`: what the history holds, as text, Markdown or CSV."""

from __future__ import annotations

import argparse
import datetime
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from platforms import atomic_file
from platforms.job import RefusedError
from platforms.printable import printable
from reporting.commands import answering
from reporting.commands.opened_site import OpenedSite, open_site
from reporting.commands.output_file import refuse_place
from reporting.commands.selection import selected
from reporting.commands.tonight import add_tonight, now_of, typed_date, until_tonight
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.tables.anchors import beside
from reporting.tables.grouped import Table, tables_of
from reporting.tables.history_rows import all_rows, latest_rows
from reporting.tables.markdown import markdown
from reporting.tables.row import Row
from reporting.tables.text import text
from reporting.tables.tidy import tidy


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "selection",
        metavar="WORD",
        nargs="*",
        help="only tests whose ids have all these words in them, such as a platform and a benchmark",
    )
    parser.add_argument("--all", action="store_true", help="all runs (default: the latest one of each test)")
    parser.add_argument(
        "--since", metavar="DATE", type=typed_date, help="all runs since the night of DATE, as 2026-11-17"
    )
    parser.add_argument("--anchors", action="store_true", help="show published numbers beside those that are like them")
    add_tonight(parser)
    parser.add_argument("--format", choices=("text", "markdown", "csv"), default="text")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write it to FILE (default: to the terminal)")


def main(options: argparse.Namespace) -> int:
    """Print or write the tables, and to stderr what cannot be read of the history and of the answers. Returns 0."""
    refuse_place(options.output, "table.txt")
    if options.anchors and options.format == "csv":
        raise RefusedError("--anchors: CSV has our own runs only; --format text and markdown show published numbers")
    site = open_site(options)
    problems: list[str] = []
    envelopes = until_tonight(selected(site, options.selection, problems), options, site)
    rows = _rows(site, envelopes, options, problems)
    if not rows:
        raise RefusedError(f"{site.history}: {_why_empty(site, envelopes, options.since)}")
    if options.format == "csv":
        content = tidy(rows, site.settings.night_ends)
    elif options.format == "markdown":
        content = "\n".join([*markdown(_tables(rows, options)), ""])
    else:
        width = None
        if options.output is None and sys.stdout.isatty():
            width = shutil.get_terminal_size().columns
        content = "\n".join([*map(printable, text(_tables(rows, options), width)), ""])
    if options.output is None:
        print(content, end="")
        sys.stdout.flush()
    else:
        atomic_file.write_text(options.output, content)
        print(f"runs written to {options.output}: {len(rows)}", file=sys.stderr)
    answering.warn(problems)
    return 0


def _tables(rows: Sequence[Row], options: argparse.Namespace) -> list[Table]:
    tables = tables_of(rows)
    if options.anchors:
        tables += beside(rows)
    return tables


def _why_empty(site: OpenedSite, envelopes: Sequence[Envelope], since: datetime.date | None) -> str:
    last = night_of(envelopes[-1].time_s, site.settings.night_ends)
    if since is not None and last < since:
        return f"no run since the night of {since}: the last one of these tests is of the night of {last}"
    if since is not None:
        return f"no job of these tests has numbers since the night of {since}"
    return "no job of these tests has numbers"


def _rows(
    site: OpenedSite, envelopes: Sequence[Envelope], options: argparse.Namespace, problems: list[str]
) -> list[Row]:
    night_ends = site.settings.night_ends
    now = now_of(options, site)
    references = site.references()
    problems.extend(references.problems)
    if options.all or options.since is not None:
        first = options.since or datetime.date.min
        return all_rows(site.history, envelopes, references, night_ends, now, problems, first=first)
    return latest_rows(site.history, envelopes, references, night_ends, now, problems)
