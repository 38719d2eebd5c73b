"""What slow nodes have in common in the network, and what their cards counted. It names no node by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from reporting.compare.network import far_counts
from reporting.compare.placement import CHANCE, EXPLAINED, chance
from reporting.fleet.nodes import NodeRecord, Standing

FEWEST_SLOW = 3  # nodes under one switch
RUNS = 60  # of other nodes, the last ones, say what is usual


def seen(records: Collection[NodeRecord], shown: Collection[NodeRecord]) -> Iterator[str]:
    """Sentences on the slow and suspect ones of some nodes, beside all nodes."""
    yield from _common_place(records)
    runs = sorted((run for record in records for run in record.runs.counted()), key=lambda run: run.job.started_s)
    for record in shown:
        if record.slow_streak:
            last = record.slow_streak[-1]
            usual = [
                run for run in runs if run.job.test == last.job.test and run.job.node != last.job.node and not run.slow
            ]
            counts = far_counts([last.job.network], [run.job.network for run in usual[-RUNS:]])
            yield from (f"seen on {text}" for text in counts)


def _common_place(records: Collection[NodeRecord]) -> Iterator[str]:
    """The switch or block of the slow nodes: `all 4 slow nodes are under leaf16, and 12 of the 60 others`."""
    judged = [record for record in records if record.standing is not Standing.UNKNOWN]
    places = {record.name: place for record in judged if (place := record.runs[-1].job.place)}
    slow = [record.name for record in records if record.standing is Standing.SLOW and record.name in places]
    there = Counter(places[name] for name in slow)
    for place, count in there.most_common(1):
        under = sum(name == place for name in places.values())
        by_chance = len(set(places.values())) * chance(count, len(slow), under, len(places))  # whichever place it is
        if count >= max(FEWEST_SLOW, EXPLAINED * len(slow)) and by_chance < CHANCE:
            which = f"all {count}" if count == len(slow) else f"{count} of the {len(slow)}"
            others = f"{under - count} of the {len(places) - len(slow)} others"
            yield f"{which} slow nodes are under {place}, and {others}"
