"""How well the gate says since when: simulated series with a lasting loss, and with a new driver in the same night.

    python benchmarks/gate_since.py [--series 200] [--seed 1]

A series has 40 nights before the loss and at most 30 after it; its noise has 3 % outliers of -4 to -12 %. What counts
is the text of the first red night. Series that are red in the night before the loss, or never after it, are left out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.gate_rules import Kind, Population
from reporting.gate.verdict import Verdict
from tests.reporting.gate_nights import night, run, verdict_on

BEFORE = 40
AFTER = 30
KINDS = (Kind(0.015), Kind(0.03), Kind(0.015, 0.5))
LOSSES = (0.03, 0.04, 0.06, 0.10)


def first_red(values: list[float]) -> tuple[int, Verdict] | None:
    """How many nights after the loss a series is red, and the verdict of that night."""
    runs = []
    for number, value in enumerate(values):
        driver = "580.82" if number < BEFORE else "590.11"
        runs.append(run(number, value, provenance={"driver": driver, "nodes": f"gpu{number % 5}"}))
    if verdict_on(runs[BEFORE - 1], runs[: BEFORE - 1]).red:
        return None
    for number in range(BEFORE, len(runs)):
        verdict = verdict_on(runs[number], runs[:number])
        if verdict.red:
            return number - BEFORE + 1, verdict
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    print("| noise | loss | series | red after, nights | the night is exact | within two | the driver is named |")
    print("|---|---|---|---|---|---|---|")
    for kind in KINDS:
        for loss in LOSSES:
            values = 100 * Population.of(kind, options.series, generator).nights(BEFORE + AFTER, generator)
            values[:, BEFORE:] *= 1 - loss
            found = [red for red in map(first_red, values.tolist()) if red is not None]
            away = [(verdict.since - night(BEFORE)).days for _, verdict in found if verdict.since]
            exact = sum(days == 0 for days in away) / len(found)
            near = sum(abs(days) <= 2 for days in away) / len(found)
            named = sum("driver: 580.82 -> 590.11" in verdict.text for _, verdict in found) / len(found)
            nights = statistics.median(number for number, _ in found)
            print(f"| {kind} | -{loss:.0%} | {len(found)} | {nights:g} | {exact:.0%} | {near:.0%} | {named:.0%} |")


if __name__ == "__main__":
    main()
