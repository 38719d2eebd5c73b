"""How often the network's part in a loss is named, and how often a wrong one: a simulated centre.

    python benchmarks/placement_simulation.py [--centres 300] [--seed 1] [--loss 0.1]

A centre has 64 nodes under 4 leaf switches. Each night a job of 4 nodes runs: in three of four nights under one switch,
else over two. A run varies by 2 %, and a node's card waits for credits as often as a lognormal draw says, which has
nothing to do with the run's speed. After 40 nights something begins, and 20 more nights run; the last night is a slow
one. What the gate says of that night is read, and what `compare` says of the nights before and since. A cause is right
if it is the planted one.

The node finder visits all nodes in three nights, of which one switch's, five of all, or none are slower.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from reporting.compare.causes import causes_of
from reporting.fleet.in_common import seen
from reporting.fleet.node_runs import node_jobs, node_runs
from reporting.fleet.nodes import records_of
from reporting.history.envelope import Envelope
from reporting.history.nights import NOON
from tests.reporting.fleet_history import visit
from tests.reporting.gate_nights import run, verdict_on

NODES = [f"n{number:02}" for number in range(1, 65)]
SWITCH = {node: f"spine1.leaf{1 + place // 16}" for place, node in enumerate(NODES)}
SWITCHES = sorted(set(SWITCH.values()))
CONGESTED, SLOW_SWITCH = "n07", "spine1.leaf3"
OVER_TWO = 0.25
OVER_TWO_SINCE = {  # shares of jobs before and since the night on which something begins
    "jobs cross since a night, and crossing costs": (0.05, 1.0),
    "jobs cross since a night on which another thing costs": (0.05, 0.8),
}
LOSS, NOISE = 0.1, 0.02
BEGINS, NIGHTS = 40, 60
TICKS, SPREAD, CONGESTION = (
    3000,
    1.5,
    1000,
)  # median, deviation of the logarithm, and how much more a congested card has

SLOW_NODES = {"one switch is slow": 16, "half of one switch is slow": 8}
ANSWERS = ("right", "nothing", "wrong", "no loss")

Harm = Callable[[Sequence[str], int], bool]
"""Whether the nodes of a job are hit in a night."""
HARMS: dict[str, tuple[Harm, tuple[str, ...]]] = {
    "crossing always costs": (lambda nodes, _: len({SWITCH[node] for node in nodes}) > 1, ("lay over 2",)),
    "crossing costs since a night": (
        lambda nodes, night: night >= BEGINS and len({SWITCH[node] for node in nodes}) > 1,
        ("lay over 2",),
    ),
    "jobs cross since a night, and crossing costs": (
        lambda nodes, _: len({SWITCH[node] for node in nodes}) > 1,
        ("lay over 2",),
    ),
    "jobs cross since a night on which another thing costs": (lambda _, night: night >= BEGINS, ()),
    "one switch is slow, since a night": (
        lambda nodes, night: night >= BEGINS and any(SWITCH[node] == SLOW_SWITCH for node in nodes),
        (SLOW_SWITCH,),
    ),
    "one node's card is congested": (lambda nodes, _: CONGESTED in nodes, (CONGESTED,)),
    "one night is slow, for no recorded reason": (lambda _, night: night == NIGHTS - 1, ()),
    "all nights are slow since one, for no recorded reason": (lambda _, night: night >= BEGINS, ()),
    "nothing": (lambda *_: False, ()),
}


def placed(generator: np.random.Generator, over_two: float) -> list[str]:
    switches = generator.choice(SWITCHES, 2, replace=False)
    under = [[node for node in NODES if SWITCH[node] == switch] for switch in switches]
    if generator.random() >= over_two:
        return list(generator.choice(under[0], 4, replace=False))
    first = int(generator.integers(1, 4))
    return [*generator.choice(under[0], first, replace=False), *generator.choice(under[1], 4 - first, replace=False)]


def counted(nodes: Sequence[str], generator: np.random.Generator, *, congested: bool) -> dict[str, object]:
    ticks = {node: int(TICKS * np.exp(SPREAD * generator.standard_normal())) for node in nodes}
    if congested and CONGESTED in ticks:
        ticks[CONGESTED] *= CONGESTION
    worst = max(ticks, key=lambda node: ticks[node])
    other = max([count for node, count in ticks.items() if node != worst], default=0)
    return {
        "elapsed_s": 100.0,
        "nodes": len(nodes),
        "most": {"port_xmit_wait": [worst, "mlx5_0/1", ticks[worst], other]},
    }


def nights(kind: str, loss: float, generator: np.random.Generator) -> list[Envelope]:
    harm, _ = HARMS[kind]
    runs = []
    for night in range(NIGHTS):
        over_two = OVER_TWO_SINCE.get(kind, (OVER_TWO, OVER_TWO))[night >= BEGINS]
        nodes = placed(generator, over_two)
        while kind != "nothing" and night == NIGHTS - 1 and not harm(nodes, night):
            nodes = placed(generator, over_two)
        value = 100 * (1 + NOISE * generator.standard_normal()) * (1 - loss * harm(nodes, night))
        places = sorted({SWITCH[node] for node in nodes})
        provenance = {"nodes": ",".join(nodes), "switch": ", ".join(places), "driver": "570.124"}
        network = counted(nodes, generator, congested="card" in kind)
        runs.append(run(night, value, provenance=provenance, network=network))
    return runs


def answers(said: Sequence[str], right: Sequence[str]) -> str:
    if not said:
        return "nothing"
    return "right" if right and all(any(word in text for word in right) for text in said) else "wrong"


def of_series(kind: str, centres: int, seed: int, loss: float) -> None:
    found: dict[str, Counter[str]] = {"gate": Counter(), "compare": Counter()}
    for centre in range(centres):
        runs = nights(kind, loss, np.random.default_rng((seed, centre)))
        *past, current = runs
        verdict = verdict_on(current, past)
        said = "no loss" if verdict.causes is None else answers(verdict.causes.seen, HARMS[kind][1])
        found["gate"][said] += 1
        found["compare"][answers(causes_of(runs[:BEGINS], runs[BEGINS:]).seen, HARMS[kind][1])] += 1
    for who, said in found.items():
        shares = " | ".join(f"{said[word] / centres:.1%}" for word in ANSWERS)
        print(f"| {kind} | {who} | {shares} |", flush=True)


def of_nodes(kind: str, centres: int, seed: int, loss: float) -> None:
    found: Counter[str] = Counter()
    of_switch = [node for node in NODES if SWITCH[node] == SLOW_SWITCH]
    for centre in range(centres):
        generator = np.random.default_rng((seed, centre))
        slow = set(of_switch[: SLOW_NODES.get(kind, 0)])
        if kind == "five nodes are slow":
            slow = set(generator.choice(NODES, 5, replace=False))
        visits = []
        for night in range(3):
            for place, node in enumerate(NODES):
                value = 100 * (1 + NOISE * generator.standard_normal()) * (1 - loss * (node in slow))
                provenance = {"nodes": node, "switch": SWITCH[node]}
                network = counted([node], generator, congested=False)
                visits.append(visit(night, node, value, hour=22 + place / 99, provenance=provenance, network=network))
        records = records_of(node_runs(node_jobs(visits), NOON)).values()
        found[answers(list(seen(records, records)), (SLOW_SWITCH,) if kind in SLOW_NODES else ())] += 1
    shares = " | ".join(f"{found[word] / centres:.1%}" for word in ANSWERS)
    print(f"| {kind} | nodes | {shares} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--centres", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loss", type=float, default=LOSS, help="what each harm costs, as a fraction")
    options = parser.parse_args()
    print("| planted | asked | right | nothing said | wrong | no loss seen |")
    print("|---|---|---|---|---|---|")
    for kind in HARMS:
        of_series(kind, options.centres, options.seed, options.loss)
    for kind in (*SLOW_NODES, "five nodes are slow", "no node is slow"):
        of_nodes(kind, options.centres, options.seed, options.loss)


if __name__ == "__main__":
    main()
