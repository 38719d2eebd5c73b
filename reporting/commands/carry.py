"""`python -m reporting carry TEST`: the pin of an old workload version becomes that of the new one, by their ratio."""

from __future__ import annotations

import argparse

from reporting.commands import accept, answering
from reporting.commands.opened_site import open_site
from reporting.gate import new_level


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("test", metavar="TEST", help="the id of a test, or a part that only one id has")
    parser.add_argument("--reason", metavar="TEXT", help="what has changed in the workload")
    parser.add_argument("--metric", metavar="NAME", help="which metric, if the test has several")
    answering.add_by(parser)


def main(options: argparse.Namespace) -> int:
    """Carry a pin over. Raises BenchError."""
    author = answering.author_of(options)
    opened = open_site(options)
    test, envelopes = answering.runs_of_test(opened, options.test)
    metric = answering.metric_of(options.metric, test, envelopes)
    references = answering.references_of(opened)
    level, reason = new_level.carried_level(metric, envelopes, references, opened.settings.night_ends)
    if options.reason is not None:
        reason = f"{answering.text_of('--reason', options.reason)}: {reason}"
    print(f"{test}: {metric.replace('_', ' ')} is {reason}")
    print("\n".join(accept.shown(level)))
    answering.write(opened, level.acceptance(reason, author))
    return 0
