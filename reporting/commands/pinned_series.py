"""The series that the last run of each test belongs to, with their pins: what `power` and `aa` look at."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from platforms.job import RefusedError
from platforms.output import print_errors
from platforms.printable import printable
from reporting.columns import aligned
from reporting.commands.answering import unknown
from reporting.commands.opened_site import OpenedSite
from reporting.gate.series import Pin, Series, pin_of, series_of
from reporting.history.envelope import Envelope


@dataclass(frozen=True)
class PinnedSeries:
    """A series and what it is compared with; `pin` is None while it learns."""

    series: Series
    pin: Pin | None


def pinned_series(site: OpenedSite, tests: Collection[str]) -> list[PinnedSeries]:
    """The series of these tests, or of all; in order of tests and metrics. Prints what is wrong with the history.

    Raises RefusedError for a test that has no numbers, and for a history without numbers.
    """
    problems: list[str] = []
    references = site.references()
    envelopes = site.read(tests or None, problems)
    print_errors([*problems, *references.problems])
    last: dict[str, Envelope] = {}
    for envelope in envelopes:
        if envelope.sane and envelope.metrics and envelope.trial.in_series:
            last[envelope.key.test] = envelope
    if not last and not site.read():
        raise RefusedError(site.why_empty())
    for test in tests:
        if test not in last:
            raise RefusedError(f"{site.history}: {unknown('test with numbers', test, _all_tests(site))}")
    if not last:
        raise RefusedError(f"{site.history}: the history has no numbers yet (--history and --site name other ones)")
    found = []
    for _test, like in sorted(last.items()):
        for metric in sorted(like.metrics):
            series = series_of(metric, like, envelopes, site.settings.night_ends)
            acceptance = references.acceptance(series.test, metric, series.comparability)
            found.append(PinnedSeries(series, pin_of(series, acceptance)))
    return found


def _all_tests(site: OpenedSite) -> set[str]:
    return {envelope.key.test for envelope in site.read() if envelope.sane and envelope.metrics}


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
