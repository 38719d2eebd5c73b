"""What many jobs cost us: N jobs on twenty platforms, by the real runner, journal and folders; the schedulers and the
clock are simulated, so that hours pass in seconds.

    python benchmarks/scale.py [--jobs 100 1000 10000] [--platforms 20] [--max-running 50] [--pytest] [--profile]
                               [--folder DIR]

Every job waits 60 s, runs 240 s and writes a log of the wire meanwhile. The clock moves on when no platform's thread is
at work. Each N is a process of its own; its memory is what the system counts (VmHWM), less that of no job at all.
A *look* is one turn of a platform: every `poll_s` (10 s) at most one query, about all of its jobs. Prints Markdown.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, job_name, run_label
from platforms.rundir.session_history import DONE
from platforms.rundir.session_journal import Journal
from platforms.runner import Job, Runner
from platforms.runner.workers import InlinePool, WorkerPool
from tests.simulated import Clock, Instant, Simulated

ROOT = Path(__file__).resolve().parents[1]
POLL_S = 10.0
PLATFORMS, MAX_RUNNING = 20, 50
LAYOUT = Layout(1, 1, "cpu")
CALLS = ("submit", "read", "clean", "gaps", "hints")
SHOWN = 25  # functions of a profile


# --- a session of it -------------------------------------------------------------------------------------------------


@dataclass
class Session:
    """A runner with its simulated platforms, as many jobs on each."""

    folder: Path
    platforms: int = PLATFORMS
    max_running: int = MAX_RUNNING
    threads: bool = True
    schedulers: dict[str, Simulated] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    changes: int = 0

    def run(self, jobs: int) -> Runner:
        """All of them to their end, read in the tests' order. Raises what ended one badly."""
        names = [f"p{number:02d}" for number in range(self.platforms)]
        known = {"scheduler": "slurm", "device": "cpu", "poll_s": POLL_S, "max_running": self.max_running}
        platforms = [Platform(name=name, source=Path(f"{name}.yaml"), **known) for name in names]
        tests = [f"test_many.py::test_many[p{n % self.platforms:02d}-1x1cpu-{n}]" for n in range(jobs)]
        journal = Journal(self.folder / "scale", {"tests": tests, "options": {}})
        turns: WorkerPool = Instant(self.clock) if self.threads else InlinePool(self.clock.forward)
        runner = Runner(
            self.folder, "scale", journal=journal, clock=self.clock, wall=self.clock.wall, workers=turns,
            on_change=self._change, connect=self._connect,
        )  # fmt: skip
        for number, test in enumerate(tests):
            runner.add(spec(test, names[number % self.platforms]), platforms[number % self.platforms])
        for job in list(runner.jobs):
            runner.wait(job)
            if job.result().problems:
                raise SystemExit(f"{job.spec.name}: {job.result().problems}")
        journal.end(DONE)
        return runner

    @property
    def counts(self) -> Counter[str]:
        return sum((scheduler.calls for scheduler in self.schedulers.values()), Counter())

    @property
    def queries(self) -> list[list[float]]:
        """When each platform was asked for its jobs' states."""
        return [scheduler.queried for scheduler in self.schedulers.values()]

    @property
    def journal_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self.folder / "scale" / "sessions").glob("*.jsonl"))

    def _connect(self, platform: Platform) -> Simulated:
        return self.schedulers.setdefault(platform.name, Simulated(self.clock))

    def _change(self, job: Job) -> None:
        self.changes += 1


def spec(test: str, platform: str) -> JobSpec:
    words = ("python3", "my_training.py", "--steps", "1000")
    name = job_name("many", LAYOUT, "scale", test)
    return JobSpec(name, test, platform, LAYOUT, words, run=run_label("scale"), time_limit_s=600)


@contextmanager
def counted_fsyncs() -> Iterator[Counter[str]]:
    """How often files are brought to the disk meanwhile."""
    counted, real = Counter[str](), os.fsync

    def fsync(file: int) -> None:
        counted["fsync"] += 1
        real(file)

    os.fsync = fsync
    try:
        yield counted
    finally:
        os.fsync = real


# --- the same through pytest -----------------------------------------------------------------------------------------

CONFTEST = """from platforms.schedulers import SCHEDULERS

SCHEDULERS["prompt"] = "tests.simulated:PromptBackend"
"""
TESTS = """
import pytest


@pytest.mark.workload(command=["python3", "my_training.py"])
@pytest.mark.parametrize("number", range({each}))
def test_many(run, record, number):
    record(run)
"""
PLATFORM = """scheduler: prompt
device: cpu
layouts: {{default: [1x1]}}
marks: [many]
poll_s: 1.0
max_running: {max_running}
"""


def write_project(folder: Path, jobs: int, platforms: int, max_running: int) -> None:
    """A folder with so many job tests, and a site with the platforms."""
    site, names = folder / "site", [f"p{number:02d}" for number in range(platforms)]
    (site / "platforms").mkdir(parents=True)
    for name in names:
        (site / "platforms" / f"{name}.yaml").write_text(PLATFORM.format(max_running=max_running))
    (site / "site.yaml").write_text(f"enabled: [{', '.join(names)}]\n")
    ini = (ROOT / "pytest.ini").read_text().replace("pythonpath = .", f"pythonpath = {ROOT}")
    (folder / "pytest.ini").write_text(ini)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_many.py").write_text(TESTS.format(each=max(1, jobs // platforms)))


def whole_session(folder: Path, jobs: int, platforms: int, max_running: int, more: Sequence[str]) -> dict[str, float]:
    """What a whole pytest costs. Raises SystemExit with its output when it fails."""
    write_project(folder, jobs, platforms, max_running)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "HPC_ML_BENCH_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "many", *more]
    watched = [sys.executable, str(ROOT / "benchmarks" / "reframe_site" / "watch.py"), "figures", *command]
    with (folder / "output").open("w") as output:
        subprocess.run(watched, cwd=folder, env=environ, stdout=output, stderr=output, check=True)
    figures: dict[str, float] = json.loads((folder / "figures").read_text())
    if figures.pop("exit_code"):
        sys.exit((folder / "output").read_text()[-4000:])
    return figures


def pytest_table(options: argparse.Namespace) -> None:
    """What collecting costs, and all."""
    print("\nThrough pytest, jobs that end at once:\n")
    columns = ["collecting: own CPU s", "peak MiB", "all: wall s", "own CPU s", "own CPU ms a further job", "peak MiB"]
    print(f"| jobs | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}", flush=True)
    first: tuple[int, float] | None = None
    for jobs in options.jobs:
        both = []
        for more in (["--collect-only"], []):
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                both.append(whole_session(Path(folder), jobs, options.platforms, options.max_running, more))
        collecting, all_ = both
        first = first or (jobs, all_["own_cpu_s"])
        further = f"{1000 * (all_['own_cpu_s'] - first[1]) / (jobs - first[0]):.2f}" if jobs > first[0] else ""
        cells = [f"{collecting['own_cpu_s']:.2f}", f"{collecting['peak_mib']:.1f}", f"{all_['wall_s']:.1f}"]
        cells += [f"{all_['own_cpu_s']:.2f}", further, f"{all_['peak_mib']:.1f}"]
        print(f"| {jobs} | {' | '.join(cells)} |", flush=True)


# --- what it costs ---------------------------------------------------------------------------------------------------


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        session = Session(Path(folder), options.platforms, options.max_running, not options.profile)
        if options.profile:
            profiled(session, options.jobs[-1])
        elif options.one is not None:
            print(json.dumps(measured(session, options.one)))
        else:
            table(options)
            if options.pytest:
                pytest_table(options)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--platforms", type=int, default=PLATFORMS)
    parser.add_argument("--max-running", type=int, default=MAX_RUNNING, help="of each platform")
    parser.add_argument("--folder", type=Path, help="where the run folders are made, and removed again")
    parser.add_argument(
        "--profile", action="store_true", help="one session of the last N in one thread: what takes time"
    )
    parser.add_argument("--pytest", action="store_true", help="also whole sessions of pytest with as many job tests")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def measured(session: Session, jobs: int) -> dict[str, float]:
    """One session's figures."""
    before_mib, wall, cpu = peak_mib(), time.perf_counter(), time.process_time()
    with counted_fsyncs() as fsyncs:
        runner = session.run(jobs)
    cost = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu, "peak_mib": peak_mib()}
    asked = {name: session.counts[name] / jobs for name in CALLS}
    looks = [max(1.0, (times[-1] - times[0]) / POLL_S + 1) for times in session.queries]
    queries = sum(len(times) for times in session.queries) / sum(looks)
    gaps = [later - first for times in session.queries for first, later in pairwise(times)]
    return {
        **cost,
        **asked,
        "jobs": len(runner.jobs),
        "more_mib": cost["peak_mib"] - before_mib,
        "simulated_s": session.clock(),
        "queries": queries,
        "nearest_s": min(gaps, default=POLL_S),
        "changes": session.changes / jobs,
        "journal": session.journal_bytes / jobs,
        "fsyncs": fsyncs["fsync"] / jobs,
    }


def peak_mib() -> float:
    """This process's own; ru_maxrss would count what it was forked from."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def table(options: argparse.Namespace) -> None:
    """A row each N."""
    print(f"{options.platforms} platforms, at most {options.max_running} jobs at once on each.\n")
    columns = ["simulated s", "wall s", "CPU s", "CPU ms a job", "peak MiB", "KiB a job"]
    columns += ["queries a look and platform", "nearest two s", *(f"{name} a job" for name in CALLS)]
    columns += ["changes a job", "journal bytes a job", "fsyncs a job"]
    print(f"| jobs | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}", flush=True)
    for jobs in options.jobs:
        own = ["--one", str(jobs), "--platforms", str(options.platforms), "--max-running", str(options.max_running)]
        place = [] if options.folder is None else ["--folder", str(options.folder)]
        command = [sys.executable, __file__, *own, *place]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        row(json.loads(done.stdout))


def row(one: Mapping[str, float]) -> None:
    jobs = one["jobs"]
    cells = [f"{one['simulated_s']:.0f}", f"{one['wall_s']:.1f}", f"{one['cpu_s']:.2f}"]
    cells += [f"{1000 * one['cpu_s'] / jobs:.2f}", f"{one['peak_mib']:.1f}", f"{1024 * one['more_mib'] / jobs:.1f}"]
    cells += [f"{one['queries']:.2f}", f"{one['nearest_s']:.1f}", *(f"{one[name]:.2f}" for name in CALLS)]
    cells += [f"{one['changes']:.1f}", f"{one['journal']:.0f}", f"{one['fsyncs']:.2f}"]
    print(f"| {jobs:.0f} | {' | '.join(cells)} |", flush=True)


def profiled(session: Session, jobs: int) -> None:
    profile = cProfile.Profile()
    profile.runcall(session.run, jobs)
    pstats.Stats(profile).sort_stats("tottime").print_stats(SHOWN)


if __name__ == "__main__":
    sys.exit(main())
