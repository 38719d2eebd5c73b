"""A run that outlives its login node: begun through one, gone on with through another."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.ports import LOOPBACK
from tests.clusters.slurm import Cluster
from tests.clusters.sshd import Sshd
from tests.harness.conftest import Project
from tests.harness.nursery import Session
from tests.waiting import until

pytestmark = [pytest.mark.real_slurm, pytest.mark.real_ssh]
NAMES = ("soon", "long", "large", "late")
WORDS = {"large": bytes(range(256)) * 2600}  # said twice, more than one look at a log brings
PLATFORM = """\
scheduler: slurm
device: cpu
layouts: {{default: [1x1]}}
poll_s: 0.5
max_running: 2
work_dir: {work}
host: {host}
transport: openssh
ssh_config: {config}
slurm: {{account: z19}}
"""
TESTS = """
import pytest

SAYS = "cat {path}/words-$0; until [ -e {path}/open-$0 ]; do sleep 0.1; done; cat {path}/words-$0"
NAMES = {names}

@pytest.mark.workload(command=["sh", "-c", SAYS, "soon"])
def test_soon(run): said(run, "soon")

@pytest.mark.workload(command=["sh", "-c", SAYS, "long"])
def test_long(run): said(run, "long")

@pytest.mark.workload(command=["sh", "-c", SAYS, "large"])
def test_large(run): said(run, "large")

@pytest.mark.workload(command=["sh", "-c", SAYS, "late"])
def test_late(run): said(run, "late")

def said(run, name):
    assert not run.problems
    with open("{path}/words-" + name, "rb") as file:
        assert (run.folder / "log").read_bytes() == 2 * file.read()
"""


class Campus:
    """A machine with two login nodes, `a` and `b`, which ssh's configuration knows by these names. Each job says its
    words, waits for its gate, and says them again."""

    def __init__(self, slurm: Cluster, project: Project, folder: Path) -> None:
        self.slurm, self.project, self.first = slurm, project, project.path
        self.shared = folder / "shared"  # what all nodes see
        self.work = self.shared / "work"
        (self.shared / "home").mkdir(parents=True)
        for name in NAMES:
            (self.shared / f"words-{name}").write_bytes(WORDS.get(name, f"{name}\n".encode()))
        environ = {**slurm.environ, "HOME": str(self.shared / "home")}
        self.nodes = {name: Sshd(folder / f"login-{name}", setenv=environ) for name in "ab"}
        self.config = folder / "ssh_config"
        self.config.write_text("".join(_host(name, node) for name, node in self.nodes.items()))
        project.write("test_night.py", TESTS.format(path=self.shared, names=NAMES))
        project.write("site/site.yaml", "enabled: [campus]\n")

    def platform(self, folder: Path, host: str) -> None:
        text = PLATFORM.format(work=self.work, host=host, config=self.config)
        path = folder / "site/platforms/campus.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def lose_a(self) -> None:
        """With all connections, for good."""
        self.nodes["a"].stop()

    def elsewhere(self, name: str) -> Path:
        """Another checkout, with what the first one has in runs/."""
        ignored = shutil.ignore_patterns("__pycache__", ".benchmarks")
        return Path(shutil.copytree(self.first, self.shared / name, symlinks=True, ignore=ignored))

    def begins(self, folder: Path, *words: str) -> Session:
        """On a machine that knows nothing of Slurm."""
        return self.project.begin(*words, folder=folder, without="SLURM")

    def open(self, *names: str) -> None:
        for name in names:
            (self.shared / f"open-{name}").touch()

    def has(self, file: str, name: str) -> list[Path]:
        """Of the job with that name, in work_dir."""
        return list(self.work.glob(f"jobs/{name}-*/{file}"))

    def ran(self, name: str) -> int:
        """How often, as Slurm accounts for it."""
        jobs = {path.parent.name for path in self.has("job.sh", name)}
        return sum(row.name in jobs for row in self.slurm.jobs())


def _host(name: str, node: Sshd) -> str:
    lines = [f"HostName {LOOPBACK}", f"Port {node.port}", f"User {node.user}", f"IdentityFile {node.key}"]
    lines += ["IdentitiesOnly yes", f"UserKnownHostsFile {node.known_hosts}", "GlobalKnownHostsFile /dev/null"]
    return "".join([f"Host {name}\n", *(f"    {line}\n" for line in lines)])


@pytest.fixture
def campus(
    slurm: Cluster, project: Project, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Campus]:
    with tempfile.TemporaryDirectory(prefix="hpcml") as sockets:  # of ssh: their paths must be short
        monkeypatch.setenv("XDG_RUNTIME_DIR", sockets)
        campus = Campus(slurm, project, tmp_path_factory.mktemp("campus"))
        yield campus
        campus.open(*NAMES)
        for node in campus.nodes.values():
            node.stop()


def whole(campus: Campus, folder: Path, run_id: str, before: dict[str, str]) -> None:
    """Each result is there, of the one job that ran; those that were submitted before are of that job."""
    for name in NAMES:
        (path,) = folder.glob(f"runs/{run_id}/test_night-test_{name}-*/run.json")
        told = json.loads(path.read_text())
        assert (name, told["state"], told["problems"]) == (name, "succeeded", [])
        assert told["job_id"] == before.get(name, told["job_id"])
        (log,) = campus.has("log", name)
        words = (campus.shared / f"words-{name}").read_bytes()
        assert (path.with_name("log").read_bytes(), log.read_bytes()) == (2 * words, 2 * words)
    until(lambda: min(map(campus.ran, NAMES)) == 1, "accounting knows all of them")  # it may lag behind
    assert Counter({name: campus.ran(name) for name in NAMES}) == Counter(NAMES)


def submitted(folder: Path) -> dict[str, str]:
    """Slurm's ids of the jobs of which a session knows, by our names."""
    found = {path: json.loads(path.read_text()) for path in folder.glob("runs/*/test_*/submitted.json")}
    return {told["name"].partition("-")[0]: told["job_id"] for told in found.values()}


def test_through_another_login_node_from_another_folder(campus: Campus) -> None:
    """Killed while it waits: one job's result is read, two run, one is not submitted yet."""
    campus.platform(campus.first, "a")
    campus.open("soon")
    session = campus.begins(campus.first, "-m", "campus", "--on-interrupt=detach")
    session.until(lambda: list(campus.first.glob("runs/2*/*soon*/run.json")))
    session.until(lambda: campus.has("started", "large"))
    session.until(lambda: len(submitted(campus.first)) == 3)
    session.kill()
    campus.lose_a()
    before = submitted(campus.first)
    there = campus.elsewhere("other")
    campus.platform(there, "b")

    session = campus.begins(there, "--resume")
    campus.open(*NAMES)
    assert session.ends() == 0, session.said
    assert "the jobs of 4 of 4 tests were begun before" in session.out
    assert "4 passed" in session.out
    run_id = (there / "runs/latest").resolve().name
    whole(campus, there, run_id, before)
