"""`python -m reporting power [WORD…]`: what the gate can see in each series, and what more runs a night would buy."""

from __future__ import annotations

import argparse

from reporting.commands.opened_site import open_site
from reporting.commands.pinned_series import add_tests, pinned_series, print_others, print_table
from reporting.commands.tonight import add_tonight, until_tonight
from reporting.gate.power import CHANCE, MONTH, NIGHTS, Sight, sight_of

LOSSES = (0.02, 0.03, 0.04, 0.06, 0.10)
EACH_NIGHT = (1, 2, 3)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    add_tests(parser)
    add_tonight(parser)


def main(options: argparse.Namespace) -> int:
    """Print a line for each series, and the false alarms of all series together."""
    headings = ["test", "metric", "runs a night", *(f"-{100 * loss:.0f} %" for loss in LOSSES), "drifts", "steps"]
    headings += [f"with {count} a night" for count in EACH_NIGHT]
    rows = [tuple(headings)]
    others = []
    drifts = 0.0
    steps = 0.0
    site = open_site(options)
    for one in pinned_series(site, options.selection, lambda runs: until_tonight(runs, options, site)):
        name = (one.series.test, one.series.metric)
        now = None if one.pin is None else sight_of(one.series, one.pin, strictness=one.strictness)
        if now is None or one.pin is None:
            others.append(" ".join(name))
            continue
        denser = [sight_of(one.series, one.pin, count, strictness=one.strictness) for count in EACH_NIGHT]
        rows.append((*name, *_cells(now), *(_loss(sight) for sight in denser if sight is not None)))
        drifts += now.drifts
        steps += now.steps
    if len(rows) > 1:
        print(f"The chance that a lasting loss is red within {NIGHTS} nights, and false alarms in {MONTH} nights.")
        print("A step is red only if its repeat is one, too. What is red without a loss is not counted as found.")
        print(f"The last columns: the loss that is found {100 * CHANCE:.0f} times of 100, with so many runs a night.")
        print("Too loud: without any change six nights are red so often that no loss is found with this chance.\n")
        print_table(rows, (0, 1))
        print(f"\nAll series: {drifts + steps:.1f} false alarms in {MONTH} nights.")
        print(f"{drifts:.1f} of them are drifts of seven nights, {steps:.1f} are confirmed steps of a single run.")
    print_others(others, "Fewer than 20 runs lie at the level of the pin of")
    return 0


def _cells(now: Sight) -> list[str]:
    chances = [f"{100 * now.chance(loss):.0f} %" for loss in LOSSES]
    return [str(now.runs_per_night), *chances, f"{now.drifts:.2f}", f"{now.steps:.2f}"]


def _loss(sight: Sight) -> str:
    loss = sight.loss()
    if loss is None:
        return f"too loud: red {100 * sight.red_without_loss:.0f} of 100"
    return f"-{100 * loss:.1f} %"
