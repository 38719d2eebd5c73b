"""A scheduler that somebody has registered, one line in the dict: no command takes its jobs for dead, or refuses it
without saying what to do instead."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from platforms import checkout
from platforms.__main__ import main
from platforms.config.schema import Platform
from platforms.schedulers import SCHEDULERS, Backend, Scheduler
from platforms.schedulers.local import LocalScheduler


class ThirdBackend(Backend):
    """A scheduler of which only the Protocol is known."""

    def connect(self, platform: Platform) -> Scheduler:
        return LocalScheduler(platform)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its platform `it`: jobs start on this machine, by a scheduler of which only the Protocol is known."""
    monkeypatch.setitem(SCHEDULERS, "third", "tests.platforms.test_registered_scheduler:ThirdBackend")
    monkeypatch.setenv("HPC_ML_BENCH_LOCK", str(tmp_path / "lock"))
    site = tmp_path / "site"
    (site / "platforms").mkdir(parents=True)
    (site / "site.yaml").write_text("enabled: [it]\n")
    keys = f"scheduler: third\ndevice: cpu\npython: {sys.executable}\nlayouts: {{default: [1x1]}}\npoll_s: 0.2\n"
    (site / "platforms" / "it.yaml").write_text(f"{keys}work_dir: {tmp_path / 'work'}\n")
    return site


def test_prune_removes_nothing_of_a_scheduler_that_it_cannot_ask(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "work" / "jobs" / "resnet50-1x1cpu-k2345abc"
    job.mkdir(parents=True)
    (tmp_path / "runs").mkdir()
    words = ["prune", "it", "--yes", "--keep-days", "0", "--keep-failed-days", "0", "--site", str(site)]
    assert main([*words, "--runs-dir", str(tmp_path / "runs")]) != 0
    assert "prune cannot ask scheduler third which of its jobs live, so it removes nothing" in capsys.readouterr().err
    assert job.is_dir()


@pytest.mark.slow
def test_doctor_asks_what_any_scheduler_can_be_asked(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in checkout.benchmarks():
        (tmp_path / "work" / "data" / f"{name}-quick").mkdir(parents=True)
    code = main(["doctor", "it", "--node", "--site", str(site), "--runs-dir", str(tmp_path / "runs")])
    printed = capsys.readouterr()
    assert code == 0, printed.out + printed.err
    steps = [line.split()[:2] for line in printed.out.splitlines() if line.startswith(("ok", "failed", "skipped"))]
    assert steps == [["ok", name] for name in ("file", "transport", "work_dir", "policy", "node", "data")]


def test_init_says_what_it_can_ask(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["init", "new", "--scheduler", "third", "--site", str(site)])
    assert re.search("invalid choice: 'third'.*slurm.*kubernetes.*ssh", capsys.readouterr().err)
    assert not (site / "platforms" / "new.yaml").exists()


def test_a_benchmark_is_known_to_commands_as_soon_as_its_file_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "benchmarks"
    shutil.copytree(checkout.ROOT / "models" / "benchmarks", folder)
    (folder / "another.py").touch()
    assert checkout.benchmarks(tmp_path) == ("another", *checkout.benchmarks())
