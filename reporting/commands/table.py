"""`python -m reporting table`: what the history holds, as text, Markdown or CSV."""

from __future__ import annotations

import argparse
import datetime
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from platforms import atomic_file, checkout
from platforms.job import RefusedError
from platforms.printable import printable
from reporting.commands import answering
from reporting.commands.opened_site import OpenedSite, open_site
from reporting.commands.output_file import refuse_place
from reporting.commands.selection import add_words, selected
from reporting.commands.tonight import add_tonight, now_of, typed_date, until_tonight
from reporting.compare.scaling import scalings
from reporting.gate.committed import commitments
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.tables.anchors import beside
from reporting.tables.committed import committed_tables
from reporting.tables.grouped import Table, tables_of
from reporting.tables.history_rows import all_rows, latest_rows
from reporting.tables.markdown import markdown
from reporting.tables.row import Row
from reporting.tables.scaling import scaling_table
from reporting.tables.text import text
from reporting.tables.tidy import tidy

PAPER = 100  # columns of a printed page


def add_options(parser: argparse.ArgumentParser) -> None:
    add_words(parser)
    parser.add_argument("--all", action="store_true", help="all runs (default: the latest one of each test)")
    parser.add_argument(
        "--since", metavar="DATE", type=typed_date, help="all runs since the night of DATE, as 2026-11-17"
    )
    parser.add_argument("--anchors", action="store_true", help="show published numbers beside those that are like them")
    parser.add_argument(
        "--committed",
        action="store_true",
        help="one page to print: the runs that meet what a contract promises (`committed:` of the platforms' files)",
    )
    add_tonight(parser)
    parser.add_argument("--format", choices=("text", "markdown", "csv"), default="text")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write it to FILE (default: to the terminal)")


def main(options: argparse.Namespace) -> int:
    """Print or write the tables, and to stderr what cannot be read of the history and of the answers. Returns 0."""
    refuse_place(options.output, "table.txt")
    if options.committed and options.format == "csv":
        raise RefusedError("--committed: a page, so --format text or markdown")
    if options.anchors and options.format == "csv":
        raise RefusedError("--anchors: CSV has our own runs only; --format text and markdown show published numbers")
    site = open_site(options)
    problems: list[str] = []
    runs = selected(site, options.selection, problems, visits=False)
    envelopes = until_tonight(runs, options, site)
    if options.committed:
        content, written = _committed(site, envelopes, options, problems), f"page written to {options.output}"
    else:
        rows = _rows(site, envelopes, options, problems)
        if not rows:
            raise RefusedError(f"{site.history}: {_why_empty(site, envelopes, options.since)}")
        first, night_ends = options.since or datetime.date.min, site.settings.night_ends
        shown = [envelope for envelope in envelopes if night_of(envelope.time_s, night_ends) >= first]
        content, written = _content(rows, shown, site, options), f"runs written to {options.output}: {len(rows)}"
    if options.output is None:
        print(content, end="")
        sys.stdout.flush()
    else:
        atomic_file.write_text(options.output, content)
        print(written, file=sys.stderr)
    answering.warn(problems)
    return 0


def _content(rows: Sequence[Row], shown: Sequence[Envelope], site: OpenedSite, options: argparse.Namespace) -> str:
    if options.format == "csv":
        return tidy(rows, site.settings.night_ends)
    return _page([*_tables(rows, options), *map(scaling_table, scalings(shown))], options, None)


def _page(tables: Sequence[Table], options: argparse.Namespace, width: int | None) -> str:
    """Tables as text or Markdown. `width`: columns where they are not shown in a terminal."""
    if options.format == "markdown":
        return "\n".join([*markdown(tables), ""])
    if options.output is None and sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    return "\n".join([*map(printable, text(tables, width)), ""])


def _committed(
    site: OpenedSite, envelopes: Sequence[Envelope], options: argparse.Namespace, problems: list[str]
) -> str:
    """The page of the committed values of all platforms. Raises RefusedError where there are none."""
    _, platforms = checkout.load(site.folder)
    for mistakes in platforms.mistakes.values():
        problems.extend(mistakes)
    chosen = [
        one for one in commitments(platforms.values()) if all(word in one.keys.test for word in options.selection)
    ]
    if not chosen:
        raise RefusedError("no platform has `committed:` values of such tests (docs/platforms.md)")
    title = f"Committed values of {site.settings.name}, {now_of(options, site).date()}"
    return f"{title}\n\n{_page(list(committed_tables(chosen, envelopes)), options, PAPER)}"


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
