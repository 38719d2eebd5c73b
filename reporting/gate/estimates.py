"""The gate's arithmetic: how far a series' medians lie from each other by chance, and what is beyond it.

All values are fractions of a level: .02 is 2 % of it. docs/gate.md has a worked example.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import mul
from statistics import fmean, median, stdev

from reporting.compare.interval import sign_of
from reporting.compare.robust import MEDIAN_PER_MEAN, NORMAL_PER_MAD, UNCERTAINTY

# The figures in these comments are of simulated series of 150 judged nights, of which 3 % are outliers of -4 to -12 %
# (benchmarks/gate_simulation.py), and of losses from their first night past their repair (benchmarks/gate_life.py).
# benchmarks/measured.md has the tables. Who changes a number here runs both again.

# The median of 20 runs has an error of .28 scales. More runs would make the gate learn for longer, and its error is
# already smaller than that of the seven nights beside it, .47 scales.
PIN_RUNS = 20
# A week: each window has every day of the week once, and a machine is used differently at weekends.
WINDOW_NIGHTS = 7

LEAST_DEVIATION = 0.004  # twenty runs may agree by luck
# Scales; what is farther away counts as this far. A single outlier would hide the autocorrelation of all other nights.
OUTLIER = 2.5
# By (1 + r) / (1 - r) a memory makes the variance of a long mean larger. That has no limit at 1.
HIGHEST_AUTOCORRELATION = 0.9

# Three errors are beyond chance in one night of 740, but the limits are estimates, and each night is a new try: so
# .28 of 100 nights are red without a change at CV 1.5 %, and 85 % of the losses of 4 % are found within six nights.
DRIFT_ERRORS = 3.0
# A smaller loss is not worth a morning of work, however sure it is.
LEAST_DRIFT = 0.01
# Normal noise is beyond 3.5 deviations once in 4,300 runs; what remains are outliers, which a repeat clears.
STEP_SCALES = 3.5
# One run that is less far away is not worth a repeat, nor a morning of work.
LEAST_STEP = 0.03
# Seven nights within this share of their limit are at the level of the pin. After a red run one run is so, too.
RETURN = 0.65
# A lasting red ends once less than this share of its loss is left in the nights that tell. With .45 a loss of its
# limit's size is green in 2.2 nights of 100 instead of 1.9; with .43 one repair more of 200 is not seen in six nights
# (for these four numbers: benchmarks/gate_ends.py).
LEFT_AT_END = 0.44
# The mean of the nights that tell has so many errors between the loss and nothing. It is written for the error of the
# median of seven nights, which is 1.2533 / sqrt(7) of one night's deviation.
ERRORS_APART = 4.25 * math.sqrt(WINDOW_NIGHTS) / MEDIAN_PER_MEAN
# One night may be an outlier. With more than six a repair would be seen in the second week.
FEWEST_NIGHTS, MOST_NIGHTS = 2, 6
# A loss is found when chance has made it look larger than it is, or smaller than its limit. So it counts as if ten more
# of its runs had been at the limit.
RUNS_AT_LIMIT = 10
# A loss so large is red without a repeat that confirms it, and while a series has no pin or too few runs to know its
# tail: no series that is worth watching varies by so much.
LARGE = 0.10

# Fewer runs do not show how the slower side and the weeks of a series differ from the rest.
LONG_RUNS = 60
SKEWED = 6.0  # over sqrt(n): by so much more the slower runs of one series in twenty vary by chance
WANDERS = 1.64  # standard errors of a deviation; one series in twenty is this far by chance
ROUNDED = 1 - 1e-9  # a number below this share of another one is less, however both were rounded
LEAST_BLOCKS = 8  # weeks; the deviation of fewer medians says nothing


@dataclass(frozen=True)
class Noise:
    """How runs of one level vary.

    Attributes:
        deviation: the scaled median absolute deviation of the runs, or of the slower ones if these vary more.
        scale: of one run: the deviation, at least .4 %, widened since it is an estimate.
        autocorrelation: of neighbouring runs, from 0 to .9.
        runs: how many runs this was estimated from.
        skewed: the deviation is that of the slower runs.
        weeks: the standard deviation of the medians of seven nights each, if it is larger than the other numbers
            explain: the series wanders. None if it does not, or if too few runs tell.
        tail: the loss that so few runs exceed as the site's budget of false alarms allows.
        level: the median of the runs.
    """

    deviation: float
    scale: float
    autocorrelation: float
    runs: int
    skewed: bool = False
    weeks: float | None = None
    tail: float = 0.0
    level: float = 0.0


@dataclass(frozen=True)
class Strictness:
    """How far beyond chance a number must be, so that a site has no more false alarms than it wants.

    Attributes:
        errors: how many standard errors the last seven nights together may be below the pin.
        tail: the share of runs that may lie beyond the limit of one run. Chance takes two of them in a row, since a
            repeat confirms the first.
    """

    errors: float = DRIFT_ERRORS
    tail: float = 1.0


# What 3,000 simulated series cost in 30 nights (benchmarks/gate_life.py): 0.02 to 0.04 false alarms of seven nights
# three errors, and a tenth of that for each 1.05 errors more. Half of the budget is for them, half for single runs.
ALARMS_AT_THREE = 0.04
ERRORS_PER_TENTH = 1.05
NIGHTS_A_MONTH = 30
FALSE_REDS_A_MONTH = 1.0
"""What a site accepts that has not said otherwise."""


def strictness(series: int, false_reds_a_month: float = FALSE_REDS_A_MONTH) -> Strictness:
    """The limits with which a number of judged series have so many false alarms in a month, all together.

    Args:
        series: how many the site judges.
        false_reds_a_month: as a person accepts them, such as 1.
    """
    each = false_reds_a_month / 2 / max(series, 1)
    more = ERRORS_PER_TENTH * math.log10(ALARMS_AT_THREE / each)
    return Strictness(DRIFT_ERRORS + max(more, 0.0), min(math.sqrt(each / NIGHTS_A_MONTH), 1.0))


def change_from(level: float, value: float, better: str) -> float:
    """A value relative to a level, as a fraction; negative is worse, whether `higher` or `lower` is better."""
    return sign_of(better) * (value - level) / abs(level)


def noise_of(values: Sequence[float], *, each_night: int = 1, tail: float = 1.0) -> Noise:
    """The noise of runs in the order in which they started.

    Args:
        values: changes from the pin; negative is worse.
        each_night: how many runs a night has.
        tail: the share of runs that may lie beyond the limit of one run.
    """
    noise = noise_without_memory(sorted(values), tail=tail)
    remembered = autocorrelation(values, noise.scale)
    if remembered:
        noise = replace(noise, autocorrelation=remembered)
    if noise.runs < LONG_RUNS:
        return noise
    weeks = _weeks(values, WINDOW_NIGHTS * each_night, noise)
    return noise if weeks is None else replace(noise, weeks=weeks)


def noise_without_memory(ordered: Sequence[float], *, tail: float = 1.0) -> Noise:
    """What `noise_of` says but for autocorrelation and weeks, which only make errors larger.

    Args:
        ordered: the changes, sorted. So this takes no longer for a year of them than for a month.
        tail: as of `noise_of`.
    """
    runs = len(ordered)
    centre = median(_middle(ordered))
    deviation = NORMAL_PER_MAD * _distance_of_half(ordered, centre)
    skewed = False
    if runs >= LONG_RUNS:  # the deviation of each side is the scaled median distance of its runs from the median of all
        below = _middle(ordered[: bisect_left(ordered, centre)])
        slower = NORMAL_PER_MAD * median([centre - value for value in below]) if below else 0.0
        above = _middle(ordered[bisect_right(ordered, centre) :])
        faster = NORMAL_PER_MAD * median([value - centre for value in above]) if above else 0.0
        skewed = slower > max(faster * (1 + SKEWED / math.sqrt(runs)), deviation)
        if skewed:
            deviation = slower
    scale = max(deviation, LEAST_DEVIATION) * (1 + UNCERTAINTY / math.sqrt(runs))
    return Noise(deviation, scale, 0.0, runs, skewed, tail=_tail(ordered, tail), level=centre)


def _middle(ordered: Sequence[float]) -> Sequence[float]:
    """The one or two of sorted values that make their median."""
    return ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]


def _distance_of_half(ordered: Sequence[float], centre: float) -> float:
    """The median distance of sorted values from their median.

    The n nearest values are neighbours. Where they begin is found by halving: too early, if the value behind them is
    nearer than the first one of them.
    """

    def nearest(count: int) -> float:
        def begins(first: int) -> bool:
            return ordered[first + count] - centre >= centre - ordered[first]

        first = bisect_left(range(len(ordered) - count), True, key=begins)
        return max(centre - ordered[first], ordered[first + count - 1] - centre)

    return median(map(nearest, {(len(ordered) + 1) // 2, len(ordered) // 2 + 1}))  # of an odd number one tells it


def _weeks(values: Sequence[float], block: int, noise: Noise) -> float | None:
    """The standard deviation of the medians of whole blocks, if it is beyond what the noise explains by chance."""
    blocks = [values[first : first + block] for first in range(0, len(values) - block + 1, block)]
    if len(blocks) < LEAST_BLOCKS:
        return None
    medians = [median(each) for each in blocks]
    by_chance = error_of_median(noise, block) * (1 + WANDERS / math.sqrt(2 * (len(blocks) - 1)))
    # `stdev` computes with fractions, which takes long. Mostly a rounded number shows that it is not needed.
    rounded = math.dist(medians, [fmean(medians)] * len(medians)) / math.sqrt(len(medians) - 1)
    if rounded < by_chance * ROUNDED:
        return None
    deviation = stdev(medians)
    return deviation if deviation > by_chance else None


def _tail(ordered: Sequence[float], share: float) -> float:
    """The loss beyond which this share of the runs lies; 10 % while there are too few runs to know it."""
    beyond = int(share * (len(ordered) + 1))
    if beyond < 1:
        return LARGE
    return max(-ordered[min(beyond, len(ordered)) - 1], 0.0)


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
    far = [(value - centre) / scale for value in values]
    residuals = [one if -OUTLIER < one < OUTLIER else math.copysign(OUTLIER, one) for one in far]
    power = math.fsum(map(mul, residuals, residuals)) / runs
    if runs < 2 or power == 0:
        return 0.0
    raw = math.fsum(map(mul, residuals, residuals[1:])) / (runs - 1) / power
    return raw + (1 + 3 * raw) / runs


def inflation(autocorrelation: float, runs: int) -> float:
    """How many times larger the variance of a mean of `runs` neighbouring runs is than that of independent ones."""
    if not autocorrelation:
        return 1.0
    return 1 + 2 * math.fsum((1 - lag / runs) * autocorrelation**lag for lag in range(1, runs))


def error_of_median(noise: Noise, runs: int) -> float:
    """The standard error of the median of `runs` neighbouring runs."""
    return MEDIAN_PER_MEAN * noise.scale * math.sqrt(inflation(noise.autocorrelation, runs) / runs)


def error_of_window(noise: Noise, runs: int) -> float:
    """The standard error of the median of the last seven nights; that of earlier weeks, if the series wanders."""
    return max(error_of_median(noise, runs), noise.weeks or 0.0)


def standard_error_of_change(noise: Noise, window_runs: int, pin_error: float) -> float:
    """The standard error of a window's median relative to the pin.

    Args:
        window_runs: how many runs the window has.
        pin_error: the standard error of the pin: `error_of_median(noise, 20)`, or that of an acceptance.
    """
    return math.hypot(error_of_window(noise, window_runs), pin_error)


def drift_limit(error: float, errors: float = DRIFT_ERRORS) -> float:
    """How far a window's median may be from the pin: three standard errors or more, at least 1 %."""
    return max(errors * error, LEAST_DRIFT)


def step_limit(noise: Noise) -> float:
    """How far one run may be from the pin: 3.5 scales, at least 3 %, and at least as far as the series' own tail."""
    return max(STEP_SCALES * noise.scale, LEAST_STEP, noise.tail)


def size_of_loss(below: float, runs: int, limit: float) -> float:
    """How large a loss is taken to be, as a positive fraction.

    Args:
        below: how far the median of its runs is below the level before it; 0 if it is not.
        runs: how many it has.
        limit: of the last seven nights when it was found.
    """
    return (runs * below + RUNS_AT_LIMIT * limit) / (runs + RUNS_AT_LIMIT)


def nights_that_tell(window_error: float, loss: float) -> int:
    """How many nights together tell a loss from the level before it.

    Args:
        window_error: the standard error of the median of seven nights.
        loss: as a positive fraction.
    """
    return min(max(math.ceil((ERRORS_APART * window_error / loss) ** 2), FEWEST_NIGHTS), MOST_NIGHTS)


def share_left(change: float, before: float, loss: float) -> float:
    """How much of a loss one run still has: 1 at the loss or below it, 0 at the level before it, -1 far above that.

    Args:
        change: of the run from the pin.
        before: the change of the level before the loss from the pin.
        loss: from that level, as a positive fraction.
    """
    return min(max((before - change) / loss, -1.0), 1.0)


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
