"""`python -m reporting trend [WORD…]`: pictures of the nights in the terminal: one test large, many in a line each."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from reporting.commands import answering
from reporting.commands.reported import add_report, report_of
from reporting.report.display import display_of
from reporting.report.trend_text import many_tests, one_test


def add_options(parser: argparse.ArgumentParser) -> None:
    add_report(parser)


def main(options: argparse.Namespace) -> int:
    """Print the picture of one test, or a line for each of several. Returns 0."""
    reported = report_of(options)
    report = reported.report
    exact = tuple(test for test in report.tests if [test.id] == options.selection)
    if exact:
        report = replace(report, tests=exact)
    display = display_of(sys.stdout)
    if len(report.tests) == 1:
        lines = one_test(report, report.tests[0], display, reported.site.options)
    else:
        lines = many_tests(report, display)
    print("\n".join(lines))
    sys.stdout.flush()
    answering.warn(report.problems)
    return 0
