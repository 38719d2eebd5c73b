"""The course of a series beside its pin, run by run: when it was lost, when it came back, and how it varies otherwise.

A lasting loss begins when the last seven nights together are beyond their limit. From then on the noise is that of the
runs before it, so a loss cannot widen its own limit. It ends when little of it is left in the last nights, and is
remembered for a week: should those nights have been chance, the same loss goes on.
All of it follows from the values of the runs, and from two things that their stored verdicts say: which runs repeats
have called slow by chance or through a node, and with which limit a loss was red when limits were narrower than today.
Runs since the last seven nights that were at the level are no noise: if they begin a loss, it would hide itself.
"""

from __future__ import annotations

import itertools
import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Self

from reporting.gate import estimates
from reporting.gate.estimates import PIN_RUNS, RETURN, WINDOW_NIGHTS, Noise, Strictness, noise_of, noise_without_memory
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
        seen: the run with which it was first red, or red again.
        limit: of the last seven nights when it was found, as a positive fraction.
        noise: of the runs before it. Their level is the one that the series must come back to.
        window_error: the standard error of the median of the seven nights when it was found.
        sized_from: the first run that its size is of; a later one than `first` if it has become smaller.
        runs: how many these are, up to now.
        below: how far their median is below that level, as a positive fraction; 0 if it is not.
        red_nights: in how many nights it has been red.
        last: the run with which it ended; None while it lasts.
        remembered: until the night with this number it is the same loss if it comes back.
    """

    first: int
    seen: int
    limit: float
    noise: Noise
    window_error: float
    sized_from: int
    runs: int = 0
    below: float = 0.0
    red_nights: int = 1
    last: int | None = None
    remembered: int = 0

    @property
    def size(self) -> float:
        """How large it is taken to be, as a positive fraction."""
        return estimates.size_of_loss(self.below, self.runs, self.limit)

    @property
    def nights(self) -> int:
        """How many of the last nights together tell whether it has ended."""
        return estimates.nights_that_tell(self.window_error, self.size)

    def share_left(self, changes: Sequence[float]) -> float:
        """How much of it some runs still have, on average."""
        return fmean(estimates.share_left(change, self.noise.level, self.size) for change in changes)

    def ends_with(self, changes: Sequence[float]) -> bool:
        """Whether it has ended if the last nights are these changes from the pin."""
        left = self.share_left(changes)
        return left < estimates.LEFT_AT_END and left * self.size <= self.limit


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
        left: how much of the lasting loss is left in the nights that tell, from 0 to 1.
        nights_to_end: so many nights at the level before would end it.
    """

    runs: Sequence[RunValue]
    noise: Noise
    step_limit: float
    losses: Sequence[Loss]
    steps: Sequence[bool]
    window: RecentNights | None
    level_from: int
    left: float = 0.0
    nights_to_end: int = 0

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
    return Walk(series, pin, strictness).to_the_end().course()


def noise_of_level(series: Series, pin: Pin, strictness: Strictness | None = None) -> Noise:
    """The noise of the pin's level, from all runs that were there."""
    walk = Walk(series, pin, strictness or Strictness()).to_the_end()
    return walk.noise_before(len(walk.runs))


@dataclass
class Walk:
    """Goes through the runs of a series in their order; `away` are those that show no noise of the pin's level."""

    series: Series
    pin: Pin
    strictness: Strictness
    losses: list[Loss] = field(default_factory=list)
    steps: list[bool] = field(default_factory=list)
    nights: list[int] = field(default_factory=list)  # the first run of each night
    away: list[bool] = field(default_factory=list)
    level_from: int = 0
    repaired_from: int = 0  # the first run after the last loss; no window begins before it
    ordered: list[float] = field(default_factory=list)  # the changes that show noise, sorted
    ordered_to: int = 0  # which run is the first that they lack, unless it is one of the pin's

    def __post_init__(self) -> None:
        self.runs = self.series.eligible_since(self.pin.first)
        self.changes = self.series.changes(self.runs, self.pin.level)
        of_pin = [] if self.pin.acceptance is not None else learned(self.series)
        ids = {run.run_id for run in of_pin}
        self.of_pin = [run.run_id in ids for run in self.runs]
        self._forget()

    def to_the_end(self) -> Self:
        """Judge all runs."""
        for index in range(len(self.runs)):
            self.go_on(index)
        return self

    def go_on(self, index: int) -> None:
        """Judge the next run as if it were the last one."""
        run = self.runs[index]
        if not self.nights or run.night != self.runs[self.nights[-1]].night:
            self.nights.append(index)
        said = run.said(self.series.metric)
        is_of_pin = self.of_pin[index]
        self.away.append(not is_of_pin and (said.get("kind") in SHOWS_NO_NOISE or bool(said.get("red"))))
        self.steps.append(False)
        if is_of_pin:
            return
        if self.losses:
            lasting = self.losses[-1]
            if lasting.last is None:
                self._go_on_in_loss(index, lasting)
                return
            if self._comes_back(index):
                return
        change = self.changes[index]
        first = self._first_of_window()
        if change >= -estimates.LEAST_STEP and self._is_near(first):  # no limit is less: nothing has to be computed
            self.level_from = max(self.level_from, first)
            return
        window = self._window_change()
        limit_then = self._limit_then(run)
        noise = self._noise_at_least()
        self.steps[index] = change < -estimates.step_limit(noise)
        limit = self._limit_of_window(noise)  # the least that it can be, and mostly the window is at the level by that
        if limit_then is not None or abs(window) > RETURN * limit * estimates.ROUNDED:
            noise = self.noise_before(self.level_from)
            limit = self._limit_of_window(noise)
            if window < -(limit_then or limit):
                began = self._start(window)
                error = estimates.error_of_window(noise, len(self._in_window()))
                self.losses.append(self._sized(Loss(began, index, limit_then or limit, noise, error, began)))
                self._lose(began, index)
                return
        if window > limit or self.steps[index]:
            self.away[index] = True
        if abs(window) <= RETURN * limit:
            self.level_from = max(self.level_from, first)

    def _go_on_in_loss(self, index: int, lasting: Loss) -> None:
        """A run of a lasting loss, which may end with it."""
        self.steps[index] = self.changes[index] < -estimates.step_limit(lasting.noise)
        self.away[index] = True
        changes = self._changes_of(lasting.nights)
        lasting = replace(lasting, red_nights=lasting.red_nights + (index == self.nights[-1]))
        if lasting.ends_with(changes):
            remembered = len(self.nights) + min(lasting.red_nights, WINDOW_NIGHTS)
            self.losses[-1] = replace(lasting, last=index, remembered=remembered)
            self.repaired_from = self.level_from = self.nights[-lasting.nights :][0]
            return
        if lasting.share_left(changes) < estimates.LEFT_AT_END:  # what is left of it is beyond its limit
            lasting = replace(lasting, sized_from=self.nights[-lasting.nights :][0])
        self.losses[-1] = self._sized(lasting)

    def _sized(self, loss: Loss) -> Loss:
        """A loss with the size of its runs up to now."""
        changes = self.changes[loss.sized_from : len(self.away)]
        return replace(loss, runs=len(changes), below=max(loss.noise.level - median(changes), 0.0))

    def _comes_back(self, index: int) -> bool:
        """Whether the last loss goes on with this run although it seemed to have ended."""
        ended = self.losses[-1] if self.losses else None
        if ended is None or len(self.nights) > ended.remembered:
            return False
        since_then = self.changes[self.repaired_from : index + 1]
        if ended.ends_with(self._changes_of(ended.nights)) or ended.ends_with(since_then):
            return False
        self.losses.append(replace(ended, seen=index, last=None))
        self.repaired_from = 0
        self.steps[index] = self.changes[index] < -estimates.step_limit(ended.noise)
        self._lose(ended.first, index)
        return True

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
            left=0.0 if lasting is None else lasting.share_left(self._changes_of(lasting.nights)),
            nights_to_end=0 if lasting is None else self._nights_to_end(lasting),
        )

    def _nights_to_end(self, lasting: Loss) -> int:
        """How many nights at the level before a loss would end it."""
        for more in range(1, lasting.nights):
            kept = self._changes_of(lasting.nights - more)
            if lasting.ends_with([*kept, *[lasting.noise.level] * more * self._each_night()]):
                return more
        return lasting.nights

    def noise_before(self, end: int) -> Noise:
        """The noise of the runs at the pin's level before one; of the pin's own runs if there are no others.

        After an acceptance the noise of the pin before it is kept until 20 runs of the new level are there.
        """
        known = [
            self.changes[index]
            for index in range(len(self.runs))
            if self.of_pin[index] or (index < end and not self.away[index])
        ]
        each_night, tail = self._each_night(), self.strictness.tail
        return self._kept(len(known)) or noise_of(known, each_night=each_night, tail=tail)

    def _noise_at_least(self) -> Noise:
        """The noise before `level_from` without memory and weeks, which only make the errors of several nights larger.

        Its changes are kept sorted, and those of new runs are put where they belong: to sort a year of them in each
        night would take longer than all else.
        """
        for index in range(self.ordered_to, self.level_from):
            if not self.of_pin[index] and not self.away[index]:
                insort(self.ordered, self.changes[index])
        self.ordered_to = self.level_from
        return self._kept(len(self.ordered)) or noise_without_memory(self.ordered, tail=self.strictness.tail)

    def _kept(self, runs: int) -> Noise | None:
        """The noise of the pin before an acceptance, until so many runs of the new level are enough."""
        kept = self.pin.acceptance
        if kept is None or runs >= PIN_RUNS:
            return None
        return Noise(kept.scale, kept.scale, kept.autocorrelation, 0)

    def _forget(self) -> None:
        """Find anew which changes show noise: some that did are of a loss."""
        self.ordered = sorted(itertools.compress(self.changes, self.of_pin))
        self.ordered_to = 0

    def _each_night(self) -> int:
        """How many runs a night has."""
        return max(round(len(self.runs) / max(len(self.nights), 1)), 1)

    def _lose(self, first: int, last: int) -> None:
        for index in range(first, last + 1):
            self.away[index] = True
        self._forget()

    def _first_of_window(self) -> int:
        return max(self.nights[-WINDOW_NIGHTS:][0], self.repaired_from)

    def _changes_of(self, nights: int) -> Sequence[float]:
        """The changes of the runs of the last nights."""
        return self.changes[self.nights[-nights:][0] : len(self.away)]

    def _in_window(self) -> Sequence[RunValue]:
        return self.runs[self._first_of_window() : len(self.away)]

    def _is_near(self, first: int) -> bool:
        """Whether the change of the last nights, whose first run is given, is within the least limit."""
        changes = sorted(self.changes[first : len(self.away)])
        half = len(changes) // 2
        low, high = changes[-half - 1], changes[half]  # the change of the median lies between the two
        least = estimates.LEAST_DRIFT
        return (low >= -least and high <= least) or abs(self._window_change()) <= least

    def _window_change(self) -> float:
        """The change of the last seven nights together; 0 while they are not judged."""
        if not self._is_judged():
            return 0.0
        return self.series.change(median([run.value for run in self._in_window()]), self.pin.level)

    def _is_judged(self) -> bool:
        """Whether enough nights lie after those of the pin, and after the last loss."""
        runs = self._in_window()
        return len({run.night for run in runs if self.pin.last is None or run.night > self.pin.last}) >= DRIFT_NIGHTS

    def _limit_of_window(self, noise: Noise) -> float:
        """How far the last nights together may be from the pin; infinitely far while they are not judged."""
        if not self._is_judged():
            return math.inf
        error = estimates.standard_error_of_change(noise, len(self._in_window()), self.pin.error(noise))
        return estimates.drift_limit(error, self.strictness.errors)

    def _recent_nights(self, noise: Noise) -> RecentNights | None:
        if not self.runs or not self._is_judged():
            return None
        runs = self._in_window()
        pin_error = self.pin.error(noise)
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
