"""`python -m reporting aa [WORD…]`: replays the gate over each series' own nights in shuffled order.

An order by chance has no change in it, so each red is a false alarm.
"""

from __future__ import annotations

import argparse

from platforms.job import RefusedError
from reporting.commands.opened_site import open_site
from reporting.commands.pinned_series import add_tests, pinned_series, print_others, print_table
from reporting.gate.replay import LEAST_NIGHTS, Replay, replay

HEADINGS = ("test", "metric", "shuffled by", "nights judged", "drifts", "steps", "alarms in 30 nights")
SHUFFLES = 20
MONTH = 30


def add_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    add_tests(parser)
    parser.add_argument(
        "--shuffles", type=int, default=SHUFFLES, metavar="N", help=f"orders for each series (default: {SHUFFLES})"
    )


def main(options: argparse.Namespace) -> int:
    """Print a line for each series, and the false alarms of all series together."""
    if options.shuffles < 1:
        raise RefusedError(f"--shuffles: {options.shuffles} is less than 1")
    rows: list[tuple[str, ...]] = [HEADINGS]
    others = []
    alarms = 0.0
    for one in pinned_series(open_site(options), options.selection):
        name = (one.series.test, one.series.metric)
        said = None if one.pin is None else replay(one.series, one.pin, options.shuffles, one.strictness)
        if said is None:
            others.append(" ".join(name))
            continue
        a_month = MONTH * (said.drifts + said.steps) / said.nights
        rows.append((*name, *_cells(said), f"{a_month:.2f}"))
        alarms += a_month
    if len(rows) > 1:
        print(f"What the gate says of the series' own nights in {options.shuffles} shuffled orders.")
        print("An order by chance has no change in it: each red that begins is a false alarm.")
        print("Steps that repeats have cleared are not red, and runs of a change are left out.\n")
        print_table(rows, (0, 1, 2))
        print(f"\nAll series: {alarms:.1f} false alarms in {MONTH} nights.")
    few = f"Shuffling shows nothing: fewer than {LEAST_NIGHTS} quiet nights, or no run behind those of the pin, of"
    print_others(others, few)
    return 0


def _cells(said: Replay) -> list[str]:
    unit = "night" if said.block == 1 else f"{said.block} nights"
    return [unit, str(said.nights), str(said.drifts), str(said.steps)]
