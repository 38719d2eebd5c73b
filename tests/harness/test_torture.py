"""Sessions that are killed at random points, until one lives to the end: each job ran once, each result is there once.

What ran is what the schedulers themselves say: Slurm's accounting, the API server's answers, and for this machine what
the jobs leave behind. `pytest tests/harness/test_torture.py --seeds 50` kills more often than CI does.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from platforms.rundir import session_history
from tests.clusters.slurm import Cluster
from tests.fake_kubernetes import Kube
from tests.harness.conftest import Project

JOBS = 5
MOST_KILLS = 4
PATIENCE_S = 120.0
TEST = """
@pytest.mark.workload(command=["sh", "-c", 'echo ran; {also}sleep 0.{number}'])
def test_{number}(run):
    assert not run.problems
    assert (run.folder / "log").read_text() == "ran\\n"
"""


class Site(ABC):
    """A platform, and who knows what has run on it. `session_s` is about as long as a session that nobody kills."""

    session_s: float

    def __init__(self, project: Project) -> None:
        self.project = project
        self.run_id = f"torture-{project.path.name}"  # names of jobs come from it, and a cluster may be there for many

    @abstractmethod
    def ran(self) -> Counter[str]:
        """How often each job has begun, by its name."""

    @property
    def ended(self) -> bool:
        """A session has said so, and was killed only then."""
        return any(
            past.end == session_history.DONE
            for past in session_history.read_sessions(self.project.path / "runs" / self.run_id)
        )

    def names(self) -> list[str]:
        """Of the jobs, by the folders of their tests."""
        told = (json.loads(path.read_text()) for path in self.folders("run.json"))
        return [each["name"] for each in told]

    def folders(self, name: str) -> list[Path]:
        return list(self.project.path.glob(f"runs/{self.run_id}/test_it-*/{name}"))


class Local(Site):
    session_s = 2.5

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        project.platform("place", "max_running: 2\npoll_s: 0.2\n")
        self.marks = project.path / "marks"
        self.marks.mkdir()
        self.also = f'echo "$HPC_ML_BENCH_JOB" >> {self.marks}/all; '

    def ran(self) -> Counter[str]:
        return Counter((self.marks / "all").read_text().split())


class Cloud(Site):
    session_s = 4.0
    also = ""

    def __init__(self, project: Project, kube: Kube) -> None:
        super().__init__(project)
        self.kube = kube
        os.environ["KUBECONFIG"] = str(kube.kubeconfig)
        cluster = 'kubernetes: {context: fake, image: "bench.local/python:3.11", cpu: 100m, memory: 64Mi}'
        text = "scheduler: kubernetes\ndevice: cpu\nlayouts: {default: [1x1]}\ndata_dir: /data\nmax_running: 3\n"
        project.write("site/platforms/place.yaml", f"{text}{cluster}\n")
        project.write("site/site.yaml", "enabled: [place]\n")

    def ran(self) -> Counter[str]:
        posts = (one for one in self.kube.requests if one.method == "POST" and one.path.endswith("/jobs"))
        return Counter(one.json()["metadata"]["name"] for one in posts if one.status == 201)


class Campus(Site):
    session_s = 8.0
    also = ""

    def __init__(self, project: Project, slurm: Cluster) -> None:
        super().__init__(project)
        self.slurm = slurm
        os.environ["SLURM_CONF"] = slurm.environ["SLURM_CONF"]
        text = "scheduler: slurm\ndevice: cpu\nlayouts: {default: [1x1]}\nmax_running: 3\npoll_s: 0.5\n"
        text += f"work_dir: {project.path}/work\nslurm: {{account: z19}}\n"
        project.write("site/platforms/place.yaml", text)
        project.write("site/site.yaml", "enabled: [place]\n")

    def ran(self) -> Counter[str]:
        command = ["sacct", "-X", "-n", "-P", "--duplicates", "--starttime=now-1hour", "--format=JobName", "--allusers"]
        told = subprocess.run(command, env=os.environ, check=True, capture_output=True, text=True).stdout.split()
        ours = set(self.names())
        return Counter(name for name in told if name in ours)


@pytest.fixture
def site(request: pytest.FixtureRequest, project: Project, tmp_path: Path) -> Iterator[Site]:
    before = dict(os.environ)
    try:
        if request.param == "local":
            yield Local(project)
        elif request.param == "kubernetes":
            with Kube(tmp_path / "kube") as kube:
                yield Cloud(project, kube)
        else:
            yield Campus(project, request.getfixturevalue("slurm"))
    finally:
        os.environ.clear()
        os.environ.update(before)


SITES = ["local", "kubernetes", pytest.param("slurm", marks=pytest.mark.real_slurm)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("seed", range(metafunc.config.getoption("seeds")))


@pytest.mark.parametrize("site", SITES, indirect=True)
def test_killed_at_random(site: Site, seed: int) -> None:
    dice = random.Random(seed)
    tests = (TEST.format(also=site.also, number=number) for number in range(JOBS))
    site.project.write("test_it.py", "import pytest\n" + "".join(tests))
    kills = [dice.uniform(0.2, site.session_s) for _ in range(dice.randint(1, MOST_KILLS))]
    while (status := session(site, kills.pop() if kills else None)) is None and not site.ended:
        pass
    said = (site.project.path / "said").read_text()
    assert status in (0, None), said  # None: it was killed, and had ended
    cases = list(ElementTree.parse(site.project.path / "junit.xml").iter("testcase"))
    assert len(cases) == JOBS
    assert not [case for case in cases if {child.tag for child in case} & {"failure", "error", "skipped"}], said
    assert len(site.folders("run.json")) == len(set(site.names())) == JOBS
    assert site.ran() == Counter(site.names())


def session(site: Site, kill_after_s: float | None = None) -> int | None:
    """Its exit status; None when it was killed."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "test_it.py",
        "-m",
        "place",
        f"--run-id={site.run_id}",
        "--junitxml=junit.xml",
    ]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    with (site.project.path / "said").open("wb") as said:
        process = subprocess.Popen(command, cwd=site.project.path, stdout=said, stderr=said, env=environ)
    try:
        return process.wait(PATIENCE_S if kill_after_s is None else kill_after_s)
    except subprocess.TimeoutExpired:
        if kill_after_s is None:
            raise
        return None
    finally:
        process.kill()
        process.wait()
