"""Where a session writes: what lies where, and what cannot be written is found before a job is submitted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.conftest import ROOT, Project
from tests.harness.nursery import Session


@pytest.fixture
def users(project: Project) -> Project:
    """With the pytest.ini that a user has, to the letter but for where the suite is."""
    project.write("pytest.ini", (ROOT / "pytest.ini").read_text().replace("pythonpath = .", f"pythonpath = {ROOT}"))
    return project


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", folder], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("only root can make a file system")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def in_the_way(folder: Path) -> Path:
    """A path that cannot be made, for root, either."""
    (folder / "file").write_text("")
    return folder / "file" / "below"


def test_runs_that_cannot_be_written_are_found_before_the_jobs(project: Project, tmp_path: Path) -> None:
    project.job_test()
    said = "ERROR: *cannot be written*Not a directory*nothing was submitted*"
    project.refuses(f"--runs-dir={in_the_way(tmp_path)}", says=said)


@pytest.mark.parametrize("option", ["--dry-run", "--benchmark-autosave"])
def test_a_full_disk_is_one_sentence(project: Project, disk: Path, option: str) -> None:
    project.job_test()
    said = f"ERROR: {disk}: *No space left on device*nothing was submitted; --runs-dir names*"
    project.refuses(f"--runs-dir={disk}", option, says=said)
    assert not list(disk.glob("2*"))


@pytest.fixture
def read_only(users: Project) -> Iterator[Project]:
    """A checkout that nobody can write."""
    users.job_test()
    made = subprocess.run(["mount", "--bind", users.path, users.path], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("only root can make a file system read-only")
    subprocess.run(["mount", "-o", "remount,bind,ro", users.path], check=True)
    yield users
    os.chdir(ROOT)
    subprocess.run(["umount", "-l", users.path], check=True)


def session(project: Project, tmp_path: Path, *words: str) -> Session:
    """Away from what is read-only, where pytester itself would write."""
    words = ("-c", str(project.path / "pytest.ini"), *words)
    lock = str(tmp_path / "lock")
    done = project.begin(*words, folder=tmp_path, HPC_ML_BENCH_LOCK=lock, PYTHONDONTWRITEBYTECODE="1")
    done.ends()
    return done


@pytest.mark.slow
def test_a_read_only_checkout_serves_a_site_that_can_be_written(read_only: Project, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    done = session(read_only, tmp_path, f"--site={site}", "--benchmark-autosave")
    assert done.status == 0, done.said
    assert "1 passed" in done.out
    assert "CacheWarning" not in done.out
    assert len(list(site.glob("runs/2*/*/run.json"))) == len(list(site.glob(".benchmarks/*/*.json"))) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "site"]


@pytest.mark.slow
def test_a_read_only_checkout_without_a_site_says_which_option_helps(read_only: Project, tmp_path: Path) -> None:
    done = session(read_only, tmp_path)
    assert done.status == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: {read_only.path}/runs: " in done.errors
    assert "--runs-dir names another place" in done.errors
    assert "Traceback" not in done.said
    runs = f"--runs-dir={tmp_path / 'runs'}"
    done = session(read_only, tmp_path, runs)
    assert done.status == pytest.ExitCode.USAGE_ERROR
    assert "the history cannot be written" in done.errors
    assert "--history=DIR" in done.errors
    (tmp_path / "history").mkdir()
    done = session(read_only, tmp_path, runs, f"--history={tmp_path / 'history'}")
    assert done.status == 0, done.said
    assert "1 passed" in done.out


@pytest.mark.slow
def test_the_history_lies_in_the_checkout_in_whatever_folder_one_stands(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.job_test()
    (project.path / "docs").mkdir()
    monkeypatch.chdir(project.path / "docs")
    project.pytest("../test_mine.py", "--benchmark-autosave").assert_outcomes(passed=1)
    assert len(project.saved()) == 1
    assert not list((project.path / "docs").iterdir())


@pytest.mark.slow
def test_a_users_warnings_are_shown_and_fail_nothing(users: Project) -> None:
    users.job_test()
    path = users.path / "test_mine.py"
    text = path.read_text().replace("import pytest", "import pytest, warnings", 1)
    path.write_text(text.replace("    assert", "    warnings.warn('old', DeprecationWarning)\n    assert"))
    result = users.pytest("--benchmark-autosave")
    result.assert_outcomes(passed=1, warnings=1)
    assert len(users.saved()) == 1


@pytest.mark.slow
def test_users_do_not_load_what_only_our_own_tests_need(users: Project) -> None:
    users.job_test()
    path = users.path / "test_mine.py"
    path.write_text(path.read_text().replace("(run, record)", "(run, record, pytester)"))
    result = users.pytest("-m", "local")
    result.stdout.fnmatch_lines(["*fixture 'pytester' not found*"])
