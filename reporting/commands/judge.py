"""`python -m reporting judge [WORD…]`: asks the gate about the latest run of each test; 1 if something is red."""

from __future__ import annotations

import argparse

from platforms.output import print_errors
from reporting.commands.judged import print_verdicts
from reporting.commands.opened_site import open_site
from reporting.commands.selection import selected


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "selection",
        metavar="WORD",
        nargs="*",
        help="only tests whose ids have all these words in them (default: all tests of the history)",
    )


def main(options: argparse.Namespace) -> int:
    """Print what the gate says. Returns 1 if something is red, or if a file of the history cannot be read."""
    site = open_site(options)
    problems: list[str] = []
    is_red = print_verdicts(site, selected(site, options.selection, problems), explain=True)
    return max(int(is_red), print_errors(problems))
