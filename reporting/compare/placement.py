"""Whether slow runs have their place in common: they lie over more switches or blocks than the others, or under one.

How often chance puts so many of the slow runs there is counted exactly (Fisher's test). A place is named if that is
less than once in a hundred times, in all places that are looked at together. benchmarks/placement_simulation.py shows
what this finds, and how often it is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, NamedTuple

from reporting.compare.interval import sign_of
from reporting.compare.robust import NORMAL_PER_MAD
from reporting.history.envelope import Envelope, Key
from reporting.phrases import number

LEVELS: Mapping[str, str] = {"switch": "switches", "block": "blocks"}
"""Provenance that Slurm's topology gives, and what several of it are called."""
CHANCE = 0.01
EXPLAINED = 0.75
"""Of the slow runs so many are there, and of the runs there so many are slow."""
LEFT = 0.5  # of the change, at most, may be left in the runs that are elsewhere
KINDS = 3  # of places: how many, which, and nodes
SCALES = 2.5  # below the level of the faster side: one run in 160 is there by chance
LATE_RUNS = 10  # say by themselves what the runs before a change hide, since which a place is slow; else the last ones
RECENT_RUNS = 20


@dataclass(frozen=True)
class Sides:
    """Runs by their number.

    Attributes:
        slow, fast: of all runs.
        late, early: the slower and the faster one of the two groups that are compared.
    """

    slow: Sequence[Envelope]
    fast: Sequence[Envelope]
    late: Sequence[Envelope]
    early: Sequence[Envelope]


def places_of(run: Envelope, level: str) -> list[str]:
    """The switches or blocks over which a run lay: `spine1.leaf16`; empty if they are not known."""
    return places_in(run.provenance, level)


def places_in(provenance: Mapping[str, Any], level: str) -> list[str]:
    """`places_of` a run with such a provenance."""
    return [name for name in str(provenance.get(level, "")).split(", ") if name]


def sides_of(before: Sequence[Envelope], after: Sequence[Envelope], others: Sequence[Envelope], metric: str) -> Sides:
    """Divide two compared groups of runs, and other ones of their series, into slow and fast ones.

    Where the two groups are far apart, the middle between them divides. Else only some runs are slow: those that are
    farther below the faster group than its own runs are above it.

    Each group has a run with the metric.
    """
    groups = [[run for run in group if metric in run.metrics] for group in (before, after)]

    def value(run: Envelope) -> float:
        return sign_of(run.metrics[metric].better) * run.metrics[metric].value

    late, early = sorted(groups, key=lambda group: median(map(value, group)))
    level = median(map(value, early))
    distance = level - median(map(value, late))
    scale = NORMAL_PER_MAD * median(value(run) - level for run in early if value(run) >= level)
    limit = level - (distance / 2 if distance >= 2 * scale else SCALES * scale)
    runs = {run.key: run for run in (*others, *early, *late) if metric in run.metrics}.values()
    slow = [run for run in runs if value(run) < limit]
    return Sides(slow, [run for run in runs if value(run) > limit], late, early)


def chance(there: int, slow: int, runs_there: int, runs: int) -> float:
    """How probable it is that at least `there` of the slow runs are among `runs_there`, drawn from all runs."""
    ways = [
        math.comb(runs_there, count) * math.comb(runs - runs_there, slow - count)
        for count in range(there, min(slow, runs_there) + 1)
    ]
    return sum(ways) / math.comb(runs, slow)


def placement(sides: Sides, metric: str) -> str:
    """What the slow runs have in common: `all 5 slow runs lay over 2 switches, …`; "" if nothing, or not known.

    None is named if another one explains as much: nobody can tell which of them it is. None is if a node explains more,
    which the node finder or a repeat says.
    """
    level = next((level for level in LEVELS if any(places_of(run, level) for run in sides.late)), None)
    if level is None:
        return ""
    slow = {run.key for run in sides.slow}
    known = sorted((run for run in (*sides.slow, *sides.fast) if places_of(run, level)), key=lambda run: run.time_s)
    late = [run for run in sides.late if places_of(run, level)]
    for runs in (known, late if len(late) >= LATE_RUNS else known[-RECENT_RUNS:]):
        found = sorted(_in_common(runs, slow & {run.key for run in runs}, level))
        is_one = len(found) == 1 or (found and found[0].by_chance < found[1].by_chance)
        if is_one and found[0].text and found[0].corrected < CHANCE / 2 and _explains(found[0].there, sides, metric):
            return _sentence(found[0], runs, slow, metric)
    return ""


class _Place(NamedTuple):
    """What slow runs have in common.

    Attributes:
        by_chance, corrected: how probable that is for this place, and for any of all that are looked at.
        text: says it; "" for a node.
        there: the runs of which it holds.
    """

    by_chance: float
    corrected: float
    text: str
    there: frozenset[Key]


def _in_common(runs: Sequence[Envelope], slow: Collection[Key], level: str) -> Iterator[_Place]:
    for kind in _kinds(runs, slow, level):
        for text, there in kind:
            common = len(there.intersection(slow))
            if common and common >= EXPLAINED * max(len(slow), len(there)):
                by_chance = chance(common, len(slow), len(there), len(runs))
                yield _Place(by_chance, by_chance * len(kind) * KINDS, text, there)


def _explains(there: frozenset[Key], sides: Sides, metric: str) -> bool:
    """Whether the runs that are elsewhere have changed by less than half as much."""

    def level(runs: Sequence[Envelope]) -> float:
        return fmean(run.metrics[metric].value for run in runs)

    elsewhere = [[run for run in group if run.key not in there] for group in (sides.late, sides.early)]
    if not all(elsewhere):
        return bool(elsewhere[1])
    left = level(elsewhere[0]) - level(elsewhere[1])
    return abs(left) < LEFT * abs(level(sides.late) - level(sides.early))


def _kinds(runs: Sequence[Envelope], slow: Collection[Key], level: str) -> list[list[tuple[str, frozenset[Key]]]]:
    """What slow runs may have in common, each with its runs: over how many places they lay, which ones, and nodes."""
    places = {run.key: places_of(run, level) for run in runs}
    nodes = {run.key: run.nodes for run in runs}
    numbers = sorted({len(places[key]) for key in places if len(nodes[key]) > 1})
    over = []
    for least in numbers[1:]:
        text = f"lay over {least}{'' if least == numbers[-1] else ' or more'} {LEVELS[level]}"
        over.append((text, frozenset(key for key in places if len(places[key]) >= least)))
    under = [(f"had nodes under {level} {name}", where) for name, where in _with_name(places, slow)]
    return [over, under, [("", where) for _, where in _with_name(nodes, slow)]]


def _with_name(of_runs: Mapping[Key, Sequence[str]], slow: Collection[Key]) -> list[tuple[str, frozenset[Key]]]:
    """Each name that a slow run has, and the runs that have it."""
    found: dict[str, set[Key]] = {}
    for key, names in of_runs.items():
        for name in names:
            found.setdefault(name, set()).add(key)
    return [(name, frozenset(there)) for name, there in found.items() if not there.isdisjoint(slow)]


def _sentence(place: _Place, runs: Sequence[Envelope], slow: Collection[Key], metric: str) -> str:
    with_it = [run for run in runs if run.key in place.there]
    without = [run for run in runs if run.key not in place.there]
    slow_there = sum(run.key in slow for run in with_it)
    all_slow = sum(run.key in slow for run in runs)
    which = f"all {all_slow}" if slow_there == all_slow else f"{slow_there} of the {all_slow}"
    others = f"{len(with_it) - slow_there} of the {len(runs) - all_slow} others"
    levels = [median(run.metrics[metric].value for run in group) for group in (with_it, without)]
    unit = with_it[0].metrics[metric].unit
    shown = " and ".join(number(level, levels[1]) for level in levels)
    return f"{which} slow runs {place.text}, and {others} (medians of runs with and without this: {shown} {unit})"
