"""One platform of several is chosen, and what would be lost or surplus is refused before a job is submitted.

The jobs are processes of this machine. No GitLab is needed: the CI jobs' program is called as the templates call it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.steps import PENDING
from tests.pipeline.gitlab_ci_local import ROOT
from tests.programs import require

SECOND = "scheduler: local\ndevice: cpu\nlayouts: {default: [1x1]}\n"
PROGRAM = """
import pathlib, time
ends_at = time.monotonic() + 120
while not pathlib.Path({gate!r}).exists() and time.monotonic() < ends_at:
    time.sleep(0.1)
"""
TESTS = """
import pytest

@pytest.mark.workload(command=["{python}", "PROGRAM"], launcher="none")
def test_tiny(run, record):
    record(run, metrics={"rate": (1.0, "1/s", "higher")})
"""
NO_RIGHT = "#!/bin/sh\necho 'GitLab: You are not allowed to push code to this project.'\nexit 1\n"


class Project:
    """A clone of a centre's project, with the platforms `local` and `second`."""

    def __init__(self, folder: Path) -> None:
        self.remote, self.folder, self.shared = folder / "centre.git", folder / "centre", folder / "shared-runs"
        self.shared.mkdir()
        require("git", install="apt-get install git")
        subprocess.run(["git", "init", "-q", "--bare", str(self.remote)], check=True)
        subprocess.run(["git", "clone", "-q", str(self.remote), str(self.folder)], check=True, capture_output=True)
        (self.folder / "site/platforms").mkdir(parents=True)
        (self.folder / "site/site.yaml").write_text("enabled: [second]\n")
        (self.folder / "site/platforms/second.yaml").write_text(SECOND)
        (self.folder / "site/test_tiny.py").write_text(TESTS.replace("PROGRAM", str(folder / "program.py")))
        self.gate = folder / "open"
        self.own = {"XDG_CACHE_HOME": str(folder / "cache"), "HPC_ML_BENCH_LOCK": str(folder / "lock")}
        (folder / "program.py").write_text(PROGRAM.format(gate=str(self.gate)))

    def step(self, step: str, platform: str, number: int = 7, **variables: str) -> tuple[int, str]:
        """One CI job. Returns its exit code and what it has printed."""
        ours = ("BENCH_", "CI_", "GITLAB_", "HPC_ML_BENCH_", "PYTEST_")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        environ.pop("PYTHONUNBUFFERED", None)  # as in a plain CI job
        environ |= {"CI_PIPELINE_ID": str(number), "BENCH_JOB_PLATFORM": platform, "BENCH_TESTS": "site/test_tiny.py"}
        done = subprocess.run(
            [sys.executable, "-m", "pipeline", step, "--project", str(self.folder)],
            cwd=ROOT,
            env={**environ, **self.own, "GITLAB_CI": "true", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
        return done.returncode, done.stdout

    def refuse_pushes(self) -> None:
        hook = self.remote / "hooks/pre-receive"
        hook.write_text(NO_RIGHT)
        hook.chmod(0o755)

    def begun(self) -> list[Path]:
        """The records of sessions, in all folders of runs."""
        return [*self.folder.glob(".bench/**/sessions/*.jsonl"), *self.shared.glob("*/sessions/*.jsonl")]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path)
    yield project
    project.gate.touch()


@pytest.mark.parametrize("step", ["submit", "fetch"])
def test_processes_of_a_machine_whose_run_the_next_job_would_not_find_are_refused(project: Project, step: str) -> None:
    code, text = project.step(step, "second")
    assert code == 2, text
    assert "the jobs of second are processes of this machine" in text
    assert "BENCH_RUNS" in text
    assert project.begun() == []


def test_the_right_to_push_is_tested_before_anything_is_submitted(project: Project) -> None:
    project.refuse_pushes()
    code, text = project.step("submit", "second", BENCH_RUNS=str(project.shared))
    assert code == 2, text
    assert "Allow Git push requests" in text
    assert "HPC_ML_BENCH_GITLAB_TOKEN" in text
    assert project.begun() == []


def test_the_other_platforms_of_a_pipeline_have_nothing_to_do_where_one_is_chosen(project: Project) -> None:
    for step in ("submit", "fetch", "cancel"):
        code, text = project.step(step, "local", BENCH_ONLY="second")
        assert (code, text) == (0, "BENCH_ONLY is second, and this job is of local: it does nothing\n")


def test_a_chosen_platform_that_the_site_does_not_have_is_refused(project: Project) -> None:
    code, text = project.step("submit", "local", BENCH_ONLY="secnd")
    assert code == 2, text
    assert "did you mean 'second'?" in text


def test_a_platform_of_a_schedule_renames_no_job(project: Project) -> None:
    code, text = project.step("submit", "local", BENCH_PLATFORM="second", BENCH_RUNS=str(project.shared))
    assert code == 2, text
    assert "with BENCH_ONLY=second" in text
    assert project.begun() == []


@pytest.mark.parametrize("step", ["fetch", "cancel"])
def test_a_run_is_of_the_job_of_its_platform_alone(project: Project, step: str) -> None:
    code, text = project.step(step, "second", BENCH_RUN="203-local")
    assert (code, text) == (0, "run 203-local is of local, and this job is of second: it does nothing\n")
    code, text = project.step(step, "second", BENCH_RUN="203-lcoal")
    assert code == 2, text
    assert "there is no platform 'lcoal'" in text
    code, text = project.step(step, "second", BENCH_RUN="203-local", BENCH_ONLY="second")
    assert code == 2, text


@pytest.mark.parametrize("step", ["fetch", "cancel"])
def test_a_run_without_a_record_is_refused_and_not_submitted(project: Project, step: str) -> None:
    variables = {"BENCH_RUNS": str(project.shared)}
    submitted, text = project.step("submit", "second", 41, **variables)
    assert submitted == PENDING, text
    assert "PENDING: a later pipeline with BENCH_STEP=fetch reads 41-second" in text
    begun = project.begun()
    code, text = project.step(step, "second", 42, BENCH_RUN="14-second", **variables)
    assert code == 2, text
    assert "Unfinished on second: 41-second." in text
    assert project.begun() == begun
    project.gate.touch()
    code, text = project.step("fetch", "second", 43, BENCH_RUN="41-second", **variables)
    assert code == 0, text


def test_a_run_that_pytest_refuses_to_begin_is_not_pushed_and_its_error_comes_last(project: Project) -> None:
    code, text = project.step("submit", "second", BENCH_RUNS=str(project.shared), BENCH_TESTS="site/test_tniy.py")
    assert code == 4, text
    assert "test_tniy.py" in text.splitlines()[-1] + text.splitlines()[-2]


def test_a_failed_push_leaves_no_folder_that_all_runners_see_in_the_artifacts_and_may_fail_twice(
    project: Project,
) -> None:
    variables = {"BENCH_RUNS": str(project.shared)}
    assert project.step("submit", "second", 50, **variables)[0] == PENDING
    project.gate.touch()
    project.refuse_pushes()
    for number in (52, 53):
        code, text = project.step("fetch", "second", number, **variables)
        assert code == 2, text
        assert "Errno" not in text
    kept = project.folder / "bench-out/not-pushed"
    assert list(kept.glob("history/*/*.jsonl"))
    assert not (kept / "runs").exists()
