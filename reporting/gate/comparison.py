"""The last run of a series beside its pin: every number that a verdict is made of."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from reporting.gate import estimates
from reporting.gate.estimates import Noise
from reporting.gate.series import Pin, RunValue, Series, noise_before, window_of
from reporting.gate.verdict import Kind

DRIFT_NIGHTS = 4
"""A drift is judged once this many nights lie after those of the pin; a window of the pin's own runs shows nothing."""


@dataclass(frozen=True)
class LevelChange:
    """Something that is away from the pin.

    Attributes:
        value: in the metric's unit: of one run, or of the last seven nights together.
        change: of the value from the pin.
        limit: of the change, as a positive fraction.
        nights: of how many nights together the value is the median; 1 for one run.
    """

    kind: Kind
    value: float
    change: float
    limit: float
    nights: int = 1


@dataclass(frozen=True)
class RecentNights:
    """The last seven nights together.

    Attributes:
        runs: the eligible ones.
        value: their median, in the metric's unit.
        change: of the median from the pin.
        own_error, pin_error, error: the standard errors of the median, of the pin, and of both together.
        limit: of the change.
    """

    runs: tuple[RunValue, ...]
    value: float
    change: float
    own_error: float
    pin_error: float
    error: float
    limit: float

    @property
    def nights(self) -> int:
        """How many nights it has."""
        return len({run.night for run in self.runs})

    @property
    def drifted(self) -> bool:
        """Whether the last seven nights are worse than the pin by more than `limit`."""
        return self.change < -self.limit

    @property
    def improved(self) -> bool:
        """Whether they are better by more than `limit`."""
        return self.change > self.limit


@dataclass(frozen=True)
class Comparison:
    """The last run of a series, and the nights before it, beside the pin.

    Attributes:
        change: of the run from the pin.
        standing: the last eligible run, if it was a step and this run is in doubt: such a run clears no red.
        window: None in the first nights after the pin.
    """

    series: Series
    pin: Pin
    run: RunValue
    change: float
    noise: Noise
    step_limit: float
    standing: RunValue | None
    window: RecentNights | None

    def findings(self) -> list[LevelChange]:
        """What is away from the pin. The first one is the verdict; nothing, if the run is ok."""
        found = []
        step = self.step()
        if step is not None:
            found.append(step)
        if self.window is not None and self.window.drifted:
            found.append(self._of_window(Kind.DRIFTED, self.window))
        if self.window is not None and self.window.improved:
            found.append(self._of_window(Kind.FASTER, self.window))
        return found

    def step(self) -> LevelChange | None:
        """This run, if it is far from the pin; if it is in doubt, the step that still stands."""
        value = self.run.value
        if self.standing is not None:
            value = self.series.worse(value, self.standing.value)
        change = self.series.change(value, self.pin.level)
        if change >= -self.step_limit:
            return None
        return LevelChange(Kind.SLOWER, value, change, self.step_limit)

    @property
    def is_new_step(self) -> bool:
        """Whether this run alone makes the verdict red. A drift and a red that already stands need no repeat."""
        return self.change < -self.step_limit and self.standing is None and not (self.window and self.window.drifted)

    def summary(self) -> LevelChange:
        """What a verdict on a run that is ok says: the last seven nights, or this run before there are enough."""
        if self.window is not None:
            return self._of_window(Kind.OK, self.window)
        return LevelChange(Kind.OK, self.run.value, self.change, self.step_limit)

    def _of_window(self, kind: Kind, window: RecentNights) -> LevelChange:
        return LevelChange(kind, window.value, window.change, window.limit, window.nights)

    def runs_at_level(self) -> list[RunValue]:
        """All runs since the pin began that say where the series is: the eligible ones, and this one if it stepped.

        Earlier runs that were slow through a node or by chance are left out, if there are others.
        """
        eligible = self.series.eligible_since(self.pin.first)
        runs = [run for run in eligible if run is self.run or not self.series.was_exceptional(run)] or eligible
        if not self.run.eligible and self.change < -self.step_limit:
            runs.append(self.run)
        return runs

    def start(self) -> int:
        """Where the change began: an index of `runs_at_level`. Of a step and a drift, the milder loss counts."""
        findings = self.findings()
        found = findings[0].change
        if findings[-1].kind is Kind.DRIFTED:
            found = max(found, findings[-1].change)
        return estimates.start_of_change(self.series.changes(self.runs_at_level(), self.pin.level), found)

    def since(self) -> datetime.date:
        """The first night of the change."""
        return self.runs_at_level()[self.start()].night

    def since_run(self) -> str | None:
        """The run id with which the change began, if earlier runs of that night are without it."""
        runs = self.runs_at_level()
        start = self.start()
        if start == 0 or runs[start - 1].night != runs[start].night:
            return None
        return runs[start].run_id


def compare(series: Series, pin: Pin) -> Comparison:
    """The last run of a series beside its pin."""
    run = series.runs[-1]
    in_window = window_of(series, pin)
    noise = noise_before(series, pin, in_window)
    step_limit = estimates.step_limit(noise)
    standing = None
    if not run.eligible and in_window:
        last = in_window[-1]
        if series.change(last.value, pin.level) < -step_limit and not series.passed_step(last):
            standing = last
    return Comparison(
        series=series,
        pin=pin,
        run=run,
        change=series.change(run.value, pin.level),
        noise=noise,
        step_limit=step_limit,
        standing=standing,
        window=_window(series, pin, in_window, noise),
    )


def _window(series: Series, pin: Pin, runs: Sequence[RunValue], noise: Noise) -> RecentNights | None:
    if pin.last is None:
        later = {run.night for run in runs}
    else:
        later = {run.night for run in runs if run.night > pin.last}
    if len(later) < DRIFT_NIGHTS:
        return None
    if pin.acceptance is None:
        pin_error = estimates.error_of_median(noise, pin.runs)
    else:
        pin_error = pin.acceptance.error
    value = median([run.value for run in runs])
    error = estimates.standard_error_of_change(noise, len(runs), pin_error)
    return RecentNights(
        runs=tuple(runs),
        value=value,
        change=series.change(value, pin.level),
        own_error=estimates.error_of_median(noise, len(runs)),
        pin_error=pin_error,
        error=error,
        limit=estimates.drift_limit(error),
    )
