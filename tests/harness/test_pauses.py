"""Tests that a person has paused, or whose platform is under maintenance, are skipped and make no job."""

from __future__ import annotations

import datetime
import time

import pytest

from reporting.references import store
from reporting.references.answers import Author, Pause
from tests.clusters.slurm import Cluster
from tests.harness.conftest import Project

TODAY = datetime.date.today()
TEST = "test_mine.py::test_it[far-1x2gpu]"


@pytest.fixture(autouse=True)
def _today(monkeypatch: pytest.MonkeyPatch) -> None:
    """Midnight may have passed since this file was imported."""
    monkeypatch.setitem(globals(), "TODAY", datetime.date.today())


def pause(project: Project, name: str, days: int) -> None:
    author = Author("ada", datetime.datetime.now(datetime.UTC))
    until = TODAY + datetime.timedelta(days=days)
    store.append(project.path / "site", Pause(name, until, "new firmware", author))


@pytest.fixture
def two_platforms(project: Project) -> Project:
    project.job_test()
    project.platform("far")
    return project


@pytest.mark.slow
@pytest.mark.parametrize("name", ["far", TEST], ids=["platform", "test"])
def test_what_is_paused_is_skipped_with_the_reason_and_makes_no_job(two_platforms: Project, name: str) -> None:
    pause(two_platforms, name, days=0)  # its last day
    result = two_platforms.pytest("-m", "far or local", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines([f"SKIPPED*{name.replace('[', '[[]')} is paused until {TODAY}: new firmware (ada)*"])
    assert two_platforms.jobs() == ["test_mine-test_it-local-1x1cpu"]


@pytest.mark.slow
def test_a_pause_ends_with_its_last_day(two_platforms: Project) -> None:
    pause(two_platforms, "far", days=-1)
    two_platforms.pytest("-m", "far").assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_line_says_which_pause_skips_how_many_tests(two_platforms: Project) -> None:
    two_platforms.job_test(name="test_other.py")
    pause(two_platforms, "far", days=3)
    pause(two_platforms, "test_mine.py::test_it[local-1x1cpu]", days=1)
    pause(two_platforms, "elsewhere", days=1)
    result = two_platforms.pytest("-q", "-m", "far or local")
    result.assert_outcomes(passed=1, skipped=3)
    said = [line for line in result.outlines if line.startswith("paused until")]
    assert sorted(said, key=len) == [
        f"paused until {TODAY + datetime.timedelta(days=3)}: far: new firmware (ada): 2 tests skipped",
        f"paused until {TODAY + datetime.timedelta(days=1)}: test_mine.py::test_it[local-1x1cpu]: new firmware (ada): "
        "1 test skipped",
    ]


def test_a_dry_run_says_what_is_paused(two_platforms: Project) -> None:
    pause(two_platforms, "far", days=3)
    result = two_platforms.pytest("-m", "far", "--dry-run")
    result.stdout.fnmatch_lines(["would be skipped: far is paused until *: new firmware (ada)"])


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_a_job_that_was_begun_before_the_pause(two_platforms: Project) -> None:
    gate = two_platforms.path / "gate"
    two_platforms.job_test(f"gate={gate}")
    two_platforms.pytest("-m", "far", "--wait", "0").assert_outcomes(skipped=1)  # PENDING
    pause(two_platforms, "far", days=3)
    gate.touch()
    two_platforms.pytest("--resume").assert_outcomes(passed=1)


# --- maintenance -----------------------------------------------------------------------------------------------------


@pytest.mark.real_slurm
def test_a_platform_under_maintenance_is_skipped_but_for_jobs_that_use_its_reservation(
    project: Project, slurm: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """On the partition `teaching`, which has one node."""
    project.job_test()
    path = project.path / "test_mine.py"
    path.write_text(path.read_text().replace(".workload(", ".workload(time_limit='10m', "))
    project.on_slurm(tmp_path_factory.mktemp("work"), partition="teaching")
    words = ("ReservationName=m_upgrade", "Nodes=cn4", "Users=root", "Duration=60", "Flags=MAINT,IGNORE_JOBS,OVERLAP")
    slurm.ask("scontrol", "create", "reservation", "StartTime=now", *words)
    try:
        result = project.pytest("-m", "mine", "-rs")
        dry = project.pytest("-m", "mine", "--dry-run=server")
        assert project.jobs() == []
        inside = project.pytest("-m", "mine", "--reservation", "m_upgrade", "--nodes", "cn4")
    finally:
        slurm.ask("scontrol", "delete", "ReservationName=m_upgrade")
    result.assert_outcomes(skipped=1)
    until = time.strftime("%Y-%m-%d %H:", time.localtime(time.time() + 3600))
    result.stdout.fnmatch_lines([f"SKIPPED*maintenance until {until}*: reservation m_upgrade*"])
    dry.stdout.fnmatch_lines([f"would be skipped: maintenance until {until}*"])
    inside.assert_outcomes(passed=1)
    assert project.jobs() == ["test_mine-test_it-mine-1x1cpu"]
