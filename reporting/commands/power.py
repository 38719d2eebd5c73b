"""`python -m reporting power [WORD…]`: what the gate can see in each series, and how often it cries for nothing."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from platforms.job import RefusedError
from platforms.output import print_errors
from platforms.printable import printable
from reporting.columns import aligned
from reporting.commands.opened_site import open_site
from reporting.commands.selection import add_words, of_each_test, selected
from reporting.commands.tonight import add_tonight, until_tonight
from reporting.gate.estimates import DRIFT_ERRORS, NIGHTS_A_MONTH, Strictness
from reporting.gate.judge import strictness_of
from reporting.gate.power import CHANCE, NIGHTS, Sight, sight_of
from reporting.gate.replay import LEAST_NIGHTS, Replay, replay
from reporting.gate.series import Pin, Series, pin_of, series_of
from reporting.phrases import percent

LOSSES = (0.02, 0.03, 0.04, 0.06, 0.10)
SHUFFLES = 20  # orders in which the nights of each series are replayed
HEADINGS = (
    "test",
    "metric",
    "runs a night",
    *(f"-{100 * loss:.0f} %" for loss in LOSSES),
    "false alarms",
    "it finds",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    add_words(parser)
    add_tonight(parser)


@dataclass(frozen=True)
class PinnedSeries:
    """A series and what it is compared with; `pin` is None while it learns."""

    series: Series
    pin: Pin | None
    strictness: Strictness


def main(options: argparse.Namespace) -> int:
    """Print a line for each series, and the false alarms of all series together."""
    rows: list[tuple[str, ...]] = []
    others = []
    replays = []
    errors = DRIFT_ERRORS
    for one in _pinned_series(options):
        name = (one.series.test, one.series.metric)
        sight = None
        if one.pin is not None:
            sight = sight_of(one.series, one.pin, strictness=one.strictness)
        if sight is None or one.pin is None:
            others.append(" ".join(name))
            continue
        errors = max(errors, one.strictness.errors)
        replayed = replay(one.series, one.pin, SHUFFLES, one.strictness)
        rows.append((*name, *_cells(sight, replayed)))
        if replayed is not None:
            replays.append(replayed)
    if rows:
        print(f"The chance that a lasting loss is red within {NIGHTS} nights.")
        print("A step is red only if its repeat is one, too. What is red without a loss is not counted as found.")
        print(f"The last column: the loss that is found {100 * CHANCE:.0f} times of 100.")
        if errors > DRIFT_ERRORS:
            print(f"For so many tests seven nights are red beyond {errors:.1f} errors instead of {DRIFT_ERRORS:g}.")
        print("Too loud: without any change six nights are red so often that no loss is found with this chance.\n")
        for line in aligned([HEADINGS, *rows], (0, 1)):
            print(printable(line))
        print(_false_alarms(replays, len(rows)))
    if others:
        print("\nFewer than 20 runs lie at the level of the pin of:")
        for other in others:
            print(printable(f"  {other}"))
    return 0


def _false_alarms(replays: Sequence[Replay], pinned: int) -> str:
    """Those of all series together."""
    few = f"fewer than {LEAST_NIGHTS} quiet nights, or no run behind those of the pin"
    if not replays:
        return f"\nFalse alarms are not known: all series have {few}."
    line = f"\n{sum(map(_a_month, replays)):.1f} false alarms in {NIGHTS_A_MONTH} nights: "
    line += f"the gate on the series' own nights, in {SHUFFLES} shuffled orders"
    if len(replays) < pinned:
        line += f" ({len(replays)} of {pinned} series; the others have {few})"
    return line


def _a_month(replayed: Replay) -> float:
    return NIGHTS_A_MONTH * replayed.alarms / replayed.nights


def _pinned_series(options: argparse.Namespace) -> Iterator[PinnedSeries]:
    """The series of the last run of each test that is chosen, in the order of tests and metrics.

    Prints what is wrong with the history. Raises RefusedError if the words choose no test, or none with numbers.
    """
    site = open_site(options)
    problems: list[str] = []
    references = site.references()
    runs = selected(site, options.selection, problems, visits=False)
    envelopes = until_tonight(runs, options, site)
    print_errors([*problems, *references.problems])
    last = {run.key.test: run for run in envelopes if run.has_numbers and run.trial.in_series}
    if not last:
        raise RefusedError(f"{site.history}: no run of these tests has numbers (--history and --site name other ones)")
    runs_of = of_each_test(envelopes)
    for test, like in sorted(last.items()):
        for metric in sorted(like.metrics):
            series = series_of(metric, like, runs_of[test], site.settings.night_ends)
            acceptance = references.acceptance(series.test, metric, series.comparability)
            yield PinnedSeries(series, pin_of(series, acceptance), strictness_of(references, len(like.metrics)))


def _cells(sight: Sight, replayed: Replay | None) -> list[str]:
    chances = [f"{100 * sight.chance(loss):.0f} %" for loss in LOSSES]
    alarms = "-" if replayed is None else f"{_a_month(replayed):.2f}"
    loss = sight.loss()
    finds = f"too loud: red {100 * sight.red_without_loss:.0f} of 100"
    if loss is not None:
        finds = percent(-loss)
    return [str(sight.runs_per_night), *chances, alarms, finds]
