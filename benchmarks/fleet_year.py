"""What commands cost that read the history of a fleet: wall seconds, CPU seconds, and the most memory.

python benchmarks/fleet_year.py [--against CHECKOUT] [--visits 60000] [--only SHAPE] [--year] [--folder DIR]

| shape | each night |
|---|---|
| visits | ten tests visit each of 50 nodes (`--each-node`), and run once where the scheduler places them |
| series | ten tests run on each of 50 nodes, as a test of its own: 500 series |
| centre | ten platforms run six tests each: 60 series, a session for each platform |

Lines are as sessions write them: two for each job, with the split of a step, what the nodes say of themselves, and the
gate's verdict (none of a visit). Their numbers have noise of 1 %, and one node is 10 % slower.

Each command is measured in two states. *Cold*: there are the month folders alone. *Warm*: the same commands have read
the history, then another night was written. For each command the hidden files in the history's folder, which are
derived from it, are laid back into that state. A checkout that leaves none is not measured warm. With `--against`
another checkout is measured right after this one, so that both have the same neighbours. Files are in the page cache.

`--year` measures 500 nodes and 365 nights, 1.8 million visits, with this checkout alone: the first reading, each
command after it, and judge after one more night. That takes 8 GB in --folder, and four minutes of CPU to write.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from platforms.job import ONLY, Metric, Outcome, Role, Trial
from reporting.history.envelope import Envelope, Revision
from reporting.history.envelope_json import to_line
from reporting.history.run_facts import envelope_of
from tests.reporting.planted import PLATFORMS
from tests.reporting.report_year import Circumstances, Test, run_json, tests_of, windows_of

ROOT = Path(__file__).resolve().parents[1]
DAY = datetime.timedelta(days=1)
LAST = datetime.datetime.now(datetime.UTC).date() - DAY  # its jobs have ended
SITE = "fleet"
FLEET = "cluster"
FLEET_TESTS = 10
NIGHTS_OF_A_COMMIT = 21
JOB_S = 600.0
NOISE, SLOW_NODE, SLOWER = 0.01, 3, 0.9
VERDICT = {"kind": "ok", "red": False, "change": -0.00123456789, "limit": 0.0195, "level": 121.06771751543249}
FACTS = {
    "host": {
        "kernel": "5.14.0-503.el9",
        "cpu": "AMD EPYC 7742",
        "cores": 128,
        "numa_nodes": 8,
        "governor": "performance",
        "clock_max_mhz": 3400,
        "huge_pages": 0,
        "transparent_huge_pages": "always",
    },
    "storage": {"work": "lustre", "data": "lustre"},
    "software": {"python": "3.11.7", "modules": "cuda/12.8:nccl/2.27:openmpi/5.0.6"},
    "program": {"sha256": "2a636b8586df", "libraries": "298e77ff0e90"},
    "devices": {"list": [{"power_limit_w": 400.0, "clock_max_mhz": 1410}] * 4},
    "network": {"list": [{"rate_gbit_s": 200, "firmware": "20.43.1014"}] * 2},
    "place": {"switch": "leaf07", "block": "b02"},
}


# --- the histories ---------------------------------------------------------------------------------------------------


class Session(NamedTuple):
    """Jobs of one night whose lines are in one file: test, number of the node, trial. Each has a node of a fleet."""

    name: str
    jobs: Sequence[tuple[Test, int, Trial]]


def sessions(shape: str, night: int, nodes: int) -> Iterator[Session]:
    """The sessions of a night."""
    if shape == "centre":
        for number, machine in enumerate(PLATFORMS):
            yield Session(f"{number:08x}", [(test, night % machine.nodes, ONLY) for test in tests_of(machine)])
        return
    of_fleet = tests_of_fleet()
    if shape == "series":
        own = [(test_on(test, node), node, ONLY) for test in of_fleet for node in range(nodes)]
        yield Session("0000000a", own)
        return
    yield Session("0000000a", [(test, night % nodes, ONLY) for test in of_fleet])
    visits = [(test, node, Trial(Role.VISIT, node=node_name(node))) for test in of_fleet for node in range(nodes)]
    yield Session("0000000b", visits)


@cache
def tests_of_fleet() -> list[Test]:
    machine = replace(PLATFORMS[0], name=FLEET)
    like = tests_of(machine)
    ids = [f"catalogue/test_{number}.py::test_{number}[{FLEET}-1x4gpu]" for number in range(FLEET_TESTS)]
    return [replace(like[number % len(like)], id=test_id) for number, test_id in enumerate(ids)]


def test_on(test: Test, node: int) -> Test:
    return replace(test, id=test.id.replace("]", f"-{node_name(node)}]"))


def node_name(node: int) -> str:
    return f"gpu{node:04}"


def write_night(site: Path, shape: str, ago: int, nodes: int) -> None:
    """Write what the sessions of a night leave; `ago` counts the nights from LAST, which is 0."""
    began = datetime.datetime.combine(LAST - ago * DAY, datetime.time(22), datetime.UTC)
    month = site / "history" / f"{began:%Y-%m}"
    month.mkdir(parents=True, exist_ok=True)
    chance = random.Random(f"{shape} {ago}")
    for session in sessions(shape, ago, nodes):
        lines = []
        like: dict[str, Envelope] = {}  # the facts of a test's jobs are the same in one night
        for number, (test, node, trial) in enumerate(session.jobs):
            if test.id not in like:
                like[test.id] = job_like(test, began, f"{began:%Y%m%d-%H%M%S}-{session.name}", ago)
            run = of_job(like[test.id], f"{ago}{number:05}", node, trial, chance)
            ended = replace(run, revision=Revision.JOB_ENDED, sane=False, verdicts={}, written_s=run.written_s - 20)
            lines += [to_line(ended), to_line(run)]
        (month / f"{began:%Y%m%dT%H%M%SZ}-{session.name}.jsonl").write_bytes(b"".join(lines))


def job_like(test: Test, began: datetime.datetime, run_id: str, ago: int) -> Envelope:
    """The envelope of a job of a test in a night, made of a run.json by the suite's own code."""
    provenance = {
        "torch": "2.11.0",
        "kernel": "5.14.0-503.el9",
        "decoder": "simplejpeg 1.8.2",
        "commit": random.Random(ago // NIGHTS_OF_A_COMMIT).randbytes(20).hex(),
        "driver": "570.86.15",
    }
    started_s = began.timestamp() + 60.25
    job = Circumstances(("node",), started_s, started_s + JOB_S, queue_s=60.25, job_id="", provenance=provenance)
    windows = windows_of(test, [(1.0, 1.0)] * 5, {}) if test.parts else []
    content = {**run_json(test, job, windows), "node_facts": {"node": FACTS}}
    if not windows:
        content["metrics"] = {"compile_time": {"value": JOB_S, "unit": "s", "better": "lower"}}
    return envelope_of(
        content,
        site=SITE,
        run_id=run_id,
        attempt=1,
        outcome=Outcome.PASSED,
        sane=True,
        revision=Revision.TEST_ENDED,
        written_s=started_s + JOB_S + 20.5,
    )


def of_job(like: Envelope, job_id: str, node: int, trial: Trial, chance: random.Random) -> Envelope:
    """One job: its own node and numbers, as if their parts had nothing to do with each other."""
    level = SLOWER if node == SLOW_NODE else 1.0
    metrics = {name: noisy(metric, level, chance) for name, metric in like.metrics.items()}
    return replace(
        like,
        key=like.key._replace(job_id=job_id, trial=trial.key),
        trial=trial,
        metrics=metrics,
        beside={name: noisy(metric, 1.0, chance) for name, metric in like.beside.items()},
        verdicts=dict.fromkeys(metrics, VERDICT) if trial.in_series else {},
        provenance={**like.provenance, "nodes": node_name(node)},
    )


def noisy(metric: Metric, level: float, chance: random.Random) -> Metric:
    return replace(metric, value=metric.value * level * (1 + chance.gauss(0, NOISE)))


def write(site: Path, shape: str, nights: int, nodes: int) -> None:
    """Write the nights of a history but for the last one."""
    site.mkdir(parents=True)
    (site / "site.yaml").write_text(f"name: {SITE}\n")
    began = time.perf_counter()
    for ago in range(nights, 0, -1):
        write_night(site, shape, ago, nodes)
    size = sum(path.stat().st_size for path in site.rglob("*.jsonl"))
    jobs = nights * sum(len(session.jobs) for session in sessions(shape, 0, nodes))
    print(f"{shape}: {jobs:,} jobs in {nights} nights, {size / 1e6:,.0f} MB, written in ", end="")
    print(f"{time.perf_counter() - began:.0f} s; {size / jobs / 2:.0f} bytes a line\n", flush=True)


# --- what commands cost ----------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """What a process has used. MB are those of the most memory at a time."""

    wall_s: float
    cpu_s: float
    memory_mb: float

    def cells(self) -> str:
        return f"{self.wall_s:.2f} | {self.cpu_s:.2f} | {self.memory_mb:.0f}"


def commands(shape: str, night: datetime.date, page: Path) -> dict[str, list[str]]:
    """What is measured, by what is typed of it."""
    test = next(sessions(shape, 0, 1)).jobs[0][0]
    tonight = f"--tonight={night}"
    return {
        "judge": ["judge", tonight],
        "nodes": ["nodes", test.machine.name, tonight],
        "trend": ["trend", tonight],
        "html": ["html", tonight, f"--output={page}"],
        "table": ["table", tonight],
        "show TEST": ["show", test.id, tonight],
    }


def cost(checkout: Path, site: Path, typed: Sequence[str]) -> Cost:
    """Run a command in a process of its own. Exit code 1 is bad news; raises SystemExit where it refuses."""
    command = [sys.executable, "-m", "reporting", typed[0], f"--site={site}", *typed[1:]]
    environ = {**os.environ, "PYTHONPATH": str(checkout)}
    silent = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    began = time.perf_counter()
    # `-m` looks into the present folder first, and that is another checkout
    process = os.posix_spawn(sys.executable, [command[0], "-P", *command[1:]], environ, file_actions=silent)
    _pid, status, used = os.wait4(process, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"refused: PYTHONPATH={checkout} {' '.join(command)}")
    return Cost(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1000)


def hidden(history: Path) -> list[Path]:
    """The hidden files in a history's folder. They are derived from its lines."""
    return [path for path in history.glob(".*") if path.is_file()]


def lay_back(history: Path, files: Sequence[Path]) -> None:
    """Let the history's folder have these hidden files, and no others."""
    for path in hidden(history):
        path.unlink()
    for path in files:
        shutil.copy2(path, history)


def measure(site: Path, shape: str, nights: int, nodes: int, checkouts: Sequence[Path]) -> None:
    """Print the table of a history."""
    history = site / "history"
    write(site, shape, nights, nodes)
    page = site / "page.html"
    kept = []  # the derived files of each checkout
    for number, checkout in enumerate(checkouts):
        for typed in commands(shape, LAST - DAY, page).values():
            cost(checkout, site, typed)
            if not hidden(history):
                break
        folder = site / f"kept-{number}"
        folder.mkdir()
        kept.append([Path(shutil.move(path, folder)) for path in hidden(history)])
    write_night(site, shape, 0, nodes)
    heading = " | ".join(["wall s | CPU s | MB", *(["wall s there | CPU s there | MB there"] * (len(checkouts) - 1))])
    print(f"| {shape} | | {heading} |\n|---|---|{'---|' * 3 * len(checkouts)}")
    for name, typed in commands(shape, LAST, page).items():
        for state in ("cold", "warm") if any(kept) else ("cold",):
            cells = []
            for checkout, files in zip(checkouts, kept, strict=True):
                lay_back(history, files if state == "warm" else [])
                is_same = state == "warm" and not files
                cells.append(" | | " if is_same else cost(checkout, site, typed).cells())
            print(f"| {name} | {state} | {' | '.join(cells)} |", flush=True)
    print()


def measure_year(site: Path, nodes: int, nights: int) -> None:
    """Print what a year of a large fleet costs: the first reading, then each command, then after one more night."""
    write(site, "visits", nights, nodes)
    of_night = commands("visits", LAST - DAY, site / "page.html")
    print(f"| {nights} nights of {nodes} nodes | wall s | CPU s | MB |\n|---|---|---|---|")
    print(f"| judge, the first reading | {cost(ROOT, site, of_night['judge']).cells()} |", flush=True)
    for name, typed in of_night.items():
        print(f"| {name} | {cost(ROOT, site, typed).cells()} |", flush=True)
    write_night(site, "visits", 0, nodes)
    after = commands("visits", LAST, site / "page.html")["judge"]
    print(f"| judge, after one more night | {cost(ROOT, site, after).cells()} |")
    derived = sum(path.stat().st_size for path in hidden(site / "history"))
    print(f"\nhidden files beside it: {derived / 1e6:,.0f} MB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="measure this other checkout, too")
    parser.add_argument("--visits", type=int, default=60_000, help="jobs of each history, about (default: 60000)")
    parser.add_argument("--only", choices=("visits", "series", "centre"), help="only this shape")
    parser.add_argument("--year", action="store_true", help="a year of 500 nodes, with this checkout alone")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where histories are written, and then removed")
    options = parser.parse_args()
    checkouts = [ROOT, *([options.against.absolute()] if options.against else [])]
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        if options.year:
            measure_year(Path(scratch) / "year", nodes=500, nights=364)
            return 0
        for shape in (options.only,) if options.only else ("visits", "series", "centre"):
            of_a_night = 60 if shape == "centre" else 500
            measure(Path(scratch) / shape, shape, options.visits // of_a_night - 1, 50, checkouts)
            shutil.rmtree(Path(scratch) / shape)
    return 0


if __name__ == "__main__":
    sys.exit(main())
