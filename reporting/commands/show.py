"""`python -m reporting show`: the nights of one test, and all that the gate says of the last one."""

from __future__ import annotations

import argparse
import shutil
import sys

from platforms.job import RefusedError
from platforms.output import print_errors
from platforms.printable import printable
from reporting.commands import answering
from reporting.commands.opened_site import open_site
from reporting.commands.selection import of_one_test
from reporting.commands.tonight import add_tonight, now_of, until_tonight
from reporting.gate.tonight import judge_tonight
from reporting.history.endings import endings_in
from reporting.tables.history_rows import by_test, tried_in_vain
from reporting.tables.nights import night_tables
from reporting.tables.text import text

RUNS = 30


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "test",
        metavar="TEST",
        nargs="+",
        help="the id of a test, or words that only its id has in it, such as a platform and a benchmark",
    )
    parser.add_argument("--runs", metavar="N", type=int, default=RUNS, help=f"the last N runs (default: {RUNS})")
    add_tonight(parser)
    parser.add_argument("--metric", metavar="NAME", help="only this metric (default: all of the test)")
    parser.add_argument("--all", action="store_true", help="all runs")


def main(options: argparse.Namespace) -> int:
    """Print the tables, then the whole text of the verdict. Returns 1 if a file cannot be read."""
    if options.runs < 1:
        raise RefusedError(f"--runs: {options.runs} is less than 1 (--all shows all runs)")
    site = open_site(options)
    problems: list[str] = []
    envelopes = until_tonight(of_one_test(site, options.test, problems), options, site)
    references = site.references()
    night_ends = site.settings.night_ends
    now = now_of(options, site)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    tests = by_test(envelopes)
    if not tests and tried_in_vain(envelopes):
        raise RefusedError(
            f"{envelopes[0].key.test}: its platform's file says that it cannot run there; it was tried, and no job "
            "recorded a number"
        )
    if not tests:
        raise RefusedError(
            f"{envelopes[0].key.test}: its runs are of campaigns, visits or A/B runs, which are in no series; "
            "`python -m reporting compare LABEL LABEL` compares those with --label"
        )
    for test, runs in tests.items():
        shown = options.runs
        if options.all:
            shown = len(runs)
        metric = None if options.metric is None else answering.metric_of(options.metric, test, runs)
        ending = endings_in(site.history, problems)
        tables = night_tables(runs, shown, references, night_ends, metric, ending)
        if not tables:
            raise RefusedError(f"{test}: no job of it in the history has numbers; the last one: {ending(runs[-1])}")
        for line in text(tables, width):
            print(printable(line))
        last = [run for run in runs if run.sane][-1]
        verdicts = judge_tonight(last, runs, references, night_ends, now, options=site.options)
        for verdict in verdicts.values():
            if metric not in (None, verdict.metric):
                continue
            print()
            print("\n".join(map(printable, verdict.text.splitlines())))
    sys.stdout.flush()
    return print_errors([*problems, *references.problems])
