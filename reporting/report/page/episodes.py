"""The episodes of a series: its runs that were not calm, as the page lists them under Findings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reporting.report.data import Condition, Point, SeriesReport

SHOWN = 4
CALM = (Condition.OK, Condition.LEARNING)


@dataclass(frozen=True)
class Episode:
    """Runs in a row of one condition. `first` is the first of them, `last_night` the night of the last one."""

    first: Point
    last_night: str
    runs: int


@dataclass(frozen=True)
class Episodes:
    """The latest ones, the last one first, and how many earlier ones there are."""

    shown: tuple[Episode, ...]
    earlier: int


def episodes_of(series: SeriesReport) -> Episodes:
    """The episodes of a series."""
    found: list[Episode] = []
    before: Condition | None = None
    for point in series.points:
        if point.condition in CALM:
            before = None
        elif point.condition is before:
            last = found[-1]
            found[-1] = replace(last, last_night=point.night, runs=last.runs + 1)
        else:
            before = point.condition
            found.append(Episode(point, point.night, 1))
    found.reverse()
    return Episodes(tuple(found[:SHOWN]), len(found[SHOWN:]))
