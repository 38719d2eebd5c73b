"""The runs of a series that show how it varies while nothing changes."""

from __future__ import annotations

from reporting.gate.course import course_of
from reporting.gate.estimates import Strictness
from reporting.gate.series import Pin, RunValue, Series
from reporting.gate.verdict import Kind

OUTLIERS_IN_A_ROW = 2
"""More runs far from the pin than these, one after another, are a change."""


def quiet_runs(series: Series, pin: Pin, strictness: Strictness | None = None) -> list[RunValue]:
    """The eligible runs at the pin's level: without those of a lasting loss, and those that repeats have confirmed.

    - Runs that repeats have cleared stay: they were chance.
    - One or two others that are far from the pin, between runs that are not, are outliers and stay. More of them in a
      row are a change, and so are those at the end.
    """
    if pin.level == 0:
        return series.eligible_since(pin.first)
    course = course_of(series, pin, strictness or Strictness())
    quiet: list[RunValue] = []
    far: list[RunValue] = []
    for index, run in enumerate(course.runs):
        if course.is_lost(index) or _is_confirmed(series, run):
            continue
        if course.steps[index] and not series.passed_step(run):
            far.append(run)
            continue
        if len(far) <= OUTLIERS_IN_A_ROW:
            quiet += far
        far = []
        quiet.append(run)
    return quiet


def _is_confirmed(series: Series, run: RunValue) -> bool:
    said = run.said(series.metric)
    return bool(said.get("red")) and "confirmation" in said and said.get("kind") in (Kind.SLOWER, Kind.NODE)


def runs_per_night(runs: list[RunValue]) -> int:
    """How many runs a night has, on average over the nights that have any; at least 1."""
    return max(round(len(runs) / len({run.night for run in runs})), 1)
