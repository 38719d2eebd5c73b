"""The runs of a series that show how it varies while nothing changes."""

from __future__ import annotations

from reporting.gate.series import Pin, RunValue, Series

OUTLIERS_IN_A_ROW = 2
"""More red runs than these, one after another, are a change."""


def quiet_runs(series: Series, pin: Pin) -> list[RunValue]:
    """The eligible runs at the pin's level, without those of a change.

    One or two red runs between calm ones are outliers, and stay. More of them in a row are a change, and so are red
    runs at the end.
    """
    quiet: list[RunValue] = []
    red: list[RunValue] = []
    for run in series.eligible_since(pin.first):
        if not run.calm:
            red.append(run)
            continue
        if len(red) <= OUTLIERS_IN_A_ROW:
            quiet += red
        red = []
        quiet.append(run)
    return quiet


def runs_per_night(runs: list[RunValue]) -> int:
    """How many runs a night has, on average over the nights that have any; at least 1."""
    return max(round(len(runs) / len({run.night for run in runs})), 1)
