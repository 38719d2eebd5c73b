"""What the meter costs: microseconds per step, and the share of the shortest real step it takes. Exits 1 above 1 %.

`python benchmarks/meter_cost.py`; the limit is on the cost per step in either mode. Costs are processor time, the least
of several rounds, and the real step is the fastest twentieth of a run's: work beside it changes neither by much.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from models.meter import Meter, Wire  # noqa: E402 (the path comes first)

LIMIT = 0.01
ASSUMED_STEP_S = 0.05
ROUNDS = 5
WARMUP_STEPS = 100


def metered_s(steps: int, mode: str) -> float:
    """Processor time per empty step with all that a real loop asks of the meter: batches, copy, loss, progress, edges.

    The loop itself is in it: some nanoseconds.
    """
    with Path("/dev/null").open("wb") as nowhere:
        wire = Wire(fd=nowhere.fileno())
        meter = Meter(
            samples=1,
            warmup_steps=WARMUP_STEPS,
            windows=4,
            steps_per_window=steps // 4,
            mode=mode,
            wire=wire,
            folder=None,
        )
        begin_s = time.process_time()
        for _ in meter.steps(repeat(None)):
            with meter.h2d():
                pass
            meter.exchange_begins()
            meter.exchange_ends()
            meter.loss(1.0)
        return (time.process_time() - begin_s) / (steps + WARMUP_STEPS)


def smoke_step_s() -> float | None:
    """The 5th percentile of the steps of ResNet-50's smoke size on this machine; None when it does not run here."""
    if importlib.util.find_spec("models.train") is None:
        return None
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        for verb in ("data", "train"):
            arguments = ["-m", "models", verb, "resnet50", "--size", "smoke", "--data-dir", f"{folder}/smoke"]
            command = [sys.executable, *arguments]
            done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
            if done.returncode:
                print(f"no smoke step: {' '.join(arguments)}: {done.stderr[-500:]}", file=sys.stderr)
                return None
    return next(summary["step_s"][0] for summary in summaries(done.stdout))


def summaries(log: str) -> Iterator[dict[str, list[float]]]:
    for line in log.splitlines():
        if line.startswith(":::MLLOG "):
            said = json.loads(line[len(":::MLLOG ") :])
            if said["key"] == "hpcml_summary":
                yield said["value"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000, help="empty steps of one measurement")
    parser.add_argument("--shortest-step-s", type=float, help="default: measured, ResNet-50 at size smoke; else 0.05")
    arguments = parser.parse_args()
    shortest_s = arguments.shortest_step_s or smoke_step_s() or ASSUMED_STEP_S
    costs = {"overlap": float("inf"), "blocking": float("inf")}
    for _ in range(ROUNDS):
        for mode, least_s in costs.items():
            costs[mode] = min(least_s, metered_s(arguments.steps, mode))
    for mode, seconds in costs.items():
        print(f"{mode + ', host clock':24} {seconds * 1e6:12.3f} us")
    print(f"{'shortest real step':24} {shortest_s * 1e6:12.3f} us")
    share = max(costs.values()) / shortest_s
    print(f"share of the shortest real step: {share:.4%} (limit {LIMIT:.0%})")
    return int(share > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
