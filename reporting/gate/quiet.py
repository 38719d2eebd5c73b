"""The runs of a series that show how it varies while nothing changes."""

from __future__ import annotations

from reporting.gate import estimates
from reporting.gate.comparison import compare
from reporting.gate.series import Pin, RunValue, Series, noise_before
from reporting.gate.verdict import Kind

OUTLIERS_IN_A_ROW = 2
"""More runs away from the pin than these, one after another, are a change."""


def quiet_runs(series: Series, pin: Pin) -> list[RunValue]:
    """The eligible runs at the pin's level, without those of a change.

    - Runs that repeats have confirmed as slow, or of a node that is slow, are left out.
    - Runs that repeats have cleared stay: they were chance.
    - One or two others that are away from the pin, between runs that are not, are outliers and stay. More of them in a
      row are a change, and so are those at the end.

    A run without a stored verdict, such as an imported one, is away if it is beyond the limit of one run. If the last
    run has none and is red, all runs since the change began are left out.
    """
    if pin.level == 0:
        return series.eligible_since(pin.first)
    limit = estimates.step_limit(noise_before(series, pin, ()))
    quiet: list[RunValue] = []
    away: list[RunValue] = []
    for run in _before_unjudged_change(series, pin):
        if _is_confirmed(series, run):
            continue
        if _is_away(series, pin, run, limit):
            away.append(run)
            continue
        if len(away) <= OUTLIERS_IN_A_ROW:
            quiet += away
        away = []
        quiet.append(run)
    return quiet


def _before_unjudged_change(series: Series, pin: Pin) -> list[RunValue]:
    runs = series.eligible_since(pin.first)
    last = series.runs[-1]
    if last.judged or not last.eligible:
        return runs
    comparison = compare(series, pin)
    if not any(found.kind in (Kind.SLOWER, Kind.DRIFTED) for found in comparison.findings()):
        return runs
    first = comparison.runs_at_level()[comparison.start()]
    return runs[: runs.index(first)]


def _is_confirmed(series: Series, run: RunValue) -> bool:
    said = run.said(series.metric)
    return bool(said.get("red")) and "confirmation" in said and said.get("kind") in (Kind.SLOWER, Kind.NODE)


def _is_away(series: Series, pin: Pin, run: RunValue, limit: float) -> bool:
    if series.passed_step(run):
        return False
    if run.judged:
        return not run.calm
    return not run.calm or series.change(run.value, pin.level) < -limit


def runs_per_night(runs: list[RunValue]) -> int:
    """How many runs a night has, on average over the nights that have any; at least 1."""
    return max(round(len(runs) / len({run.night for run in runs})), 1)
