"""`python -m platforms jobs, logs, fetch, cancel`: what is told of runs that were left, and how they are ended."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from platforms import journal
from platforms.__main__ import main
from tests.harness.conftest import Project

PATIENCE_S = 60.0
TEST = """
import pytest

SCRIPT = "echo {name} begins; until [ -e {gate} ]; do sleep 0.05; done; echo {name} ends"

@pytest.mark.workload(command=["sh", "-c", SCRIPT])
def test_{name}(run):
    assert not run.problems
"""


class Left:
    """A run of two tests, one of which has ended when the session is killed."""

    def __init__(self, project: Project) -> None:
        self.project, self.path = project, project.path
        project.platform("cluster", "max_running: 2\npoll_s: 0.2\n")
        for name, gate in (("first", "/"), ("second", "gate")):
            project.write(f"test_{name}.py", TEST.format(name=name, gate=project.path / gate))
        command = [sys.executable, "-m", "pytest", "-m", "cluster", "--run-id=night"]
        self.session = subprocess.Popen(command, cwd=project.path, stdout=subprocess.DEVNULL)
        self.until(lambda: list(self.path.glob("runs/night/test_first*/run.json")) and "begins" in self.log("second"))
        self.until(lambda: list(self.path.glob("runs/night/test_second*/submitted.json")))

    def killed(self) -> Left:
        self.session.kill()
        self.session.wait()
        return self

    def until(self, true: object) -> None:
        end = time.monotonic() + PATIENCE_S
        while not true():  # type: ignore[operator]
            assert time.monotonic() < end, "not in time"
            time.sleep(0.02)

    def log(self, name: str) -> str:
        return "".join(path.read_text() for path in self.path.glob(f"runs/night/test_{name}*/log"))

    def open_gate(self) -> None:
        (self.path / "gate").touch()

    def types(self, *words: str) -> int:
        return main([*words, f"--site={self.path / 'site'}", f"--runs-dir={self.path / 'runs'}"])


@pytest.fixture
def left(project: Project):
    left = Left(project)
    yield left
    left.session.kill()
    left.session.wait()
    left.open_gate()


def test_jobs_while_a_session_lives(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    assert left.types("jobs") == 0
    run, *jobs = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"run night, under way in session \S+ \(process {left.session.pid} on .+\)", run)
    assert re.fullmatch(r"  first-1x2gpu-k\w{7} on cluster: succeeded", jobs[0])
    assert re.fullmatch(r"  second-1x2gpu-k\w{7} on cluster \(/.+\): running", jobs[1])
    for words in (["fetch"], ["cancel", "night"]):
        assert left.types(*words) == 2
        assert "run night is under way in session" in capsys.readouterr().err


def test_jobs_that_were_left_are_asked_for(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    left.killed().open_gate()
    (path,) = left.path.glob("runs/night/test_second*/")
    left.until(lambda: (path / "exit").exists())
    assert left.types("jobs") == 0
    run, *jobs = capsys.readouterr().out.splitlines()
    assert run == "run night, left unfinished: pytest --resume=night"
    assert [line.rpartition(": ")[2] for line in jobs] == ["succeeded", "succeeded"]
    left.project.pytest_process("--resume").assert_outcomes(passed=2)
    capsys.readouterr()
    assert left.types("jobs") == 0
    assert capsys.readouterr().out.startswith("no run in ")
    assert left.types("jobs", "night") == 0
    assert capsys.readouterr().out.startswith("run night, ended\n")


@pytest.mark.parametrize("lives", [True, False])
def test_a_log_is_followed_to_its_end(left: Left, capsysbinary: pytest.CaptureFixture[bytes], lives: bool) -> None:
    if not lives:
        left.killed()
    threading.Timer(1.0, left.open_gate).start()
    assert left.types("logs", "-f", "test_second") == 0
    assert capsysbinary.readouterr().out == b"second begins\nsecond ends\n"


def test_a_log_as_far_as_it_is_written(left: Left, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    left.killed()
    assert left.types("logs", "second", "--run=night") == 0
    assert capsysbinary.readouterr().out == b"second begins\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["logs", "nothing"], "error: nothing: there is no such job? first-1x2gpu-"),
        (["logs", "1x2gpu"], "error: 1x2gpu: which one? first-1x2gpu-"),
        (["jobs", "nothing"], "knows no run nothing; there are: night (--runs-dir names another place)"),
        (["cancel", "nothing"], "knows no run nothing"),
    ],
)
def test_what_is_not_there(left: Left, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert left.types(*words) == 2
    assert said in capsys.readouterr().err


def test_logs_are_fetched(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    left.killed()
    assert left.types("fetch") == 0
    said = capsys.readouterr().out
    assert re.search(
        r"second-1x2gpu-k\w{7} on cluster: 14 bytes in /.+/log\n1 logs; the results: pytest --resume=night", said
    )


def test_what_nobody_knows_of_is_not_ended(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed between asking a scheduler and its answer: only asking again finds out."""
    left.killed()
    (path,) = left.path.glob("runs/night/test_second*/submitted.json")
    path.unlink()
    (path,) = left.path.glob("runs/night/sessions/*.jsonl")
    text = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in text if "second" not in line or '"plan"' in line or '"being sub' in line))
    assert left.types("cancel", "night") == 1
    said = capsys.readouterr().out
    assert re.search(r"nobody knows whether these were submitted: second-1x2gpu-k\w{7}; pytest --resume=night", said)
    left.open_gate()
    left.project.pytest_process("--resume=night").assert_outcomes(passed=2)
    assert left.log("second") == "second begins\nsecond ends\n"


def test_what_was_left_is_ended(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    left.killed()
    assert left.types("cancel", "night") == 0
    assert re.fullmatch(r"second-1x2gpu-k\w{7} on cluster: gone\n", capsys.readouterr().out)
    left.open_gate()
    time.sleep(0.3)
    assert left.log("second") == "second begins\n"
    assert journal.unfinished(Path(left.path / "runs")) == []
    assert left.project.pytest_process("--resume=night").ret == pytest.ExitCode.USAGE_ERROR
