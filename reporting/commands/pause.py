"""`python -m reporting pause NAME --until DATE --reason TEXT`: the tests of a platform, or one test, are skipped."""

from __future__ import annotations

import argparse
import datetime

from platforms import checkout
from platforms.job import RefusedError
from reporting.commands import answering
from reporting.commands.opened_site import OpenedSite, open_site
from reporting.commands.selection import nearest_of, one_of
from reporting.history import reader
from reporting.references.answers import Pause, References


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("name", metavar="NAME", help="a platform, the id of a test, or a part that only one id has")
    parser.add_argument("--until", metavar="DATE", help="the last day on which it is skipped")
    parser.add_argument("--reason", metavar="TEXT", help="why; it is shown with each skipped test")
    parser.add_argument("--end", action="store_true", help="end the pause that is in force")
    answering.add_by(parser)


def main(options: argparse.Namespace) -> int:
    """Pause tests, or end that. Raises BenchError."""
    author = answering.author_of(options)
    if options.end and (options.until or options.reason):
        raise RefusedError("--end ends the pause now: it goes without --until and --reason")
    if not options.end and not (options.until and options.reason):
        raise RefusedError("pause needs --until DATE and --reason TEXT (or --end, which ends a pause)")
    opened = open_site(options)
    today = author.at.date()
    if options.end:
        pause = _in_force(options.name, answering.references_of(opened), today)
        answer = Pause(pause.name, today - datetime.timedelta(days=1), pause.reason, author)
        print(f"{pause.name}: the pause is over")
    else:
        until = answering.coming("--until", options.until, today)
        reason = answering.text_of("--reason", options.reason)
        answer = Pause(_name(opened, options.name), until, reason, author)
        print(f"{answer.name}: skipped until {until}, that day included: {reason}")
    answering.write(opened, answer)
    return 0


def _in_force(typed: str, references: References, today: datetime.date) -> Pause:
    """The pause that is meant. Raises RefusedError."""
    last = {pause.name: pause for pause in references.pauses}
    names = [name for name, pause in last.items() if pause.until >= today]
    if typed in names:
        return last[typed]
    if not any(typed in name for name in names):
        raise RefusedError(f"no pause of {typed!r} is in force")
    return last[one_of([typed], names)]


def _name(opened: OpenedSite, typed: str) -> str:
    """The platform or test that is meant. Raises RefusedError."""
    of_site = opened.history, opened.settings.name
    platforms, tests = checkout.file_names(opened.folder) | reader.platforms(*of_site), reader.tests(*of_site)
    if typed in platforms | tests:
        return typed
    like_a_platform = any(typed in platform for platform in platforms)
    if like_a_platform or not any(typed in test for test in tests):  # who mistypes a platform means no test
        raise RefusedError(f"there is no platform or test {typed!r} {nearest_of(typed, platforms | tests)}")
    return one_of([typed], tests)
