"""`python -m reporting ack TEST --ticket URL --until DATE`: the regression is known; the pin stays."""

from __future__ import annotations

import argparse
import datetime

from platforms.job import RefusedError
from reporting.commands import answering
from reporting.commands.opened_site import open_site
from reporting.gate.verdict import Kind
from reporting.phrases import percent, spaced
from reporting.references.answers import Acknowledgement, Author, References


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("test", metavar="TEST", help="the id of a test, or a part that only one id has")
    parser.add_argument("--ticket", metavar="URL", help="where it is dealt with")
    parser.add_argument("--until", metavar="DATE", help="the last night that is amber; then it is red again")
    parser.add_argument("--end", action="store_true", help="end the acknowledgement that is in force")
    parser.add_argument("--metric", metavar="NAME", help="which metric, if the test has several")
    answering.add_by(parser)


def main(options: argparse.Namespace) -> int:
    """Acknowledge a regression, or end that. Raises BenchError."""
    author = answering.author_of(options)
    if options.end and (options.ticket or options.until):
        raise RefusedError("--end ends the acknowledgement now: it goes without --ticket and --until")
    if not options.end and not (options.ticket and options.until):
        raise RefusedError("ack needs --ticket URL and --until DATE (or --end, which ends an acknowledgement)")
    opened = open_site(options)
    tonight = answering.night_at(opened, author.at)
    test, envelopes = answering.runs_of_test(opened, options.test)
    metric = answering.metric_of(options.metric, test, envelopes)
    references = answering.references_of(opened)
    if options.end:
        answer = _ended(test, metric, references, tonight, author)
        print(f"{test}: the acknowledgement is over; tonight it is red if it is worse than its pin")
    else:
        until = answering.coming("--until", options.until, tonight, answering.NIGHT)
        verdict = answering.last_verdict(metric, envelopes, references, opened)
        if not verdict.red and verdict.kind is not Kind.ACKNOWLEDGED:
            raise RefusedError(f"{test}: there is nothing to acknowledge: the last run is {verdict.short}")
        change = verdict.worst or 0.0
        answer = Acknowledgement(test, metric, answering.text_of("--ticket", options.ticket), until, change, author)
        print(f"{test}: {spaced(metric)} is {verdict.short}")
        print(f"  amber until the night of {until}; red again if it becomes clearly worse than {percent(change)}")
    answering.write(opened, answer)
    return 0


def _ended(test: str, metric: str, references: References, tonight: datetime.date, author: Author) -> Acknowledgement:
    answer = references.acknowledgement(test, metric, tonight)
    if answer is None:
        raise RefusedError(f"{test}: no acknowledgement of {spaced(metric)} is in force")
    yesterday = tonight - datetime.timedelta(days=1)
    return Acknowledgement(test, metric, answer.ticket, yesterday, answer.change, author)
