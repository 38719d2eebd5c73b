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
from platforms.rundir.retention import Retention
from platforms.rundir.session_history import PENDING
from platforms.rundir.session_journal import Journal
from platforms.schedulers.work_dir import listing, removal, removal_plan
from platforms.transports.local import LocalTransport
from tests.platforms.test_prune import CODE, aged, as_nobody, names, needs_root, reached, to_nobody


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with reached() as path:
        yield path


JOBS = {"old": "old-1x1cpu-kaaaaaaa", "failed": "failed-1x1cpu-kbbbbbbb", "live": "live-1x1cpu-kccccccc"}


def test_folders_of_ended_supervised_jobs_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "ARCHIVES_S", 1)
    home = tmp_path / "a folder's work%j"
    host = os.uname().nodename
    for kind, name in JOBS.items():
        folder = home / "jobs" / name
        folder.mkdir(parents=True)
        (folder / "job.sh").write_text(
            f"python {home}/archives/{CODE if kind == 'live' else 'models-ffffffffffff.pyz'}"
        )
        (folder / "pid").write_text(json.dumps({"pid": os.getpid() if kind == "live" else 2**22 + 1, "host": host}))
        if kind != "live":
            (folder / "exit").write_text(json.dumps({"exit_code": 0 if kind == "old" else 3}))
    (home / "archives").mkdir()
    for name in (CODE, "models-ffffffffffff.pyz", "supervisor-0123456789ab.pyz"):
        (home / "archives" / name).write_text("x")
    aged(home, 40)
    platform = Platform(
        name="x", scheduler="ssh", work_dir=str(home), device="cpu", layouts={"default": ("1x1",)}, source=Path("x")
    )
    transport = LocalTransport(platform)

    def judged(keep: Retention) -> removal_plan.RemovalPlan:
        return removal_plan.plan_removal(listing.list_work_dir(transport, str(home), listing.SUPERVISORS), keep, {}, {})

    found = judged(Retention())
    why = {each.name: each.stays for each in found.jobs}
    assert why == {JOBS["old"]: "", JOBS["failed"]: "exit code 3: 180 days", JOBS["live"]: "the job is RUNNING"}
    gone, wrong = removal.remove(transport, str(home), judged(Retention(30, 30)))
    assert not wrong
    assert sorted(gone) == sorted([JOBS["old"], JOBS["failed"], "models-ffffffffffff.pyz"])
    assert names(home / "jobs") == [JOBS["live"]]
    assert names(home / "archives") == [CODE, "supervisor-0123456789ab.pyz"]


OTHER = "models-ffffffffffff.pyz"
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

    def job(self, run: str, attempt: int = 1, code: str = CODE, test: str = TEST) -> Path:
        """The folder of a job of that run, which has ended well."""
        folder = self.work / "jobs" / job_name("a", Layout(1, 1, "cpu"), run, test, attempt)
        folder.mkdir(parents=True)
        (folder / "job.sh").write_text(f"#!/bin/sh\n# {test} on far, 1x1cpu\npython {self.work}/archives/{code}\n")
        (folder / "pid").write_text(json.dumps({"pid": 2**22 + 1, "host": os.uname().nodename}))
        (folder / "exit").write_text(json.dumps({"exit_code": 0}))
        aged(folder, 40)
        return folder

    def archives(self, *codes: str) -> None:
        (self.work / "archives").mkdir(parents=True)
        for name in codes:
            (self.work / "archives" / name).write_text("x")
        aged(self.work / "archives", 40)

    def prune(self) -> int:
        places = ["--site", str(self.path / "site"), "--runs-dir", str(self.runs)]
        return main(["prune", "far", "--yes", *places])


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Far:
    monkeypatch.setattr(removal, "ARCHIVES_S", 1)
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
    assert f"{far.work} is not there, so nothing was brought there yet, or it is not mounted" in capsys.readouterr().out


def test_a_work_dir_on_a_missing_file_system_is_refused(far: Far, capsys: pytest.CaptureFixture[str]) -> None:
    far.work.parent.rmdir()
    assert far.prune() == 2
    said = capsys.readouterr().err
    assert f"{far.work} cannot be listed, so nothing is removed: ls: cannot access" in said
    assert "No such file or directory; is its file system mounted there, and is it ours?" in said


def test_a_work_dir_that_is_a_dangling_link_is_refused(far: Far, capsys: pytest.CaptureFixture[str]) -> None:
    far.work.symlink_to(far.path / "purged")
    assert far.prune() == 2
    assert f"{far.work} cannot be listed" in capsys.readouterr().err


@needs_root
@pytest.mark.parametrize("closed", ["there", "there/work", "there/work/jobs", "there/work/archives"])
@pytest.mark.parametrize("mode", [0o000, 0o600, 0o444])
def test_a_work_dir_that_may_not_be_entered_is_refused(far: Far, closed: str, mode: int) -> None:
    folder = far.job("r1")
    far.archives(OTHER)
    to_nobody(far.path)
    os.chown(far.path / closed, 0, 0)
    (far.path / closed).chmod(mode)
    said = far.path / "said"
    assert as_nobody(said, far.prune) == 2, said.read_text()
    assert re.search(r"cannot be listed, so nothing is removed: .*Permission denied", said.read_text())
    assert folder.exists()


# --- what nobody can tell --------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("closed", ["", "job.sh"])
def test_code_stays_that_another_users_job_may_need(far: Far, closed: str) -> None:
    mine, others = far.job("r1"), far.job("r2", code=OTHER)
    far.archives(CODE, OTHER, "models-000000000000.pyz")
    to_nobody(far.path)
    for path in (others, *others.iterdir()):
        os.chown(path, 0, 0)
    (others / closed).chmod(0o600)
    said = far.path / "said"
    assert as_nobody(said, far.prune) == 0, said.read_text()
    assert names(far.work / "jobs") == [others.name]
    assert not mine.exists()
    assert len(names(far.work / "archives")) == 3
    where = f"jobs/{others.name}/{closed}".rstrip("/")
    assert f"code archives are left alone: {where} cannot be read, and may need any of it" in said.read_text()
    (others / closed).chmod(0o755)
    assert as_nobody(said, far.prune) == 0, said.read_text()
    assert names(far.work / "archives") == [OTHER]


@needs_root
@pytest.mark.parametrize("closed", ["", "sessions", "sessions/x.jsonl"])
def test_jobs_stay_that_may_belong_to_a_run_which_cannot_be_read(far: Far, closed: str) -> None:
    """A job's name follows from its run, test and attempt."""
    (far.runs / "r1/sessions").mkdir(parents=True)
    (far.runs / "r1/sessions/x.jsonl").write_text("{}\n")
    stays = [far.job("r1"), far.job("r1", 3), far.job("r9", test="test_a.py::test_a[?]")]
    gone = [far.job("r2"), far.job("r2", 2)]
    to_nobody(far.path)
    path = far.runs / "r1" / closed
    os.chown(path, 0, 0)
    path.chmod(0o000)
    said = far.path / "said"
    assert as_nobody(said, far.prune) == 0, said.read_text()
    assert names(far.work / "jobs") == sorted(folder.name for folder in stays)
    assert not any(folder.exists() for folder in gone)
    assert "run r1 cannot be read, so what may belong to it stays: " in said.read_text()
    assert "stays: it may belong to run r1, which cannot be read" in said.read_text()


def test_jobs_stay_that_may_belong_to_a_run_with_a_broken_record(far: Far, capsys: pytest.CaptureFixture[str]) -> None:
    session = Journal(far.runs / "r1", {"tests": [TEST], "options": {}})
    session.end(PENDING)
    session.path.write_text('{"schema": 99}\n')
    stays, gone = far.job("r1"), far.job("r2")
    assert far.prune() == 0
    assert stays.exists()
    assert not gone.exists()
    assert ".jsonl cannot be read: it " in capsys.readouterr().out


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
    aside = f".going-{folder.name}"
    assert (
        f"{far.work}/jobs/{folder.name}: not all of it can be removed, the rest is {aside}: "
        f"rm: cannot remove '{aside}/work/file': Permission denied"
    ) in said.read_text()
