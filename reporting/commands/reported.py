"""What every command that makes something of a report reads: the site, its history, and the `ReportData` of both."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from platforms.job import RefusedError
from reporting.commands import answering
from reporting.commands.opened_site import OpenedSite, open_site
from reporting.commands.selection import WORDS, add_words, selected
from reporting.commands.tonight import add_tonight, end_of_tonight, now_of, until_tonight
from reporting.history.endings import endings_in
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.report.build import build
from reporting.report.data import ReportData
from reporting.report.totals import Totals, totals_of


@dataclass(frozen=True)
class Reported:
    """A site, and the report of the tests that were asked for. Its `problems` are for stderr, too."""

    site: OpenedSite
    report: ReportData


def add_report(parser: argparse.ArgumentParser, words: str = WORDS) -> None:
    """Declare the words that choose tests, with their help, and `--tonight`: what `report_of` reads."""
    add_words(parser, words)
    add_tonight(parser)


def add_month(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare `--month`, which `report_of` reads."""
    parser.add_argument("--month", metavar="YYYY-MM", type=_month, help=f"{what} what the month was")


def _month(word: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(f"{word}-01")
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is no month: write it as in 2026-11") from None


def report_of(options: argparse.Namespace) -> Reported:
    """The report of the tests that the options choose. Raises RefusedError if there is none."""
    site = open_site(options)
    problems: list[str] = []
    month = getattr(options, "month", None)  # only some commands tell a month
    envelopes, totals = _with_visits(options, site, problems) if month else _of_all(options, site, problems)
    settings = site.settings
    now = now_of(options, site)
    if month is not None:
        _refuse_empty(month, envelopes, site)
    report = build(
        envelopes,
        site.references(),
        settings.name,
        settings.night_ends,
        now,
        problems,
        options=site.options,
        made_at=answering.now(),
        ending=endings_in(site.history, problems),
        month=month,
        totals=totals,
    )
    return Reported(site, report)


def _of_all(options: argparse.Namespace, site: OpenedSite, problems: list[str]) -> tuple[list[Envelope], Totals | None]:
    """The jobs that are no visits, and the totals of all."""
    words = options.selection
    said: list[str] = []
    try:
        chosen = selected(site, words, said, visits=False)
        envelopes = until_tonight(chosen, options, site)
    except RefusedError:  # these tests may have visits alone
        return _with_visits(options, site, problems)
    problems += said
    are_ids = {envelope.key.test for envelope in chosen} == set(words)

    def is_wanted(like: Envelope) -> bool:
        test = like.key.test
        return test in words if are_ids else all(word in test for word in words)

    return envelopes, site.measured(totals_of, [], is_wanted=is_wanted, before_s=end_of_tonight(options, site))


def _with_visits(
    options: argparse.Namespace, site: OpenedSite, problems: list[str]
) -> tuple[list[Envelope], Totals | None]:
    return until_tonight(selected(site, options.selection, problems), options, site), None


def _refuse_empty(month: datetime.date, envelopes: Sequence[Envelope], site: OpenedSite) -> None:
    """Raise RefusedError for a month in which these tests have no job."""
    months = sorted({night_of(job.time_s, site.settings.night_ends).replace(day=1) for job in envelopes})
    if month not in months:
        runs = f"these tests have runs from {months[0]:%Y-%m} to {months[-1]:%Y-%m}"
        raise RefusedError(f"--month: {site.history}: no run in {month:%Y-%m}; {runs}")
