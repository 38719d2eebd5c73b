"""What stands in a log, as that of cron or CI, while jobs wait."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.harness.conftest import Project
from tests.waiting import until


def test_a_file_shows_how_jobs_are_while_they_run(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    project.job_test(f"gate={project.path}/gate")
    log = project.path / "session.log"
    with log.open("w") as out, subprocess.Popen([sys.executable, "-m", "pytest"], cwd=project.path, stdout=out) as it:
        try:
            until(lambda: " on local: running" in log.read_text(), "the log says that the job runs", longest_s=0.1)
        finally:
            (project.path / "gate").touch()
    assert it.returncode == 0
