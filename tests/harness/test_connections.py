"""What sessions leave open on a login node, however they end."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.sshd import Sshd
from tests.harness.conftest import Project
from tests.harness.night import KILL
from tests.harness.nursery import Session
from tests.waiting import until

pytestmark = pytest.mark.real_ssh

TEST = """
import pytest

@pytest.mark.workload(command=["sh", "-c", "until [ -e {gate} ]; do sleep 0.1; done; {command}"])
def test_it(run): pass
"""


class Campus:
    """A project with one platform, a login node that openssh reaches, and a folder of its own for ssh's sockets."""

    def __init__(self, project: Project, folder: Path, sockets: Path) -> None:
        self.project, self.gate, self.sockets = project, folder / "gate", sockets
        self.server = Sshd(folder / "login")
        keys = f"host: login\ntransport: openssh\nssh_config: {self.server.config}\nwork_dir: {folder / 'work'}\n"
        text = f"scheduler: ssh\ndevice: cpu\nlayouts: {{default: [1x1]}}\npoll_s: 0.2\n{keys}"
        project.write("site/platforms/campus.yaml", text)
        project.write("site/site.yaml", "enabled: [campus]\n")
        self.job("true")

    def job(self, command: str) -> None:
        self.project.write("test_it.py", TEST.format(gate=self.gate, command=command))

    def begins(self, *words: str, program: str = "pytest") -> Session:
        return self.project.begin(*words, program=program, XDG_RUNTIME_DIR=str(self.sockets))

    @property
    def connections(self) -> list[int]:
        """The processes of ssh on this machine that have one of our sockets: who holds it, and who uses it."""
        folder = str(self.sockets).encode()
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in pids if _words(pid).startswith(b"ssh") and folder in _words(pid)]


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def campus(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campus]:
    with tempfile.TemporaryDirectory(prefix="ssh") as sockets:  # a short path, as that of a socket must be
        campus = Campus(project, tmp_path_factory.mktemp("campus"), Path(sockets))
        yield campus
        campus.gate.touch()
        campus.server.stop()
        until(lambda: not campus.connections, "the connections end with their server")


AT_NIGHT = pytest.mark.nightly("platforms/transports", "harness/session_end.py", "platforms/runner")
ENDS = {
    "well": ((), "true", None),
    "with a failure": ((), "exit 1", None),
    "without waiting": (("--wait=0",), "true", None),
    "by Ctrl-C": ((), "true", signal.SIGINT),
    "by Ctrl-C, and its jobs go on": (("--on-interrupt=detach",), "true", signal.SIGINT),
    "by SIGTERM": ((), "true", signal.SIGTERM),
    "with its terminal": ((), "true", signal.SIGHUP),
}
ALWAYS = ("well", "by Ctrl-C", "with its terminal")


@pytest.mark.parametrize("how", [how if how in ALWAYS else pytest.param(how, marks=AT_NIGHT) for how in ENDS])
def test_no_connection_outlives_a_session_that_ended(campus: Campus, how: str) -> None:
    options, command, number = ENDS[how]
    campus.job(command)
    session = campus.begins("--platform=campus", *options)
    if number is None:
        campus.gate.touch()
    else:
        session.until(lambda: any(campus.project.path.glob("runs/2*/*/submitted.json")))
        assert campus.connections
        session.send(number)
    session.ends()
    assert campus.connections == []
    until(lambda: not campus.server.sessions(), "sshd has seen it")


@pytest.mark.nightly("platforms/transports", "platforms/commands", "platforms/command_line.py")
def test_no_connection_outlives_a_command_on_jobs(campus: Campus) -> None:
    campus.begins("--platform=campus", "--wait=0").ends()
    for words in (("jobs",), ("logs",), ("cancel",), ("prune", "campus")):
        campus.begins(*words, program="platforms").ends()
        assert campus.connections == [], words
    until(lambda: not campus.server.sessions(), "sshd has seen it")


KILLED = f"""{KILL}
from pathlib import Path
from platforms import checkout, transports
from platforms.transports import openssh

openssh.IDLE_S = 3
_, platforms = checkout.load(Path("site"))
assert transports.connect(platforms["campus"]).run(["true"]).exit_code == 0
Path("connected").touch()
kill()
"""


def test_the_connection_of_a_process_that_was_killed_ends_by_itself(campus: Campus) -> None:
    campus.project.write("killed.py", KILLED)
    session = campus.begins("-p", "killed")
    assert session.ends() == -signal.SIGKILL, session.said
    assert (campus.project.path / "connected").exists()
    until(lambda: not campus.connections, "nobody uses it for IDLE_S")
    until(lambda: not campus.server.sessions(), "sshd has seen it")
