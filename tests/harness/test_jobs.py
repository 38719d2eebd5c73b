"""`python -m platforms jobs, logs, fetch, cancel`: what is told of runs that were left, and how they are ended."""

from __future__ import annotations

import json
import re
import secrets
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
from tests.clusters.slurm import Cluster
from tests.fake_kubernetes import Kube
from tests.harness.conftest import ROOT, Project
from tests.harness.test_kubernetes import CLOUD, Cloud, waiting
from tests.waiting import until

PATIENCE_S = 60.0
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
        words = [sys.executable, "-m", "pytest", "-m", "cluster", "--run-id=night"]
        with (self.path / "said").open("wb") as said:
            self.session = subprocess.Popen(words, cwd=project.path, stdout=said, stderr=said)
        try:
            until(lambda: self.begun or self.session.poll() is not None)
            assert self.begun, (self.path / "said").read_text()
        except BaseException:
            self.killed()
            raise

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
        self.session.wait()
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

    @property
    def places(self) -> str:
        """As commands name them that are to be typed next."""
        return f" --site={self.path / 'site'} --runs-dir={self.path / 'runs'}"

    def types(self, *words: str) -> int:
        return main([*words, f"--site={self.path / 'site'}", f"--runs-dir={self.path / 'runs'}"])

    def ended(self, name: str) -> dict[str, Any]:
        """What run.json says of a test's job."""
        (path,) = self.path.glob(f"runs/night/test_{name}*/run.json")
        return dict(json.loads(path.read_text()))


@pytest.fixture
def left(project: Project):
    left = Left(project)
    yield left
    left.session.kill()
    left.session.wait()
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
    assert left.session.poll() is None


def test_jobs_that_were_left_are_asked_for(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    left.killed().open_gate()
    until(lambda: (left.second / "exit").exists())
    assert left.types("jobs") == 0
    run, *lines = capsys.readouterr().out.splitlines()
    assert run == f"run night, left unfinished: pytest --resume=night{left.places}"
    assert [line.rpartition(": ")[2] for line in lines] == ["succeeded", "succeeded"]
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
        (
            ["logs", "nothing"],
            "error: run night has no job 'nothing', nor one with that in its name or test: it has first-",
        ),
        (["logs", "1x2gpu"], "error: '1x2gpu' is a part of 2 jobs of run night: type one name of first-1x2gpu-"),
        (["jobs", "nothing"], "/runs, but night (--runs-dir names another folder)"),
        (["cancel", "nothing"], "error: there is no run nothing in /"),
        (["cancel", "../night"], "error: there is no run ../night in /"),
        (["logs", "first", "--run=nothing"], "error: there is no run nothing in /"),
    ],
)
def test_what_is_not_there(left: Left, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert left.types(*words) == 2
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
    left.project.pytest_process("--resume=night").assert_outcomes(passed=2)
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
    assert left.project.pytest_process("--resume=night").ret == pytest.ExitCode.USAGE_ERROR


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


def test_ended_on_its_only_platform_the_run_has_ended(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    left.killed()
    assert left.types("cancel", "night") == 0
    (path,) = left.path.glob("runs/night/test_second*/run.json")
    assert find_run.unfinished(left.path / "runs") == ([], [])
    assert left.types("cancel", "night") == 0
    assert "run night had ended before" in capsys.readouterr().out
    assert not list(left.path.glob("runs/night/test_second*.2"))
    assert path.exists()


def test_a_log_is_followed_until_somebody_cancels_it(left: Left) -> None:
    left.killed()
    follow = command(left.project, "logs", "-f", "second")
    with subprocess.Popen(follow, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"second begins\n"
        assert left.types("cancel", "night") == 0
        out, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert out in (b"", b"Terminated\n")  # what its shell says where the program ends before it
    assert errors.endswith(b" on cluster: cancelled: `python -m platforms cancel` ended it\n")


def test_a_log_is_followed_when_a_session_takes_the_run_over(left: Left) -> None:
    left.killed()
    follow = command(left.project, "logs", "-f", "second")
    with subprocess.Popen(follow, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"second begins\n"
        words = [sys.executable, "-m", "pytest", "--resume"]
        with subprocess.Popen(words, cwd=left.path, stdout=subprocess.DEVNULL) as session:
            until(lambda: list(left.path.glob("runs/night/sessions/*.taken")))
            left.open_gate()
            out, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, session.returncode, out) == (0, 0, b"second ends\n")
    assert errors.endswith(b" on cluster: succeeded\n")


def test_a_quiet_log_is_not_followed_for_nobody(left: Left) -> None:
    """As `logs -f JOB | head -1`."""
    for lives in (True, False):
        if not lives:
            left.killed()
        follow = command(left.project, "logs", "-f", "second")
        with subprocess.Popen(follow, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
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


def test_a_log_is_followed_into_the_session_that_goes_on(
    left: Left, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Its first one has been killed and the second lives when it is asked for."""
    left.killed()
    words = [sys.executable, "-m", "pytest", "--resume"]
    with subprocess.Popen(words, cwd=left.path, stdout=subprocess.DEVNULL) as session:
        until(lambda: len(list(left.path.glob("runs/night/sessions/*.taken"))) == 1)
        threading.Timer(0.5, left.open_gate).start()
        assert left.types("logs", "-f", "second") == 0
    assert session.returncode == 0
    assert capsysbinary.readouterr().out == b"second begins\nsecond ends\n"


def test_what_another_session_has_taken_over_and_left_alone_is_known(
    left: Left, capsys: pytest.CaptureFixture[str]
) -> None:
    left.killed()
    left.project.pytest_process("-m", "cluster", "--run-id=night", "test_first.py").assert_outcomes(passed=1)
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


def command(project: Project, *words: str) -> list[str]:
    """For a process of its own, which ends with the threads that read logs."""
    places = [f"--site={project.path / 'site'}", f"--runs-dir={project.path / 'runs'}"]
    return [sys.executable, "-m", "platforms", *words, *places]


def types(project: Project, *words: str, status: int = 0) -> str:
    done = subprocess.run(command(project, *words), cwd=ROOT, capture_output=True, text=True, timeout=3 * PATIENCE_S)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + (done.stderr if status else "")


@pytest.fixture
def cloud(
    project: Project, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cloud]:
    with Kube(tmp_path_factory.mktemp("kube")) as kube:
        kube.node("node-1", capacity={"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4"})
        monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig))
        yield Cloud(project, kube)


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
    cloud.wait_for(lambda: [pod for pod in cloud.pods() if pod["status"]["phase"] == "Succeeded"])
    cloud.kube.fault("GET", "/log", times=2, code=500)  # its end does not come at once
    assert types(cloud.project, "logs", "long", "--run=night") == "begins\nends\n"
    assert log_of(cloud.project) == b"begins\nends\n"
    cloud.passes(1, "--run-id=night")
    assert len(cloud.created("jobs")) == 1
    assert log_of(cloud.project) == b"begins\nends\n"


def test_on_kubernetes_a_log_is_followed_to_its_end(cloud: Cloud) -> None:
    gate = left_on(cloud)
    threading.Timer(3.0, gate.touch).start()
    assert types(cloud.project, "logs", "-f", "long", "--run=night") == "begins\nends\n"


def test_on_kubernetes_the_log_that_is_kept_has_one_writer(cloud: Cloud) -> None:
    """What pods say comes in an order of its own to whoever reads it: the second one shows what the first brings."""
    gate = left_on(cloud)
    follow = command(cloud.project, "logs", "-f", "long", "--run=night")
    with (
        subprocess.Popen(follow, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first,
        subprocess.Popen(follow, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as second,
    ):
        for process in (first, second):
            assert process.stdout is not None
            assert process.stdout.readline() == b"begins\n"
        gate.touch()
        ends = [process.communicate(timeout=PATIENCE_S) for process in (first, second)]
        assert [out for out, _ in ends] == [b"ends\n", b"ends\n"]
        assert [b"reads this log, too; shown is what has come to " in errors for _, errors in ends].count(True) == 1
    assert log_of(cloud.project) == b"begins\nends\n"


def test_on_kubernetes_what_was_left_is_ended(cloud: Cloud) -> None:
    left_on(cloud)
    said = types(cloud.project, "cancel", "night")
    assert re.fullmatch(ENDED.replace("second-1x2gpu", "long-1x1gpu").replace("cluster", "cloud"), said)
    assert log_of(cloud.project) == b"begins\n"
    assert not cloud.pods()
    assert not cloud.kube.store.list("jobs")[0]
    assert find_run.unfinished(cloud.project.path / "runs") == ([], [])


def test_a_kubernetes_that_does_not_answer_is_said_so(cloud: Cloud) -> None:
    left_on(cloud)
    cloud.platform(f"{CLOUD}poll_s: 60\n")  # each request for the job's state is repeated for several seconds
    cloud.kube.down()
    try:
        said = types(cloud.project, "logs", "long", "--run=night", status=2)
        assert re.search(r"long-1x1gpu-k\w{7}: whether there is more of its log is not known: .+", said)
    finally:
        cloud.kube.up()


SLURM = """\
scheduler: slurm
device: cpu
layouts: {{default: [1x1]}}
max_running: 2
poll_s: 0.5
work_dir: {work}
slurm: {{account: z19}}
"""


@pytest.mark.real_slurm
def test_on_slurm(project: Project, slurm: Cluster) -> None:
    project.write("site/platforms/campus.yaml", SLURM.format(work=project.path / "work"))
    project.write("site/site.yaml", "enabled: [campus]\n")
    for name in ("first", "second"):
        project.write(f"test_{name}.py", TEST.format(name=name, gate=project.path / f"gate-{name}"))
    run_id = f"night-{secrets.token_hex(3)}"
    words = [sys.executable, "-m", "pytest", "-m", "campus", f"--run-id={run_id}"]
    with subprocess.Popen(words, cwd=project.path, stdout=subprocess.DEVNULL) as session:
        until(lambda: len(list(project.path.glob("runs/*/test_*/submitted.json"))) == 2)
        until(lambda: len([log for log in project.path.glob("work/jobs/*/log") if "begins" in log.read_text()]) == 2)
        session.kill()
    said = types(project, "jobs")
    assert len(re.findall(r"^  \w+-1x1cpu-k\w{7} on campus \(\d+\): running$", said, re.MULTILINE)) == 2, said
    assert types(project, "logs", "first", f"--run={run_id}") == "first begins\n"
    threading.Timer(2.0, (project.path / "gate-first").touch).start()
    assert types(project, "logs", "-f", "first", f"--run={run_id}") == "first begins\nfirst ends\n"
    said = types(project, "cancel", run_id)
    assert re.search(r"first-1x1cpu-k\w{7} on campus: succeeded\n", said)
    assert re.search(r"second-1x1cpu-k\w{7} on campus: cancelled: `python -m platforms cancel` ended it\n", said)
    outcomes = {path.parent.name[:6]: json.loads(path.read_text()) for path in project.path.glob("runs/*/*/run.json")}
    assert {name: found["state"] for name, found in outcomes.items()} == {"test_f": "succeeded", "test_s": "cancelled"}
    assert types(project, "logs", "second", f"--run={run_id}").startswith("second begins\n")
    assert slurm.ask("squeue", "-h", "-t", "PENDING,RUNNING", "-o", "%i %j") == ""
    assert find_run.unfinished(project.path / "runs") == ([], [])
