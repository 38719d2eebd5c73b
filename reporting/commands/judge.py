"""`python -m reporting judge [WORD…]`: asks the gate about the latest run of each test; 1 if something is red."""

from __future__ import annotations

import argparse

from reporting.commands import answering
from reporting.commands.judged import judged_tests, print_judged
from reporting.commands.opened_site import open_site
from reporting.commands.selection import add_words, selected
from reporting.commands.tonight import add_tonight, now_of, until_tonight
from reporting.gate.verdict import Kind


def add_options(parser: argparse.ArgumentParser) -> None:
    add_words(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="show the rows that are ok or learning, too")
    parser.add_argument(
        "--require",
        action="store_true",
        help="end with 1 also if a series is blind or has no pin, or if a part of the history cannot be read",
    )
    add_tonight(parser)


def main(options: argparse.Namespace) -> int:
    """Print what the gate says. Returns 1 if something is red, and with `--require` if something is not judged."""
    site = open_site(options)
    problems: list[str] = []
    runs = selected(site, options.selection, problems, visits=False)
    envelopes = until_tonight(runs, options, site)
    judged = judged_tests(site, envelopes, now_of(options, site), problems)
    print_judged(judged, site, explain=True, verbose=options.verbose)
    answering.warn(problems)
    if any(verdict.red for verdict in judged.verdicts):
        return 1
    is_blind = any(verdict.blind for verdict in judged.verdicts) or bool(judged.without_numbers)
    has_no_pin = any(not verdict.pinned for verdict in judged.verdicts if verdict.kind is not Kind.PAUSED)
    return int(options.require and (is_blind or has_no_pin or bool(problems)))
