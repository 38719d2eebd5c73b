"""`python -m reporting anchors`: the numbers that others have published for our benchmarks."""

from __future__ import annotations

import argparse
import shutil
import sys

from platforms.job import RefusedError
from reporting.anchors.catalogue import anchors
from reporting.tables.markdown import markdown
from reporting.tables.published import anchor_tables
from reporting.tables.text import text


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("benchmark", metavar="BENCHMARK", nargs="?", help="only this one (default: all)")
    parser.add_argument("--format", choices=("text", "markdown"), default="text")


def main(options: argparse.Namespace) -> int:
    """Print the tables."""
    chosen = [anchor for anchor in anchors() if options.benchmark in (None, anchor.benchmark)]
    if not chosen:
        known = ", ".join(sorted({anchor.benchmark for anchor in anchors()}))
        raise RefusedError(f"there are no published numbers for {options.benchmark!r}; there are some for: {known}")
    tables = anchor_tables(chosen)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    lines = markdown(tables) if options.format == "markdown" else text(tables, width)
    print("\n".join(lines))
    return 0
