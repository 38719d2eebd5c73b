"""Does the interval of `python -m reporting compare` hold the truth 95 times of 100? Simulated sessions say it.

    python benchmarks/compare_coverage.py [--trials 20000] [--seed 1]

A job's value varies by 1.5 %. All jobs of a session share an effect of their day. Nothing has changed between the two
sides, so that an interval without 0 is a false verdict. Each figure is in per cent.

- by sessions: the interval of `compare`, from the medians of the sessions.
- Welch: the same without the limit of its degrees of freedom.
- by jobs: an interval that takes each job for independent, as tools do that know of no sessions.
- loss by jobs: the same jobs, called a loss by a one-sided bound of 99 %. It should be 1.
- half: the median of half the width of the interval of `compare`.

Prints Markdown. Exit code 1: `compare` has more than 5.5 % false verdicts where both sides vary alike.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from numpy.typing import NDArray

from reporting.compare import interval, student

Floats = NDArray[np.float64]
CV = 0.015
SESSION_EFFECTS = (0.0, 0.01, 0.03)
SIDES = ((2, 2), (2, 3), (2, 5), (2, 10), (3, 3), (3, 5), (3, 10), (5, 5), (5, 10), (10, 10), (4, 20))
JOBS = 8
MOST_FALSE = 5.5
CHECKED = 50  # trials that are also computed by the product's function
FREEDOMS = np.geomspace(1, 5000, 1500)
QUANTILES = np.array([student.quantile((1 + interval.CONFIDENCE) / 2, freedom) for freedom in FREEDOMS])


@dataclass(frozen=True)
class Side:
    """How the runs of one side come about.

    Attributes:
        day: the standard deviation of what a session's jobs share.
        memory: how much a session resembles the one before it, as an autocorrelation.
        outliers: the share of jobs that are 4 to 12 % slower.
    """

    sessions: int
    jobs: int = JOBS
    day: float = 0.01
    memory: float = 0.0
    outliers: float = 0.0


def logs_of(side: Side, trials: int, generator: np.random.Generator, start: Floats | None = None) -> Floats:
    """The logarithms of the values of the jobs, by trial, session and job; `start` is the effect of the day before."""
    days = np.empty((trials, side.sessions))
    last = generator.normal(0, side.day, trials) if start is None else start
    for session in range(side.sessions):
        fresh = generator.normal(0, side.day, trials)
        last = side.memory * last + np.sqrt(1 - side.memory**2) * fresh
        days[:, session] = last
    logs = days[:, :, None] + generator.normal(0, CV, (trials, side.sessions, side.jobs))
    is_outlier = generator.random(logs.shape) < side.outliers
    return logs + is_outlier * np.log1p(-generator.uniform(0.04, 0.12, logs.shape))


@dataclass(frozen=True)
class Intervals:
    """Many intervals: their middles and half their widths."""

    middle: Floats
    half: Floats

    @property
    def false(self) -> float:
        """How many have no 0, in per cent."""
        return 100 * float(np.mean(np.abs(self.middle) > self.half))


def two_groups(before: Floats, after: Floats, *, limited: bool = True) -> Intervals:
    """`interval.of_two_groups` for many trials at once; each has a row."""
    sizes = (before.shape[1], after.shape[1])
    of_before = before.var(axis=1, ddof=1) / sizes[0]
    of_after = after.var(axis=1, ddof=1) / sizes[1]
    total = of_before + of_after
    freedom = total**2 / (of_before**2 / (sizes[0] - 1) + of_after**2 / (sizes[1] - 1))
    if limited:
        alike = sum(1 / size for size in sizes) ** 2 / sum(1 / size**2 / (size - 1) for size in sizes)
        freedom = np.minimum(freedom, alike)
    half = np.interp(freedom, FREEDOMS, QUANTILES) * np.sqrt(total)
    return Intervals(after.mean(axis=1) - before.mean(axis=1), half)


def losses(before: Floats, after: Floats) -> float:
    """How many trials a one-sided bound of 99 % calls slower, in per cent; each value is taken for independent."""
    error = np.sqrt(before.var(axis=1, ddof=1) / before.shape[1] + after.var(axis=1, ddof=1) / after.shape[1])
    bound = student.quantile(0.99, before.shape[1] + after.shape[1] - 2)
    return 100 * float(np.mean(after.mean(axis=1) - before.mean(axis=1) < -bound * error))


def check(before: Floats, after: Floats) -> None:
    """Prove that the fast intervals are those of the product."""
    fast = two_groups(before, after)
    for trial in range(CHECKED):
        found = interval.of_two_groups(before[trial].tolist(), after[trial].tolist())
        expected = (found.difference, found.quantile * found.error)
        assert np.allclose((fast.middle[trial], fast.half[trial]), expected, rtol=1e-3), (expected, trial)


def row(name: str, before: Side, after: Side, trials: int, generator: np.random.Generator) -> tuple[str, float]:
    """A line of the table, and the share of false verdicts of `compare`."""
    old = logs_of(before, trials, generator)
    start = None
    if before.memory:  # the sides follow each other
        start = old.mean(axis=2)[:, -1]
    new = logs_of(after, trials, generator, start)
    cells: list[Any] = [name, f"{before.sessions} + {after.sessions}"]
    false = float("nan")
    if min(before.sessions, after.sessions) >= interval.LEAST:
        medians = (np.median(old, axis=2), np.median(new, axis=2))
        check(*medians)
        by_sessions = two_groups(*medians)
        false = by_sessions.false
        welch = two_groups(*medians, limited=False).false
        cells += [f"{false:.1f}", f"{welch:.1f}"]
        half = f"{100 * float(np.median(by_sessions.half)):.1f}"
    else:
        cells += ["no verdict", "-"]
        half = "-"
    jobs = (old.reshape(trials, -1), new.reshape(trials, -1))
    by_jobs = two_groups(*jobs, limited=False)
    cells += [f"{by_jobs.false:.1f}", f"{losses(*jobs):.1f}", half]
    return f"| {' | '.join(map(str, cells))} |", false


def rows(trials: int, seed: int) -> Iterator[tuple[str, float, bool]]:
    """Each line, its false verdicts, and whether they must be at most 5 %."""
    generator = np.random.default_rng(seed)
    for day in SESSION_EFFECTS:
        for before, after in ((1, 1), *SIDES):
            name = f"session {100 * day:.0f} %"
            yield *row(name, Side(before, day=day), Side(after, day=day), trials, generator), True
    yield *row("session 3 %, 16 jobs", Side(1, 16, 0.03), Side(1, 16, 0.03), trials, generator), True
    for before, after in ((3, 3), (5, 5)):
        sides = [Side(count, day=0.01, outliers=0.03) for count in (before, after)]
        yield *row("session 1 %, 3 % outliers", *sides, trials, generator), True
    for before, after in ((2, 2), (2, 10), (10, 2), (5, 5)):
        name = "session 1 % before, 3 % after"
        yield *row(name, Side(before, day=0.01), Side(after, day=0.03), trials, generator), False
    for before, after in ((3, 3), (10, 3), (10, 10)):
        name = "1 job a session before, 8 after; session 1 %"
        yield *row(name, Side(before, 1), Side(after), trials, generator), False
    for before, after in ((3, 3), (5, 5), (10, 10)):
        name = "session 3 %, autocorrelation 0.5"
        sides = [Side(count, day=0.03, memory=0.5) for count in (before, after)]
        yield *row(name, *sides, trials, generator), False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    print(f"{options.trials} trials a row, seed {options.seed}; all figures in per cent\n")
    print("| noise | sessions | by sessions | Welch | by jobs | loss by jobs | half |")
    print("|---|---|---|---|---|---|---|")
    worst = 0.0
    for line, false, is_promised in rows(options.trials, options.seed):
        print(line, flush=True)
        if is_promised and false > worst:
            worst = false
    holds = worst <= MOST_FALSE
    print(
        f"\n- {'holds' if holds else 'MISSED'}: at most 5 % false where both sides vary alike; the worst is {worst:.1f}"
    )
    print(f"- {time.monotonic() - began:.0f} s")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
