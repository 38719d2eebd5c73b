"""Simulated series of nights, and rules that judge them: the gate's own, for many series at a time, and others.

benchmarks/gate_simulation.py compares them. tests/reporting/test_gate_rules.py proves that `Gate` gives the verdicts of
the product's functions.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from numpy.typing import NDArray

from reporting.compare import robust
from reporting.gate import estimates
from reporting.gate.course import DRIFT_NIGHTS
from reporting.gate.estimates import PIN_RUNS, WINDOW_NIGHTS, Strictness
from reporting.gate.judge import COARSE_RUNS

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indexes = NDArray[np.int_]

OUTLIER_SHARE = 0.03
OUTLIER_LOSSES = (0.04, 0.12)
NODES = 8


class Kind(NamedTuple):
    """A kind of noise. A night's value is 1 + noise.

    Attributes:
        deviation: the standard deviation of a night.
        autocorrelation: of a night and the next one.
        node_deviation: of the effects of a series' eight nodes. Each run is on one of them, by chance.
    """

    deviation: float
    autocorrelation: float = 0.0
    node_deviation: float = 0.0

    def __str__(self) -> str:
        words = [f"CV {100 * self.deviation:g} %"]
        if self.autocorrelation:
            words.append(f"autocorrelation {self.autocorrelation:g}")
        if self.node_deviation:
            words.append(f"nodes {100 * self.node_deviation:g} %")
        return ", ".join(words)


@dataclass(frozen=True)
class Population:
    """Series of one kind of noise.

    Attributes:
        nodes: the effects of each series' nodes.
    """

    kind: Kind
    nodes: Floats

    @classmethod
    def of(cls, kind: Kind, series: int, generator: np.random.Generator) -> Population:
        return cls(kind, kind.node_deviation * generator.standard_normal((series, NODES)))

    def nights(self, count: int, generator: np.random.Generator) -> Floats:
        """The values of nights in a row: an array of series x nights."""
        normal = generator.standard_normal((len(self.nodes), count))
        remembered = self.kind.autocorrelation
        for night in range(1, count):
            normal[:, night] *= np.sqrt(1 - remembered**2)
            normal[:, night] += remembered * normal[:, night - 1]
        return 1 + self.kind.deviation * normal + self._nodes_and_outliers(count, generator)

    def repeats(self, count: int, generator: np.random.Generator) -> Floats:
        """The value of a second run in each night. It shares nothing with the first one but the level."""
        normal = generator.standard_normal((len(self.nodes), count))
        return 1 + self.kind.deviation * normal + self._nodes_and_outliers(count, generator)

    def _nodes_and_outliers(self, count: int, generator: np.random.Generator) -> Floats:
        shape = (len(self.nodes), count)
        node = np.take_along_axis(self.nodes, generator.integers(0, NODES, shape), axis=1)
        outlier = generator.random(shape) < OUTLIER_SHARE
        return node - outlier * generator.uniform(*OUTLIER_LOSSES, shape)

    def repeated(self, times: int) -> Population:
        """Each series as many times, one after another."""
        return Population(self.kind, np.repeat(self.nodes, times, axis=0))


class Noises(NamedTuple):
    """The noise of many series, as `estimates.Noise` of one. `weeks` is 0 where a series does not wander."""

    scale: Floats
    autocorrelation: Floats
    weeks: Floats
    tail: Floats
    level: Floats

    def step_limit(self) -> Floats:
        """How far one run may be below the pin."""
        limit: Floats = np.maximum(np.maximum(estimates.STEP_SCALES * self.scale, estimates.LEAST_STEP), self.tail)
        return limit

    def drift_limit(self, strictness: Strictness, nights: Indexes | int = WINDOW_NIGHTS) -> Floats:
        """How far the last nights together may be below the pin."""
        error = np.hypot(self.window_error(nights), self.error_of_median(PIN_RUNS))
        limit: Floats = np.maximum(strictness.errors * error, estimates.LEAST_DRIFT)
        return limit

    def window_error(self, nights: Indexes | int = WINDOW_NIGHTS) -> Floats:
        """The standard error of the median of the last nights."""
        error: Floats = np.maximum(self.error_of_median(nights), self.weeks)
        return error

    def error_of_median(self, runs: Indexes | int) -> Floats:
        """The standard error of the median of so many runs."""
        error: Floats = robust.MEDIAN_PER_MEAN * self.scale * np.sqrt(_inflation(self.autocorrelation, runs) / runs)
        return error


class Ends:
    """When lasting losses end, for many series at a time, as `course.Loss` of one. Other rules replace it.

    The attributes are arrays with a number for each series: of its last loss, as in `course.Loss`.
    """

    def prepare(self, gate: Gate) -> None:
        """A gate begins."""
        count = len(gate.level)
        self.gate = gate
        self.before, self.size = np.zeros(count), np.ones(count)
        self.nights = np.full(count, estimates.MOST_NIGHTS)
        self.sized_from, self.red_nights, self.remembered = (np.zeros(count, dtype=int) for _ in range(3))

    def begun(self, rows: Indexes) -> None:
        """These series have a loss since the present night."""
        self.before[rows] = self.gate.noise.level[rows]
        self.sized_from[rows] = self.gate.first[rows]
        self.red_nights[rows] = 1
        for row in rows:
            self._size(row)

    def ended(self, rows: Indexes) -> Flags:
        """Which of these series, which have a lasting loss, have it no more since the present night."""
        left, ends = self._left(rows, self.nights[rows])
        self.red_nights[rows] += 1
        smaller = (left < estimates.LEFT_AT_END) & ~ends
        for row in rows[smaller]:
            self.sized_from[row] = self.gate.nights - self.nights[row]
        for row in rows[~ends]:
            self._size(row)
        over = rows[ends]
        self.remembered[over] = self.gate.nights + np.minimum(self.red_nights[over], WINDOW_NIGHTS)
        return ends

    def come_back(self, rows: Indexes) -> Flags:
        """Which of these series, which have no lasting loss, have the last one again."""
        again = self.gate.nights <= self.remembered[rows]
        since = self.gate.nights - self.gate.repaired_from[rows[again]]
        again[again] = ~self._left(rows[again], self.nights[rows[again]])[1] & ~self._left(rows[again], since)[1]
        return again

    def _left(self, rows: Indexes, nights: Indexes) -> tuple[Floats, Flags]:
        """How much of its loss each series has in so many last nights, and whether that is its end."""
        changes = self.gate.changes[rows, -int(nights.max(initial=1)) :]
        left = np.clip((self.before[rows, None] - changes) / self.size[rows, None], -1, 1)
        share: Floats = np.cumsum(left[:, ::-1], axis=1)[np.arange(len(rows)), nights - 1] / nights
        return share, (share < estimates.LEFT_AT_END) & (share * self.size[rows] <= self.gate.limit[rows])

    def _size(self, row: int) -> None:
        gate = self.gate
        changes = gate.changes[row, self.sized_from[row] :]
        below = max(self.before[row] - np.median(changes), 0.0)
        self.size[row] = estimates.size_of_loss(below, len(changes), gate.limit[row])
        self.nights[row] = estimates.nights_that_tell(gate.window_error[row], self.size[row])


class Gate:
    """The gate for many series at a time, night by night.

    Attributes:
        level: the pins.
        changes: of all nights from the pins.
        lasting: which series have a lasting loss now.
        first, limit, noise, window_error: of each series' last lasting loss, as in `course.Loss`.
        repaired_from: the first night after it.
    """

    def __init__(self, pin: Floats, strictness: Strictness | None = None, ends: Ends | None = None) -> None:
        """`pin`: the first 20 nights, an array of series x nights."""
        self._strictness = strictness or Strictness()
        self.level = np.median(pin, axis=1)
        count = len(pin)
        self.changes = pin / self.level[:, None] - 1
        self._away = np.zeros(pin.shape, dtype=bool)  # shows no noise of the pin's level
        self._cleared = np.zeros(pin.shape, dtype=bool)  # a repeat has said that it was chance
        self.lasting = np.zeros(count, dtype=bool)
        self.first = np.zeros(count, dtype=int)
        self.limit, self.window_error = np.zeros(count), np.zeros(count)
        self.noise = Noises(*(np.zeros(count) for _ in Noises._fields))
        self._level_from = np.zeros(count, dtype=int)
        self.repaired_from = np.zeros(count, dtype=int)
        self._far = np.zeros(count, dtype=bool)  # the last night was beyond the limit of one run, and was not cleared
        self._red_step = np.zeros(count, dtype=bool)
        self._ends = ends or Ends()
        self._ends.prepare(self)

    @property
    def nights(self) -> int:
        """How many there are."""
        return self.changes.shape[1]

    def judge(self, value: Floats, repeat: Floats | None = None) -> tuple[Flags, Flags]:
        """The next night.

        Args:
            value: of each series.
            repeat: of a second run, which confirms a step unless the night before was red by one. None: none is run.

        Returns:
            Which series are red, and which have a value that is a step.
        """
        change = value / self.level - 1
        self.changes = np.column_stack([self.changes, change])
        was = self.lasting
        ends = _among(was, self._ends.ended)
        again = _among(~was, self._ends.come_back)
        first = np.maximum(self.nights - WINDOW_NIGHTS, self.repaired_from)
        in_window = self.nights - first
        judged = np.minimum(in_window, self.nights - PIN_RUNS) >= DRIFT_NIGHTS
        window = np.where(judged, _median(self._last(WINDOW_NIGHTS, in_window), in_window), 0.0)
        # No limit is less than these, so nothing else has to be computed.
        far = (change < -estimates.RETURN * estimates.LEAST_STEP) | (np.abs(window) > estimates.LEAST_DRIFT)
        rows = np.flatnonzero((far & ~was & ~again) | ends)
        fresh = self.fresh_noises(rows)
        limit, step_limit = np.full(len(change), np.inf), np.full(len(change), np.inf)
        limit[rows], step_limit[rows] = fresh.drift_limit(self._strictness, in_window[rows]), fresh.step_limit()
        kept = (was & ~ends) | again
        step_limit[kept] = self.noise.step_limit()[kept]
        at_rest = ~was & ~again & judged
        begins = at_rest & (window < -limit)
        improved = at_rest & (window > limit)
        near = np.abs(window) <= np.where(far, estimates.RETURN * limit, np.inf)
        at_level = ~was & ~again & ~begins & (near | ~judged)
        self.lasting = kept | begins
        step = self._judge_step(change, repeat, step_limit)
        red = self._red_step | self.lasting
        self._away = np.column_stack([self._away, (change < -step_limit) | step | improved | red])
        self.limit[begins] = limit[begins]
        for mine, found in zip(
            (*self.noise, self.window_error), (*fresh, fresh.window_error(in_window[rows])), strict=True
        ):
            mine[begins] = found[np.searchsorted(rows, np.flatnonzero(begins))]
        for row in np.flatnonzero(begins):
            self.first[row] = self._start(row, window[row])
        self._ends.begun(np.flatnonzero(begins))
        for row in np.flatnonzero(self.lasting | ends):
            self._away[row, max(self.first[row], PIN_RUNS) :] = True
        self._level_from[at_level] = np.maximum(self._level_from, first)[at_level]
        self.repaired_from[ends] = self._level_from[ends] = self.nights - self._ends.nights[ends]
        self.repaired_from[again] = 0
        return red, step

    def _judge_step(self, change: Floats, repeat: Floats | None, limit: Floats) -> Flags:
        """Which series have a value beyond the limit of one run. After such a red the limit is less."""
        step = change < -np.where(self._red_step, estimates.RETURN, 1.0) * limit
        sure = self._red_step | self.lasting
        if repeat is None:
            confirmed = sure | self._far | (change <= -estimates.LARGE)
            cleared = np.zeros_like(step)
        else:
            confirmed = sure | (repeat / self.level - 1 < -limit)
            cleared = step & ~confirmed
        self._red_step = step & confirmed
        self._far = (change < -limit) & ~cleared
        self._cleared = np.column_stack([self._cleared, cleared])
        return step

    def _last(self, nights: int, wanted: Indexes) -> Floats:
        """The changes of the last nights; those before the wanted ones are not a number."""
        changes = self.changes[:, -nights:]
        return np.where(np.arange(nights, 0, -1) <= wanted[:, None], changes, np.nan)

    def fresh_noises(self, rows: Indexes) -> Noises:
        """The noise of some series, from the nights that are judged already."""
        judged = self._away.shape[1]
        known = ~self._away[rows] & (np.arange(judged) < np.maximum(self._level_from[rows], PIN_RUNS)[:, None])
        return noises(self.changes[rows, :judged], known, self._strictness)

    def _start(self, row: int, found: float) -> int:
        """With which night a loss began; nights that a repeat has cleared count only if the last one is one of them."""
        earliest = self._level_from[row]
        counts = ~self._cleared[row, earliest:] | self._cleared[row, -1]
        indexes = earliest + np.flatnonzero(counts)
        return int(indexes[estimates.start_of_change(self.changes[row, indexes].tolist(), float(found))])

    def repeated(self, times: int) -> Gate:
        """Each series with its history as many times, one after another."""
        gate = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(gate, name, np.repeat(value, times, axis=0))
        gate.noise = Noises(*(np.repeat(each, times) for each in self.noise))
        gate._ends = copy.copy(self._ends)
        gate._ends.gate = gate
        for name, value in vars(self._ends).items():
            if isinstance(value, np.ndarray):
                setattr(gate._ends, name, np.repeat(value, times, axis=0))
        return gate


def _among(which: Flags, rule: Callable[[Indexes], Flags]) -> Flags:
    """For which of some series a rule holds."""
    found = np.zeros_like(which)
    found[which] = rule(np.flatnonzero(which))
    return found


def noises(changes: Floats, known: Flags, strictness: Strictness) -> Noises:
    """The noise of the known nights of many series; both are arrays of series x nights."""
    order = np.argsort(~known, axis=1, kind="stable")
    runs = known.sum(axis=1)
    calm = np.take_along_axis(np.where(known, changes, np.nan), order, axis=1)[:, : int(runs.max(initial=0))]
    level = _median(calm, runs)
    distance = calm - level[:, None]
    deviation = robust.NORMAL_PER_MAD * _median(np.abs(distance), runs)
    is_long = runs >= estimates.LONG_RUNS
    if is_long.any():
        slower, faster = _one_sided(-distance), _one_sided(distance)
        faster = faster * (1 + estimates.SKEWED / np.sqrt(runs))
        skewed = is_long & (slower > np.maximum(faster, deviation))
        deviation = np.where(skewed, slower, deviation)
    uncertainty = robust.UNCERTAINTY / np.sqrt(runs)
    scale = np.maximum(deviation, estimates.LEAST_DEVIATION) * (1 + uncertainty)
    residuals = np.nan_to_num(np.clip(distance / scale[:, None], -estimates.OUTLIER, estimates.OUTLIER))
    power = (residuals**2).sum(axis=1) / runs
    raw = (residuals[:, 1:] * residuals[:, :-1]).sum(axis=1) / (runs - 1) / power
    cautious = np.clip(raw + (1 + 3 * raw) / runs - uncertainty, 0, estimates.HIGHEST_AUTOCORRELATION)
    found = Noises(scale, cautious, np.zeros(len(runs)), _tail(calm, runs, strictness.tail), level)
    if not is_long.any():
        return found
    return found._replace(weeks=np.where(is_long, _weeks(calm, runs, found), 0.0))


def _median(values: Floats, counts: NDArray[np.int_]) -> Floats:
    """The median of the first numbers of each row; the others are NaN."""
    ordered = np.sort(values, axis=1)
    rows = np.arange(len(values))
    middle: Floats = (ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2
    return middle


def _one_sided(distance: Floats) -> Floats:
    """The scaled median of the positive distances of each row; 0 where there is none."""
    positive = np.where(distance > 0, distance, np.nan)
    counts = np.isfinite(positive).sum(axis=1)
    found = robust.NORMAL_PER_MAD * _median(positive, np.maximum(counts, 1))
    return np.where(counts > 0, found, 0.0)


def _weeks(calm: Floats, runs: NDArray[np.int_], noise: Noises) -> Floats:
    whole = calm.shape[1] // WINDOW_NIGHTS
    blocks = np.maximum(runs // WINDOW_NIGHTS, 2)
    medians = np.median(np.nan_to_num(calm[:, : whole * WINDOW_NIGHTS]).reshape(len(calm), whole, -1), axis=2)
    inside = np.arange(whole) < blocks[:, None]
    mean = np.where(inside, medians, 0).sum(axis=1) / blocks
    squares = np.where(inside, (medians - mean[:, None]) ** 2, 0).sum(axis=1)
    deviation = np.sqrt(squares / (blocks - 1))
    by_chance = noise.error_of_median(WINDOW_NIGHTS) * (1 + estimates.WANDERS / np.sqrt(2 * (blocks - 1)))
    wanders = (blocks >= estimates.LEAST_BLOCKS) & (deviation > by_chance)
    return np.where(wanders, deviation, 0.0)


def _tail(calm: Floats, runs: NDArray[np.int_], share: float) -> Floats:
    beyond = (share * (runs + 1)).astype(int)
    ordered = np.sort(calm, axis=1)
    last = np.clip(beyond, 1, runs)[:, None] - 1
    found: Floats = np.maximum(-np.take_along_axis(ordered, last, axis=1)[:, 0], 0.0)
    return np.where(beyond < 1, estimates.LARGE, found)


def _inflation(autocorrelation: Floats, runs: Indexes | int) -> Floats:
    count = np.broadcast_to(runs, autocorrelation.shape)[:, None]
    lags = np.arange(1, count.max(initial=1))
    shares = np.maximum(1 - lags / count, 0.0)
    inflation: Floats = 1 + 2 * (shares * autocorrelation[:, None] ** lags).sum(axis=1)
    return inflation


def gate(
    values: Floats, repeats: Floats | None = None, strictness: Strictness | None = None, ends: Ends | None = None
) -> Flags:
    """The gate's red nights. With `repeats` a step is red only if the second run is one, too."""
    judged = Gate(values[:, :PIN_RUNS], strictness, ends)
    red = np.zeros(values.shape, dtype=bool)
    for night in range(PIN_RUNS, values.shape[1]):
        repeat = None if repeats is None else repeats[:, night]
        red[:, night], _ = judged.judge(values[:, night], repeat)
    return red


def learning(values: Floats, repeats: Floats) -> Flags:
    """The red nights of series that have no pin yet; a step is red only if the second run is one, too."""
    red = np.zeros(values.shape, dtype=bool)
    for night in range(COARSE_RUNS, values.shape[1]):
        level = np.median(values[:, :night], axis=1, keepdims=True)
        changes = values[:, :night] / level - 1
        noise = noises(changes, np.ones(changes.shape, dtype=bool), Strictness())
        limit = np.maximum(noise.step_limit(), estimates.LARGE)
        red[:, night] = np.maximum(values[:, night], repeats[:, night]) / level[:, 0] - 1 < -limit
    return red


def reframe(values: Floats) -> Flags:
    """The red nights of ReFrame's usual reference: the mean of the first 20 nights, less 10 %."""
    return values < 0.9 * values[:, :PIN_RUNS].mean(axis=1, keepdims=True)


def last_saved(values: Floats) -> Flags:
    """The red nights of `--benchmark-autosave --benchmark-compare --benchmark-compare-fail=mean:5%`."""
    before = np.roll(values, 1, axis=1)
    red: Flags = before / values > 1.05
    red[:, 0] = False
    return red


def first_saved(values: Floats) -> Flags:
    """The red nights of `--benchmark-compare=0001 --benchmark-compare-fail=mean:5%`."""
    red: Flags = values[:, :1] / values > 1.05
    return red
