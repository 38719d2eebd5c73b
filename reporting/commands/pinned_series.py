"""The series that the last run of each test belongs to, with their pins: what `power` and `aa` look at."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from platforms.job import RefusedError
from platforms.output import print_errors
from platforms.printable import printable
from reporting.columns import aligned
from reporting.commands.opened_site import OpenedSite
from reporting.commands.selection import selected
from reporting.gate.estimates import Strictness
from reporting.gate.judge import strictness_of
from reporting.gate.series import Pin, Series, pin_of, series_of
from reporting.history.envelope import Envelope


@dataclass(frozen=True)
class PinnedSeries:
    """A series and what it is compared with; `pin` is None while it learns."""

    series: Series
    pin: Pin | None
    strictness: Strictness


def add_tests(parser: argparse.ArgumentParser) -> None:
    """Declare the words that choose tests, which `pinned_series` gets."""
    parser.add_argument(
        "selection",
        metavar="WORD",
        nargs="*",
        help="only tests whose ids have all these words in them; or ids of tests (default: all tests of the history)",
    )


def pinned_series(
    site: OpenedSite, words: Sequence[str], until: Callable[[Sequence[Envelope]], Sequence[Envelope]] = list
) -> list[PinnedSeries]:
    """The series of the tests that words choose, in order of tests and metrics. Prints what is wrong with the history.

    Args:
        words: all of them stand in the id of each test, or each one is the id of a test.
        until: chooses the runs that count, as those until a night.

    Raises RefusedError if they choose no test, or none with numbers.
    """
    problems: list[str] = []
    references = site.references()
    envelopes = site.read(words, problems) if words else []
    if not words or {envelope.key.test for envelope in envelopes} != set(words):
        problems.clear()
        envelopes = selected(site, words, problems)
    print_errors([*problems, *references.problems])
    envelopes = list(until(envelopes))
    last: dict[str, Envelope] = {}
    for envelope in envelopes:
        if envelope.has_numbers and envelope.trial.in_series:
            last[envelope.key.test] = envelope
    if not last:
        of_tests = f" of tests with {' and '.join(map(repr, words))} in their ids" if words else ""
        raise RefusedError(
            f"{site.history}: the history has no numbers{of_tests} yet (--history and --site name other ones)"
        )
    found = []
    for _test, like in sorted(last.items()):
        for metric in sorted(like.metrics):
            series = series_of(metric, like, envelopes, site.settings.night_ends)
            acceptance = references.acceptance(series.test, metric, series.comparability)
            found.append(PinnedSeries(series, pin_of(series, acceptance), strictness_of(references, len(like.metrics))))
    return found


def print_table(rows: list[tuple[str, ...]], text_columns: Collection[int]) -> None:
    """Print rows of cells, the first row being the headings; nothing if there is no other one."""
    if len(rows) > 1:
        for line in aligned(rows, text_columns):
            print(printable(line))


def print_others(others: list[str], why: str) -> None:
    """Name the series that a command can say nothing about."""
    if others:
        print(f"\n{why}:")
        for name in others:
            print(printable(f"  {name}"))
