"""What a fleet's history costs in a branch of a git repository: push, pull, a clone in CI, and a bundle of a night.

    python benchmarks/history_in_git.py [--nodes 50] [--nights 30 120 365]

Ten tests visit each node every night, two lines a visit. What differs from job to job in a real history differs here:
the job's id, its times, its number. The server is a bare repository on this disk, so the network takes no time. Every
command runs in a process of its own; its memory is that of the largest process that it starts, so of git as well.
All is written into a temporary folder and removed.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from platforms.job import Metric, Outcome, Role, Trial
from reporting.history.envelope import Envelope, Key, Revision
from reporting.history.envelope_json import to_line

BRANCH = "bench-history"
DAY_S = 86400
FIRST_S = 1_764_000_000
OF_FLEET = [f"catalogue/test_{number}.py::test_{number}[cluster-1x4gpu]" for number in range(10)]
FIELDS = {
    **{"variant": "v1.5", "size": "subset", "mode": "overlap", "layout": "1x4gpu", "workload_version": 2},
    **{"device": "A100-SXM4-80GB", "devices": 4, "memory_gib": 80, "dtype": "bf16", "data_from": "memory"},
}
PROVENANCE = {
    **{"nodes": "", "device": "NVIDIA A100-SXM4-80GB", "driver": "570.86.15", "cpu": "AMD EPYC 7713 64-Core Processor"},
    **{"cores": "128", "threads": "16", "workers": "8", "batch": "1024", "power_limit_w": "400"},
    **{"launcher": "torchrun", "backend": "nccl", "data_folder": "/work/project/data/resnet50-subset"},
    **{"decoder": "simplejpeg 1.9.0", "python": "3.11.7", "torch": "2.13.0", "cuda": "12.8", "numpy": "2.4.6"},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--nights", type=int, nargs="+", default=[30, 120, 365])
    options = parser.parse_args()
    for nights in options.nights:
        with tempfile.TemporaryDirectory() as name:
            measure(Path(name), options.nodes, nights)
    return 0


def measure(folder: Path, nodes: int, nights: int) -> None:
    """Push all nights but the last one, then the last one, as the machine that measures does every morning."""
    server, history = folder / "server.git", folder / "measures/history"
    for name in ("measures", "reads"):
        (folder / name / "runs").mkdir(parents=True)
        (folder / name / "site.yaml").write_text("name: site\n")
    subprocess.run(["git", "init", "-q", "--bare", f"--initial-branch={BRANCH}", server], check=True)
    for night in range(nights - 1):
        write_night(history, night, nodes)
    print(f"{nodes} nodes x {len(OF_FLEET)} tests x {nights} nights")
    reporting(folder, "measures", "push of all nights but the last one", "push")
    as_after_a_push_each_night(server)
    size("the branch on the server", server)
    reporting(folder, "reads", "pull on a new machine", "pull")
    write_night(history, nights - 1, nodes)
    size("the history", history)
    reporting(folder, "measures", "push of the last night", "push")
    reporting(folder, "reads", "pull of the last night", "pull")
    reporting(folder, "measures", "push where the branch has all of it", "push")
    size("the kept clone of a machine", folder / "measures.cache")
    clone = ["git", "clone", "-q", "--branch", BRANCH, f"file://{server}"]
    command("git clone --depth=1", [*clone, "--depth=1", folder / "slow"])
    subprocess.run(["git", "-C", server, "config", "pack.window", "0"], check=True)
    command("git clone --depth=1, with pack.window 0 on the server", [*clone, "--depth=1", folder / "quick"])
    subprocess.run(["git", "-C", server, "config", "--unset", "pack.window"], check=True)
    command("git gc on the server", ["git", "-C", server, "gc", "-q"])
    size("the branch after it", server)
    command("git clone after it", [*clone, folder / "full"])
    command("git clone --depth=1 after it", [*clone, "--depth=1", folder / "shallow"])
    reporting(folder, "measures", "export bundle of the last night", "export", "bundle", f"-o{folder / 'runs.tar.gz'}")
    command("gzip -rk", ["gzip", "-rk", history])
    size("the files of gzip", *history.rglob("*.gz"))


def as_after_a_push_each_night(server: Path) -> None:
    """Split the pack that a server keeps of one large push: of small ones it keeps each object in a file."""
    for pack in (server / "objects/pack").glob("*.pack"):
        pack = pack.rename(server.with_name("pack"))
        for rest in (server / "objects/pack").iterdir():
            rest.unlink()
        with pack.open("rb") as file:
            subprocess.run(["git", "-C", server, "unpack-objects", "-q"], stdin=file, check=True)


def write_night(history: Path, night: int, nodes: int) -> None:
    """One session: each test on each node."""
    at_s = FIRST_S + night * DAY_S
    session = time.strftime("%Y-%m/%Y%m%dT%H%M%SZ-0000000b", time.gmtime(at_s))
    rng = random.Random(night)
    lines = []
    for number in range(len(OF_FLEET) * nodes):
        node = f"gpu{number % nodes:04}"
        started_s = at_s + round(rng.uniform(0, 20000), 3)
        trial = Trial(Role.VISIT, node=node)
        ids = f"nightly-{at_s}", OF_FLEET[number // nodes], 1, f"{night * 9999 + number}"
        run = Envelope(
            key=Key("site", *ids, at_s + round(rng.random(), 6), trial.key),
            revision=Revision.TEST_ENDED,
            written_s=started_s + round(rng.uniform(130, 140), 6),
            outcome=Outcome.PASSED,
            sane=True,
            platform="cluster",
            layout="1x4gpu",
            trial=trial,
            started_s=started_s,
            ended_s=started_s + round(rng.uniform(100, 130), 3),
            metrics={"bandwidth": Metric(1000 * (1 + rng.gauss(0, 0.01)), "GB/s")},
            fields=FIELDS,
            comparability="2a636b8586df",
            provenance={**PROVENANCE, "nodes": node, "code": f"{night:012x}", "commit": f"{night:040x}"},
        )
        ended = replace(run, revision=Revision.JOB_ENDED, sane=False, metrics={})
        lines += [to_line(ended), to_line(run)]
    path = history / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines))


def reporting(folder: Path, machine: str, what: str, word: str, *more: str) -> None:
    """Run a command of ours on a machine, which has a cache of its own."""
    last = [f"--runs-dir={folder / machine / 'runs'}"] if word == "export" else [f"--remote={folder / 'server.git'}"]
    words = [sys.executable, "-m", "reporting", word, f"--site={folder / machine}", *more, *last]
    command(what, words, XDG_CACHE_HOME=str(folder / f"{machine}.cache"), PYTHONPATH=sys.path[0])


def command(what: str, words: Sequence[str | Path], **environ: str) -> None:
    """Run a command, and print what it takes."""
    began = time.perf_counter()
    with Path(os.devnull).open("w") as nowhere:
        process = subprocess.Popen(words, env={**os.environ, **environ}, stdout=nowhere)
        _pid, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{what}: {' '.join(map(str, words))} failed")
    wall_s, cpu_s = time.perf_counter() - began, used.ru_utime + used.ru_stime
    print(f"    {what}: {wall_s:.1f} s ({cpu_s:.1f} s of CPU), {used.ru_maxrss / 1000:.0f} MB", flush=True)


def size(what: str, *paths: Path) -> None:
    """Print how many bytes there are in files, and in those of folders."""
    files = [file for path in paths for file in (path, *path.rglob("*")) if file.is_file()]
    print(f"    {what}: {sum(file.stat().st_size for file in files) / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    sys.exit(main())
