"""The gate's arithmetic: how far a series' medians lie from each other by chance, and what is beyond it.

All values are fractions of a level: .02 is 2 % of it. docs/gate.md has a worked example.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

PIN_RUNS = 20
WINDOW_NIGHTS = 7

NORMAL_PER_MAD = 1.4826  # makes the median absolute deviation of normal noise its standard deviation
MEDIAN_PER_MEAN = 1.2533  # sqrt(pi / 2): the standard error of a median beside that of a mean
LEAST_DEVIATION = 0.004  # twenty runs may agree by luck
# Of a scale and of an autocorrelation of n runs, times 1 / sqrt(n). benchmarks/gate_simulation.py: .5 lets 18 % of the
# series cry for nothing in 150 nights, and .9 finds a loss of 4 % two times in a hundred less often than .7.
UNCERTAINTY = 0.7
OUTLIER = 2.5  # scales; what is farther away counts as this far
HIGHEST_AUTOCORRELATION = 0.9

DRIFT_ERRORS = 3.0
LEAST_DRIFT = 0.01
STEP_SCALES = 3.5
LEAST_STEP = 0.03


@dataclass(frozen=True)
class Noise:
    """How runs of one level vary.

    Attributes:
        deviation: the scaled median absolute deviation of the runs.
        scale: of one run: the deviation, at least .4 %, widened since it is an estimate.
        autocorrelation: of neighbouring runs, from 0 to .9.
        runs: how many runs this was estimated from.
    """

    deviation: float
    scale: float
    autocorrelation: float
    runs: int


def change_from(level: float, value: float, better: str) -> float:
    """A value relative to a level, as a fraction; negative is worse, whether `higher` or `lower` is better."""
    relative = (value - level) / abs(level)
    return relative if better == "higher" else -relative


def scaled_mad(values: Sequence[float]) -> float:
    """The median absolute deviation from the median, times 1.4826."""
    centre = median(values)
    return NORMAL_PER_MAD * median([abs(value - centre) for value in values])


def noise_of(values: Sequence[float]) -> Noise:
    """The noise of runs in the order in which they started."""
    runs = len(values)
    deviation = scaled_mad(values)
    scale = max(deviation, LEAST_DEVIATION) * (1 + UNCERTAINTY / math.sqrt(runs))
    return Noise(deviation, scale, autocorrelation(values, scale), runs)


def autocorrelation(values: Sequence[float], scale: float) -> float:
    """How much a run resembles the one before it: a cautious estimate, from 0 to .9.

    The estimate's own uncertainty is taken away: noise without memory gives 0 nearly always.
    """
    cautious = plain_autocorrelation(values, scale) - UNCERTAINTY / math.sqrt(len(values))
    return min(max(cautious, 0.0), HIGHEST_AUTOCORRELATION)


def plain_autocorrelation(values: Sequence[float], scale: float) -> float:
    """How much a run resembles the one before it, without the bias that few runs have; it may be negative.

    A value farther than 2.5 scales from the median counts as 2.5 scales away.
    """
    runs = len(values)
    centre = median(values)
    residuals = [min(max((value - centre) / scale, -OUTLIER), OUTLIER) for value in values]
    power = math.fsum(residual * residual for residual in residuals) / runs
    if runs < 2 or power == 0:
        return 0.0
    products = [before * after for before, after in itertools.pairwise(residuals)]
    raw = math.fsum(products) / len(products) / power
    return raw + (1 + 3 * raw) / runs


def inflation(autocorrelation: float, runs: int) -> float:
    """How many times larger the variance of a mean of `runs` neighbouring runs is than that of independent ones."""
    return 1 + 2 * math.fsum((1 - lag / runs) * autocorrelation**lag for lag in range(1, runs))


def error_of_median(noise: Noise, runs: int) -> float:
    """The standard error of the median of `runs` neighbouring runs."""
    return MEDIAN_PER_MEAN * noise.scale * math.sqrt(inflation(noise.autocorrelation, runs) / runs)


def standard_error_of_change(noise: Noise, window_runs: int, pin_error: float) -> float:
    """The standard error of a window's median relative to the pin.

    Args:
        window_runs: how many runs the window has.
        pin_error: the standard error of the pin: `error_of_median(noise, 20)`, or that of an acceptance.
    """
    return math.hypot(error_of_median(noise, window_runs), pin_error)


def drift_limit(error: float) -> float:
    """How far a window's median may be from the pin: three standard errors, at least 1 %."""
    return max(DRIFT_ERRORS * error, LEAST_DRIFT)


def step_limit(noise: Noise) -> float:
    """How far one run may be from the pin: 3.5 scales, at least 3 %."""
    return max(STEP_SCALES * noise.scale, LEAST_STEP)


def start_of_change(changes: Sequence[float], found: float) -> int:
    """The index of the first run of a change that still lasts.

    Each run is nearer to the pin or nearer to what was found, by |change| - |change - found|. The sum of this over the
    runs from the first one on is the largest there is.

    Args:
        changes: of each run from the pin, in order.
        found: the change whose start is looked for.
    """
    best = len(changes) - 1
    largest = -math.inf
    total = 0.0
    for index in range(len(changes) - 1, -1, -1):
        total += abs(changes[index]) - abs(changes[index] - found)
        if total > largest + 1e-12:
            best, largest = index, total
    return best
