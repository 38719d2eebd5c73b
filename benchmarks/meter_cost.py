"""What the meter costs: microseconds per step, and the share of the shortest real step it takes. Exits 1 above 1 %.

`python benchmarks/meter_cost.py`; the limit is on the cost per step in either mode, the synchronisation shown apart.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from models.meter import HostClock, Meter, Wire  # noqa: E402 (the path comes first)

LIMIT = 0.01
ASSUMED_STEP_S = 0.05


class CountingClock(HostClock):
    """A host clock that sums up what is spent in synchronize(): there is no device, so this is the call alone."""

    def __init__(self) -> None:
        super().__init__()
        self.synchronize_s = 0.0

    def synchronize(self) -> None:
        begin_s = time.perf_counter()
        super().synchronize()
        self.synchronize_s += time.perf_counter() - begin_s


def bare_s(steps: int) -> float:
    """Seconds per step of the same loop without a meter."""
    begin_s = time.perf_counter()
    for _ in repeat(None, steps):
        pass
    return (time.perf_counter() - begin_s) / steps


def metered_s(steps: int, mode: str, clock: HostClock) -> float:
    """Seconds per empty step with all that a real loop asks of the meter: batches, copy, loss, progress, edges."""
    with Path("/dev/null").open("wb") as nowhere:
        wire = Wire(fd=nowhere.fileno())
        meter = Meter(
            samples=1,
            warmup_steps=100,
            windows=4,
            steps_per_window=steps // 4,
            mode=mode,
            clock=clock,
            wire=wire,
            folder=None,
        )
        begin_s = time.perf_counter()
        for _ in meter.steps(repeat(None)):
            with meter.h2d():
                pass
            meter.loss(1.0)
        return (time.perf_counter() - begin_s) / (steps + 100)


def smoke_step_s() -> float | None:
    """The median step of ResNet-50's smoke size on this machine, read from its log; None when it does not run here."""
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
    return next(summary["step_s"][1] for summary in summaries(done.stdout))


def summaries(log: str) -> Iterator[dict[str, list[float]]]:
    for line in log.splitlines():
        if line.startswith(":::MLLOG "):
            said = json.loads(line[len(":::MLLOG ") :])
            if said["key"] == "hpcml_summary":
                yield said["value"]


def median_of(times: int, measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(times))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000, help="empty steps of one measurement")
    parser.add_argument("--shortest-step-s", type=float, help="default: measured, ResNet-50 at size smoke; else 0.05")
    arguments = parser.parse_args()
    shortest_s = arguments.shortest_step_s or smoke_step_s() or ASSUMED_STEP_S
    counting = CountingClock()
    runs = 3
    bare = median_of(runs, lambda: bare_s(arguments.steps))
    overlap = median_of(runs, lambda: metered_s(arguments.steps, "overlap", HostClock()))
    blocking = median_of(runs, lambda: metered_s(arguments.steps, "blocking", counting))
    synchronize = counting.synchronize_s / runs / arguments.steps
    cost = max(overlap, blocking - synchronize) - bare
    for name, seconds in [
        ("bare loop", bare),
        ("overlap, host clock", overlap),
        ("blocking, host clock", blocking - synchronize),
        ("  its synchronisations", synchronize),
        ("shortest real step", shortest_s),
    ]:
        print(f"{name:24} {seconds * 1e6:12.3f} us   {seconds / bare:10.0f} x the bare loop")
    print(f"share of the shortest real step: {cost / shortest_s:.4%} (limit {LIMIT:.0%})")
    return int(cost > LIMIT * shortest_s)


if __name__ == "__main__":
    sys.exit(main())
