"""A project in an empty folder that uses this suite, with a program that writes the wire.

The program stands in for a training.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest

import harness
import reporting
from harness import spec
from tests.harness import node_facts
from tests.harness.night import Night
from tests.harness.nursery import Nursery, Session

ROOT = Path(__file__).resolve().parents[2]

# A test's pytester forgets in the end what was imported meanwhile, and half of the time of a session in this process
# would go into importing it again.
KEPT = [
    import_module(name)
    for package in (harness, reporting)
    for _, name, _ in walk_packages(package.__path__, f"{package.__name__}.")
]

# ruff: noqa: E501
# Stands in for a training: it writes the wire (docs/wire.md) with the seconds it is told, and ends as it is told.
PROGRAM = """
import json, os, sys, time
options = dict(word.split("=", 1) for word in sys.argv[1:])
seq = 0
def emit(key, value):
    global seq
    line = {"namespace": "hpcml", "time_ms": int(time.time() * 1000), "event_type": "POINT_IN_TIME", "key": key, "value": value,
            "metadata": {"file": "program.py", "lineno": 0, "rank": 0, "seq": seq}}
    os.write(1, (":::MLLOG " + json.dumps(line) + "\\n").encode())
    seq += 1
def mark(name):
    open(os.path.join(options["marks"], name), "a").write("x")
if "marks" in options:
    mark("started")
seconds = [float(s) * float(os.environ.get("SLOWER", 1)) for s in options.get("seconds", "2,2").split(",")]
emit("hpcml_start", {"schema": 1, "benchmark": None, "workload_version": None, "code": None, "request": {"mode": "overlap"},
                     "device": {"type": "cpu", "name": "A CPU", "count": 1}, "world": {"size": 1}, "versions": {}, "host": {}, "data": {}})
time.sleep(float(options.get("sleep", 0)))
steps = int(options.get("steps", 0))
for step in range(steps):
    emit("hpcml_progress", {"phase": "window", "epoch": None, "step": step, "steps": steps, "samples_per_s": 9.0, "loss": 1.0, "left_s": 0.5 * (steps - step)})
    time.sleep(0.5)
while "gate" in options and not os.path.exists(options["gate"]):
    time.sleep(0.05)
if "marks" in options:
    mark("ended")
if "words" in options:
    print(options["words"], flush=True)
if "exit" in options:
    sys.exit(int(options["exit"]))
windows = [{"index": i, "steps": 10, "samples": 100, "wall_s": s, "stall_s": 0.25 * s, "compute_s": 0.75 * s,
            "wait_s": [0, 0, 0], "h2d_s": [0, 0, 0], "busy_s": [0, 0, 0], "loss": 1.0} for i, s in enumerate(seconds)]
for window in windows:
    emit("hpcml_window", window)
total = {name: sum(w[name] for w in windows) for name in ("steps", "samples", "wall_s", "stall_s", "compute_s")}
emit("hpcml_summary", {"windows": len(windows), **total, "effective_throughput": total["samples"] / total["wall_s"],
     "compute_fraction": 0.75, "compute_throughput": total["samples"] / total["compute_s"], "identity_gap": 0.0, "warnings": [word for word in [options.get("warning")] if word]})
if "cut" not in options:
    emit("hpcml_end", {"exit_code": 0, "lines": seq})
"""

TEST = """
import pytest

@pytest.mark.workload(command=["{python}", "{root}/program.py", *%r])
def test_it(run, record):
    assert not run.problems
    record(run)
"""


WARNINGS = "filterwarnings =\n"
STRICT = "    error\n    default::pytest_benchmark.logger.PytestBenchmarkWarning\n"  # what we leave open is found


class Project:
    """A folder with its own pytest.ini, site/ and tests, run by a pytest of its own."""

    def __init__(
        self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
    ) -> None:
        self.pytester, self.sessions = pytester, []
        self._request = request
        self.path = pytester.path
        monkeypatch.setattr(spec, "_has_facts", node_facts.where_asked)
        monkeypatch.setenv("HPC_ML_BENCH_LOCK", str(self.path / "lock"))
        monkeypatch.delenv("HPC_ML_BENCH_SITE", raising=False)
        monkeypatch.delenv("CI", raising=False)
        monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # or pytest-benchmark is off in here too
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "")
        ini = (ROOT / "pytest.ini").read_text().replace("pythonpath = .", f"pythonpath = {ROOT}")
        self.write("pytest.ini", ini.replace(WARNINGS, f"{WARNINGS}{STRICT}"))
        self.write("program.py", PROGRAM)

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def job_test(self, *words: str, name: str = "test_mine.py") -> None:
        """A test file whose job is the program with these words."""
        self.write(name, TEST % (list(words),))

    def platform(self, name: str, text: str = "", enabled: bool = True) -> None:
        """A platform of the site, on this machine by the local scheduler."""
        self.write(f"site/platforms/{name}.yaml", f"scheduler: local\ndevice: gpu\nlayouts: {{default: [1x2]}}\n{text}")
        if enabled:
            self.write("site/site.yaml", f"enabled: [{name}]\n")

    def on_slurm(self, work: Path, keys: str = "", partition: str = "standard") -> None:
        """The platform `mine`: a partition of the test's Slurm."""
        keys += f"work_dir: {work}\npython: {sys.executable}\npoll_s: 0.5\n"
        keys += f"slurm: {{account: z19, partition: {partition}}}\n"
        self.write("site/platforms/mine.yaml", f"scheduler: slurm\ndevice: cpu\nlayouts: {{default: [1x1]}}\n{keys}")
        self.write("site/site.yaml", "enabled: [mine]\n")

    def pytest(self, *args: str) -> pytest.RunResult:
        """In this process, which saves starting another."""
        return self.pytester.runpytest_inprocess(*args)

    def refuses(self, *args: str, says: str) -> pytest.RunResult:
        """A session that is a mistake of usage: it says so without a traceback, and has submitted nothing."""
        result = self.pytest(*args)
        said = result.stdout.str() + result.stderr.str()
        assert result.ret == pytest.ExitCode.USAGE_ERROR, said
        result.stderr.fnmatch_lines([says])
        assert "Traceback" not in said
        assert not self.jobs()
        return result

    def pytest_process(self, *args: str) -> pytest.RunResult:
        """In a process of its own, for what pytest itself does at its very end."""
        return self.pytester.runpytest_subprocess(*args, timeout=180)

    def begin(self, *args: str, folder: Path | None = None, **more: Any) -> Session:
        """A session in a process of its own, which can be killed; for `more` see `Nursery.begin`."""
        nursery: Nursery = self._request.getfixturevalue("nursery")
        if more.get("program", "pytest") == "pytest":  # an interrupt between `open` and `with` leaves a file open
            args = (*args, "-W", "default::ResourceWarning")
        self.sessions.append(nursery.begin(folder or self.path, *args, **more))
        return self.sessions[-1]

    def killed(self, when: Callable[[], object], *args: str, **more: Any) -> Session:
        """A session that is killed as soon as this is true."""
        session = self.begin(*args, **more)
        session.until(when)
        session.kill()
        return session

    def jobs(self) -> list[str]:
        """Names of the tests' folders under runs/latest: what was submitted."""
        return sorted(path.parent.name for path in self.path.glob("runs/2*/*/job.sh"))

    def saved(self) -> list[dict]:
        """Every saved pytest-benchmark file, oldest first."""
        return [json.loads(path.read_text()) for path in sorted(self.path.glob(".benchmarks/*/*.json"))]


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    nursery = Nursery(tmp_path_factory.mktemp("nursery"))
    yield nursery
    nursery.end()


@pytest.fixture
def project(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Project]:
    project = Project(pytester, monkeypatch, request)
    yield project
    for session in project.sessions:
        session.kill()


@pytest.fixture
def night(project: Project) -> Night:
    return Night(project)
