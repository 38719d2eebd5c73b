"""The last run of a series beside its pin: every number that a verdict is made of."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from reporting.gate import estimates
from reporting.gate.course import DRIFT_NIGHTS, Course, RecentNights, course_of, start_from
from reporting.gate.estimates import RETURN, WINDOW_NIGHTS, Noise, Strictness
from reporting.gate.series import Pin, RunValue, Series
from reporting.gate.verdict import Extent, Kind
from reporting.history.run_facts import FASTEST, NOT_ALONE, THROUGHPUT


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


class Shift(NamedTuple):
    """A lasting loss has become larger or smaller: its change at first, its change now, and since which night."""

    was: float
    now: float
    since: datetime.date


@dataclass(frozen=True)
class Comparison:
    """The last run of a series, and the nights before it, beside the pin.

    Attributes:
        change: of the run from the pin.
        step_limit: how far one run may be below the pin. It is less while a red of the run before it stands.
        standing: the last eligible run, if it was red by itself and this run is in doubt: such a run clears no red.
        again: the last eligible run before this one was beyond the limit of one run, too.
        course: of the eligible runs, with this one if it is eligible.
        strictness: how far beyond chance a number had to be.
    """

    series: Series
    pin: Pin
    run: RunValue
    change: float
    step_limit: float
    standing: RunValue | None
    again: bool
    course: Course
    strictness: Strictness

    @property
    def noise(self) -> Noise:
        """Of the pin's level."""
        return self.course.noise

    @property
    def window(self) -> RecentNights | None:
        """The last seven nights together; None in the first nights after the pin."""
        return self.course.window

    @property
    def window_limit(self) -> float:
        """How far the last seven nights may be below the pin; while they are red, what it was when they became red."""
        if self.course.lasting is not None:
            return self.course.lasting.limit
        return 0.0 if self.window is None else self.window.limit

    def findings(self) -> list[LevelChange]:
        """What is away from the pin. The first one is the verdict; nothing, if the run is ok."""
        found = []
        step = self.step()
        if step is not None:
            found.append(step)
        if self.window is not None and self.course.lasting is not None:
            found.append(self._of_window(Kind.DRIFTED, self.window))
        elif self.window is not None and self.course.improved:
            found.append(self._of_window(Kind.FASTER, self.window))
        return found

    def step(self) -> LevelChange | None:
        """This run, if it is far from the pin; if it is in doubt, the step that still stands."""
        value = self.run.value
        change = self.change
        if self.standing is not None:
            value = self.series.worse(value, self.standing.value)
            change = min(change, self.series.change(self.standing.value, self.pin.level))
        if change >= -self.step_limit:
            return None
        return LevelChange(Kind.SLOWER, value, change, self.step_limit)

    @property
    def is_new_step(self) -> bool:
        """Whether this run alone makes the verdict red. A drift and a red that already stands need no repeat."""
        return self.change < -self.step_limit and self.standing is None and self.course.lasting is None

    def summary(self) -> LevelChange:
        """What a verdict on a run that is ok says: the last seven nights, or this run before there are enough."""
        if self.window is not None:
            return self._of_window(Kind.OK, self.window)
        return LevelChange(Kind.OK, self.run.value, self.change, self.step_limit)

    def _of_window(self, kind: Kind, window: RecentNights) -> LevelChange:
        return LevelChange(kind, window.value, window.change, self.window_limit, window.nights)

    def runs_at_level(self) -> Sequence[RunValue]:
        """All runs since the pin began that say where the series is: the eligible ones, and this one if it stepped."""
        if not self.run.eligible and self.change < -self.step_limit:
            return [*self.course.runs, self.run]
        return self.course.runs

    def start(self) -> int:
        """Where the change began: an index of `runs_at_level`. A lasting loss keeps the start that was found first."""
        runs = self.runs_at_level()
        lasting = self.course.lasting
        if lasting is not None:
            later = range(lasting.first, len(runs))
            return next((index for index in later if not self.series.was_exceptional(runs[index])), lasting.first)
        changes = self.series.changes(runs, self.pin.level)
        return start_from(self.series, runs, changes, self.course.level_from, self.findings()[0].change)

    def extent(self, found: LevelChange) -> Extent:
        """How large a change is since it began; what was found, if every run since then is in doubt."""
        runs = self._runs_since()
        if not runs:
            return Extent(found.value, found.change, found.nights)
        value = median([run.value for run in runs])
        return Extent(value, self.series.change(value, self.pin.level), len({run.night for run in runs}))

    def error(self) -> float:
        """The standard error of what `extent` finds."""
        runs = max(len(self._runs_since()), 1)
        return estimates.standard_error_of_change(self.noise, runs, self.pin.error(self.noise))

    def _runs_since(self) -> list[RunValue]:
        """The runs without doubt since a change began."""
        return [run for run in self.runs_at_level()[self.start() :] if run.eligible]

    def shift(self) -> Shift | None:
        """How a lasting loss has changed by more than its limit since its first nights, seven at most."""
        lasting, window = self.course.lasting, self.window
        if lasting is None or window is None:
            return None
        runs = self.course.runs[lasting.first :]
        end = min(runs[0].night + WINDOW_NIGHTS * datetime.timedelta(days=1), window.runs[0].night)
        at_first = [run for run in runs if run.night < end]
        if len({run.night for run in at_first}) < DRIFT_NIGHTS:
            return None
        was = median(self.series.changes(at_first, self.pin.level))
        error = math.hypot(estimates.error_of_window(self.noise, len(at_first)), window.own_error)
        if abs(window.change - was) <= estimates.drift_limit(error, self.strictness.errors):
            return None
        since_then = [change - was for change in self.series.changes(runs, self.pin.level)]
        start = estimates.start_of_change(since_then, window.change - was)
        return Shift(was, median(self.series.changes(runs[start:], self.pin.level)), runs[start].night)

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


def compare(series: Series, pin: Pin, strictness: Strictness | None = None) -> Comparison:
    """The last run of a series beside its pin.

    Args:
        strictness: how far beyond chance a number must be; None as for a site with few series.
    """
    strictness = strictness or Strictness()
    run = series.runs[-1]
    course = course_of(series, pin, strictness)
    earlier = [one for one in course.runs if one is not run]
    standing = None
    step_limit = course.step_limit
    again = False
    if earlier:
        last = earlier[-1]
        again = course.steps[len(earlier) - 1] and not series.was_exceptional(last)
        is_red = series.was_red_step(last)
        if run.eligible and is_red:
            step_limit *= RETURN
        if not run.eligible and (is_red or (again and not series.passed_step(last))):
            standing = last
    return Comparison(
        series=series,
        pin=pin,
        run=run,
        change=_change_by_itself(series, pin, run),
        step_limit=step_limit,
        standing=standing,
        again=again,
        course=course,
        strictness=strictness,
    )


def _change_by_itself(series: Series, pin: Pin, run: RunValue) -> float:
    """The change of a run from the pin; of its fastest stretch, if others used its node and that is milder."""
    change = series.change(run.value, pin.level)
    if series.metric != THROUGHPUT or NOT_ALONE not in run.envelope.doubts:
        return change
    fastest = run.envelope.beside.get(FASTEST)
    at_level = [one.envelope.beside for one in series.eligible_since(pin.first)[: pin.runs]]
    of_pin = [beside[FASTEST].value for beside in at_level if FASTEST in beside]
    if fastest is None or not of_pin:
        return change
    return max(change, series.change(fastest.value, median(of_pin)))
