"""A run that is submitted in one clone and goes on in another one, by `push --runs` and `pull --runs`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.outcome import EXIT_PENDING
from platforms.rundir import session_history
from reporting.__main__ import main
from reporting.history import reader
from tests.clusters.slurm import Cluster
from tests.harness.conftest import Project
from tests.harness.nursery import Session
from tests.programs import require
from tests.waiting import until

RUN = "nightly"
NAMES = ("a", "b")
TEST = """
import pytest
from platforms.results import numbers

@pytest.mark.workload(command=["sh", "-c", "echo x >> MARKS/started-NAME; "
                      "until [ -e MARKS/gate-NAME ]; do sleep 0.1; done; echo rate: 100"])
def test_NAME(run, record):
    rate, = numbers(run.log, r"rate: (.+)")
    record(run, metrics={"rate": (rate, "GB/s", "higher")})
"""


class Clones:
    """The clone that submits, and where its branch is."""

    def __init__(self, project: Project, tmp_path: Path) -> None:
        self.project, self.first = project, project.path
        self.marks = tmp_path / "marks"
        self.marks.mkdir()
        self.server = tmp_path / "server.git"
        require("git", install="apt-get install git")
        subprocess.run(["git", "init", "-q", "--bare", str(self.server)], check=True)
        self._others = tmp_path
        for name in NAMES:
            project.write(f"test_{name}.py", TEST.replace("MARKS", str(self.marks)).replace("NAME", name))

    def another(self, name: str) -> Path:
        """A clone in another folder, with the same tests and platforms and without runs and history."""
        path = self._others / name
        shutil.copytree(self.first, path, ignore=shutil.ignore_patterns("runs", "history", ".benchmarks", "*cache*"))
        return path

    def pytest(self, clone: Path, *words: str) -> Session:
        """A session that has ended."""
        session = self.project.begin(*words, folder=clone)
        session.ends()
        return session

    def reporting(self, word: str, clone: Path) -> int:
        places = [f"--remote={self.server}", f"--site={clone / 'site'}", f"--runs-dir={clone / 'runs'}"]
        (clone / "runs").mkdir(exist_ok=True)
        return main([word, "--runs", *places])

    def open_gate(self, names: Sequence[str] = NAMES) -> None:
        for name in names:
            (self.marks / f"gate-{name}").touch()

    def started(self) -> list[int]:
        """How often each job has started."""
        paths = [self.marks / f"started-{name}" for name in NAMES]
        return [len(path.read_text().split()) if path.exists() else 0 for path in paths]


pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def is_open(clone: Path) -> bool:
    return any(record.open for record in session_history.read_sessions(clone / "runs" / RUN))


@pytest.fixture
def clones(project: Project, slurm: Cluster, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Clones:
    """Their platform `mine` is a partition of Slurm."""
    project.on_slurm(tmp_path_factory.mktemp("work"))
    return Clones(project, tmp_path)


@pytest.mark.real_slurm
def test_another_clone_goes_on_with_the_jobs_and_submits_nothing(
    clones: Clones, capsys: pytest.CaptureFixture[str]
) -> None:
    first = clones.first
    submitted = clones.pytest(first, "--platform=mine", f"--run-id={RUN}", "--wait=0")
    assert submitted.status == EXIT_PENDING, submitted.said
    assert clones.reporting("push", first) == 0
    assert f"1 unfinished run ({RUN})" in capsys.readouterr().out
    shutil.move(first / "runs" / RUN, first / "runs-as-they-were")
    shutil.move(first / "site/history", first / "history-as-it-was")

    second = clones.another("second")
    assert clones.reporting("pull", second) == 0
    assert f"pytest --resume={RUN} goes on with it" in capsys.readouterr().out
    assert sorted(path.name for path in (second / "runs" / RUN).iterdir())[0] == "carried"
    until(lambda: clones.started() == [1, 1])
    clones.open_gate(["a"])
    until(lambda: len(queued()) == 1)
    early = clones.pytest(second, "--resume", "--wait=0")
    assert early.status == EXIT_PENDING, early.said
    assert clones.reporting("push", second) == 0

    third = clones.another("third")
    assert clones.reporting("pull", third) == 0
    clones.open_gate()
    ended = clones.pytest(third, "--resume")
    assert ended.status == 0, ended.said
    assert "the jobs of 2 of 2 tests were begun before" in ended.out
    assert "2 passed" in ended.out
    assert clones.started() == [1, 1]
    assert not (first / "site/history").exists()  # each clone writes its own
    capsys.readouterr()
    assert clones.reporting("push", third) == 0
    assert "1 run that ended" in capsys.readouterr().out

    shutil.move(first / "runs-as-they-were", first / "runs" / RUN)
    assert is_open(first)
    clones.reporting("push", first)
    assert f"run {RUN} has gone on elsewhere" in capsys.readouterr().out
    clones.reporting("pull", first)
    assert not is_open(first)
    again = clones.pytest(first, f"--resume={RUN}")
    assert f"run {RUN} has ended" in again.said
    assert [(run.outcome, run.sane) for run in reader.read(first / "site/history")] == [("passed", True)] * 2
    words = ["git", "-C", str(clones.server), "ls-tree", "-r", "--name-only", "bench-history"]
    left = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in left if name.startswith(f"runs/{RUN}/") and "/sessions/" not in name]


def queued() -> list[str]:
    """The names of Slurm's jobs that have not ended."""
    done = subprocess.run(["squeue", "-h", "-o", "%j"], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_jobs_of_this_machine_and_living_sessions_are_not_carried(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project.platform("here", "max_running: 2\n")
    clones = Clones(project, tmp_path)
    session = project.begin("--platform=here", f"--run-id={RUN}")
    session.until(lambda: clones.started() == [1, 1])
    assert clones.reporting("push", project.path) == 0
    assert f"run {RUN} is not pushed: session " in capsys.readouterr().out
    session.kill()
    assert clones.reporting("push", project.path) == 0
    said = capsys.readouterr().out
    assert f"run {RUN} is not pushed: its jobs on here are processes of this machine" in said
    clones.open_gate()
    resumed = clones.pytest(project.path, "--resume")
    assert "2 passed" in resumed.out
    assert clones.started() == [1, 1]
