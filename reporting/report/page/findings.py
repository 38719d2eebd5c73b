"""The findings of a series: its runs that were not calm, the latest first."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reporting.report.data import Condition, Point, SeriesReport

SHOWN = 4
CALM = (Condition.OK, Condition.LEARNING)


@dataclass(frozen=True)
class Finding:
    """Runs in a row of one condition. `first` is the first of them, `last_night` the night of the last one."""

    first: Point
    last_night: str
    runs: int


@dataclass(frozen=True)
class Findings:
    """The latest ones, and how many earlier ones there are."""

    shown: tuple[Finding, ...]
    earlier: int


def findings_of(series: SeriesReport) -> Findings:
    """What was found in a series."""
    found: list[Finding] = []
    before: Condition | None = None
    for point in series.points:
        if point.condition in CALM:
            before = None
        elif point.condition is before:
            last = found[-1]
            found[-1] = replace(last, last_night=point.night, runs=last.runs + 1)
        else:
            before = point.condition
            found.append(Finding(point, point.night, 1))
    found.reverse()
    return Findings(tuple(found[:SHOWN]), len(found[SHOWN:]))
