"""What it costs to read the history: a year of one centre, a million envelopes, and a year of a large fleet.

python benchmarks/history_speed.py [--million] [--fleet]

Everything is written into a temporary folder and removed. A million envelopes take 1.5 GB on the disk, and to keep all
of them in memory takes 4 GB. The fleet's ten tests visit each of 500 nodes every night, and each job has two lines:
that takes 5 GB on the disk, and what judges tonight keeps few of them in memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from platforms.job import ONLY, Metric, Outcome, Role, Trial
from reporting.history.envelope import Envelope, Key, Revision, RunReference
from reporting.history.envelope_json import to_line
from reporting.history.reader import read

PLATFORMS = 10
CONFIGURATIONS = ("gbs32", "tuned")
BENCHMARKS = ("resnet50", "cosmoflow", "deepcam")
DAY_S = 86400
FIRST_S = 1_764_000_000
NODES = 500
NIGHTS = 365
OF_FLEET = [f"catalogue/test_{number}.py::test_{number}[cluster-1x4gpu]" for number in range(10)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--million", action="store_true", help="also read a million envelopes")
    parser.add_argument("--fleet", action="store_true", help="also judge the last night of a year of 500 nodes")
    options = parser.parse_args()
    measure_history("a year, a session a night for each platform", nights=365, sessions=PLATFORMS)
    if options.million:
        nights = 1_000_000 // (PLATFORMS * len(tests_of("")))
        measure_history("a million, one session a night", nights, sessions=1)
        measure_history("a million, a session a night for each platform", nights, sessions=PLATFORMS)
    if options.fleet:
        measure_fleet()
    return 0


def measure_history(what: str, nights: int, sessions: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, nights, sessions)
        sizes = [path.stat().st_size for path in folder.rglob("*.jsonl")]
        count = nights * PLATFORMS * len(tests_of(""))
        print(f"{what}: {count:,} envelopes of {sum(sizes) / count:.0f} bytes in {len(sizes):,} files")
        report(folder, "the series of one test", [test_id("platform0", "resnet50", "tuned")])
        report(folder, "the tests of one platform", tests_of("platform0"))
        report(folder, "everything", None)


def measure_fleet() -> None:
    with tempfile.TemporaryDirectory() as name:
        site = Path(name)
        (site / "site.yaml").write_text("name: site\n")
        for night in range(NIGHTS):
            write_visits(site / "history", night)
        visits = NIGHTS * len(OF_FLEET) * NODES
        size = sum(path.stat().st_size for path in site.rglob("*.jsonl"))
        print(f"a year of {NODES} nodes x {len(OF_FLEET)} tests: {visits:,} visits, {size / 1e9:.1f} GB")
        report(site / "history", "what the gate needs", None, visits=False)
        began = time.perf_counter()
        tonight = time.strftime("%Y-%m-%d", time.gmtime(FIRST_S + (NIGHTS - 1) * DAY_S))
        command = [sys.executable, "-m", "reporting", "judge", f"--site={site}", f"--tonight={tonight}"]
        process = os.posix_spawn(sys.executable, command, {**os.environ, "PYTHONPATH": sys.path[0]})
        _pid, _status, used = os.wait4(process, 0)
        wall_s, cpu_s = time.perf_counter() - began, used.ru_utime + used.ru_stime
        print(f"    python -m reporting judge: {wall_s:.2f} s ({cpu_s:.2f} s of CPU), {used.ru_maxrss / 1000:.0f} MB")


def write_visits(folder: Path, night: int) -> None:
    """Write a night of the fleet: each test once wherever the scheduler places it, then on each node."""
    at_s = FIRST_S + night * DAY_S
    month = folder / time.strftime("%Y-%m", time.gmtime(at_s))
    month.mkdir(parents=True, exist_ok=True)
    name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at_s))
    for session, trial in (("0000000a", ONLY), ("0000000b", Trial(Role.VISIT, node="NODE"))):
        lines = []
        for test in OF_FLEET:
            run = envelope(f"{month.name}/{name}-{session}", "cluster", "", "", at_s)
            key = run.key._replace(test=test, job_id="NODE", run_id=f"{session}-{night}", trial=trial.key)
            provenance = {**run.provenance, "nodes": "NODE"}
            run = replace(run, key=key, trial=trial, benchmark=None, provenance=provenance, run=None)
            ended = replace(run, revision=Revision.JOB_ENDED, sane=False, metrics={}, verdicts={})
            of_job = to_line(ended) + to_line(run)
            nodes = (night % NODES,) if trial is ONLY else range(NODES)
            lines += [of_job.replace(b"NODE", b"gpu%04d" % node) for node in nodes]
        (month / f"{name}-{session}.jsonl").write_bytes(b"".join(lines))


def test_id(platform: str, benchmark: str, configuration: str) -> str:
    return f"test_{benchmark}.py::test_{benchmark}[{platform}-1x4gpu-{configuration}]"


def tests_of(platform: str) -> list[str]:
    return [test_id(platform, benchmark, each) for benchmark in BENCHMARKS for each in CONFIGURATIONS]


def write(folder: Path, nights: int, sessions: int) -> None:
    """Write what the sessions of each night leave. Flushing each line to the disk is left out."""
    for night in range(nights):
        at_s = FIRST_S + night * DAY_S
        month = folder / time.strftime("%Y-%m", time.gmtime(at_s))
        month.mkdir(parents=True, exist_ok=True)
        for platform in range(PLATFORMS):
            name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(at_s))}-{platform % sessions:08x}"
            lines = [
                to_line(envelope(f"{month.name}/{name}", f"platform{platform}", benchmark, configuration, at_s))
                for benchmark in BENCHMARKS
                for configuration in CONFIGURATIONS
            ]
            with (month / f"{name}.jsonl").open("ab") as file:
                file.write(b"".join(lines))


def envelope(name: str, platform: str, benchmark: str, configuration: str, at_s: float) -> Envelope:
    """An envelope with as many fields as a run on four GPUs has."""
    commit = f"{int(at_s):040x}"
    return Envelope(
        key=Key("site", f"nightly-{at_s:.0f}", test_id(platform, benchmark, configuration), 1, f"{at_s:.0f}", at_s),
        revision=Revision.TEST_ENDED,
        written_s=at_s + 4000.5,
        outcome=Outcome.PASSED,
        sane=True,
        platform=platform,
        benchmark=benchmark,
        layout="1x4gpu",
        started_s=at_s + 60.25,
        ended_s=at_s + 3000.75,
        metrics={"effective_throughput": Metric(9876.543210123456, "samples/s")},
        beside={
            "compute_throughput": Metric(9999.876543210123, "samples/s"),
            "compute_fraction": Metric(0.9876666654321012, ""),
        },
        fields={
            "benchmark": benchmark,
            "variant": "v1.5",
            "configuration": configuration,
            "size": "subset",
            "mode": "overlap",
            "layout": "1x4gpu",
            "workload_version": 2,
            "device": "A100-SXM4-80GB",
            "devices": 4,
            "memory_gib": 80,
            "dtype": "bf16",
            "cpu_quota": 64.0,
            "data_from": "memory",
        },
        comparability="2a636b8586df",
        verdicts={"effective_throughput": {"kind": "ok", "red": False, "change": -0.00123456789}},
        provenance={
            "nodes": f"gpu{int(at_s) % 97:04}",
            "device": "NVIDIA A100-SXM4-80GB",
            "driver": "570.86.15",
            "cpu": "AMD EPYC 7713 64-Core Processor",
            "cores": "128",
            "threads": "16",
            "workers": "8",
            "batch": "1024",
            "power_limit_w": "400",
            "launcher": "torchrun",
            "backend": "nccl",
            "data_folder": "/work/project/data/resnet50-subset",
            "decoder": "simplejpeg 1.9.0",
            "code": commit[:12],
            "commit": commit,
            "python": "3.11.7",
            "torch": "2.13.0",
            "cuda": "12.8",
            "numpy": "2.4.6",
        },
        run=RunReference(f"{name}.runs.jsonl", 123456, 23456),
    )


def report(folder: Path, what: str, tests: Collection[str] | None, *, visits: bool = True) -> None:
    """Read in a process of its own, since only that tells how much memory it takes."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        count, wall_s, cpu_s, memory_mb = pool.apply(measure, (folder, tests, visits))
    print(f"    {what}: {count:,} envelopes in {wall_s:.2f} s ({cpu_s:.2f} s of CPU), with {memory_mb:.0f} MB")


def measure(folder: Path, tests: Collection[str] | None, visits: bool) -> tuple[int, float, float, float]:
    """Returns how many envelopes there are, and what it takes to read them: seconds, seconds of CPU, megabytes."""
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin, cpu = time.perf_counter(), time.process_time()
    count = len(read(folder, tests, visits=visits))
    wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    return count, wall_s, cpu_s, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1000


if __name__ == "__main__":
    sys.exit(main())
