"""The gate over many nights of real `pytest` sessions: when a lasting loss is red, and how often it is green again.

    python benchmarks/gate_sessions.py [--nights 80] [--loss 0.04] [--begin 40] [--repair NIGHT] [--platforms 1]

Every night is a session of its own, with its jobs, their repeats and the history. Each platform is this machine, and
has `--tests` tests. The program of a test prints a rate of 100 with normal noise of `--cv`. Each launch, so also a
repeat, draws a new one. What a night draws does not depend on what the gate has said before.

A small library, made with `cc`, gives each session its evening: it moves the date of all processes, and no clock by
which they wait. (With Debian's libfaketime Python's time.sleep fails, or its waits for threads never end.)

Prints Markdown; nights are counted from 0. `--keep FOLDER` keeps the site and what the sessions have printed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.against_reframe import ROOT, clean_environ
from platforms.job import Role
from reporting.gate.estimates import PIN_RUNS
from reporting.history import reader

DAY_S = 86_400
FIRST_NOON_S = 1_767_268_800  # 2026-01-01 12:00 UTC
EVENING_S = 36_000  # from noon to 22:00
WEEK = 7  # nights from the first red; from then on a lasting loss should be red every night
SOON = 6
CLOCK = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, clock, at);
    if (!failed && clock == CLOCK_REALTIME && getenv("MOVED_BY_S")) at->tv_sec += atol(getenv("MOVED_BY_S"));
    return failed;
}
time_t time(time_t *seconds) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}
"""
PLATFORM = """scheduler: local
device: cpu
layouts: {{default: [1x1]}}
marks: [simulated]
poll_s: 0.1
env: {{HPC_ML_BENCH_LOCK: {folder}/{name}.lock, DRAWS: {folder}/draws/{name}}}
"""
TEST = """
@pytest.mark.workload(command=["{python}", "-I", "-S", "{folder}/rate.py", "{number}"])
def test_rate_{number}(run, record):
    rate, = numbers(run.log, r"rate: (.+)")
    record(run, metrics={{"rate": (rate, "GB/s", "higher")}})
"""
PROGRAM = """
import os, pathlib, random, sys
draws = pathlib.Path(os.environ["DRAWS"], sys.argv[1])
launch = len(list(draws.parent.glob(sys.argv[1] + ".*")))
draws.with_suffix(f".{launch}").touch()
own = [os.environ["SEED"], draws.parent.name, draws.name, os.environ["NIGHT"], launch]
noise = random.Random(str(own)).gauss(0, float(os.environ["CV"]))
print("rate:", 100 * float(os.environ["LEVEL"]) * (1 + noise))
"""


@dataclass(frozen=True)
class Course:
    """What became of a test, in nights. Those of the loss, and those from the repair on, are counted from 1."""

    false: int  # red before the loss
    first: int | None  # the first red one of the loss
    later: int  # those of the loss from a week after the first red on
    green: int  # of these
    recovered: int | None  # from which one on it was green for good; None: not yet, or no repair


def main() -> int:
    options = arguments()
    options.names = [f"machine{number}" for number in range(options.platforms)]
    with tempfile.TemporaryDirectory() as folder:
        project = (options.keep or Path(folder)).resolve()
        write_project(project, options)
        for night in range(options.nights):
            session(project, night, options)
        courses = {test: course(red, options) for test, red in red_nights(project).items()}
    print(f"{options.nights} sessions, seed {options.seed}; a run varies by {options.cv:.1%}", end="; ")
    print(f"-{options.loss:.1%} from night {options.begin} on; repaired in night {options.repair or '-'}\n")
    print("\n".join(table(courses, options.begin - PIN_RUNS)))
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"nights": 80, "begin": 40, "tests": 6, "platforms": 1, "seed": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--cv", type=float, default=0.015)
    parser.add_argument("--loss", type=float, default=0.04)
    parser.add_argument("--repair", type=int, metavar="NIGHT")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    return parser.parse_args()


def write_project(folder: Path, options: argparse.Namespace) -> None:
    site = folder / "site"
    (site / "platforms").mkdir(parents=True)
    (site / "history").mkdir()
    (site / "site.yaml").write_text(f"enabled: [{', '.join(options.names)}]\n")
    for name in options.names:
        (site / "platforms" / f"{name}.yaml").write_text(PLATFORM.format(folder=folder, name=name))
    (folder / "rate.py").write_text(PROGRAM)
    tests = [TEST.format(python=sys.executable, folder=folder, number=number) for number in range(options.tests)]
    (folder / "test_rate.py").write_text("import pytest\nfrom platforms.results import numbers\n" + "".join(tests))
    ini = (ROOT / "pytest.ini").read_text().replace("pythonpath = .", f"pythonpath = {ROOT}")
    (folder / "pytest.ini").write_text(ini)
    (folder / "clock.c").write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "clock.so", "clock.c"], cwd=folder, check=True)


def session(folder: Path, night: int, options: argparse.Namespace) -> None:
    """One evening. Raises SystemExit if the session ends otherwise than with passed and failed tests."""
    for name in ("runs", "draws"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in options.names:
        (folder / "draws" / name).mkdir(parents=True)
    is_lost = options.begin <= night < (options.repair or options.nights)
    level = 1 - options.loss if is_lost else 1.0
    own = {"SEED": options.seed, "NIGHT": night, "CV": options.cv, "LEVEL": level}
    evening_s = FIRST_NOON_S + night * DAY_S + EVENING_S
    clock = {"LD_PRELOAD": folder / "clock.so", "MOVED_BY_S": evening_s - round(time.time())}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "simulated", "-p", "no:cacheprovider", "--tb=line"]
    environ = clean_environ(folder) | {name: str(value) for name, value in {**own, **clock}.items()}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    (folder / f"night-{night}.txt").write_text(done.stdout)
    if done.returncode not in (0, 1) or "ERROR" in done.stdout:
        sys.exit(f"night {night}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def red_nights(folder: Path) -> dict[str, set[int]]:
    """The red nights of each test, from the lines of the history."""
    found: dict[str, set[int]] = {}
    for run in reader.read(folder / "site" / "history"):
        if run.trial.role is Role.MEASURE:
            red = found.setdefault(run.key.test, set())
            if run.verdicts["rate"]["red"]:
                red.add(int((run.time_s - FIRST_NOON_S) // DAY_S))
    return dict(sorted(found.items()))


def course(red: set[int], options: argparse.Namespace) -> Course:
    end = options.repair or options.nights
    first = min((night for night in red if options.begin <= night < end), default=None)
    later = [] if first is None else range(first + WEEK, end)
    green_from = max(max(red, default=-1) + 1, end)
    return Course(
        false=sum(night < options.begin for night in red),
        first=None if first is None else first - options.begin + 1,
        later=len(later),
        green=sum(night not in red for night in later),
        recovered=green_from - end + 1 if green_from < options.nights else None,
    )


def table(courses: Mapping[str, Course], judged: int) -> Iterator[str]:
    yield "| test | red before the loss | first red in its night | green from a week later | green again in night |"
    yield "|---|---|---|---|---|"
    for test, one in courses.items():
        cells = f"{one.false} of {judged} | {one.first or 'never'} | {one.green} of {one.later}"
        yield f"| {test} | {cells} | {one.recovered or '-'} |"
    every = courses.values()
    false = f"{sum(one.false for one in every)} of {judged * len(courses)}"
    first = [one.first for one in every if one.first is not None]
    later = sum(one.later for one in every)
    green = f"{sum(one.green for one in every) / max(later, 1):.1%} of {later}"
    again = spread([one.recovered for one in every if one.recovered is not None])
    yield f"| **all {len(courses)}** | {false} | {spread(first)} | {green} | {again} |"


def spread(nights: list[int]) -> str:
    soon = sum(night <= SOON for night in nights)
    return f"{len(nights)} tests, {soon} by the {SOON}th; median {median(nights or [0]):g}, last {max(nights or [0])}"


if __name__ == "__main__":
    sys.exit(main())
