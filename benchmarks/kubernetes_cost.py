"""What jobs on Kubernetes cost us and the API server: `sleep 1` in a pod, N at once, on tests/fake_kubernetes.

python benchmarks/kubernetes_cost.py [--jobs 1 10 100] [--kind job]

The cluster is a process of its own on the same cores, and each pod a process of it. *Delay*: from a job's last word
until its run.json is written.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, job_name, run_label
from platforms.runner import Job, Runner

ROOT = Path(__file__).resolve().parents[1]
PATH = re.compile(
    r"/apis?/(?:v1|[^/]+/[^/]+)(?:/namespaces/default)?/(?P<kind>[a-z]+)(?P<one>/[^/?]+)?(?P<log>/log)?(?:\?(?P<query>.*))?"
)
LIMIT_S = 600.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--kind", choices=("job", "pod"), default="job")
    options = parser.parse_args()
    for count in options.jobs:
        with tempfile.TemporaryDirectory() as folder:
            cluster = Path(folder) / "cluster"
            with running(cluster) as kubeconfig:
                told = measure(count, options.kind, Path(folder), kubeconfig)
            asked = Counter(what(line) for line in (cluster / "requests").read_text().splitlines())
        print(f"{count} as {options.kind}: {told}")
        print("   ", ", ".join(f"{name} {number}" for name, number in sorted(asked.items())), flush=True)
    return 0


@contextmanager
def running(folder: Path) -> Iterator[Path]:
    """A cluster in a process of its own, and its kubeconfig."""
    command = [sys.executable, "-m", "tests.fake_kubernetes", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        try:
            yield Path(said.partition("=")[2].strip())
        finally:
            process.terminate()


def measure(count: int, kind: str, folder: Path, kubeconfig: Path) -> str:
    cluster = {"kubeconfig": str(kubeconfig), "image": "bench.local/busybox:1.35", "kind": kind, "cpu": "10m"}
    known = {"name": "k", "source": folder / "k.yaml", "scheduler": "kubernetes", "device": "cpu", "max_running": count}
    platform = Platform.model_validate(
        known | {"layouts": {"default": ("1x1",)}, "kubernetes": cluster | {"memory": "64Mi"}}
    )
    runner, layout = Runner(folder / "runs", "cost"), Layout(1, 1, "cpu")
    begin, cpu = time.perf_counter(), os.times()
    for number in range(count):
        test = f"test_it.py::test_it[{number}]"
        words = ("sh", "-c", "sleep 1; date +%s.%N")
        name = job_name("it", layout, "cost", test)
        runner.add(JobSpec(name, test, "k", layout, words, run=run_label("cost"), time_limit_s=LIMIT_S), platform)
    jobs, done = runner.jobs, dict[str, float]()
    while len(done) < count:
        assert time.perf_counter() - begin < LIMIT_S, "not in time"
        runner.pump()
        now = time.time()
        done |= {job.spec.name: now for job in jobs if job.done and job.spec.name not in done}
        time.sleep(0.02)
    runner.cancel()
    wall_s, now_s = time.perf_counter() - begin, os.times()
    cpu_s = now_s.user + now_s.system - cpu.user - cpu.system
    delays = sorted(done[job.spec.name] - last_word(job) for job in jobs)
    return (
        f"{wall_s:.1f} s wall, {1000 * cpu_s / count:.0f} ms of this process's CPU time a job, "
        f"delay {statistics.median(delays):.2f} s (most {delays[-1]:.2f})"
    )


def last_word(job: Job) -> float:
    job.result()
    return float((job.folder / "log").read_text())


def what(line: str) -> str:
    """`list pods`, `create jobs`, `log`."""
    method, _, target = line.partition(" ")
    found = PATH.fullmatch(target)
    if found is None:
        return "discovery"
    if found["log"]:
        return "log"
    reads = "get" if found["one"] else "watch" if "watch=" in (found["query"] or "") else "list"
    verb = {"GET": reads, "POST": "create"}.get(method, method.lower())
    return f"{verb} {found['kind']}"


if __name__ == "__main__":
    sys.exit(main())
