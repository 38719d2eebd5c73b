"""A slow loader, copy and step of jobs on a real Slurm: the sentence on the change names each of them."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, job_name
from platforms.runner import Runner
from reporting.history.envelope import Envelope
from tests.clusters.slurm import Cluster
from tests.injected import FAULTS, assert_named, envelope, training

pytestmark = [pytest.mark.real_slurm, pytest.mark.timeout(900)]
PATIENCE_S = 300.0
ROOT = Path(__file__).resolve().parents[2]
LAYOUT = Layout(1, 1, "cpu")


def test_what_was_slowed_is_named(slurm: Cluster, tmp_path: Path) -> None:
    data = tmp_path / "data"
    making = [sys.executable, "-m", "models", "data", "resnet50", "--samples", "24", "--data-dir", str(data)]
    subprocess.run(making, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE_S)

    platform = Platform(
        name="cluster",
        source=Path("cluster.yaml"),
        scheduler="slurm",
        device="cpu",
        layouts={"default": ("1x1",)},
        work_dir=str(tmp_path / "work"),
        poll_s=0.5,
        max_running=1,  # two trainings at a time would slow each other
        retries=0,
        slurm={"account": "z19"},
    )
    runner = Runner(tmp_path / "runs", "r1")
    runs: dict[str, tuple[object, ...]] = {"plain": (), **FAULTS}
    for name, fault in runs.items():
        runner.add(job_of(name, training(data, *fault)), platform)
    for job in runner.jobs:
        runner.wait(job, deadline=time.monotonic() + PATIENCE_S)

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
    test = f"test_x.py::test_x[{name}]"
    return JobSpec(
        name=job_name(name, LAYOUT, "r1", test),
        test=test,
        platform="cluster",
        layout=LAYOUT,
        arguments=("sh", "-c", command),
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        time_limit_s=600,
        start_limit_s=600,
    )
