"""Simulated series of nights, and rules that judge them: the gate's own, for many series at a time, and others.

benchmarks/gate_simulation.py compares them. tests/reporting/test_gate_rules.py proves that `Gate` gives the verdicts of
the product's functions.
"""

from __future__ import annotations

import copy
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from numpy.typing import NDArray

from reporting.gate import estimates
from reporting.gate.comparison import DRIFT_NIGHTS
from reporting.gate.estimates import PIN_RUNS, WINDOW_NIGHTS

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

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


class Gate:
    """The gate for many series at a time, night by night.

    Attributes:
        level: the pins.
    """

    def __init__(self, pin: Floats) -> None:
        """`pin`: the first 20 nights, an array of series x nights."""
        self.level = np.median(pin, axis=1)
        changes = pin / self.level[:, None] - 1
        self._nights = PIN_RUNS
        self._window = deque(changes.T, maxlen=WINDOW_NIGHTS)
        self._waiting: deque[tuple[Floats, Flags]] = deque()  # nights since the pin that are in the window
        self._calm = np.pad(changes, ((0, 0), (0, 400)), constant_values=np.nan)  # runs of the pin's level, in order
        self._count = np.full(len(pin), PIN_RUNS)
        self._known = np.zeros(len(pin), dtype=bool)  # the last night was red by a step

    def judge(self, value: Floats, repeat: Floats | None = None, least_red: float = 0.0) -> tuple[Flags, Flags]:
        """The next night.

        Args:
            value: of each series.
            repeat: of a second run, which confirms a step unless the night before was red by one. None: none is run.
            least_red: if no repeat is run, a step is red from this loss on.

        Returns:
            Which series are red, and which have a value that is a step.
        """
        change = value / self.level - 1
        self._nights += 1
        self._window.append(change)
        if len(self._waiting) == WINDOW_NIGHTS:
            self._remember(*self._waiting.popleft())
        scale, autocorrelation = self._noise()
        step_limit = np.maximum(estimates.STEP_SCALES * scale, estimates.LEAST_STEP)
        step = change < -step_limit
        confirmed = change <= -least_red
        if repeat is not None:
            confirmed = repeat / self.level - 1 < -step_limit
        drifted = improved = np.zeros_like(step)
        if self._nights >= PIN_RUNS + DRIFT_NIGHTS:
            window = np.median(np.array(self._window), axis=0)
            limit = self._drift_limit(scale, autocorrelation)
            drifted = window < -limit
            improved = window > limit
        self._known = step & (confirmed | drifted | self._known)
        self._waiting.append((change, ~(step | drifted | improved)))
        return self._known | drifted, step

    def _remember(self, change: Floats, calm: Flags) -> None:
        self._calm[calm, self._count[calm]] = change[calm]
        self._count[calm] += 1

    def _noise(self) -> tuple[Floats, Floats]:
        runs = self._count
        calm = self._calm[:, : runs.max()]
        centre = _median(calm, runs)
        deviation = estimates.NORMAL_PER_MAD * _median(np.abs(calm - centre[:, None]), runs)
        uncertainty = estimates.UNCERTAINTY / np.sqrt(runs)
        scale = np.maximum(deviation, estimates.LEAST_DEVIATION) * (1 + uncertainty)
        residuals = np.clip((calm - centre[:, None]) / scale[:, None], -estimates.OUTLIER, estimates.OUTLIER)
        residuals = np.nan_to_num(residuals)
        power = (residuals**2).sum(axis=1) / runs
        raw = (residuals[:, 1:] * residuals[:, :-1]).sum(axis=1) / (runs - 1) / power
        cautious = raw + (1 + 3 * raw) / runs - uncertainty
        return scale, np.clip(cautious, 0, estimates.HIGHEST_AUTOCORRELATION)

    def _drift_limit(self, scale: Floats, autocorrelation: Floats) -> Floats:
        variance = _inflation(autocorrelation, WINDOW_NIGHTS) / WINDOW_NIGHTS
        variance += _inflation(autocorrelation, PIN_RUNS) / PIN_RUNS
        error = estimates.MEDIAN_PER_MEAN * scale * np.sqrt(variance)
        return np.maximum(estimates.DRIFT_ERRORS * error, estimates.LEAST_DRIFT)

    def repeated(self, times: int) -> Gate:
        """Each series with its history as many times, one after another."""
        gate = copy.copy(self)
        gate.level = np.repeat(self.level, times)
        gate._window = deque((np.repeat(change, times) for change in self._window), maxlen=WINDOW_NIGHTS)
        gate._waiting = deque((np.repeat(change, times), np.repeat(calm, times)) for change, calm in self._waiting)
        gate._calm = np.repeat(self._calm, times, axis=0)
        gate._count = np.repeat(self._count, times)
        gate._known = np.repeat(self._known, times)
        return gate


def _median(values: Floats, counts: NDArray[np.int_]) -> Floats:
    """The median of the first numbers of each row; the others are NaN."""
    ordered = np.sort(values, axis=1)
    rows = np.arange(len(values))
    middle: Floats = (ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2
    return middle


def _inflation(autocorrelation: Floats, runs: int) -> Floats:
    lags = np.arange(1, runs)
    inflation: Floats = 1 + 2 * ((1 - lags / runs) * autocorrelation[:, None] ** lags).sum(axis=1)
    return inflation


def gate(values: Floats, repeats: Floats | None = None, least_red: float = 0.0) -> Flags:
    """The gate's red nights; with `repeats` a step is red only if the second run is one, too.

    Args:
        least_red: without repeats, a step is red from this loss on.
    """
    judged = Gate(values[:, :PIN_RUNS])
    red = np.zeros(values.shape, dtype=bool)
    for night in range(PIN_RUNS, values.shape[1]):
        repeat = None if repeats is None else repeats[:, night]
        red[:, night], _ = judged.judge(values[:, night], repeat, least_red)
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
