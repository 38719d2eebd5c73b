"""Histories with campaigns: sessions of several jobs with a label, on nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from platforms.job import Metric, Trial
from reporting.history.envelope import Envelope
from reporting.history.writer import HistoryWriter
from tests.reporting.gate_nights import run

TEST = "test_deepcam.py::test_deepcam[a100-1x4gpu-tuned]"


def parts(wait: float, h2d: float, step: float, other: float = 1.0) -> dict[str, Metric]:
    """The parts of a step in ms."""
    values = {"wait_ms": wait, "h2d_ms": h2d, "step_ms": step, "other_ms": other}
    return {name: Metric(value, "ms", "lower") for name, value in values.items()}


def session(number: int, values: Sequence[float], label: str | None = None, **changes: Any) -> list[Envelope]:
    """A session in a night, with a job of a test for each value. `changes` are those of `gate_nights.run`."""
    changes = {"platform": "a100", "benchmark": "deepcam", "test": TEST, "run_id": f"night-{number:03}", **changes}
    provenance: Mapping[str, Any] = changes.pop("provenance", {})
    jobs = []
    for repeat, value in enumerate(values, 1):
        where = {"nodes": f"n{repeat:02}", **provenance}
        trial = Trial(label=label, repeat=repeat)
        jobs.append(run(number, value, hour=22 + repeat / 20, trial=trial, provenance=where, **changes))
    return jobs


def campaign(label: str, levels: Sequence[float], first: int, jobs: int = 4, **changes: Any) -> list[Envelope]:
    """A session for each level, in one night after the other. The jobs of a session have its level as their median."""
    found = []
    for number, level in enumerate(levels, first):
        spread = [level * (1 + (job - (jobs - 1) / 2) / 100) for job in range(jobs)]
        found += session(number, spread, label, **changes)
    return found


def site_with(folder: Path, runs: Sequence[Envelope]) -> Path:
    """A site whose history has these runs. Returns its folder."""
    HistoryWriter(folder / "history").write_all(runs)
    return folder


def on_nodes(
    number: int, label: str, values: Mapping[str, float], upgraded: Collection[str] = (), **changes: Any
) -> list[Envelope]:
    """A session with a job on each node. A step takes 96 ms at a value of 100, and 4 ms beside that.

    Args:
        upgraded: nodes with a new driver.
    """
    jobs = []
    for attempt, (node, value) in enumerate(values.items(), 1):
        beside = parts(2, 1, 9600 / value)
        provenance = {"nodes": node, "driver": "580.65" if node in upgraded else "570.124"}
        jobs += session(number, [value], label, provenance=provenance, beside=beside, attempt=attempt, **changes)
    return jobs
