"""The course of a series beside its pin, run by run: when it was lost, when it came back, and how it varies otherwise.

A lasting loss begins when the last seven nights together are beyond their limit. From then on the noise is that of the
runs before it, so a loss cannot widen its own limit. It ends when the seven nights are back within a part of the limit.
All of it follows from the values of the runs, and from two things that their stored verdicts say: which runs repeats
have called slow by chance or through a node, and with which limit a loss was red when limits were narrower than today.
Runs since the last seven nights that were at the level are no noise: if they begin a loss, it would hide itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from reporting.gate import estimates
from reporting.gate.estimates import PIN_RUNS, RETURN, WINDOW_NIGHTS, Noise, Strictness, noise_of
from reporting.gate.series import Pin, RunValue, Series, learned
from reporting.gate.verdict import Kind

DRIFT_NIGHTS = 4
"""The last nights are judged once so many lie after those of the pin; a window of the pin's own runs shows nothing."""
# Such a run was away from the pin by chance or through its node, or nobody knows why. It shows no noise of the level.
SHOWS_NO_NOISE = frozenset({Kind.NODE, Kind.TRANSIENT, Kind.SUSPECT})


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


@dataclass(frozen=True)
class Loss:
    """A lasting loss.

    Attributes:
        first: the run with which it began, an index of `Course.runs`.
        seen: the run with which the last seven nights were first beyond the limit.
        limit: of that night, as a positive fraction.
        noise: of the runs before it.
        last: the run with which the last seven nights were back at the level; None while it lasts.
    """

    first: int
    seen: int
    limit: float
    noise: Noise
    last: int | None = None

    @property
    def ends_above(self) -> float:
        """The loss of the last seven nights at which it ends, as a positive fraction."""
        return RETURN * self.limit


@dataclass(frozen=True)
class Course:
    """What a series has done since its pin began.

    Attributes:
        runs: the eligible ones.
        noise: of the runs before the last seven nights that were at the pin's level.
        step_limit: of one run, as a positive fraction.
        losses: the lasting ones, in order.
        steps: of each run, whether it was beyond the limit of one run.
        window: the last seven nights together; None in the first nights after the pin.
        level_from: an index of `runs`: there the last seven nights that were at the pin's level began.
    """

    runs: Sequence[RunValue]
    noise: Noise
    step_limit: float
    losses: Sequence[Loss]
    steps: Sequence[bool]
    window: RecentNights | None
    level_from: int

    @property
    def lasting(self) -> Loss | None:
        """The loss that lasts until now."""
        return _lasting_of(self.losses)

    @property
    def improved(self) -> bool:
        """Whether the last seven nights are better than the pin by more than their limit."""
        return self.window is not None and self.window.change > self.window.limit

    def is_lost(self, index: int) -> bool:
        """Whether a run is one of a lasting loss."""
        return any(loss.first <= index and (loss.last is None or index <= loss.last) for loss in self.losses)

    def was_red(self, index: int) -> bool:
        """Whether the last seven nights were red when a run was the last one."""
        return any(loss.seen <= index and (loss.last is None or index < loss.last) for loss in self.losses)


def _lasting_of(losses: Sequence[Loss]) -> Loss | None:
    """The last loss, if it has not ended."""
    if losses and losses[-1].last is None:
        return losses[-1]
    return None


def course_of(series: Series, pin: Pin, strictness: Strictness) -> Course:
    """The course of a series beside a pin that is not 0."""
    walk = _Walk(series, pin, strictness)
    for index in range(len(walk.runs)):
        walk.go_on(index)
    return walk.course()


def noise_of_level(series: Series, pin: Pin, strictness: Strictness | None = None) -> Noise:
    """The noise of the pin's level, from all runs that were there."""
    walk = _Walk(series, pin, strictness or Strictness())
    for index in range(len(walk.runs)):
        walk.go_on(index)
    return walk.noise_before(len(walk.runs))


@dataclass
class _Walk:
    """Goes through the runs of a series in their order; `away` are those that show no noise of the pin's level."""

    series: Series
    pin: Pin
    strictness: Strictness
    losses: list[Loss] = field(default_factory=list)
    steps: list[bool] = field(default_factory=list)
    nights: list[int] = field(default_factory=list)  # the first run of each night
    away: list[bool] = field(default_factory=list)
    level_from: int = 0

    def __post_init__(self) -> None:
        self.runs = self.series.eligible_since(self.pin.first)
        self.changes = self.series.changes(self.runs, self.pin.level)
        of_pin = [] if self.pin.acceptance is not None else learned(self.series)
        self.of_pin = {run.run_id for run in of_pin}

    def go_on(self, index: int) -> None:
        """Judge the next run as if it were the last one."""
        run = self.runs[index]
        if not self.nights or run.night != self.runs[self.nights[-1]].night:
            self.nights.append(index)
        said = run.said(self.series.metric)
        self.away.append(
            run.run_id not in self.of_pin and (said.get("kind") in SHOWS_NO_NOISE or bool(said.get("red")))
        )
        self.steps.append(False)
        if run.run_id in self.of_pin:
            return
        change = self.changes[index]
        window = self._window_change()
        lasting = _lasting_of(self.losses)
        if lasting is not None:
            self._go_on_in_loss(index, lasting, window)
            return
        far = change < -estimates.LEAST_STEP or abs(window) > estimates.LEAST_DRIFT
        if not far:  # no limit is less than these: nothing has to be computed
            self.level_from = max(self.level_from, self._first_of_window())
            return
        noise = self.noise_before(self.level_from)
        self.steps[index] = change < -estimates.step_limit(noise)
        found = self._recent_nights(noise)
        limit = self._limit_then(run) or (math.inf if found is None else found.limit)
        if window < -limit:
            first = self._start(window)
            self.losses.append(Loss(first, index, limit, noise))
            self._lose(first, index)
            return
        improved = found is not None and window > found.limit
        if improved or self.steps[index]:
            self.away[index] = True
        if found is None or abs(window) <= RETURN * found.limit:
            self.level_from = max(self.level_from, self._first_of_window())

    def _go_on_in_loss(self, index: int, lasting: Loss, window: float) -> None:
        """A run of a lasting loss, which may end with it: the last seven nights are back at the level."""
        self.steps[index] = self.changes[index] < -estimates.step_limit(lasting.noise)
        self._lose(lasting.first, index)
        if window >= -lasting.ends_above:
            self.losses[-1] = replace(lasting, last=index)
            self.level_from = self._first_of_window()

    def _limit_then(self, run: RunValue) -> float | None:
        """The limit with which the last seven nights were red when this run was judged, beside the same level.

        A site that judges more tests from then on has wider limits, and these end no red.
        """
        said = run.said(self.series.metric)
        was_red = said.get("kind") in (Kind.DRIFTED, Kind.ACKNOWLEDGED)
        limit, level = said.get("limit"), said.get("level")
        if not was_red or limit is None or level is None or not math.isclose(level, self.pin.level, rel_tol=1e-6):
            return None
        return float(limit)

    def course(self) -> Course:
        """What was found."""
        lasting = _lasting_of(self.losses)
        noise = lasting.noise if lasting is not None else self.noise_before(self.level_from)
        return Course(
            runs=self.runs,
            noise=noise,
            step_limit=estimates.step_limit(noise),
            losses=self.losses,
            steps=self.steps,
            window=self._recent_nights(noise),
            level_from=self.level_from,
        )

    def noise_before(self, end: int) -> Noise:
        """The noise of the runs at the pin's level before one; of the pin's own runs if there are no others.

        After an acceptance the noise of the pin before it is kept until 20 runs of the new level are there.
        """
        known = [
            self.changes[index]
            for index in range(len(self.runs))
            if self.runs[index].run_id in self.of_pin or (index < end and not self.away[index])
        ]
        kept = self.pin.acceptance
        if kept is not None and len(known) < PIN_RUNS:
            return Noise(kept.scale, kept.scale, kept.autocorrelation, 0)
        each_night = max(round(len(self.runs) / max(len(self.nights), 1)), 1)
        return noise_of(known, each_night=each_night, tail=self.strictness.tail)

    def _lose(self, first: int, last: int) -> None:
        for index in range(first, last + 1):
            self.away[index] = True

    def _first_of_window(self) -> int:
        return self.nights[-WINDOW_NIGHTS:][0]

    def _in_window(self) -> Sequence[RunValue]:
        return self.runs[self._first_of_window() : len(self.away)]

    def _window_change(self) -> float:
        """The change of the last seven nights together; 0 while they are not judged."""
        if not self._is_judged():
            return 0.0
        return self.series.change(median([run.value for run in self._in_window()]), self.pin.level)

    def _is_judged(self) -> bool:
        """Whether enough nights lie after those of the pin."""
        if self.pin.last is None:
            return len(self.nights) >= DRIFT_NIGHTS
        later = {run.night for run in self._in_window() if run.night > self.pin.last}
        return len(later) >= DRIFT_NIGHTS

    def _recent_nights(self, noise: Noise) -> RecentNights | None:
        if not self.runs or not self._is_judged():
            return None
        runs = self._in_window()
        pin_error = estimates.error_of_median(noise, self.pin.runs)
        if self.pin.acceptance is not None:
            pin_error = self.pin.acceptance.error
        error = estimates.standard_error_of_change(noise, len(runs), pin_error)
        value = median([run.value for run in runs])
        return RecentNights(
            runs=tuple(runs),
            value=value,
            change=self.series.change(value, self.pin.level),
            own_error=estimates.error_of_window(noise, len(runs)),
            pin_error=pin_error,
            error=error,
            limit=estimates.drift_limit(error, self.strictness.errors),
        )

    def _start(self, found: float) -> int:
        """Where a loss began: an index. It is not looked for before the last seven nights that were at the level."""
        return start_from(self.series, self.runs[: len(self.away)], self.changes, self.level_from, found)


def start_from(series: Series, runs: Sequence[RunValue], changes: Sequence[float], earliest: int, found: float) -> int:
    """The index of the run with which a change began, not before an earliest one.

    Runs that were slow through a node or by chance do not count, unless the last one is one of them.
    """
    counts_all = series.was_exceptional(runs[-1])
    indexes = [index for index in range(earliest, len(runs)) if counts_all or not series.was_exceptional(runs[index])]
    return indexes[estimates.start_of_change([changes[index] for index in indexes], found)]
