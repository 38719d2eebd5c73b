"""How large is a bundle of many ranks and steps, and how long does it take to make and to verify one?

`python benchmarks/bundle_cost.py` makes the raw values of one run up, with the record that follows from them.
"""

from __future__ import annotations

import argparse
import gzip
import math
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.reporting.bundled_session import RESNET, session  # noqa: E402

WARMUP = 10
WINDOWS = 3
Row = tuple[float, float]  # wait and busy, in seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--steps", type=int, default=3000, help="in three windows")
    options = parser.parse_args()
    chance = random.Random(1)
    count = WARMUP + options.steps // WINDOWS * WINDOWS
    ranks = [[_row(chance) for _step in range(count)] for _rank in range(options.ranks)]
    with tempfile.TemporaryDirectory() as folder:
        made = session(Path(folder), (RESNET,), change_run=lambda content: _fill(content, ranks))
        (made.jobs / RESNET / "log").unlink()  # it is that of another run
        for rank, rows in enumerate(ranks):
            _write(made.jobs / RESNET / "work" / f"steps-rank{rank}.csv.gz", rows)
        bundle = Path(folder) / "bundle.zip"
        print(f"{options.ranks} ranks, {count} steps")
        _measure("bundle", "latest", "-o", str(bundle), f"--runs-dir={made.folder / 'runs'}", *made.options)
        _measure("verify", str(bundle))
        print(f"{bundle.stat().st_size / 1e6:.1f} MB")


def _row(chance: random.Random) -> Row:
    return round(chance.random() * 1e-3, 9), round(0.1 + chance.random() * 1e-3, 9)


def _fill(content: dict[str, Any], ranks: list[list[Row]]) -> None:
    """Put windows and numbers that follow from these steps into a run.json."""
    per_window = (len(ranks[0]) - WARMUP) // WINDOWS
    windows = []
    for window in range(WINDOWS):
        first = WARMUP + window * per_window
        pace = [max(rows[step] for rows in ranks) for step in range(first, first + per_window)]
        stall_s, compute_s = (math.fsum(step[span] for step in pace) for span in (0, 1))
        times = {"wall_s": stall_s + compute_s, "stall_s": stall_s, "compute_s": compute_s, "stall_h2d_s": 0.0}
        windows.append({"samples": per_window * 1024, "steps": per_window, **times})
    samples = sum(window["samples"] for window in windows)
    wall_s, stall_s, compute_s = (
        math.fsum(window[name] for window in windows) for name in ("wall_s", "stall_s", "compute_s")
    )
    effective, fraction, compute = samples / wall_s, 1 - stall_s / wall_s, samples / compute_s
    each = [window["wall_s"] / window["samples"] for window in windows]
    content["start"]["world"]["size"] = len(ranks)
    content.update(windows=windows, summary={}, effective_throughput=effective, compute_fraction=fraction)
    content.update(compute_throughput=compute, identity_gap=abs(effective - compute * fraction) / effective)
    content["spread_within_job"] = statistics.stdev(each) / statistics.fmean(each)


def _write(path: Path, rows: list[Row]) -> None:
    per_window = (len(rows) - WARMUP) // WINDOWS
    with gzip.open(path, "wt") as file:
        file.write("step,window,wait,h2d,busy\n")
        for step, (wait_s, busy_s) in enumerate(rows):
            window = "" if step < WARMUP else (step - WARMUP) // per_window
            file.write(f"{step},{window},{wait_s:.9f},{0:.9f},{busy_s:.9f}\n")


def _measure(*words: str) -> None:
    """Run a command, and print its time and the most memory that a command has taken so far."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun_s = time.perf_counter()
    subprocess.run([sys.executable, "-m", "reporting", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    wall_s = time.perf_counter() - begun_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{words[0]}: {wall_s:.1f} s, {cpu_s:.1f} s of the processor, at most {after.ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
