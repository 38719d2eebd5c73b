"""How far each run on a single node is from the runs of the other nodes.

docs/nodes.md explains the rule, and `python benchmarks/fleet_simulation.py` shows what it finds.
"""

from __future__ import annotations

import datetime
import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal, NamedTuple, overload

from platforms.job import Role
from reporting.compare.interval import sign_of
from reporting.compare.placement import LEVELS, places_in
from reporting.gate.estimates import noise_of
from reporting.gate.verdict import Kind
from reporting.history.envelope import Envelope, Metric
from reporting.history.measured import Facts, JobNumbers, measured_by
from reporting.history.nights import nights_of

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


class Quantity(NamedTuple):
    """What a metric measures: its name, its unit, and which direction is good."""

    name: str
    unit: str
    better: Literal["higher", "lower"]


class NodeJob(NamedTuple):
    """What a job has measured on one node alone: all that is read of it to compare nodes.

    `node_jobs_of` says which jobs have one. A site has millions, so it is a tuple, and they share what many have in
    common: strings, `metrics` and empty mappings.

    Attributes:
        started_s: Unix seconds (`Envelope.time_s`).
        workload: the benchmark, or what a test of another program is called.
        metrics: what it has measured, in the order of the envelope.
        values: of these metrics.
        verdicts: of the gate, by metric (`Envelope.verdicts`).
        place: the switch or block above the node, as Slurm names it; "" if it is not known.
        network: what the node's network cards counted (`Envelope.network`).
    """

    started_s: float
    run_id: str
    job_id: str | None
    node: str
    test: str
    workload: str
    comparability: str
    metrics: tuple[Quantity, ...]
    values: tuple[float, ...]
    verdicts: Mapping[str, Mapping[str, Any]]
    place: str
    network: Mapping[str, Any]


class NodeRun(NamedTuple):
    """A run on one node, beside the runs of other nodes.

    Attributes:
        change: from the level of the other nodes, as a fraction; negative is worse, whatever the metric's direction.
            Of several metrics the middle one counts. None if too few other nodes have comparable runs.
        scale: what the change of one run varies by, over all nodes; None with fewer than 8 changes.
        beside: what the level is the median of: `12 other nodes of that night`, `20 runs of other nodes`.
        metric: the one that counts.
        suspected: the gate has called the run slower than its series, or its node slow.
    """

    job: NodeJob
    night: datetime.date
    change: float | None = None
    scale: float | None = None
    beside: str = ""
    metric: Quantity | None = None
    suspected: bool = False

    @property
    def measured(self) -> Metric | None:
        """What it has measured of the metric that counts."""
        if self.metric is None:
            return None
        return Metric(self.job.values[self.job.metrics.index(self.metric)], self.metric.unit, self.metric.better)

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


class LevelOfOthers(NamedTuple):
    """What the runs of a series are compared with; many share one. `NodeRun` explains the attributes."""

    beside: str
    scale: float | None
    metric: Quantity | None


NO_LEVEL = LevelOfOthers("", None, None)


@dataclass(frozen=True, eq=False)
class NodeRuns(Sequence[NodeRun]):
    """Runs on single nodes, in the order of their starts.

    A site has millions, and people look at a few, so what is known of them stands in columns, and a run is made
    when it is asked for.

    Attributes:
        jobs, nights, changes, levels: of all runs of the platform.
        places: which of these the runs are.
    """

    jobs: Sequence[NodeJob]
    nights: Sequence[datetime.date]
    changes: list[float | None]
    levels: list[LevelOfOthers]
    places: Sequence[int]

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, index: int) -> NodeRun: ...

    @overload
    def __getitem__(self, index: slice) -> NodeRuns: ...

    def __getitem__(self, index: int | slice) -> NodeRun | NodeRuns:
        if isinstance(index, slice):
            return replace(self, places=self.places[index])
        place = self.places[index]
        job, level = self.jobs[place], self.levels[place]
        metric = level.metric or next(iter(job.metrics), None)
        suspected = any(verdict.get("kind") in SUSPECTED for verdict in job.verdicts.values())
        return NodeRun(job, self.nights[place], self.changes[place], level.scale, level.beside, metric, suspected)

    def of(self, places: Iterable[int]) -> NodeRuns:
        """Some of these runs."""
        return replace(self, places=array("q", places))

    def compared(self) -> NodeRuns:
        """Those that have a change."""
        return self.of(place for place in self.places if self.changes[place] is not None)

    def counted(self) -> NodeRuns:
        """Those of which something is known of the node's network cards."""
        return self.of(place for place in self.places if self.jobs[place].network)

    def may_be_suspicious(self) -> Iterator[NodeRun]:
        """All runs that may be slow or suspected, without making each of the others."""
        for index, place in enumerate(self.places):
            change = self.changes[place]
            if self.jobs[place].verdicts or (change is not None and change < -LEAST_LIMIT):
                yield self[index]


def workload_of(envelope: Envelope) -> str:
    """The benchmark, or what the test of another program is called: `resnet50`."""
    return envelope.benchmark or envelope.key.test.partition("::")[2].partition("[")[0].removeprefix("test_")


_OfKind = tuple[str, str, str, tuple[Quantity, ...]]


def node_jobs(envelopes: Iterable[Envelope]) -> list[NodeJob]:
    """The jobs on single nodes."""
    return node_jobs_of(map(measured_by, envelopes))


def node_jobs_of(jobs: Iterable[JobNumbers]) -> list[NodeJob]:
    """The jobs on single nodes."""
    return [job for job in map(NodeJobMaker().of, jobs) if job is not None]


class NodeJobMaker:
    """Makes what is compared of jobs; what many of them have in common is made once."""

    def __init__(self) -> None:
        self._shared: dict[tuple[Quantity, ...], tuple[Quantity, ...]] = {}  # since a series is known by them
        self._kinds: dict[int, tuple[Envelope, _OfKind | None]] = {}  # by the id of the envelope that jobs are like
        self._places: dict[Facts, str] = {}

    def of(self, job: JobNumbers) -> NodeJob | None:
        """None for a job on several nodes, without numbers, or of an A/B comparison."""
        known = self._kinds.get(id(job.like))
        if known is None:
            known = self._kinds[id(job.like)] = job.like, self._of_kind(job.like)
        of_kind = known[1]
        if of_kind is None or len(job.facts.nodes) != 1:
            return None
        place = self._places.get(job.facts)
        if place is None:
            names = (name for level in LEVELS for name in places_in(job.facts.provenance, level))
            place = self._places[job.facts] = ", ".join(names)
        (node,) = job.facts.nodes
        of_job = job.values, job.verdicts, place, job.network
        return NodeJob(job.time_s, job.run_id, job.job_id, node, *of_kind, *of_job)

    def _of_kind(self, like: Envelope) -> _OfKind | None:
        if not like.sane or like.trial.role not in ROLES:
            return None
        quantities = tuple([Quantity(name, one.unit, one.better) for name, one in like.metrics.items()])
        return like.key.test, workload_of(like), like.comparability, self._shared.setdefault(quantities, quantities)


def node_runs(jobs: Iterable[NodeJob], night_ends: datetime.time) -> NodeRuns:
    """The runs on single nodes, in the order of their starts.

    Args:
        jobs: of one platform of one site.
        night_ends: the hour at which the site's nights end.
    """
    # As the gate sorts runs (reporting/gate/series.py).
    ordered = sorted(jobs, key=lambda job: (job.started_s, job.run_id, str(job.job_id)))
    nights = nights_of([job.started_s for job in ordered], night_ends)
    all_changes: list[float | None] = [None] * len(ordered)
    all_levels = [NO_LEVEL] * len(ordered)
    several: dict[int, list[tuple[float, LevelOfOthers]]] = {}  # of a run that can be compared by several metrics
    for metric, places in _places_of_series(ordered):
        series = _Series(metric, [ordered[place] for place in places], [nights[place] for place in places])
        for place, change, level in zip(places, *series.compared(), strict=True):
            if change is None:
                continue
            earlier = all_changes[place]
            if earlier is not None:
                several.setdefault(place, [(earlier, all_levels[place])]).append((change, level))
            all_changes[place], all_levels[place] = change, level
    for place, found in several.items():
        found.sort(key=lambda one: one[0] / (one[1].scale or 1.0))
        all_changes[place], all_levels[place] = found[(len(found) - 1) // 2]
    return NodeRuns(ordered, nights, all_changes, all_levels, range(len(ordered)))


def _places_of_series(jobs: Sequence[NodeJob]) -> list[tuple[Quantity, Sequence[int]]]:
    """The comparable runs of each test and metric: the metric, and the places of the jobs."""
    found: dict[tuple[Quantity, str, str], array[int]] = {}
    for place, job in enumerate(jobs):
        for metric, value in zip(job.metrics, job.values, strict=True):
            if math.isfinite(value):
                key = (metric, job.test, job.comparability)
                places = found.get(key)
                if places is None:
                    places = found[key] = array("q")
                places.append(place)
    return [(key[0], places) for key, places in found.items()]


class _Series:
    """The comparable runs of a test by one metric, in the order of their starts."""

    def __init__(self, metric: Quantity, jobs: Sequence[NodeJob], nights: Sequence[datetime.date]) -> None:
        self.metric = metric
        self.jobs = jobs
        self.nights = nights
        self.nodes = [job.node for job in jobs]
        self.values = [job.values[job.metrics.index(metric)] for job in jobs]

    def compared(self) -> tuple[list[float | None], list[LevelOfOthers]]:
        """The change of each run from the level of the other nodes, and what that is."""
        levels, besides = self._levels()
        sign = sign_of(self.metric.better)
        changes = [
            sign * (value - level) / abs(level) if level else None
            for value, level in zip(self.values, levels, strict=True)
        ]
        known = [change for change in changes if change is not None]
        scale = noise_of(known[-RECENT_CHANGES:]).scale if len(known) >= FEWEST_CHANGES else None
        shared = {beside: LevelOfOthers(beside, scale, self.metric) for beside in set(besides)}
        return changes, [shared[beside] for beside in besides]

    def _levels(self) -> tuple[list[float], list[str]]:
        """For each run the level of the other nodes, and what it is the median of. It is 0 if there are too few."""
        levels = [0.0] * len(self.jobs)
        besides = [""] * len(self.jobs)
        of_night: dict[datetime.date, list[int]] = {}
        for place, night in enumerate(self.nights):
            of_night.setdefault(night, []).append(place)
        rest: list[int] = []
        for places in of_night.values():
            others = len({self.nodes[place] for place in places}) - 1
            if others < NODES_OF_A_NIGHT:
                rest += places
                continue
            beside = f"{others} other nodes of that night"
            found = _medians_without([self.nodes[place] for place in places], [self.values[place] for place in places])
            for place, level in zip(places, found, strict=True):
                levels[place] = level
                besides[place] = beside
        for place, level, count in self._nearest(sorted(rest)):
            levels[place] = level
            besides[place] = f"{count} runs of other nodes"
        return levels, besides

    def _level_nights(self) -> list[datetime.date]:
        """The night since which each run's series is at its level.

        It begins where the gate has seen a change of all nodes, and again once the change is over or accepted.
        """
        found = []
        since_night = datetime.date.min
        is_changed = False
        for job, night in zip(self.jobs, self.nights, strict=True):
            said = job.verdicts.get(self.metric.name, {})
            # A red of one run that no repeat has confirmed may be this node's own.
            if said.get("since") and said.get("kind") in LASTING:
                since = datetime.date.fromisoformat(said["since"])
                if since < night or said["kind"] != Kind.SLOWER or said.get("confirmation"):
                    since_night = max(since_night, since)
                    is_changed = True
            elif is_changed and said.get("kind") == Kind.OK:
                since_night = night
                is_changed = False
            found.append(since_night)
        return found

    def _nearest(self, places: Sequence[int]) -> Iterator[tuple[int, float, int]]:
        """The place of a run, the median of the 20 runs of other nodes that are nearest in time, and their number.

        Runs that have too few of them are left out. Runs from before a lasting change say nothing of a node after it.

        Args:
            places: of the runs that are asked for, in their order.
        """
        nodes = self.nodes
        if not places or len(set(nodes)) <= FEWEST_NODES:
            return
        starts = [job.started_s for job in self.jobs]
        level_nights = self._level_nights()
        for place in places:
            node, start = nodes[place], starts[place]
            # Nights and levels rise, so what says something of this run lies between two places.
            least = bisect_left(self.nights, level_nights[place], 0, place)
            most = bisect_right(level_nights, self.nights[place], place + 1)
            width = NEAREST_RUNS + NEAREST_RUNS // 2  # some are of the same node
            while True:
                first, end = max(place - width, least), min(place + 1 + width, most)
                others = [other for other in range(first, end) if nodes[other] != node]
                before = bisect_left(others, place)
                after = len(others) - before
                if (before >= NEAREST_RUNS or first == least) and (after >= NEAREST_RUNS or end == most):
                    break
                width *= 2
            # Neighbours in the list of others: the farther they begin from its start, the later they are.
            low, high = max(before - NEAREST_RUNS, 0), min(before, len(others) - NEAREST_RUNS)
            while low < high:
                middle = (low + high) // 2
                if starts[others[middle + NEAREST_RUNS]] - start < start - starts[others[middle]]:
                    low = middle + 1
                else:
                    high = middle
            near = others[low : low + NEAREST_RUNS]
            if len(near) >= FEWEST_RUNS and len({nodes[other] for other in near}) >= FEWEST_NODES:
                yield place, median([self.values[other] for other in near]), len(near)


def _medians_without(nodes: Sequence[str], values: Sequence[float]) -> list[float]:
    """For each value of a night the median of the values of the other nodes. The values are sorted once."""
    of_all = sorted(values)
    own: dict[str, list[float]] = {}
    if len(set(nodes)) < len(nodes):
        for node, value in zip(nodes, values, strict=True):
            own.setdefault(node, []).append(value)
        return [_median_without(own[node], of_all) for node in nodes]
    # Without one value the median is one of three: that value is below the middle, above it, or in it.
    low, high = _middle(len(of_all) - 1)
    below, within, above = (_median_without([value], of_all) for value in (of_all[0], of_all[high], of_all[-1]))
    return [below if value <= of_all[low] else within if value <= of_all[high] else above for value in values]


def _middle(count: int) -> tuple[int, int]:
    """The two values in the middle of so many sorted ones; the same one twice if it is alone."""
    return (count - 1) // 2, count // 2


def _median_without(own: Sequence[float], of_all: Sequence[float]) -> float:
    """The median of sorted values without some of them."""
    low, high = _middle(len(of_all) - len(own))
    is_one = low == high
    for value in sorted(own):  # what is left out is stepped over
        low += value <= of_all[low]
        high += value <= of_all[high]
    return of_all[high] if is_one else (of_all[low] + of_all[high]) / 2
