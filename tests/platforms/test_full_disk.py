"""Real jobs while the disk of the submitting machine is really full: on this machine, and on a real Slurm."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, State, job_name
from platforms.runner import Runner
from tests.clusters.slurm import Cluster
from tests.waiting import until

LAYOUT = Layout(1, 1, "cpu")
PATIENCE_S = 120.0
FULL_S = 6.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"this user cannot mount a disk: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> None:
    try:
        with (disk / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 512)
    except OSError:
        return


def job(name: str, platform: str, command: str) -> JobSpec:
    test = f"test_x.py::test_x[{name}]"
    named = job_name(name, LAYOUT, "r1", test)
    return JobSpec(named, test, platform, LAYOUT, ("sh", "-c", command), time_limit_s=600, start_limit_s=600)


def plays(disk: Path, gate: Path, platform: Platform, words: str) -> list[str]:
    """A job ends while the disk is full, which has room again some seconds later. Returns what a person was told."""
    said: list[str] = []
    runner = Runner(disk / "runs", "r1", on_trouble=said.append)
    waits = f"until [ -e {gate} ]; do sleep 0.1; done; printf '{words}'"
    one = runner.add(job("a", platform.name, waits), platform)
    try:
        until(lambda: (runner.pump(), one.status.state is State.RUNNING)[1])
        fill(disk)
        gate.touch()
        runner.wait(one, deadline=time.monotonic() + FULL_S)
        assert not one.done
        (disk / "ballast").unlink()
        runner.wait(one, deadline=time.monotonic() + PATIENCE_S)
        assert one.result().status.state is State.SUCCEEDED
    finally:
        assert runner.cancel() == []
    assert (one.folder / "log").read_text() == words
    assert json.loads((one.folder / "run.json").read_text())["state"] == "succeeded"
    return said


def test_on_this_machine(disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor of the job writes how it ended once there is room. The job's own log is on that disk, too."""
    monkeypatch.setenv("HPC_ML_BENCH_LOCK", str(tmp_path / "lock"))
    platform = Platform(name="local", source=Path("local.yaml"), poll_s=0.2)
    plays(disk, tmp_path / "gate", platform, words="")


@pytest.mark.real_slurm
def test_on_slurm(slurm: Cluster, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.environ["SLURM_CONF"])
    platform = Platform(
        name="cluster",
        source=Path("cluster.yaml"),
        scheduler="slurm",
        device="cpu",
        layouts={"default": ("1x1",)},
        work_dir=str(tmp_path / "work"),
        poll_s=0.5,
        retries=0,
        slurm={"account": "z19"},
    )
    said = plays(disk, tmp_path / "gate", platform, words="the end")
    (told,) = said
    assert "No space left on device" in told
    assert "this is tried again; no job is cancelled" in told
    assert f"`df -h {disk}" in told
