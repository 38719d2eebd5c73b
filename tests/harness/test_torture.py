"""Sessions that are killed at random points, until one lives to the end: each job ran once, each result is there once.

What ran is what the schedulers themselves say: Slurm's accounting, the API server's answers, and for this machine what
the jobs leave behind. One seed for each platform is part of every test, the others are for the night; `pytest
tests/harness/test_torture.py --seeds 50` kills more often.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from platforms.rundir import session_history
from tests.fake_kubernetes import Kube
from tests.harness.conftest import Project

JOBS = 5
MOST_KILLS = 4
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
    session_s = 1.5

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        project.platform("place", "max_running: 2\npoll_s: 0.2\n")
        self.marks = project.path / "marks"
        self.marks.mkdir()
        self.also = f'echo "$HPC_ML_BENCH_JOB" >> {self.marks}/all; '

    def ran(self) -> Counter[str]:
        return Counter((self.marks / "all").read_text().split())


class Cloud(Site):
    session_s = 3.0
    also = ""

    def __init__(self, project: Project, kube: Kube) -> None:
        super().__init__(project)
        self.kube = kube
        cluster = 'kubernetes: {context: fake, image: "bench.local/python:3.11", cpu: 100m, memory: 64Mi}'
        text = "scheduler: kubernetes\ndevice: cpu\nlayouts: {default: [1x1]}\ndata_dir: /data\nmax_running: 3\n"
        project.write("site/platforms/place.yaml", f"{text}{cluster}\n")
        project.write("site/site.yaml", "enabled: [place]\n")

    def ran(self) -> Counter[str]:
        posts = (one for one in self.kube.requests if one.method == "POST" and one.path.endswith("/jobs"))
        return Counter(one.json()["metadata"]["name"] for one in posts if one.status == 201)


class Campus(Site):
    session_s = 7.0
    also = ""

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        text = "scheduler: slurm\ndevice: cpu\nlayouts: {default: [1x1]}\nmax_running: 3\npoll_s: 0.5\n"
        text += f"work_dir: {project.path}/work\nslurm: {{account: z19}}\n"
        project.write("site/platforms/place.yaml", text)
        project.write("site/site.yaml", "enabled: [place]\n")

    def ran(self) -> Counter[str]:
        command = ["sacct", "-X", "-n", "-P", "--duplicates", "--starttime=now-1hour", "--format=JobName", "--allusers"]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        ours = set(self.names())
        return Counter(name for name in told if name in ours)


@pytest.fixture
def site(
    request: pytest.FixtureRequest, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    if request.param == "local":
        yield Local(project)
    elif request.param == "kubernetes":
        with Kube(tmp_path / "kube") as kube:
            monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig))
            yield Cloud(project, kube)
    else:
        request.getfixturevalue("slurm")
        yield Campus(project)


SITES = ["local", "kubernetes", pytest.param("slurm", marks=pytest.mark.real_slurm)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    nightly = pytest.mark.nightly("harness", "platforms/rundir", "platforms/runner", "platforms/schedulers")
    more = [pytest.param(seed, marks=nightly) for seed in range(1, metafunc.config.getoption("seeds"))]
    metafunc.parametrize("seed", [0, *more])


@pytest.mark.slow
@pytest.mark.parametrize("site", SITES, indirect=True)
def test_killed_at_random(site: Site, seed: int) -> None:
    dice = random.Random(seed)
    tests = (TEST.format(also=site.also, number=number) for number in range(JOBS))
    site.project.write("test_it.py", "import pytest\n" + "".join(tests))
    kills = [dice.uniform(0.05, site.session_s) for _ in range(dice.randint(1, MOST_KILLS))]
    status, said = session(site, kills.pop())
    while status == -signal.SIGKILL and not site.ended:
        status, said = session(site, kills.pop() if kills else None)
    assert status in (0, -signal.SIGKILL), said  # or it was killed, and had ended
    cases = list(ElementTree.parse(site.project.path / "junit.xml").iter("testcase"))
    assert len(cases) == JOBS
    assert not [case for case in cases if {child.tag for child in case} & {"failure", "error", "skipped"}], said
    assert len(site.folders("run.json")) == len(set(site.names())) == JOBS
    assert site.ran() == Counter(site.names())


def session(site: Site, kill_after_s: float | None) -> tuple[int, str]:
    """Its exit status, which may be that of a kill, and what it said."""
    words = ("test_it.py", "-m", "place", f"--run-id={site.run_id}", "--junitxml=junit.xml")
    session = site.project.begin(*words)
    if kill_after_s is not None:
        end = time.monotonic() + kill_after_s
        while session.status is None and time.monotonic() < end:
            time.sleep(0.02)
        session.kill()
    return session.ends(), session.said
