"""Real jobs while the disk of the submitting machine is really full: on this machine, and on a real Slurm."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.config.schema import Platform
from platforms.job import State
from platforms.runner import Runner
from tests.clusters.slurm import Cluster
from tests.platforms.slurm_jobs import cluster, gated, pumped, shell

FULL_S = 3.0


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


def plays(disk: Path, gate: Path, platform: Platform, words: str) -> list[str]:
    """A job ends while the disk is full. Returns what a person was told, where there are words that have no room."""
    said: list[str] = []
    runner = Runner(disk / "runs", "r1", on_trouble=said.append)
    waits = gated(gate, f"printf '{words}'")
    one = runner.add(replace(shell("a", waits), platform=platform.name), platform)
    try:
        pumped(runner, lambda: one.status.state is State.RUNNING, "it runs")
        fill(disk)
        gate.touch()
        if words:
            pumped(runner, lambda: said, "a person is told")
        else:
            runner.wait(one, deadline=time.monotonic() + FULL_S)
        assert not one.done
        (disk / "ballast").unlink()
        runner.wait(one)
        assert one.result().status.state is State.SUCCEEDED
    finally:
        assert runner.cancel() == []
    assert (one.folder / "log").read_text() == words
    assert json.loads((one.folder / "run.json").read_text())["state"] == "succeeded"
    return said


@pytest.mark.slow
def test_on_this_machine(disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor of the job writes how it ended once there is room. The job's own log is on that disk, too."""
    monkeypatch.setenv("HPC_ML_BENCH_LOCK", str(tmp_path / "lock"))
    platform = Platform(name="local", source=Path("local.yaml"), poll_s=0.2)
    plays(disk, tmp_path / "gate", platform, words="")


@pytest.mark.real_slurm
def test_on_slurm(slurm: Cluster, disk: Path, tmp_path: Path) -> None:
    said = plays(disk, tmp_path / "gate", cluster(tmp_path / "work"), words="the end")
    (told,) = said
    assert "No space left on device" in told
    assert "this is tried again; no job is cancelled" in told
    assert f"`df -h {disk}" in told
