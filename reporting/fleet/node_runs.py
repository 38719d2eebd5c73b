"""How far each run on a single node is from the runs of the other nodes.

docs/nodes.md explains the rule, and `python benchmarks/fleet_simulation.py` shows what it finds.
"""

from __future__ import annotations

import datetime
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any

from platforms.job import Role
from reporting.compare.interval import sign_of
from reporting.compare.placement import LEVELS, places_of
from reporting.gate.estimates import noise_of
from reporting.gate.series import order
from reporting.gate.verdict import Kind
from reporting.history.envelope import Envelope, Metric
from reporting.history.nights import night_of

ROLES = frozenset({Role.MEASURE, Role.VISIT, Role.CONFIRM, Role.PINNED, Role.CHECK})
"""The roles of runs that say how fast their node is. The arms of an A/B comparison differ on purpose."""
SUSPECTED = frozenset({Kind.SLOWER, Kind.NODE, Kind.SUSPECT})
LASTING = frozenset({Kind.SLOWER, Kind.DRIFTED, Kind.FASTER, Kind.ACKNOWLEDGED})
"""Changes of a whole series. A slow node is none of them, and neither is one bad run."""
# So many other nodes make a level of their own night. The median of five has an error of .56 scales, about a
# quarter of the limit; and what the night does to all nodes cancels, which counts for more.
NODES_OF_A_NIGHT = 5
NEAREST_RUNS = 20  # of other nodes make the level where a night has fewer
FEWEST_RUNS = 5
FEWEST_NODES = 3  # other nodes: of two nodes nobody can say which one is slow
FEWEST_CHANGES = 8  # how fewer vary is hardly known
RECENT_CHANGES = 400  # older ones are of a machine that may have been another one
# Normal noise is beyond two deviations once in 44 runs. That costs a second visit and no more.
SLOW_SCALES = 2.0
LEAST_LIMIT = 0.03  # a smaller loss of a node is not worth a drain


@dataclass(frozen=True)
class NodeRun:
    """A run on one node, beside the runs of other nodes.

    Attributes:
        workload: the benchmark, or what a test of another program is called.
        change: from the level of the other nodes, as a fraction; negative is worse, whatever the metric's direction.
            Of several metrics the middle one counts. None if too few other nodes have comparable runs.
        scale: what the change of one run varies by, over all nodes; None with fewer than 8 changes.
        beside: what the level is the median of: `12 other nodes of that night`, `20 runs of other nodes`.
        suspected: the gate has called the run slower than its series, or its node slow.
        measured: the metric that counts.
        place: the switch or block above the node, as Slurm names it; "" if it is not known.
        network: what the node's network cards counted (`Envelope.network`).
    """

    node: str
    test: str
    workload: str
    run_id: str
    job_id: str | None
    role: Role
    night: datetime.date
    started_s: float
    change: float | None = None
    scale: float | None = None
    beside: str = ""
    suspected: bool = False
    measured: Metric | None = None
    place: str = ""
    network: Mapping[str, Any] = field(default_factory=dict)

    @property
    def limit(self) -> float | None:
        """The loss from which on the run is slow, as a positive fraction."""
        return None if self.scale is None else max(SLOW_SCALES * self.scale, LEAST_LIMIT)

    @property
    def judged(self) -> bool:
        """Whether it can be said if the run is slow."""
        return self.change is not None and self.scale is not None

    @property
    def slow(self) -> bool:
        """Whether the run is farther below the other nodes than a run is by chance."""
        return self.change is not None and self.limit is not None and self.change < -self.limit


def nodes_of(envelope: Envelope) -> tuple[str, ...]:
    """The nodes on which a job has run. A visited node has the name by which it was asked for."""
    if envelope.trial.node is not None:
        return (envelope.trial.node,)
    return envelope.nodes


def workload_of(envelope: Envelope) -> str:
    """The benchmark, or what the test of another program is called: `resnet50`."""
    return envelope.benchmark or envelope.key.test.partition("::")[2].partition("[")[0].removeprefix("test_")


def node_runs(envelopes: Iterable[Envelope], night_ends: datetime.time) -> list[NodeRun]:
    """The runs on single nodes, in the order of their starts.

    Args:
        envelopes: of one platform of one site. Runs on several nodes, runs without numbers and those of an A/B
            comparison are left out.
        night_ends: the hour at which the site's nights end.
    """
    chosen = [
        envelope
        for envelope in sorted(envelopes, key=order)
        if envelope.sane and envelope.trial.role in ROLES and len(nodes_of(envelope)) == 1
    ]
    runs = [_bare(envelope, night_ends) for envelope in chosen]
    found: dict[int, list[_Change]] = {}
    for name, places in _series(chosen):
        members = [runs[place] for place in places]
        metrics = [chosen[place].metrics[name] for place in places]
        levels = _levels(members, [chosen[place].verdicts.get(name, {}) for place in places])
        for place, metric, change in zip(places, metrics, _changes(members, metrics, levels), strict=True):
            if change is not None:
                found.setdefault(place, []).append(replace(change, measured=metric))
    for place, changes in found.items():
        middle = sorted(changes, key=lambda change: change.relative)[(len(changes) - 1) // 2]
        runs[place] = replace(
            runs[place], change=middle.change, scale=middle.scale, beside=middle.beside, measured=middle.measured
        )
    return runs


@dataclass(frozen=True)
class _Change:
    change: float
    beside: str
    scale: float | None = None
    measured: Metric | None = None

    @property
    def relative(self) -> float:
        return self.change / (self.scale or 1.0)


def _bare(envelope: Envelope, night_ends: datetime.time) -> NodeRun:
    return NodeRun(
        node=nodes_of(envelope)[0],
        test=envelope.key.test,
        workload=workload_of(envelope),
        run_id=envelope.key.run_id,
        job_id=envelope.key.job_id,
        role=envelope.trial.role,
        night=night_of(envelope.time_s, night_ends),
        started_s=envelope.time_s,
        suspected=any(verdict.get("kind") in SUSPECTED for verdict in envelope.verdicts.values()),
        measured=next(iter(envelope.metrics.values()), None),
        place=", ".join(name for level in LEVELS for name in places_of(envelope, level)),
        network=envelope.network,
    )


def _series(envelopes: Sequence[Envelope]) -> list[tuple[str, list[int]]]:
    """The comparable runs of each test and metric: the metric's name, and the places of the envelopes."""
    found: dict[tuple[str, ...], list[int]] = {}
    for place, envelope in enumerate(envelopes):
        for name, metric in envelope.metrics.items():
            if math.isfinite(metric.value):
                key = (name, envelope.key.test, envelope.comparability, metric.unit, metric.better)
                found.setdefault(key, []).append(place)
    return [(key[0], places) for key, places in found.items()]


def _levels(runs: Sequence[NodeRun], verdicts: Sequence[Mapping[str, Any]]) -> list[datetime.date]:
    """The night since which each run's series is at its level.

    It begins where the gate has seen a change of all nodes, and again once the change is over or accepted.
    """
    levels = []
    level = datetime.date.min
    is_changed = False
    for run, said in zip(runs, verdicts, strict=True):
        # A red of one run that no repeat has confirmed may be this node's own.
        if said.get("since") and said.get("kind") in LASTING:
            since = datetime.date.fromisoformat(said["since"])
            if since < run.night or said["kind"] != Kind.SLOWER or said.get("confirmation"):
                level = max(level, since)
                is_changed = True
        elif is_changed and said.get("kind") == Kind.OK:
            level = run.night
            is_changed = False
        levels.append(level)
    return levels


def _changes(
    runs: Sequence[NodeRun], metrics: Sequence[Metric], levels: Sequence[datetime.date]
) -> list[_Change | None]:
    """The change of each run of a series from the level of the other nodes, in the order of the runs."""
    values = [metric.value for metric in metrics]
    sign = sign_of(metrics[0].better)
    nights: dict[datetime.date, _Night] = {}
    for place, run in enumerate(runs):
        nights.setdefault(run.night, _Night()).add(run.node, values[place])
    changes: list[_Change | None] = []
    for place, run in enumerate(runs):
        night = nights[run.night]
        nodes = len(night.of_node) - 1
        if nodes >= NODES_OF_A_NIGHT:
            level = night.level_without(run.node)
            beside = f"{nodes} other nodes of that night"
        else:
            others = _nearest(runs, place, levels)
            level = median([values[other] for other in others]) if others else 0.0
            beside = f"{len(others)} runs of other nodes"
        changes.append(_Change(sign * (values[place] - level) / abs(level), beside) if level else None)
    known = [change.change for change in changes if change is not None]
    if len(known) < FEWEST_CHANGES:
        return changes
    scale = noise_of(known[-RECENT_CHANGES:]).scale
    return [None if change is None else replace(change, scale=scale) for change in changes]


@dataclass
class _Night:
    """The values of one night. Those of a fleet are sorted once, and not for each node."""

    of_node: dict[str, list[float]] = field(default_factory=dict)

    def add(self, node: str, value: float) -> None:
        self.of_node.setdefault(node, []).append(value)

    @cached_property
    def _sorted(self) -> list[float]:
        return sorted(value for values in self.of_node.values() for value in values)

    def level_without(self, node: str) -> float:
        """The median of the other nodes."""
        others = self._sorted.copy()
        for value in self.of_node[node]:
            del others[bisect_left(others, value)]
        return median(others)


def _nearest(runs: Sequence[NodeRun], place: int, levels: Sequence[datetime.date]) -> list[int]:
    """The places of the 20 runs of other nodes that are nearest in time; none if they are too few.

    Runs from before a lasting change say nothing of a node after it.
    """
    before = place - 1
    after = place + 1
    found: list[int] = []
    while len(found) < NEAREST_RUNS:
        has_before = before >= 0 and runs[before].night >= levels[place]
        has_after = after < len(runs) and levels[after] <= runs[place].night
        to_before = runs[place].started_s - runs[before].started_s if has_before else math.inf
        to_after = runs[after].started_s - runs[place].started_s if has_after else math.inf
        if not has_before and not has_after:
            break
        nearest = before if to_before <= to_after else after
        if nearest == before:
            before -= 1
        else:
            after += 1
        if runs[nearest].node != runs[place].node:
            found.append(nearest)
    is_enough = len(found) >= FEWEST_RUNS and len({runs[other].node for other in found}) >= FEWEST_NODES
    return found if is_enough else []
