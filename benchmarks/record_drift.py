"""Records how fast the same training is on this machine, run after run, for hours.

    python benchmarks/record_drift.py FILE [--hours 2] [-- train resnet50 --size smoke --windows 5 --steps-per-window 8]

Each run adds one line of JSON to FILE: `started` (Unix seconds, when its process began), `windows` (a list of samples,
and seconds of wall, wait, h2d and busy, for each window), and `neighbours` (how many cores others used meanwhile).
`benchmarks/ab_trials.py` replays such a file. On a machine that others use, `taskset -c 0 nice -n -15 env
OMP_NUM_THREADS=1 python benchmarks/record_drift.py …` keeps one core for the training.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from platforms.results.log_reader import parse

ROOT = Path(__file__).resolve().parents[1]
TRAINING = ("train", "resnet50", "--size", "smoke", "--windows", "5", "--steps-per-window", "8")
WIRE = ":::MLLOG "


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="lines are added to this file")
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("training", nargs="*", help=f"what `python -m models` does (default: {' '.join(TRAINING)})")
    options = parser.parse_args()
    training = tuple(options.training) or TRAINING
    until_s = time.monotonic() + 3600 * options.hours
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder) / "data"
        make_data(training, data_dir)
        while time.monotonic() < until_s:
            line = measure(training, data_dir)
            with options.file.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(line)}\n")
    return 0


def make_data(training: Sequence[str], data_dir: Path) -> None:
    size = training[training.index("--size") + 1]
    command = [sys.executable, "-m", "models", "data", training[1], "--size", size, "--data-dir", str(data_dir)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)


def measure(training: Sequence[str], data_dir: Path) -> dict[str, object]:
    """Train once, in a process of its own. Returns the line of the file."""
    started = time.time()
    command = [sys.executable, "-m", "models", *training, "--data-dir", str(data_dir)]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    run = parse(done.stdout)
    if done.returncode or not run.windows:
        raise SystemExit(f"the training failed: {done.stderr.decode(errors='replace')[-2000:]}")
    contention = run.summary.get("contention")
    neighbours = contention.get("elsewhere_cores") if isinstance(contention, Mapping) else None
    return {"started": round(started, 1), "windows": windows_of(done.stdout.decode()), "neighbours": neighbours}


def windows_of(log: str) -> list[list[float]]:
    """The samples of each window, and its seconds of wall, wait, h2d and busy, the last three as means over ranks."""
    events = [json.loads(line.removeprefix(WIRE)) for line in log.splitlines() if line.startswith(WIRE)]
    return [_window(event["value"]) for event in events if event["key"] == "hpcml_window"]


def _window(value: Mapping[str, Any]) -> list[float]:
    seconds = [value["wall_s"], *(value[name][1] for name in ("wait_s", "h2d_s", "busy_s"))]
    return [value["samples"], *(round(each, 5) for each in seconds)]


if __name__ == "__main__":
    sys.exit(main())
