"""What jobs have left on a machine without a scheduler: what goes, and what stays since nobody can tell."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from platforms.__main__ import main
from platforms.config.schema import Platform
from platforms.job import Layout, job_name
from platforms.rundir.retention import DAY_S
from platforms.rundir.session_history import PENDING
from platforms.rundir.session_journal import Journal
from platforms.schedulers.work_dir import SUPERVISORS, WorkDir
from tests.platforms.test_prune import aged, as_nobody, names, needs_root, reached, to_nobody


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with reached() as path:
        yield path


JOBS = {kind: f"{kind}-1x1cpu-k{letter * 7}" for kind, letter in (("old", "a"), ("lost", "b"), ("live", "c"))}


def test_folders_of_ended_supervised_jobs_go(tmp_path: Path) -> None:
    home = tmp_path / "a folder's work%j"
    host = os.uname().nodename
    for kind, name in JOBS.items():
        folder = home / "jobs" / name
        folder.mkdir(parents=True)
        (folder / "pid").write_text(json.dumps({"pid": os.getpid() if kind == "live" else 2**22 + 1, "host": host}))
        if kind == "old":
            (folder / "exit").write_text(json.dumps({"exit_code": 0}))
    aged(home, 40)
    platform = Platform(
        name="x", scheduler="ssh", work_dir=str(home), device="cpu", layouts={"default": ("1x1",)}, source=Path("x")
    )
    with WorkDir(platform, SUPERVISORS) as work_dir:
        found = {leftover.name: leftover for leftover in work_dir.find()}
        assert {name: (each.stays, each.unsuccessful) for name, each in found.items()} == {
            JOBS["old"]: ("", ""),
            JOBS["lost"]: ("", "no exit file"),
            JOBS["live"]: ("the job is RUNNING", ""),
        }
        assert round(found[JOBS["old"]].age_s / DAY_S) == 40
        assert work_dir.remove([found[JOBS["old"]]]) == []
    assert names(home / "jobs") == sorted([JOBS["lost"], JOBS["live"]])


TEST = "test_a.py::test_a[far-1x1cpu]"


@dataclass(frozen=True)
class Far:
    """A platform that is this machine, the work_dir there, and runs here."""

    path: Path

    @property
    def work(self) -> Path:
        return self.path / "there/work"

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    def job(self, run: str) -> Path:
        """The folder of a job of that run, which has ended well."""
        folder = self.work / "jobs" / job_name("a", Layout(1, 1, "cpu"), run, TEST, 1)
        folder.mkdir(parents=True)
        (folder / "pid").write_text(json.dumps({"pid": 2**22 + 1, "host": os.uname().nodename}))
        (folder / "exit").write_text(json.dumps({"exit_code": 0}))
        aged(folder, 40)
        return folder

    def prune(self) -> int:
        places = ["--site", str(self.path / "site"), "--runs-dir", str(self.runs)]
        return main(["prune", "far", "--yes", *places])


@pytest.fixture
def far(tmp_path: Path) -> Far:
    far = Far(tmp_path)
    (tmp_path / "site/platforms").mkdir(parents=True)
    keys = "scheduler: ssh\ndevice: cpu\nlayouts: {default: [1x1]}\n"
    (tmp_path / "site/platforms/far.yaml").write_text(f"{keys}work_dir: {far.work}\n")
    (tmp_path / "site/site.yaml").write_text("enabled: [far]\n")
    far.runs.mkdir()
    far.work.parent.mkdir()
    return far


# --- a work_dir that is not as it should be --------------------------------------------------------------------------


def test_a_work_dir_that_was_never_made_has_nothing_to_prune(far: Far, capsys: pytest.CaptureFixture[str]) -> None:
    assert far.prune() == 0
    assert "nothing is old enough to go" in capsys.readouterr().out


def test_a_work_dir_on_a_missing_file_system_is_refused(far: Far, capsys: pytest.CaptureFixture[str]) -> None:
    far.work.parent.rmdir()
    assert far.prune() == 2
    said = capsys.readouterr().err
    assert f"{far.work} cannot be listed, so nothing is removed: ls: cannot access" in said
    assert "No such file or directory; is its file system mounted there, and is it ours?" in said


@needs_root
@pytest.mark.parametrize("closed", ["there", "there/work", "there/work/jobs"])
@pytest.mark.parametrize("mode", [0o000, 0o600, 0o444])
@pytest.mark.slow
def test_a_work_dir_that_may_not_be_entered_is_refused(far: Far, closed: str, mode: int) -> None:
    folder = far.job("r1")
    to_nobody(far.path)
    os.chown(far.path / closed, 0, 0)
    (far.path / closed).chmod(mode)
    said = far.path / "said"
    assert as_nobody(said, far.prune) == 2, said.read_text()
    assert re.search(r"cannot be listed, so nothing is removed: .*Permission denied", said.read_text())
    assert folder.exists()


def test_nothing_goes_while_a_run_here_cannot_be_read(far: Far, capsys: pytest.CaptureFixture[str]) -> None:
    """Any job may be its."""
    session = Journal(far.runs / "r1", {"tests": [TEST], "options": {}})
    session.end(PENDING)
    session.path.write_text('{"schema": 99}\n')
    stays = [far.job("r1"), far.job("r2")]
    assert far.prune() == 2
    assert "run r1 cannot be read, so it is not known what it needs: " in capsys.readouterr().err
    assert all(folder.exists() for folder in stays)


def test_a_session_that_was_killed_before_it_wrote_needs_nothing(far: Far) -> None:
    session = Journal(far.runs / "r1", {"tests": [TEST], "options": {}})
    session.end(PENDING)
    session.path.write_text('{"schema": 1, "se')
    gone = far.job("r1")
    assert far.prune() == 0
    assert not gone.exists()


# --- what is hard to remove ------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("mode", [0o555, 0o000, 0o200])
@pytest.mark.slow
def test_folders_that_a_job_made_read_only_go_too(far: Far, mode: int) -> None:
    folder = far.job("r1")
    for name in ("work", "work/deep", "work/deep/er"):
        (folder / name).mkdir()
        (folder / name / "file").write_text("x")
    aged(folder, 40)
    to_nobody(far.path)
    for name in ("work/deep/er", "work/deep", "work"):
        (folder / name).chmod(mode)
    said = far.path / "said"
    assert as_nobody(said, far.prune) == 0, said.read_text()
    assert names(far.work / "jobs") == []


@needs_root
@pytest.mark.slow
def test_a_folder_that_cannot_be_removed_is_reported(far: Far) -> None:
    folder = far.job("r1")
    (folder / "work").mkdir()
    (folder / "work/file").write_text("x")
    aged(folder, 40)
    to_nobody(far.path)
    for path in (folder / "work", folder / "work/file"):
        os.chown(path, 0, 0)
    said = far.path / "said"
    assert as_nobody(said, far.prune) == 1, said.read_text()
    assert (
        f"{far.work}/jobs/{folder.name}: not all of it can be removed: "
        f"rm: cannot remove '{folder.name}/work/file': Permission denied"
    ) in said.read_text()
