"""The gate by real sessions: six tests of one site, each night a pytest session with its jobs, and a loss that stays.

    python benchmarks/gate_sessions.py [--seeds 1 2 3] [--nights 80] [--loss 0.04]

Each test runs a program that prints a rate, with CV 1.5 %; a repeat draws again. From the middle of the nights on all
six are slower. Between the sessions all lines of the history are moved a day back. Counted are the tests whose loss is
never red, the red nights before it, and the nights that are green from a week after a test's first red one. Prints
Markdown; 80 nights take four to five minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DAY_S = 86_400.0
TESTS = 6
PROGRAM = """
import os, pathlib, random, sys
name = sys.argv[1]
drawn = pathlib.Path(os.environ["DRAWN"]) / name
drawn.open("a").write("x")
source = random.Random(f"{os.environ['SEED']} {name} {drawn.stat().st_size}")
print("rate:", 100 * (1 + source.gauss(0, 0.015)) * (1 - float(os.environ["LOSS"])))
"""
TEST = """
import pytest
from platforms.results import numbers

@pytest.mark.parametrize("name", [f"n{number}" for number in range(%d)])
@pytest.mark.workload(command=["{python}", "%s", "{name}"])
def test_rate(run, record, name):
    rate, = numbers(run.log, r"rate: (.+)")
    record(run, metrics={"rate": (rate, "GB/s", "higher")})
"""
PLATFORM = "scheduler: local\ndevice: cpu\nlayouts: {default: [1x1]}\npoll_s: 0.1\n"


def recede(history: Path) -> None:
    """Let a day pass."""
    for path in history.glob("*/*.jsonl"):
        if path.name.endswith(".runs.jsonl"):
            continue
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line |= {name: line[name] - DAY_S for name in ("submitted_s", "started_s", "ended_s", "written_s")}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def reds_of(folder: Path, seed: int, nights: int, loss: float) -> dict[str, list[bool]]:
    """Of each test, whether it was red in each night."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    (folder / "drawn").mkdir()
    (folder / "site/platforms").mkdir(parents=True)
    (folder / "site/platforms/here.yaml").write_text(PLATFORM)
    (folder / "site/site.yaml").write_text("enabled: [here]\n")
    (folder / "pytest.ini").write_text(
        (ROOT / "pytest.ini").read_text().replace("pythonpath = .", f"pythonpath={ROOT}")
    )
    (folder / "test_rates.py").write_text(TEST % (TESTS, program))
    reds: dict[str, list[bool]] = {}
    for night in range(nights):
        lost = loss if night >= nights // 2 else 0.0
        environment = {**os.environ, "SEED": str(seed), "LOSS": str(lost), "DRAWN": str(folder / "drawn")}
        environment["HPC_ML_BENCH_LOCK"] = str(folder / "lock")
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        said = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
        if said.returncode not in (0, 1):
            raise SystemExit(said.stdout + said.stderr)
        for name in range(TESTS):
            is_red = any(line.startswith("FAILED") and f"n{name}]" in line for line in said.stdout.splitlines())
            reds.setdefault(f"n{name}", []).append(is_red)
        recede(folder / "site/history")
    return reds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--nights", type=int, default=80)
    parser.add_argument("--loss", type=float, default=0.04)
    options = parser.parse_args()
    begins = options.nights // 2
    print("| seed | tests missed | false red nights | green from a week after the first red one |\n|---|---|---|---|")
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            reds = reds_of(Path(folder), seed, options.nights, options.loss)
        missed = sum(not any(red[begins:]) for red in reds.values())
        false = sum(sum(red[:begins]) for red in reds.values())
        later = [red[begins + red[begins:].index(True) + 7 :] for red in reds.values() if any(red[begins:])]
        nights = [night for of_test in later for night in of_test]
        share = f"{nights.count(False)} of {len(nights)} ({100 * nights.count(False) / max(len(nights), 1):.1f} %)"
        print(f"| {seed} | {missed} of {TESTS} | {false} of {TESTS * begins} | {share} |", flush=True)


if __name__ == "__main__":
    main()
