"""What the gate can see in one series: which loss it finds within six nights.

The runs of many nights are simulated, with the level, the deviation, the autocorrelation and the outliers that the
series has shown. The gate's limits are applied to them. A step is red only if a repeat is a step, too. The repeat is a
second draw that shares only the level with the first one. docs/gate.md says how well the answers hold.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from reporting.compare.robust import scaled_mad
from reporting.gate import estimates
from reporting.gate.course import noise_of_level
from reporting.gate.estimates import PIN_RUNS, WINDOW_NIGHTS, Noise, Strictness
from reporting.gate.quiet import quiet_runs, runs_per_night
from reporting.gate.series import Pin, Series

NIGHTS = 6
"""A lasting loss is to be found within this many nights."""
CHANCE = 0.8
"""The chance with which `Sight.loss` is found."""
LEAST_LOSS = 0.001
"""No smaller loss is stated."""

TRIALS = 1000
OUTLIER = 3.0  # deviations; a run farther away is no part of the deviation, and is drawn as it is
BEFORE = WINDOW_NIGHTS - 1  # nights that a window shares with those before the first one that is judged


@dataclass(frozen=True)
class Sight:
    """What the gate sees in a series.

    Attributes:
        runs_per_night: how many it has.
        least_losses: of each trial the least lasting loss that is red within six nights, as a fraction; sorted. It is 0
            where the trial is red without a loss.
    """

    runs_per_night: int
    least_losses: tuple[float, ...]

    @property
    def red_without_loss(self) -> float:
        """The chance that six nights are red although nothing has changed."""
        return bisect.bisect_right(self.least_losses, 0.0) / len(self.least_losses)

    def chance(self, loss: float) -> float:
        """The chance that a lasting loss, such as .04, makes six nights red that are not red without it."""
        red = bisect.bisect_left(self.least_losses, loss) / len(self.least_losses)
        return max(red - self.red_without_loss, 0.0)

    def loss(self, chance: float = CHANCE) -> float | None:
        """The lasting loss that has this chance, at least .1 %. None: no loss has it, since the series is too loud."""
        trials = len(self.least_losses)
        wanted = math.ceil((self.red_without_loss + chance) * trials - 1e-9)
        if wanted > trials:
            return None
        return max(self.least_losses[wanted - 1], LEAST_LOSS)


@dataclass(frozen=True)
class _Limits:
    """How far a window's median, and a single run, may be below the pin."""

    drift: float
    step: float


@dataclass(frozen=True)
class _Source:
    """What the simulated runs are drawn from. All are changes from the pin.

    Attributes:
        level: the mean of the runs that are no outliers.
        deviation: their standard deviation.
        autocorrelation: of neighbouring runs.
        outliers: relative to the level.
        outlier_share: how many of the runs are outliers.
    """

    level: float
    deviation: float
    autocorrelation: float
    outliers: Sequence[float]
    outlier_share: float


def sight_of(
    series: Series,
    pin: Pin,
    trials: int = TRIALS,
    strictness: Strictness | None = None,
) -> Sight | None:
    """What the gate sees in a series.

    Args:
        trials: how many series are simulated; a chance is exact to about 1 / sqrt(trials).
        strictness: with which the site's gate judges it; None as for a site with few series.

    Returns:
        None where the pin is 0, or where fewer than 20 runs lie at its level: these say too little about its noise.
    """
    strictness = strictness or Strictness()
    runs = quiet_runs(series, pin, strictness)
    if len(runs) < PIN_RUNS or pin.level == 0:
        return None
    each_night = runs_per_night(runs)
    source = _source_of(series.changes(runs, pin.level))
    limits = _limits(noise_of_level(series, pin, strictness), pin, each_night, strictness)
    alone = dataclasses.replace(source, autocorrelation=0.0)  # a repeat remembers no run before it
    is_repeated = any(run.judged for run in runs)
    least_losses = []
    generator = random.Random(1)  # the same question has the same answer
    nights = (BEFORE + NIGHTS) * each_night
    for _ in range(trials):
        values = _simulated(source, nights, generator)
        repeats = [*values[:1], *values[:-1]]  # where nothing is repeated, the run before decides
        if is_repeated:
            repeats = _simulated(alone, nights, generator)
        confirmed = [max(pair) for pair in zip(values, repeats, strict=True)]  # the better of both decides
        least_losses.append(_least_loss(values, confirmed, limits, each_night))
    return Sight(each_night, tuple(sorted(least_losses)))


def _source_of(changes: Sequence[float]) -> _Source:
    centre = median(changes)
    scale = max(scaled_mad(changes), estimates.LEAST_DEVIATION)
    usual = [change for change in changes if abs(change - centre) <= OUTLIER * scale]
    outliers = [change - centre for change in changes if abs(change - centre) > OUTLIER * scale]
    correlation = estimates.plain_autocorrelation(changes, scale)
    share = 0.0
    if outliers:
        share = (len(outliers) + 0.5) / (len(changes) + 1)  # Jeffreys' estimate: outliers are few
    return _Source(
        level=fmean(usual),
        deviation=stdev(usual),
        autocorrelation=min(max(correlation, 0.0), estimates.HIGHEST_AUTOCORRELATION),
        outliers=outliers,
        outlier_share=share,
    )


def _limits(noise: Noise, pin: Pin, each_night: int, strictness: Strictness) -> _Limits:
    error = estimates.standard_error_of_change(noise, WINDOW_NIGHTS * each_night, pin.error(noise))
    return _Limits(estimates.drift_limit(error, strictness.errors), estimates.step_limit(noise))


def _simulated(source: _Source, runs: int, generator: random.Random) -> list[float]:
    kept = source.autocorrelation
    fresh = math.sqrt(1 - kept * kept)
    normal = generator.gauss(0, 1)
    values = []
    for _ in range(runs):
        normal = kept * normal + fresh * generator.gauss(0, 1)
        if generator.random() < source.outlier_share:
            values.append(source.level + generator.choice(source.outliers))
        else:
            values.append(source.level + source.deviation * normal)
    return values


def _least_loss(values: Sequence[float], confirmed: Sequence[float], limits: _Limits, each_night: int) -> float:
    """The least loss since the seventh night that is red within six nights.

    A window's median is below the limit once more than half of its runs are. So the loss must bring as many of the runs
    since the seventh night there as are lacking; the highest of these needs the largest loss.
    """
    first = BEFORE * each_night
    half = WINDOW_NIGHTS * each_night // 2 + 1
    least = min(confirmed[first : first + NIGHTS * each_night]) + limits.step
    for night in range(1, NIGHTS + 1):
        before = values[(night - 1) * each_night : first]
        since = sorted(values[first : first + night * each_night])
        lacking = half - sum(value < -limits.drift for value in before)
        if lacking <= len(since):
            least = min(least, since[max(lacking, 1) - 1] + limits.drift)
    return max(least, 0.0)
