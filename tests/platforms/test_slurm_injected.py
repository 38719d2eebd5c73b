"""A slow loader, copy and step of jobs on a real Slurm: the sentence on the change names each of them."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from platforms.job import JobSpec
from platforms.runner import Runner
from reporting.history.envelope import Envelope
from tests.clusters.slurm import Cluster
from tests.injected import FAULTS, assert_named, envelope, training
from tests.platforms.slurm_jobs import cluster, finish, shell

pytestmark = [
    pytest.mark.real_slurm,
    pytest.mark.timeout(900),
    pytest.mark.nightly(
        "models/train.py", "models/meter.py", "models/steps", "platforms/schedulers/slurm", "reporting/compare"
    ),
]
ROOT = Path(__file__).resolve().parents[2]


def test_what_was_slowed_is_named(slurm: Cluster, tmp_path: Path) -> None:
    data = tmp_path / "data"
    making = [sys.executable, "-m", "models", "data", "resnet50", "--samples", "24", "--data-dir", str(data)]
    subprocess.run(making, cwd=ROOT, check=True, capture_output=True)

    platform = cluster(tmp_path / "work", max_running=1)  # two trainings at a time would slow each other
    runner = Runner(tmp_path / "runs", "r1")
    runs: dict[str, tuple[object, ...]] = {"plain": (), **FAULTS}
    for name, fault in runs.items():
        runner.add(job_of(name, training(data, *fault)), platform)
    finish(runner)

    envelopes: dict[str, Envelope] = {}
    for name, job in zip(runs, runner.jobs, strict=True):
        job.result()
        assert job.folder is not None
        envelopes[name] = envelope(json.loads((job.folder / "run.json").read_text()))
    for part in FAULTS:
        assert_named(part, [envelopes["plain"]], envelopes[part])


def job_of(name: str, words: list[object]) -> JobSpec:
    """A training with one thread, by the code of this checkout."""
    command = shlex.join([sys.executable, "-m", "models", *map(str, words)])
    return shell(name, command, env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})
