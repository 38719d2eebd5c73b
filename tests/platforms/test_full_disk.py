"""A real job while the disk of the submitting machine is really full."""

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
from tests.platforms.slurm_jobs import gated, pumped, shell

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


@pytest.mark.slow
def test_a_job_that_ends_while_the_disk_is_full_has_its_result(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor writes how it ended once there is room. The job's own log is on that disk, too."""
    monkeypatch.setenv("HPC_ML_BENCH_LOCK", str(tmp_path / "lock"))
    platform = Platform(name="local", source=Path("local.yaml"), poll_s=0.2)
    runner = Runner(disk / "runs", "r1")
    gate = tmp_path / "gate"
    one = runner.add(replace(shell("a", gated(gate, "true")), platform="local"), platform)
    try:
        pumped(runner, lambda: one.status.state is State.RUNNING, "it runs")
        fill(disk)
        gate.touch()
        runner.wait(one, deadline=time.monotonic() + FULL_S)
        assert not one.done
        (disk / "ballast").unlink()
        runner.wait(one)
        assert one.result().status.state is State.SUCCEEDED
    finally:
        assert runner.cancel() == []
    assert json.loads((one.folder / "run.json").read_text())["state"] == "succeeded"
