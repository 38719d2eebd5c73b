"""Does what `python -m reporting power` states hold? The stated chances beside what the gate finds afterwards.

    python benchmarks/gate_power.py [--series 300] [--futures 100] [--nights 60 120] [--seed 1]

Each simulated series has a history of so many nights, with outliers, which the gate has judged. `power` states for each
series the chance that a lasting loss is red within six nights. Then each
series goes on in 100 ways, judged by the gate: six nights at the old level, and then the loss. A step is red only if a
second run in its night is one, too. What is red with the same noise and without the loss is not counted as found.

- stated, found: means over all series, in per cent. The interval is that of their difference, 95 %.
- Where `power` states 30 to 50 %, or 70 to 90 %: what it states there on average, and what was found.

Prints Markdown. Exit code 1: a mean is more than three points away from what was found.
"""

from __future__ import annotations

import argparse
import datetime
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.gate_rules import Flags, Floats, Gate, Kind, Population
from platforms.job import Outcome
from reporting.gate.estimates import PIN_RUNS, WINDOW_NIGHTS
from reporting.gate.power import NIGHTS, Sight, sight_of
from reporting.gate.series import RunValue, Series, pin_of
from reporting.gate.verdict import Kind as Said
from reporting.history.envelope import Envelope, Key

KINDS = (Kind(0.015), Kind(0.03), Kind(0.015, 0.5), Kind(0.015, 0.0, 0.01), Kind(0.015, 0.5, 0.01))
LOSSES = (0.02, 0.03, 0.04, 0.06, 0.10)
STATED = ((0.3, 0.5), (0.7, 0.9))
POINTS = 3.0
FIRST = datetime.date(2026, 1, 1)
NOTHING = Envelope(Key("simulated", "", "", 1, None, None), 1, 0.0, Outcome.PASSED, True, "simulated")


@dataclass(frozen=True)
class Histories:
    """Series that the gate has judged up to now."""

    population: Population
    values: Floats
    red: Flags
    steps: Flags
    gate: Gate

    @classmethod
    def of(cls, kind: Kind, series: int, nights: int, generator: np.random.Generator) -> Histories:
        population = Population.of(kind, series, generator)
        values = population.nights(nights, generator)
        repeats = population.repeats(nights, generator)
        gate = Gate(values[:, :PIN_RUNS])
        red = np.zeros(values.shape, dtype=bool)
        steps = np.zeros(values.shape, dtype=bool)
        for night in range(PIN_RUNS, nights):
            red[:, night], steps[:, night] = gate.judge(values[:, night], repeats[:, night])
        return cls(population, values, red, steps, gate)

    def sights(self) -> list[Sight]:
        found = []
        for values, red, steps in zip(self.values.tolist(), self.red.tolist(), self.steps.tolist(), strict=True):
            series = series_of_nights(values, red, steps)
            pin = pin_of(series, None)
            sight = None if pin is None else sight_of(series, pin)
            if sight is None:
                raise ValueError("a simulated series has no pin, or fewer than 20 runs at its level")
            found.append(sight)
        return found


def series_of_nights(values: Sequence[float], red: Sequence[bool], steps: Sequence[bool]) -> Series:
    """A series of the product, with one run a night."""
    runs = []
    for number, (value, is_red, is_step) in enumerate(zip(values, red, steps, strict=True)):
        night = FIRST + datetime.timedelta(days=number)
        envelope = replace(NOTHING, verdicts={"rate": stored_verdict(is_red, is_step)})
        calm = not is_red and not is_step
        runs.append(RunValue(str(number), night, value, eligible=True, calm=calm, envelope=envelope))
    return Series("simulated", "rate", "samples/s", "higher", "", tuple(runs))


def stored_verdict(is_red: bool, is_step: bool) -> Mapping[str, Any]:
    """What the history keeps of a night whose steps are repeated."""
    if is_step:
        kind = Said.SLOWER if is_red else Said.TRANSIENT
        return {"kind": kind, "red": is_red, "confirmation": {}}
    return {"kind": Said.DRIFTED if is_red else Said.OK, "red": is_red}


@dataclass(frozen=True)
class Futures:
    """What became of each series, on average over its futures.

    Attributes:
        found: by loss, the share of the futures in which it was red within six nights, and would not be without it.
    """

    found: Mapping[float, Floats]


def futures_of(histories: Histories, times: int, generator: np.random.Generator) -> Futures:
    before = WINDOW_NIGHTS - 1
    population = histories.population.repeated(times)
    values = population.nights(before + NIGHTS, generator)
    repeats = population.repeats(before + NIGHTS, generator)
    start = histories.gate.repeated(times)
    for night in range(before):
        start.judge(values[:, night], repeats[:, night])

    def mean(flags: Floats | Flags) -> Floats:
        means: Floats = flags.reshape(-1, times).mean(axis=1)
        return means

    def red_within_six_nights(loss: float) -> Flags:
        gate = start.repeated(1)
        red = np.zeros(len(values), dtype=bool)
        for night in range(before, before + NIGHTS):
            left = 1 - loss
            red |= gate.judge(values[:, night] * left, repeats[:, night] * left)[0]
        return red

    without = red_within_six_nights(0.0)
    found = {loss: mean(red_within_six_nights(loss) & ~without) for loss in LOSSES}
    return Futures(found)


def report(kind: Kind, sights: Sequence[Sight], futures: Futures) -> Iterator[tuple[str, float]]:
    """A line of the table, and by how many points it is off, for each loss."""
    for loss, found in futures.found.items():
        stated = np.array([sight.chance(loss) for sight in sights])
        error = 100 * float((stated - found).std()) / math.sqrt(len(found))
        off = 100 * float(stated.mean() - found.mean())
        cells = [f"{100 * stated.mean():.1f}", f"{100 * found.mean():.1f}", f"{off:+.1f} ± {1.96 * error:.1f}"]
        for low, high in STATED:
            there = (low <= stated) & (stated < high)
            if there.sum() < 20:
                cells.append("")
            else:
                cells.append(f"{100 * stated[there].mean():.0f} → {100 * found[there].mean():.0f}")
        yield f"| {kind} | -{100 * loss:.0f} % | {' | '.join(cells)} |", off


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=300)
    parser.add_argument("--futures", type=int, default=100)
    parser.add_argument("--nights", type=int, nargs="+", default=[60, 120])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"{options.series} series, {options.futures} futures each, seed {options.seed}")
    worst = 0.0
    for nights in options.nights:
        print(f"\nAfter {nights} nights\n")
        print("| noise | loss | stated | found | difference | stated 30-50 → found | stated 70-90 → found |")
        print("|---|---|---|---|---|---|---|")
        spent = 0.0
        for kind in KINDS:
            generator = np.random.default_rng(options.seed)
            histories = Histories.of(kind, options.series, nights, generator)
            began = time.process_time()
            sights = histories.sights()
            spent += time.process_time() - began
            for line, off in report(kind, sights, futures_of(histories, options.futures, generator)):
                print(line, flush=True)
                worst = max(worst, abs(off))
        print(f"\n`power` took {1000 * spent / options.series / len(KINDS):.0f} ms of processor time for a series")
    print(f"\nthe largest difference is {worst:.1f} points, of {POINTS:g} that are allowed")
    return 0 if worst <= POINTS else 1


if __name__ == "__main__":
    sys.exit(main())
