"""How far two groups of numbers differ, with an interval that holds the truth 95 times of 100.

Each number is a logarithm, so that a difference is a relative change. It stands for a session, or for a node: what
varies independently of the others. docs/compare.md has a worked example, benchmarks/compare_coverage.py the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Literal

from reporting.compare.student import quantile

CONFIDENCE = 0.95
ROUNDED = 1e-9  # a smaller difference of logarithms is that of sums in another order, and no change
LEAST = 2  # numbers in a group; one alone does not say how much it varies


def sign_of(better: str) -> int:
    """1 for a metric whose higher values are the better ones, else -1: times this, a loss is negative."""
    return 1 if better == "higher" else -1


def change_of(difference: float, better: str) -> float:
    """A difference of logarithms as a relative change, as the gate has it: negative is worse, -.04 is 4 % worse."""
    return sign_of(better) * math.expm1(difference)


@dataclass(frozen=True)
class Interval:
    """A difference of two means, or a mean of differences.

    Attributes:
        difference: of the logarithms.
        error: its standard error.
        freedom: the degrees of freedom of that error.
        better: which values are the better ones, so that a negative change is the worse one.
    """

    difference: float
    error: float
    freedom: float
    better: Literal["higher", "lower"] = "higher"

    @property
    def quantile(self) -> float:
        """How many errors lie between the middle and an end of the interval."""
        return quantile((1 + CONFIDENCE) / 2, self.freedom)

    @property
    def change(self) -> float:
        """The relative change; negative is worse."""
        return change_of(self.difference, self.better)

    @property
    def low(self) -> float:
        """The lower end of the interval, as a relative change."""
        return min(self._ends)

    @property
    def high(self) -> float:
        """The upper end of the interval, as a relative change."""
        return max(self._ends)

    @property
    def _ends(self) -> tuple[float, float]:
        reach = self.quantile * self.error
        return change_of(self.difference - reach, self.better), change_of(self.difference + reach, self.better)

    @property
    def verdict(self) -> Literal["slower", "faster", "unclear"]:
        """What it says of the change. `unclear`: chance explains it."""
        if abs(self.difference) <= ROUNDED or self.low <= 0 <= self.high:
            return "unclear"
        return "faster" if self.change > 0 else "slower"


def of_two_groups(before: Sequence[float], after: Sequence[float]) -> Interval:
    """The mean of one group less that of the other, by Welch's method: the groups may vary differently.

    Welch's degrees of freedom are too many where a group has two to five numbers and the other one far more. So they
    are at most those that he gives two groups of these sizes that vary alike.

    Raises ValueError for a group with fewer than two numbers.
    """
    smaller = min(len(before), len(after))
    if smaller < LEAST:
        raise ValueError(f"a group of {smaller} does not say how much it varies")
    of_before = variance(before) / len(before)
    of_after = variance(after) / len(after)
    most = _freedom(1 / len(before), 1 / len(after), len(before), len(after))
    freedom = most
    if of_before + of_after > 0:
        freedom = min(_freedom(of_before, of_after, len(before), len(after)), most)
    return Interval(fmean(after) - fmean(before), math.sqrt(of_before + of_after), freedom)


def _freedom(of_before: float, of_after: float, before: int, after: int) -> float:
    """Welch's degrees of freedom for the squared errors of two means, and the sizes of the two groups."""
    largest = max(of_before, of_after)  # squares of tiny numbers would be 0
    one = of_before / largest
    other = of_after / largest
    return (one + other) ** 2 / (one**2 / (before - 1) + other**2 / (after - 1))


def of_pairs(differences: Sequence[float]) -> Interval:
    """The mean of differences that were each seen in one session. Raises ValueError for fewer than two."""
    if len(differences) < LEAST:
        raise ValueError(f"{len(differences)} differences do not say how much they vary")
    error = math.sqrt(variance(differences) / len(differences))
    return Interval(fmean(differences), error, len(differences) - 1)
