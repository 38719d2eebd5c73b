"""What many jobs cost the runner: nothing is timed and everything is counted (benchmarks/scale.py measures more)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import FrameType

import pytest

from platforms.job import JobSpec, State, Status, Submitted
from tests.simulated import POLL_S, QUEUE_S, Clock, Session, Simulated, counted_fsyncs

PLATFORMS, MAX_RUNNING = 3, 4


class Slow(Simulated):
    """It takes longer to answer than until it is to be asked again."""

    def submit(self, spec: JobSpec, text: str, folder: Path) -> str:
        self._think()
        return super().submit(spec, text, folder)

    def status(self, jobs: Sequence[Submitted]) -> Mapping[str, Status]:
        self._think()
        return super().status(jobs)

    def _think(self) -> None:
        assert isinstance(self.clock, Clock)
        self.clock.forward(1.5 * POLL_S)


class Calls:
    """How many functions of Python are called meanwhile."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        self.count += event == "call"


def cost(folder: Path, jobs: int) -> dict[str, float]:
    """Of one job, when there are so many."""
    session = Session(folder, PLATFORMS, MAX_RUNNING, threads=False)
    with counted_fsyncs() as fsyncs, Calls() as calls:
        session.run(jobs)
    counts = {**session.counts, "changes": session.changes, "fsyncs": fsyncs["fsync"]}
    counts |= {"journal bytes": session.journal_bytes, "functions called": calls.count}
    return {name: count / jobs for name, count in counts.items()}


@pytest.mark.parametrize("threads", [True, False])
@pytest.mark.parametrize("jobs", [1, 30])
@pytest.mark.slow
def test_one_query_a_look_however_many_jobs(tmp_path: Path, jobs: int, threads: bool) -> None:
    session = Session(tmp_path, PLATFORMS, MAX_RUNNING, threads)
    runner = session.run(jobs)

    assert [job.status.state for job in runner.jobs] == [State.SUCCEEDED] * jobs
    assert len(session.queries) == min(jobs, PLATFORMS)
    for times in session.queries:
        assert min(round(later - first, 3) for first, later in pairwise(times)) >= POLL_S
        assert len(times) <= session.clock() / POLL_S


def test_a_slow_scheduler_is_given_all_that_it_has_places_for(tmp_path: Path) -> None:
    session = Session(tmp_path, 1, MAX_RUNNING, threads=False)
    slow = session.schedulers["p00"] = Slow(session.clock)
    session.run(MAX_RUNNING)

    times = [submitted for _id, submitted in slow.held.values()]
    assert max(later - first for first, later in pairwise(sorted(times))) < QUEUE_S  # before the first has even begun


@pytest.mark.slow
def test_what_a_job_costs_does_not_depend_on_how_many_there_are(tmp_path: Path) -> None:
    """A loop over all of them at every look would make it many times as much.

    A job waits for the disk before it is submitted, when its result is written, and for its share of the journal.
    """
    few, many = (cost(tmp_path / str(jobs), jobs) for jobs in (PLATFORMS * MAX_RUNNING, 5 * PLATFORMS * MAX_RUNNING))
    assert many["submit"] == many["clean"] == many["gaps"] == many["hints"] == 1
    assert {name: count for name, count in many.items() if count > 1.05 * few[name]} == {}
    assert 2 <= many["fsyncs"] <= 3
