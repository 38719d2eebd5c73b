"""One platform of several is chosen, and what would be lost or surplus is refused before a job is submitted.

The jobs are processes of this machine. No GitLab is needed: a step runs in this process, and its sessions and its
commands of `python -m reporting` in children, as in a CI job.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.__main__ import main
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

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
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
        (folder / "program.py").write_text(PROGRAM.format(gate=str(self.gate)))
        self._monkeypatch = monkeypatch
        self._capfd = capfd
        ours = ("BENCH_", "CI_", "GITLAB_", "HPC_ML_BENCH_", "PYTEST_", "PYTHONUNBUFFERED")
        for name in os.environ:
            if name.startswith(ours):
                monkeypatch.delenv(name)
        fixed = {"XDG_CACHE_HOME": folder / "cache", "HPC_ML_BENCH_LOCK": folder / "lock", "GITLAB_CI": "true"}
        for name, value in {**fixed, "BENCH_TESTS": "site/test_tiny.py", "CI_PROJECT_DIR": self.folder}.items():
            monkeypatch.setenv(name, str(value))

    def step(self, step: str, platform: str, number: int = 7, code: int = 0, **variables: str) -> str:
        """One CI job, which ends with this exit code. Returns what it has printed, also by its children."""
        with self._monkeypatch.context() as environ:
            given = {"CI_PIPELINE_ID": str(number), "BENCH_JOB_PLATFORM": platform, **variables}
            for name, value in given.items():
                environ.setenv(name, value)
            ended = main([step, "--project", str(self.folder)])
        text = "".join(self._capfd.readouterr())
        assert ended == code, text
        return text

    def refuse_pushes(self) -> None:
        hook = self.remote / "hooks/pre-receive"
        hook.write_text(NO_RIGHT)
        hook.chmod(0o755)

    def begun(self) -> list[Path]:
        """The records of sessions, in all folders of runs."""
        return [*self.folder.glob(".bench/**/sessions/*.jsonl"), *self.shared.glob("*/sessions/*.jsonl")]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Project]:
    project = Project(tmp_path, monkeypatch, capfd)
    yield project
    project.gate.touch()


@pytest.mark.parametrize("step", ["submit", "fetch"])
def test_processes_of_a_machine_whose_run_the_next_job_would_not_find_are_refused(project: Project, step: str) -> None:
    text = project.step(step, "second", code=2)
    assert "the jobs of second are processes of this machine" in text
    assert project.begun() == []


@pytest.mark.slow
def test_the_right_to_push_is_tested_before_anything_is_submitted(project: Project) -> None:
    project.refuse_pushes()
    text = project.step("submit", "second", BENCH_RUNS=str(project.shared), code=2)
    assert "bench-history cannot be pushed" in text
    assert project.begun() == []


def test_the_other_platforms_of_a_pipeline_have_nothing_to_do_where_one_is_chosen(project: Project) -> None:
    for step in ("submit", "fetch", "cancel"):
        text = project.step(step, "local", BENCH_ONLY="second")
        assert text == "BENCH_ONLY is second, and this job is of local: it does nothing\n"
    text = project.step("submit", "local", BENCH_ONLY="secnd", code=2)
    assert "did you mean 'second'?" in text


def test_a_platform_of_a_schedule_renames_no_job(project: Project) -> None:
    text = project.step("submit", "local", BENCH_PLATFORM="second", BENCH_RUNS=str(project.shared), code=2)
    assert "with BENCH_ONLY=second" in text


@pytest.mark.parametrize("step", ["fetch", "cancel"])
def test_a_run_is_of_the_job_of_its_platform_alone(project: Project, step: str) -> None:
    text = project.step(step, "second", BENCH_RUN="203-local")
    assert text == "run 203-local is of local, and this job is of second: it does nothing\n"
    text = project.step(step, "second", BENCH_RUN="203-lcoal", code=2)
    assert "there is no platform 'lcoal'" in text
    project.step(step, "second", BENCH_RUN="203-local", BENCH_ONLY="second", code=2)


@pytest.mark.slow
def test_a_step_is_a_program_whose_refusal_is_its_exit_code_and_its_last_line(project: Project) -> None:
    given = {**os.environ, "BENCH_PLATFORM": "second", "CI_PIPELINE_ID": "7"}
    words = [sys.executable, "-m", "pipeline", "submit", "--project", str(project.folder)]
    done = subprocess.run(words, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: ")


@pytest.mark.slow
def test_a_run_without_a_record_is_refused_and_not_submitted(project: Project) -> None:
    variables = {"BENCH_RUNS": str(project.shared)}
    text = project.step("submit", "second", 41, code=PENDING, **variables)
    assert "PENDING: a later pipeline with BENCH_STEP=fetch reads 41-second" in text
    begun = project.begun()
    for step in ("fetch", "cancel"):
        text = project.step(step, "second", 42, BENCH_RUN="14-second", code=2, **variables)
        assert "Unfinished on second: 41-second." in text
        assert project.begun() == begun
    project.gate.touch()
    project.step("fetch", "second", 43, BENCH_RUN="41-second", **variables)
    text = project.step("fetch", "second", 44, **variables)
    assert "nothing to fetch" in text


@pytest.mark.slow
def test_a_run_that_pytest_refuses_to_begin_is_not_pushed_and_its_error_comes_last(project: Project) -> None:
    text = project.step("submit", "second", BENCH_RUNS=str(project.shared), BENCH_TESTS="site/test_tniy.py", code=4)
    assert "test_tniy.py" in text.splitlines()[-1] + text.splitlines()[-2]


@pytest.mark.slow
def test_a_failed_push_leaves_no_folder_that_all_runners_see_in_the_artifacts_and_may_fail_twice(
    project: Project,
) -> None:
    variables = {"BENCH_RUNS": str(project.shared)}
    project.step("submit", "second", 50, code=PENDING, **variables)
    project.gate.touch()
    project.refuse_pushes()
    for number in (52, 53):
        text = project.step("fetch", "second", number, code=2, **variables)
        assert "Errno" not in text
    kept = project.folder / "bench-out/not-pushed"
    assert list(kept.glob("history/*/*.jsonl"))
    assert not (kept / "runs").exists()
