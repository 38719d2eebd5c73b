"""The level of the other nodes is found without copies; here it is looked up run by run, as docs/nodes.md says it."""

from __future__ import annotations

import datetime
import random
from statistics import median

import pytest

from reporting.fleet.node_runs import (
    FEWEST_NODES,
    FEWEST_RUNS,
    NEAREST_RUNS,
    NODES_OF_A_NIGHT,
    NodeJob,
    Quantity,
    node_runs,
)
from reporting.history.nights import night_of, nights_of

NOON = datetime.time(12)
DAY_S = 86400
BANDWIDTH = (Quantity("bandwidth", "GB/s", "higher"),)


def fleet(seed: int) -> list[NodeJob]:
    """Some nights of some nodes, which may have several runs a night; some values and times are equal."""
    draw = random.Random(seed)
    nodes = [f"n{number}" for number in range(draw.choice((4, 6, 7, 12)))]
    jobs = []
    for night in range(20):
        for number in range(draw.choice((1, 3, len(nodes), 2 * len(nodes)))):
            started_s = 1_790_000_000.0 + night * DAY_S + draw.choice((draw.random() * 9000, 60 * number))
            value = draw.choice((draw.gauss(100, 1), draw.randrange(98, 102), 0))
            named = draw.choice((draw.choice(nodes), nodes[number % len(nodes)]))
            jobs.append(
                NodeJob(started_s, f"r{night}", str(number), named, "t", "w", "", BANDWIDTH, (value,), {}, "", {})
            )
    return sorted(jobs, key=lambda job: (job.started_s, job.run_id, job.job_id))


def level_of(job: NodeJob, jobs: list[NodeJob]) -> tuple[float, str]:
    others = [other for other in jobs if other.node != job.node]
    beside = [other for other in others if night_of(other.started_s) == night_of(job.started_s)]
    count = len({other.node for other in beside})
    if count >= NODES_OF_A_NIGHT:
        return median(other.values[0] for other in beside), f"{count} other nodes of that night"
    place = jobs.index(job)
    before = [other for other in jobs[:place] if other.node != job.node][::-1]
    after = [other for other in jobs[place:] if other.node != job.node]
    # A stable sort: of two runs that are as near the earlier one comes first.
    near = sorted([*before, *after], key=lambda other: abs(other.started_s - job.started_s))[:NEAREST_RUNS]
    if len(near) < FEWEST_RUNS or len({other.node for other in near}) < FEWEST_NODES:
        return 0.0, ""
    return median(other.values[0] for other in near), f"{len(near)} runs of other nodes"


@pytest.mark.parametrize("seed", range(12))
def test_each_run_is_beside_the_median_of_the_other_nodes(seed: int) -> None:
    jobs = fleet(seed)
    found = node_runs(random.Random(seed).sample(jobs, len(jobs)), NOON)
    for run in found:
        level, beside = level_of(run.job, jobs)
        expected = (run.job.values[0] - level) / abs(level) if level else None
        assert (run.change, run.beside) == (expected, beside if level else "")


def test_many_nights_are_those_of_each_run() -> None:
    ends = datetime.time(6, 30)
    minute_s = 29_833_333 * 60.0
    starts = [minute_s + seconds for seconds in (-1e-6, -5e-7, -2e-7, 0.0, 1e-6, 59.9999998, 60.0)]
    starts += [minute_s + hours * 3600 for hours in range(-24, 24)]
    assert nights_of(starts, ends) == [night_of(started_s, ends) for started_s in starts]
