"""`python -m reporting judge [TEST…]`: asks the gate about the last run of each test; 1 if something is red."""

from __future__ import annotations

import argparse

from reporting.commands.judged import print_verdicts
from reporting.commands.opened_site import open_site


def add_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("tests", nargs="*", metavar="TEST", help="ids of tests (default: all tests of the history)")


def main(options: argparse.Namespace) -> int:
    """Print what the gate says. Returns 1 if something is red."""
    return 1 if print_verdicts(open_site(options), options.tests or None, explain=True) else 0
