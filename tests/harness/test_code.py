"""--code: jobs run the models/ of another commit of the suite."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from platforms.rundir import code_archive, session_history
from tests.harness.conftest import ROOT, Project
from tests.programs import require

OURS = """
import pytest

@pytest.mark.workload(benchmark="cosmoflow")
def test_ours(run, record):
    record(run)
"""


@pytest.fixture
def head() -> str:
    require("git", install="apt-get install git")
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("the suite was not cloned by git here")
    return done.stdout.strip()


@pytest.mark.slow
def test_jobs_run_the_archive_of_that_commit(project: Project, head: str, tmp_path: Path) -> None:
    project.write("test_ours.py", OURS)
    result = project.pytest("-m", "local", "--code=HEAD", "--dry-run")
    expected = code_archive.build_from_commit(ROOT, head, tmp_path).code
    assert re.findall(r"models-(\w+)\.pyz\s[\s\\]*train cosmoflow", result.stdout.str()) == [expected, expected]


@pytest.mark.slow
def test_a_resumed_run_keeps_the_commit_itself(project: Project, head: str) -> None:
    project.job_test()
    project.pytest("-m", "local", "--code=HEAD").assert_outcomes(passed=1)
    (run,) = project.path.glob("runs/2*")
    (record,) = session_history.read_sessions(run)
    assert record.plan["options"]["code"] == head


@pytest.mark.usefixtures("head")
def test_an_unknown_commit_is_refused_before_anything_is_submitted(project: Project) -> None:
    project.job_test()
    result = project.pytest("-m", "local", "--code=no-such-branch")
    result.stderr.fnmatch_lines(["ERROR: --code: * has no commit 'no-such-branch'*"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert project.jobs() == []
