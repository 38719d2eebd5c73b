"""How soon a slow node is named, how often a good one is, and what visits cost: simulated fleets.

    python benchmarks/fleet_simulation.py [--fleets 300] [--seed 1]

A fleet has 40 nodes, which differ by 1 % (standard deviation). A run varies by 1.5 %, and all runs of a night by 1 %
more. Twelve visits a night are allowed. After 10 nights one node becomes 8 % slower. Three ways to visit are compared,
and a node is named by the same rule in all of them, that of reporting/fleet:

- by suspicion: suspects first, then the stalest nodes; a slow visit is repeated in the same night;
- in turn: n01, n02, … n40, n01, …, so that a slow visit is confirmed when the node's turn comes again;
- in turn, twice: each visit is followed by a second one, so that a slow visit is confirmed at once.

With nightly runs, three tests run on nodes of the scheduler's choice in each night, as in a suite that measures anyway.
Their device-hours are not counted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from platforms.job import ONLY
from reporting.fleet.node_runs import node_jobs, node_runs
from reporting.fleet.nodes import NodeRecord, Standing, records_of
from reporting.fleet.visits import in_order
from reporting.history.envelope import Envelope
from reporting.history.nights import NOON
from tests.reporting.fleet_history import visit

NODES = tuple(f"n{number:02}" for number in range(1, 41))
NODE_DEVIATION, NOISE, NIGHT_DEVIATION = 0.01, 0.015, 0.01
OUTLIER_LOSSES = (0.04, 0.12)
LOSS = 0.08
BUDGET = 12
QUIET_NIGHTS = 10
MOST_NIGHTS = 40
NIGHTLY = 3
REMEMBERED = 200  # runs; the older ones say nothing of tonight, and cost time
WAYS = ("by suspicion", "in turn", "in turn, twice")


@dataclass
class World:
    """A fleet that is visited in one way. Each draw depends on the seed and the way's own order alone."""

    way: str
    generator: np.random.Generator
    outliers: float
    nightly: int
    effects: np.ndarray = field(init=False)
    slow: int | None = None
    runs: list[Envelope] = field(default_factory=list)
    visits: int = 0
    turn: int = 0
    minute: int = 0

    def __post_init__(self) -> None:
        self.effects = 1 + NODE_DEVIATION * self.generator.standard_normal(len(NODES))

    def records(self) -> dict[str, NodeRecord]:
        return records_of(node_runs(node_jobs(self.runs[-REMEMBERED:]), NOON), NODES)

    def night(self, number: int) -> Iterator[str]:
        """The nodes that are visited in a night, each after it has been visited."""
        self.minute = 0
        level = 100 * (1 + NIGHT_DEVIATION * self.generator.standard_normal())
        for _ in range(self.nightly):
            self._measure(number, int(self.generator.integers(len(NODES))), level, "nightly")
        if self.way == "by suspicion":
            yield from self._by_suspicion(number, level)
            return
        times = 2 if self.way == "in turn, twice" else 1
        for _ in range(BUDGET // times):
            for _ in range(times):
                yield self._visit(number, self.turn % len(NODES), level)
            self.turn += 1

    def _by_suspicion(self, number: int, level: float) -> Iterator[str]:
        left = BUDGET // 10  # visits that are kept for nodes that turn out to be slow
        chosen = [record.name for record in in_order(self.records().values())][: BUDGET - left]
        for node in chosen:
            yield self._visit(number, NODES.index(node), level)
        records = self.records()
        suspects = [node for node in chosen if records[node].standing is Standing.SUSPECT]
        for node in suspects[:left]:
            yield self._visit(number, NODES.index(node), level)

    def _visit(self, number: int, node: int, level: float) -> str:
        self.visits += 1
        self._measure(number, node, level, "visit")
        return NODES[node]

    def _measure(self, number: int, node: int, level: float, kind: str) -> None:
        value = level * self.effects[node] * (1 + NOISE * self.generator.standard_normal())
        if node == self.slow:
            value *= 1 - LOSS
        if self.generator.random() < self.outliers:
            value *= 1 - self.generator.uniform(*OUTLIER_LOSSES)
        self.minute += 1
        changes = {} if kind == "visit" else {"trial": ONLY}
        hour = 20 + self.minute / 60
        self.runs.append(visit(number, NODES[node], value, hour=hour, attempt=self.minute, **changes))


@dataclass(frozen=True)
class Found:
    """What became of one fleet: after how many visits of the slow node it was named, and after how many of all."""

    own_visits: int
    all_visits: int
    false_names: int
    quiet_visits: int


def simulate(way: str, seed: Sequence[int], outliers: float, nightly: int) -> Found:
    """One fleet: 10 nights of good nodes, in which names are false ones, then one node is slow until it is named."""
    world = World(way, np.random.default_rng(seed), outliers, nightly)
    world.turn = int(world.generator.integers(len(NODES)))
    named: set[str] = set()
    false_names = 0
    for number in range(QUIET_NIGHTS):
        for _node in world.night(number):
            pass
        slow = {name for name, record in world.records().items() if record.standing is Standing.SLOW}
        false_names += len(slow - named)
        named = slow
    quiet_visits = world.visits
    world.slow = int(world.generator.integers(len(NODES)))
    own = 0
    for number in range(QUIET_NIGHTS, QUIET_NIGHTS + MOST_NIGHTS):
        for node in world.night(number):
            if node == NODES[world.slow]:
                own += 1
                if world.records()[node].standing is Standing.SLOW:
                    return Found(own, world.visits - quiet_visits, false_names, quiet_visits)
        if nightly and world.records()[NODES[world.slow]].standing is Standing.SLOW:
            return Found(own, world.visits - quiet_visits, false_names, quiet_visits)
    return Found(own, world.visits - quiet_visits, false_names, quiet_visits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleets", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| runs | visited | named within two visits | visits until named | of in turn | false names in 1,000 |")
    print("|---|---|---|---|---|---|")
    for outliers, nightly in ((0.0, 0), (0.03, 0), (0.0, NIGHTLY), (0.03, NIGHTLY)):
        found = {
            way: [simulate(way, (options.seed, fleet), outliers, nightly) for fleet in range(options.fleets)]
            for way in WAYS
        }
        in_turn = np.mean([one.all_visits for one in found["in turn"]])
        for way, fleets in found.items():
            kind = f"{100 * outliers:.0f} % outliers" + (", nightly runs" if nightly else "")
            within = np.mean([one.own_visits <= 2 for one in fleets])
            visits = np.mean([one.all_visits for one in fleets])
            false = sum(one.false_names for one in fleets) / sum(one.quiet_visits for one in fleets)
            print(f"| {kind} | {way} | {within:.0%} | {visits:.1f} | {visits / in_turn:.0%} | {1000 * false:.2f} |")


if __name__ == "__main__":
    main()
