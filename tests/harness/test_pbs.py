"""A scheduler that is not part of the suite, registered by one line in the dict: all commands and pytest run with it.

The scheduler is tests/pbs/scheduler.py, a small OpenPBS. Its qsub, qstat and qdel really run the jobs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from platforms import checkout
from platforms.__main__ import main
from platforms.config import schema
from platforms.schedulers import FILE_KEYS, SCHEDULERS
from tests.harness.conftest import Project
from tests.pbs import fake_path
from tests.waiting import until


class Site:
    """A project whose platform `it` is a PBS; commands are typed as a user types them."""

    def __init__(self, project: Project, capsys: pytest.CaptureFixture[str]) -> None:
        self.project, self._capsys = project, capsys
        self.work = project.path / "work"

    def types(self, *words: str, code: int = 0) -> str:
        """What a command printed, which ends with this exit code."""
        self._capsys.readouterr()
        ended = main([*words, "--site", str(self.project.path / "site"), *self._runs(words[0])])
        out, err = self._capsys.readouterr()
        assert ended == code, out + err
        return out + err

    def _runs(self, command: str) -> list[str]:
        if command in ("init", "enable"):
            return []
        return ["--runs-dir", str(self.project.path / "runs")]

    def furnish(self) -> None:
        """The platform's file."""
        keys = f"scheduler: pbs\ndevice: cpu\npython: {sys.executable}\nlayouts: {{default: [1x1]}}\npoll_s: 0.2\n"
        self.project.write("site/platforms/it.yaml", f"{keys}work_dir: {self.work}\npbs: {{queue: workq}}\n")
        self.project.write("site/site.yaml", "enabled: [it]\n")

    def job_folders(self) -> list[Path]:
        return sorted(self.work.glob("jobs/*"))


@pytest.fixture
def site(project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Site:
    monkeypatch.setitem(SCHEDULERS, "pbs", "tests.pbs.scheduler:PbsBackend")  # the one line
    programs = fake_path(project.path / "bin")
    (project.path / "server").mkdir()
    (project.path / "site").mkdir()
    monkeypatch.setenv("FAKE_PBS", str(project.path / "server"))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return Site(project, capsys)


def test_init_writes_a_file_that_loads(site: Site) -> None:
    site.types("init", "it", "--scheduler", "pbs", "--enable")
    written = (site.project.path / "site/platforms/it.yaml").read_text()
    assert "scheduler: pbs" in written
    assert "queue: workq" in written
    schema.load_platforms([site.project.path / "site/platforms"], schedulers=FILE_KEYS)


def test_its_own_keys_are_checked_with_their_lines(site: Site) -> None:
    site.furnish()
    path = site.project.path / "site/platforms/it.yaml"
    path.write_text(path.read_text().replace("queue", "queu").replace("work_dir", "# work_dir"))
    printed = site.types("doctor", "it", code=2)
    assert f"{path}:7: pbs.queu: unknown key (did you mean 'queue'?)" in printed
    assert "work_dir: is missing (write an absolute path that login and compute nodes see)" in printed


@pytest.mark.slow
def test_doctor_looks_at_the_server_and_at_a_node(site: Site) -> None:
    site.furnish()
    for name in checkout.benchmarks():
        (site.work / "data" / f"{name}-quick").mkdir(parents=True)
    printed = site.types("doctor", "it", "--node")
    steps = [line.split()[:2] for line in printed.splitlines() if line.startswith(("ok", "failed", "skipped"))]
    assert steps == [["ok", name] for name in ("file", "transport", "work_dir", "server", "policy", "node", "data")]


@pytest.mark.slow
def test_prepare_makes_the_data_by_a_job(site: Site) -> None:
    site.furnish()
    site.types("prepare", "it", "--benchmark", "cosmoflow", "--size", "smoke")
    assert (site.work / "data/cosmoflow-smoke").is_dir()
    assert len(site.job_folders()) == 1


@pytest.mark.slow
def test_pytest_submits_waits_and_reads_the_result(site: Site) -> None:
    site.furnish()
    site.project.job_test()
    result = site.project.pytest("--platform", "it")
    result.assert_outcomes(passed=1)
    assert len(site.job_folders()) == 1
    assert (site.job_folders()[0] / "exit").read_text() == "exit_code=0\n"

    def folder_is_pruned() -> bool:
        site.types("prune", "it", "--yes", "--keep-days", "0", "--keep-failed-days", "0")
        return site.job_folders() == []

    until(folder_is_pruned)  # qstat may show the job for a moment after its exit file is there, and then it stays


@pytest.mark.slow
def test_a_job_that_lives_is_shown_keeps_its_folder_and_can_be_cancelled(site: Site) -> None:
    site.furnish()
    site.project.job_test("sleep=120")
    result = site.project.pytest("--platform", "it", "--wait", "0", "--run-id", "left")
    result.assert_outcomes(skipped=1)
    [folder] = site.job_folders()
    until(lambda: (folder / "log").exists() and (folder / "log").stat().st_size > 0)

    printed = site.types("jobs", "left")
    assert "running" in printed
    printed = site.types("logs", folder.name, "--run", "left")
    assert printed

    (site.project.path / "runs").rename(site.project.path / "runs-elsewhere")  # so that only PBS knows that it lives
    (site.project.path / "runs").mkdir()
    printed = site.types("prune", "it", "--yes", "--keep-days", "0", "--keep-failed-days", "0")
    assert "stays: the job is R" in printed
    assert folder.is_dir()
    (site.project.path / "runs").rmdir()
    (site.project.path / "runs-elsewhere").rename(site.project.path / "runs")

    printed = site.types("cancel", "left")
    assert "has ended" in printed
    printed = site.types("jobs", "left")
    assert "cancelled" in printed
