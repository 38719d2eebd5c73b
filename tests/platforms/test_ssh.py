"""Jobs on a machine without a scheduler: what gets there, what it is asked, and lost connections, with a real sshd.

How such jobs end is tried in test_local.py, together with the scheduler local.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path

import pytest

from platforms.config.keys import ContainerKeys
from platforms.config.schema import Platform
from platforms.job import AwayError, MachineError, RefusedError, State
from platforms.schedulers import ssh, supervisor
from platforms.schedulers.ssh import SshScheduler
from platforms.transports import CommandResult
from platforms.transports.local import LocalTransport
from tests.clusters.sshd import Sshd
from tests.platforms.supervised import SPEC, job, shell, start, status_of, until, wait

ROOT = Path(__file__).resolve().parents[2]
NIGHTLY = pytest.mark.nightly("platforms/transports", "platforms/schedulers/ssh.py")


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "lock"
    monkeypatch.setenv("HPC_ML_BENCH_LOCK", str(path))
    return path


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    work = tmp_path / "the other machine's"
    yield work
    for record in work.glob("jobs/*/pid"):  # a test that failed leaves nothing behind either
        supervisor.send(supervisor.members(str(record.parent)), signal.SIGKILL)


class Line:
    """The transport local, which counts its commands and can be cut."""

    def __init__(self, platform: Platform) -> None:
        self.transport = LocalTransport(platform)
        self.where = "far"
        self.commands: list[Sequence[str]] = []
        self.cut_before = self.cut_after = False

    def run(self, argv: Sequence[str], *, input: bytes = b"", timeout_s: float = 60.0) -> CommandResult:  # noqa: A002
        if self.cut_before:
            raise AwayError("far: the connection was lost")
        self.commands.append(argv)
        done = self.transport.run(argv, input=input, timeout_s=timeout_s)
        if self.cut_after:
            raise AwayError("far: the connection was lost")
        return done

    def typed(self, command: str) -> str:
        return f"ssh far {shlex.quote(command)}"

    def close(self) -> None:
        self.transport.close()


def platform(work: Path, **keys: object) -> Platform:
    changes = {"scheduler": "ssh", "work_dir": str(work), "source": Path("station.yaml"), **keys}
    return Platform(name="station").model_copy(update=changes)


@pytest.fixture
def lined(work: Path) -> tuple[SshScheduler, Line]:
    line = Line(platform(work))
    return SshScheduler(platform(work), connect=lambda _: line), line


# --- what gets there --------------------------------------------------------------------------------------------------


def test_the_files_that_travel_are_python_38() -> None:
    name, content = ssh.program()
    with zipfile.ZipFile(BytesIO(content)) as file:
        sources = {member: file.read(member).decode() for member in file.namelist()}

    assert name.startswith("supervisor-")
    assert len(sources) == 5
    for source in sources.values():
        tree = ast.parse(source, feature_version=(3, 8))
        imports = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imports |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert imports - sys.stdlib_module_names <= {"platforms.schedulers"}


@pytest.mark.slow
@pytest.mark.parametrize(("version", "code"), [((3, 7, 17), 45), ((3, 8, 0), 1)])
def test_an_old_python_says_so_before_it_reads_anything(version: tuple[int, ...], code: int) -> None:
    text = f"import sys; sys.version_info = {version}; sys.argv[1:] = ['status']\n" + ssh.MAIN
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, input=b"no question", capture_output=True)

    assert done.returncode == code
    assert (done.stderr == b"") == (code == 45)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sh", "dash", "bash", "zsh", "ksh"])
def test_any_shell_reads_its_head(name: str, tmp_path: Path) -> None:
    if (found := shutil.which(name)) is None:
        pytest.skip(f"{name} is not installed (apt-get install {name})")
    path = tmp_path / "supervisor.pyz"
    path.write_bytes(ssh.program()[1])
    (tmp_path / "sh").symlink_to(found)
    question = json.dumps({"folders": [f"{tmp_path}/nothing"]}).encode()

    done = subprocess.run(
        [tmp_path / "sh", path, "status", "/no/python", "python3"], input=question, capture_output=True
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == [f"{tmp_path}/nothing", {"seen": "nothing", "log_bytes": None}]


@pytest.mark.slow
def test_each_file_is_copied_once(lined: tuple[SshScheduler, Line], work: Path, tmp_path: Path) -> None:
    scheduler, line = lined
    archive = tmp_path / "models-0123456789ab.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("__main__.py", "import sys; print(sys.version_info >= (3, 8), sys.argv[1:])")
    spec = replace(SPEC, arguments=("train", "x"), benchmark="resnet50", archive=archive, python="auto")
    there = sorted([f"{work}/archives/{archive.name}", f"{work}/archives/{ssh.program()[0]}"])

    for name in ("one", "two"):
        job_id = start(scheduler, spec, work / "jobs" / name)
        assert wait(scheduler, job_id).state is State.SUCCEEDED
        assert scheduler.read(job(job_id), 0) == b"True ['train', 'x']\n"

    assert sorted(argv[6] for argv in line.commands if argv[1] == "-c" and "cat > " in argv[2]) == there
    shutil.rmtree(work / "archives")  # a site's cleaner of scratch
    assert status_of(scheduler, job_id).state is State.SUCCEEDED
    assert [path.name for path in (work / "archives").iterdir()] == [ssh.program()[0]]


@pytest.mark.slow
def test_a_missing_data_set_is_reported(lined: tuple[SshScheduler, Line], work: Path, tmp_path: Path) -> None:
    scheduler, _ = lined
    spec = replace(
        SPEC, benchmark="resnet50", archive=Path("a.pyz"), data_dir=f"{work}/data", request={"size": "smoke"}
    )
    (work / "archives").mkdir(parents=True)
    (work / "archives" / "a.pyz").touch()

    with pytest.raises(MachineError, match=r"no data set in .*prepare station --size smoke") as error:
        scheduler.submit(spec, scheduler.render(spec), tmp_path)

    assert error.value.status.state is State.DATA_MISSING
    assert not (work / "jobs").exists()


def run_script(text: str, **environ: str) -> list[str]:
    body = text.replace("exec ", "printf '%s\\n' \"$OMP_NUM_THREADS\" ")
    done = subprocess.run(
        ["sh", "-c", body], env={"PATH": os.environ["PATH"], **environ}, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_script_counts_that_machines_cores(work: Path) -> None:
    scheduler = SshScheduler(platform(work))
    spec = replace(SPEC, arguments=("train",), benchmark="resnet50", archive=Path("/runs/m-1.pyz"), python="auto")
    cores = len(os.sched_getaffinity(0))

    text = scheduler.render(spec)

    assert sys.executable not in text
    assert scheduler.render(spec) == text
    archive = f"{work}/archives/m-1.pyz"
    assert run_script(text, OMP_NUM_THREADS="77") == [str(cores), "python3", archive, "train"]
    prepared = work / "env-station" / "bin" / "python"
    prepared.parent.mkdir(parents=True)
    prepared.symlink_to(sys.executable)
    assert run_script(text)[1] == str(prepared)
    many = scheduler.render(replace(spec, ranks_per_device=1000, launcher="torchrun"))
    assert run_script(many)[0] == "1"
    own = scheduler.render(replace(spec, threads_per_rank=3, python="/opt/python"))
    assert run_script(own)[:2] == ["3", "/opt/python"]
    assert run_script(scheduler.render(replace(spec, env={"OMP_NUM_THREADS": "5"})))[0] == "5"


def test_modules_and_setup(work: Path) -> None:
    loads = 'module() { [ "$2" != none ] && loaded="$loaded $*"; }'
    there = platform(work, modules=("cuda/12 beta", "nccl"), setup=("export FOUND=$loaded", 'set -- "it\'s mine"'))
    spec = shell('printf "%s\\n" "$FOUND"')

    def run(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", "-c", f"{loads}\n{text}"], capture_output=True, text=True)

    assert run(SshScheduler(there).render(spec)).stdout == " load cuda/12 beta load nccl\n"
    done = run(SshScheduler(platform(work, modules=("none",))).render(spec))
    assert (done.returncode, done.stderr) == (126, "cannot load the module none\n")


def test_a_container_is_refused(work: Path) -> None:
    box = ContainerKeys(runtime="apptainer", image="x.sif")
    with pytest.raises(RefusedError, match=r"starts no containers: remove `container:` from station.yaml"):
        SshScheduler(platform(work, container=box)).render(SPEC)


# --- what it is asked -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_command_for_many_jobs(lined: tuple[SshScheduler, Line], work: Path) -> None:
    scheduler, line = lined
    ids = [start(scheduler, shell("echo hello; exec sleep 100"), work / "jobs" / str(n), share="x") for n in range(4)]
    jobs = [job(job_id) for job_id in ids]
    until(lambda: all(status.state is State.RUNNING for status in scheduler.status(jobs).values()))
    until(lambda: scheduler.status(jobs) and all(scheduler.read(one, 0) == b"hello\n" for one in jobs))
    line.commands.clear()

    assert set(scheduler.status(jobs)) == set(ids)
    assert [scheduler.read(one, 6) for one in jobs] == [b""] * 4  # no more of the log was seen, so nothing is asked
    assert scheduler.cancel(jobs) == {}
    assert [len(line.commands), scheduler.status([]), scheduler.cancel([]), len(line.commands)] == [2, {}, {}, 2]
    assert {status.state for status in scheduler.status(jobs).values()} == {State.CANCELLED}


@pytest.mark.slow
def test_a_lost_answer_leaves_it_open_whether_the_job_started(
    lined: tuple[SshScheduler, Line], work: Path, tmp_path: Path
) -> None:
    scheduler, line = lined
    spec = shell("echo x >> ../count; exec sleep 100")
    scheduler.status([job(f"{work}/jobs/nothing")])  # so that our file is there

    line.cut_after = True
    with pytest.raises(AwayError):
        scheduler.submit(spec, scheduler.render(spec), tmp_path)
    line.cut_after = False
    job_id = scheduler.submit(spec, scheduler.render(spec), tmp_path)
    until(lambda: Path(job_id, "count").exists() and Path(job_id, "count").read_text())
    line.cut_before = True
    with pytest.raises(AwayError):
        scheduler.status([job(job_id)])
    (why,) = scheduler.cancel([job(job_id)]).values()

    assert Path(job_id, "count").read_text() == "x\n"
    assert "on far may still run: far: the connection was lost: ssh far 'kill " in why
    line.cut_before = False
    by_hand = why.partition(": ssh far ")[2]
    subprocess.run(["sh", "-c", *shlex.split(by_hand)], check=True)
    assert wait(scheduler, job_id).state is State.CANCELLED


@pytest.mark.slow
def test_half_a_request_starts_nothing(lined: tuple[SshScheduler, Line], work: Path) -> None:
    name, content = ssh.program()
    (work / "archives").mkdir(parents=True)
    path = work / "archives" / name
    path.write_bytes(content)
    question = json.dumps({"folder": str(work / "jobs" / "a"), "text": "true", "settings": [], "environ": {}}).encode()

    done = subprocess.run([sys.executable, "-I", "-S", path, "start"], input=question[:-9], capture_output=True)

    assert (done.returncode, done.stdout) == (1, b"")
    assert not (work / "jobs").exists()


@pytest.mark.slow
def test_a_job_that_was_not_polled_has_hints(lined: tuple[SshScheduler, Line], work: Path) -> None:
    scheduler, _ = lined
    job_id = start(scheduler, shell("exec sleep 100"), work / "jobs" / "a")
    tail, kill = scheduler.hints(job(job_id))

    assert tail == "ssh far " + shlex.quote(f"tail -n 50 -f {shlex.quote(job_id)}/log")
    subprocess.run(["sh", "-c", shlex.split(kill)[2]], check=True)
    assert wait(scheduler, job_id).state is State.CANCELLED
    assert [hint.split()[2].strip("'") for hint in scheduler.hints(job(job_id))] == ["less", "cat", "rm"]
    scheduler.clean(job(job_id))
    assert Path(job_id, "log").exists()


# --- a machine that cannot --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_refused_submission_says_why(lined: tuple[SshScheduler, Line], work: Path, tmp_path: Path) -> None:
    scheduler, _ = lined
    text = scheduler.render(SPEC).replace("time_limit_s=900", "time_limit_s=soon")

    with pytest.raises(RefusedError, match=r"far: start of the supervisor failed: .*: 'soon' .*station.yaml"):
        scheduler.submit(SPEC, text, tmp_path)

    assert list((work / "jobs").iterdir()) == []


@pytest.mark.slow
def test_a_machine_without_python_is_reported(
    lined: tuple[SshScheduler, Line], work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, _ = lined
    scheduler.status([job(f"{work}/jobs/nothing")])  # so that our file is there
    for name in ("sh", "timeout"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    old = tmp_path / "python3"
    monkeypatch.setenv("PATH", str(tmp_path))

    for mode, code in ((0o644, 0), (0o755, 45), (0o755, 2)):  # none, one that is too old, and what a Python 2 says
        old.write_text(f"#!/bin/sh\nexit {code}\n")
        old.chmod(mode)
        with pytest.raises(RefusedError, match=r"no Python 3.8 or newer \(tried: .*bin/python python3\).*station.yaml"):
            scheduler.submit(SPEC, scheduler.render(SPEC), tmp_path)
    named = SshScheduler(platform(work, python=sys.executable))
    assert status_of(named, f"{work}/jobs/nothing").state is State.LOST


def test_a_work_dir_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    scheduler = SshScheduler(platform(tmp_path / "file" / "work"))

    with pytest.raises(RefusedError, match="Not a directory"):
        scheduler.submit(SPEC, scheduler.render(SPEC), tmp_path)


# --- over a real connection -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    folder = tmp_path_factory.mktemp("sshd")
    server = Sshd(folder)
    yield server
    server.stop()


@pytest.fixture(params=["openssh", pytest.param("paramiko", marks=NIGHTLY)])
def far(request: pytest.FixtureRequest, server: Sshd, work: Path) -> Iterator[Platform]:
    server.start()
    place = platform(work, transport=request.param, host="login", ssh_config=str(server.config))
    yield place
    server.start()


def patient(ask: Callable[[], str]) -> str:
    """The answer over a connection that comes and goes."""
    found: list[str] = []

    def again() -> list[str]:
        with contextlib.suppress(AwayError):
            found.append(ask())
        return found

    until(again, "the machine does not answer any more")
    return found[0]


@pytest.mark.real_ssh
def test_a_connection_lost_while_submitting_makes_one_job(
    far: Platform, server: Sshd, work: Path, tmp_path: Path
) -> None:
    scheduler = SshScheduler(far)
    scheduler.status([job(f"{work}/jobs/nothing")])
    for number, delay_s in enumerate((0.03, 0.1, 0.2, 0.35)):
        spec = shell("echo x >> ../count; sleep 0.1", name=f"job-{number}")
        text = scheduler.render(spec)
        cut = threading.Timer(delay_s, server.drop)
        cut.start()
        with contextlib.suppress(AwayError):
            scheduler.submit(spec, text, tmp_path)
        cut.join()

        job_id = patient(partial(scheduler.submit, spec, text, tmp_path))

        assert wait(scheduler, job_id).state is State.SUCCEEDED
        assert Path(job_id, "count").read_text() == "x\n"


@pytest.mark.real_ssh
def test_a_job_is_found_again_after_the_server_was_gone(
    far: Platform, server: Sshd, work: Path, tmp_path: Path
) -> None:
    scheduler = SshScheduler(far)
    spec = shell("echo before; while [ ! -e ../go ]; do sleep 0.05; done; echo after; exit 4")
    job_id = scheduler.submit(spec, scheduler.render(spec), tmp_path)
    until(lambda: status_of(scheduler, job_id).state is State.RUNNING)

    server.stop()
    with pytest.raises(AwayError):
        scheduler.status([job(job_id)])
    Path(job_id, "go").touch()
    until(Path(job_id, "exit").exists)
    server.start()
    again = SshScheduler(far)

    assert again.submit(spec, again.render(spec), tmp_path) == job_id
    status = status_of(again, job_id)
    assert (status.state, status.exit_code) == (State.EXITED, 4)
    assert again.read(job(job_id), 0) == b"before\nafter\n"
    assert patient(lambda: status_of(scheduler, job_id).state) is State.EXITED  # the first session goes on, too
