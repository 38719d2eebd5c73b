"""What every command that makes something of a report reads: the site, its history, and the `ReportData` of both."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from reporting.commands import answering
from reporting.commands.opened_site import OpenedSite, open_site
from reporting.commands.selection import selected
from reporting.commands.tonight import add_tonight, now_of, until_tonight
from reporting.history.endings import endings_in
from reporting.report.build import build
from reporting.report.data import ReportData


@dataclass(frozen=True)
class Reported:
    """A site, and the report of the tests that were asked for. Its `problems` are for stderr, too."""

    site: OpenedSite
    report: ReportData


WORDS = "only tests whose ids have all these words in them, such as a platform and a benchmark"


def add_report(parser: argparse.ArgumentParser, words: str = WORDS) -> None:
    """Declare the words that choose tests, with their help, and `--tonight`: what `report_of` reads."""
    parser.add_argument("selection", metavar="WORD", nargs="*", help=words)
    add_tonight(parser)


def report_of(options: argparse.Namespace, *, with_sight: bool = True) -> Reported:
    """The report of the tests that the options choose. Raises RefusedError if there is none.

    Args:
        with_sight: say what the gate can see in each series. This takes most of the time.
    """
    site = open_site(options)
    problems: list[str] = []
    envelopes = until_tonight(selected(site, options.selection, problems), options, site)
    settings = site.settings
    now = now_of(options, site)
    report = build(
        envelopes,
        site.references(),
        settings.name,
        settings.night_ends,
        now,
        problems,
        options=site.options,
        with_sight=with_sight,
        made_at=answering.now(),
        ending=endings_in(site.history, problems),
    )
    return Reported(site, report)
