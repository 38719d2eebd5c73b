"""What stands in a log, as that of cron or CI, while jobs wait."""

from __future__ import annotations

import pytest

from tests.harness.conftest import Project


@pytest.mark.slow
def test_a_file_shows_how_jobs_are_while_they_run(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    project.job_test(f"gate={project.path}/gate")
    session = project.begin()
    session.until(lambda: " on local: running" in session.out)
    (project.path / "gate").touch()
    assert session.ends() == 0
