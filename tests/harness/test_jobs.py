"""`python -m platforms jobs, logs, fetch, cancel`: what is told of runs that were left, and how they are ended."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from platforms.__main__ import main
from platforms.commands import find_run, logs
from platforms.rundir import session_history
from tests.harness.conftest import ROOT, Project
from tests.harness.nursery import Session
from tests.harness.test_kubernetes import Cloud, waiting
from tests.harness.test_kubernetes import cloud as cloud
from tests.harness.test_kubernetes import kube as kube
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow
ENDED = (
    r"second-1x2gpu-k\w{7} on cluster: cancelled: `python -m platforms cancel` ended it\n"
    r"run night has ended; logs and results are in /.+/runs/night\n"
)
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
        self.session = project.begin("-m", "cluster", "--run-id=night")
        self.session.until(lambda: self.begun)

    @property
    def begun(self) -> bool:
        ended = list(self.path.glob("runs/night/test_first*/run.json"))
        return bool(ended and "begins" in self.log("second") and self.written("second") == "running")

    def written(self, name: str) -> str:
        """How the session has a test's job in its record: it looks later than we do."""
        sessions = session_history.read_sessions(self.path / "runs/night")
        lines = {test: line for past in sessions for test, line in past.states.items()}
        return next((line["state"] for test, line in lines.items() if test.startswith(f"test_{name}")), "")

    def killed(self) -> Left:
        self.session.kill()
        return self

    def log(self, name: str) -> str:
        return "".join(path.read_text() for path in self.path.glob(f"runs/night/test_{name}*/log"))

    def open_gate(self) -> None:
        (self.path / "gate").touch()

    @property
    def second(self) -> Path:
        """The folder of the one that goes on."""
        (path,) = self.path.glob("runs/night/test_second*/")
        return path

    def types(self, *words: str) -> int:
        return main([*words, *places(self.project)])

    def follows(self, *words: str) -> Session:
        """`logs -f` of the second job, in a process of its own that has shown its first line."""
        command = begin(self.project, "logs", "-f", "second", *words)
        command.until(lambda: command.out == "second begins\n")
        return command

    def ended(self, name: str) -> dict[str, Any]:
        """What run.json says of a test's job."""
        (path,) = self.path.glob(f"runs/night/test_{name}*/run.json")
        return dict(json.loads(path.read_text()))


def places(project: Project) -> list[str]:
    return [f"--site={project.path / 'site'}", f"--runs-dir={project.path / 'runs'}"]


def begin(project: Project, *words: str) -> Session:
    """A command in a process of its own, which ends with the threads that read logs."""
    return project.begin(*words, *places(project), program="platforms")


def types(project: Project, *words: str, status: int = 0) -> str:
    """A command that ends with this status. Returns what it printed, and why it refused."""
    command = begin(project, *words)
    assert command.ends() == status, command.said
    return command.out + (command.errors if status else "")


@pytest.fixture
def left(project: Project) -> Iterator[Left]:
    left = Left(project)
    yield left
    left.open_gate()


def test_jobs_while_a_session_lives(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    assert left.types("jobs") == 0
    run, *lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"run night, under way in session \S+ \(process {left.session.pid} on .+\)", run)
    assert re.fullmatch(r"  first-1x2gpu-k\w{7} on cluster: succeeded", lines[0])
    assert re.fullmatch(r"  second-1x2gpu-k\w{7} on cluster \(/.+\): running", lines[1])
    assert left.types("cancel", "night") == 2
    said = capsys.readouterr().err
    assert re.match(
        r"error: run night is under way in session .+, and it ends its own jobs: Ctrl-C there, or kill ", said
    )
    assert left.session.status is None


def test_jobs_that_were_left_are_asked_for(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    left.killed().open_gate()
    until(lambda: (left.second / "exit").exists())
    assert left.types("jobs") == 0
    run, *lines = capsys.readouterr().out.splitlines()
    assert run == f"run night, left unfinished: pytest --resume=night {' '.join(places(left.project))}"
    assert [line.rpartition(": ")[2] for line in lines] == ["succeeded", "succeeded"]
    left.project.pytest("--resume").assert_outcomes(passed=2)
    capsys.readouterr()
    assert left.types("jobs") == 0
    assert capsys.readouterr().out.startswith("no run in ")
    assert left.types("jobs", "night") == 0
    assert capsys.readouterr().out.startswith("run night, ended\n")


def test_a_log_as_far_as_it_is_written_and_to_its_end(left: Left, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    left.killed()
    assert left.types("logs", "second", "--run=night") == 0
    assert capsysbinary.readouterr().out == b"second begins\n"
    command = left.follows()
    left.open_gate()
    assert command.ends() == 0
    assert command.out == "second begins\nsecond ends\n"


NOT_THERE = {
    "logs nothing": "error: run night has no job 'nothing', nor one with that in its name or test: it has first-",
    "logs 1x2gpu": "error: '1x2gpu' is a part of 2 jobs of run night: type one name of first-1x2gpu-",
    "jobs nothing": "/runs, but night (--runs-dir names another folder)",
    "cancel nothing": "error: there is no run nothing in /",
    "cancel ../night": "error: there is no run ../night in /",
    "logs first --run=nothing": "error: there is no run nothing in /",
}


def test_what_is_not_there(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in NOT_THERE.items():
        assert left.types(*words.split()) == 2, words
        assert said in capsys.readouterr().err


def test_what_nobody_knows_of_is_not_ended(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed between asking a scheduler and its answer: only asking again finds out."""
    left.killed()
    (left.second / "submitted.json").unlink()
    (path,) = left.path.glob("runs/night/sessions/*.jsonl")
    text = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in text if "second" not in line or '"plan"' in line or '"being sub' in line))
    assert left.types("cancel", "night") == 1
    said = capsys.readouterr().out
    assert re.search(r"it is not known whether these were submitted: second-1x2gpu-k\w{7}; pytest --resume=night", said)
    left.open_gate()
    left.project.pytest("--resume=night").assert_outcomes(passed=2)
    assert left.log("second") == "second begins\nsecond ends\n"


def test_what_was_left_is_ended(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    left.killed()
    assert left.types("cancel", "night") == 0
    assert re.fullmatch(ENDED, capsys.readouterr().out)
    left.open_gate()
    assert left.log("second") == "second begins\n"
    assert left.ended("second")["state"] == "cancelled"
    assert left.ended("second")["asked"] == left.ended("first")["asked"] | {
        "arguments": left.ended("second")["asked"]["arguments"]
    }
    assert find_run.unfinished(left.path / "runs") == ([], [])
    assert left.types("cancel", "night") == 0
    assert "run night had ended before" in capsys.readouterr().out
    assert left.ended("second")["state"] == "cancelled"
    assert left.project.pytest("--resume=night").ret == pytest.ExitCode.USAGE_ERROR


def test_what_had_ended_by_itself_is_left_alone_and_read(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    left.killed().open_gate()
    until(lambda: (left.second / "exit").exists())
    assert left.types("cancel", "night") == 0
    assert re.match(r"second-1x2gpu-k\w{7} on cluster: succeeded\nrun night has ended; ", capsys.readouterr().out)
    assert left.ended("second")["outcome"] == "passed"
    assert left.ended("second").keys() == left.ended("first").keys()
    assert left.types("jobs", "night") == 0
    assert capsys.readouterr().out.count(": succeeded\n") == 2


def test_a_job_whose_id_only_the_record_has_is_ended(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    """The machine went down before the name of submitted.json was on the disk."""
    left.killed()
    (left.second / "submitted.json").unlink()
    assert left.types("jobs") == 0
    assert re.search(r"second-1x2gpu-k\w{7} on cluster \(/.+\): running\n", capsys.readouterr().out)
    assert left.types("cancel", "night") == 0
    assert re.fullmatch(ENDED, capsys.readouterr().out)
    assert left.ended("second")["layout"] == "1x2gpu"
    assert (left.second / "exit").exists()


def test_a_log_is_followed_until_somebody_cancels_it(left: Left) -> None:
    left.killed()
    command = left.follows()
    assert left.types("cancel", "night") == 0
    assert command.ends() == 0
    assert command.out.removeprefix("second begins\n") in ("", "Terminated\n")  # as its shell may say
    assert command.errors.endswith(" on cluster: cancelled: `python -m platforms cancel` ended it\n")


def test_a_log_is_followed_when_a_session_takes_the_run_over(left: Left) -> None:
    left.killed()
    command = left.follows()
    session = left.project.begin("--resume")
    session.until(lambda: list(left.path.glob("runs/night/sessions/*.taken")))
    late = left.follows()  # begun while the second session lives
    left.open_gate()
    for each in (command, late):
        assert each.ends() == 0
        assert each.out == "second begins\nsecond ends\n"
    assert session.ends() == 0
    assert command.errors.endswith(" on cluster: succeeded\n")


def test_a_quiet_log_is_not_followed_for_nobody(left: Left) -> None:
    """As `logs -f JOB | head -1`."""
    for lives in (True, False):
        if not lives:
            left.killed()
        follow = [sys.executable, "-m", "platforms", "logs", "-f", "second", *places(left.project)]
        with subprocess.Popen(follow, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"second begins\n"
            process.stdout.close()
            assert process.wait(PATIENCE_S) == 128 + signal.SIGPIPE


# --- what reading alone does not show --------------------------------------------------------------------------------


def test_a_long_log_is_followed_from_where_it_was(
    left: Left, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its session lives: what was printed is not read again."""
    monkeypatch.setattr(logs, "CHUNK", 4)
    monkeypatch.setattr(logs, "FOLLOW_S", 0.05)
    threading.Timer(0.5, left.open_gate).start()
    assert left.types("logs", "-f", "second") == 0
    assert capsysbinary.readouterr().out == b"second begins\nsecond ends\n"


def test_what_another_session_has_taken_over_and_left_alone_is_known(
    left: Left, capsys: pytest.CaptureFixture[str]
) -> None:
    left.killed()
    left.project.pytest("-m", "cluster", "--run-id=night", "test_first.py").assert_outcomes(passed=1)
    capsys.readouterr()
    assert left.types("jobs") == 0
    assert re.search(r"second-1x2gpu-k\w{7} on cluster \(/.+\): running", capsys.readouterr().out)
    assert left.types("cancel", "night") == 0
    assert re.fullmatch(ENDED, capsys.readouterr().out)
    assert find_run.unfinished(left.path / "runs") == ([], [])


class Two(Left):
    """A second platform, of which the site knows nothing any more."""

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        self.killed()
        (record,) = self.path.glob("runs/night/sessions/*.jsonl")
        (first,) = self.path.glob("runs/night/test_first*/")
        (first / "run.json").unlink()  # as if nobody had seen its end
        lines = record.read_text().splitlines(keepends=True)
        moved = (
            line.replace('"platform": "cluster"', '"platform": "sold"') if "first" in line else line for line in lines
        )
        record.write_text("".join(moved))


def test_one_platform_that_cannot_be_asked_keeps_no_other_from_it(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    left = Two(project)
    try:
        assert left.types("jobs") == 1
        said = capsys.readouterr()
        assert re.search(r"first-\S+ on sold \(/.+\): not known, at last ", said.out)
        assert re.search(r"second-\S+ on cluster \(/.+\): running\n", said.out)
        assert re.fullmatch(r"error: sold cannot be asked: there is no platform 'sold'.+\n", said.err)
        assert left.types("cancel", "night") == 1
        said = capsys.readouterr().out
        assert re.search(r" on cluster: cancelled: `python -m platforms cancel` ended it$", said, re.MULTILINE)
        assert "there is no platform 'sold'" in said
        assert find_run.unfinished(left.path / "runs") == (["night"], [])
    finally:
        left.open_gate()


# --- on clusters -----------------------------------------------------------------------------------------------------


def left_on(cloud: Cloud) -> Path:
    """A session that was killed while its one job ran. Returns the gate behind which the job ends."""
    gate = waiting(cloud)
    cloud.killed_while_running("--run-id=night")
    return gate


def log_of(project: Project) -> bytes:
    (path,) = project.path.glob("runs/night/*/log")
    return path.read_bytes()


def test_on_kubernetes_logs_come_as_far_as_they_are_written(cloud: Cloud) -> None:
    gate = left_on(cloud)
    job = r"long-1x1gpu-k\w{7} on cloud"
    assert re.search(rf"{job} \(fake:default/job.batch/\S+\): running\n", types(cloud.project, "jobs"))
    assert types(cloud.project, "logs", "long", "--run=night") == "begins\n"
    assert log_of(cloud.project) == b"begins\n"
    gate.touch()
    until(lambda: [pod for pod in cloud.pods() if pod["status"]["phase"] == "Succeeded"])
    cloud.kube.fault("GET", "/log", times=2, code=500)  # its end does not come at once
    assert types(cloud.project, "logs", "long", "--run=night") == "begins\nends\n"
    assert log_of(cloud.project) == b"begins\nends\n"
    cloud.passes(1, "--run-id=night")
    assert len(cloud.created("jobs")) == 1
    assert log_of(cloud.project) == b"begins\nends\n"


def test_on_kubernetes_the_log_that_is_kept_has_one_writer(cloud: Cloud) -> None:
    """What pods say comes in an order of its own to whoever reads it: the second one shows what the first brings."""
    gate = left_on(cloud)
    commands = [begin(cloud.project, "logs", "-f", "long", "--run=night") for _ in range(2)]
    for command in commands:
        command.until(lambda command=command: command.out == "begins\n")
    gate.touch()
    assert [command.ends() for command in commands] == [0, 0]
    assert [command.out for command in commands] == ["begins\nends\n"] * 2
    assert ["reads this log, too; shown is what has come to " in each.errors for each in commands].count(True) == 1
    assert log_of(cloud.project) == b"begins\nends\n"


def test_on_kubernetes_what_was_left_is_ended(cloud: Cloud) -> None:
    left_on(cloud)
    said = types(cloud.project, "cancel", "night")
    assert re.fullmatch(ENDED.replace("second-1x2gpu", "long-1x1gpu").replace("cluster", "cloud"), said)
    assert log_of(cloud.project) == b"begins\n"
    assert not cloud.pods()
    assert not cloud.kube.store.list("jobs")[0]
    assert find_run.unfinished(cloud.project.path / "runs") == ([], [])
