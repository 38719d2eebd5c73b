"""How far two groups of numbers differ, with an interval that holds the truth 95 times of 100.

Each number is a logarithm, so that a difference is a relative change. It stands for a session, or for a node: what
varies independently of the others. docs/compare.md has a worked example, benchmarks/compare_coverage.py the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from reporting.compare.student import quantile

CONFIDENCE = 0.95
LEAST = 2  # numbers in a group; one alone does not say how much it varies


@dataclass(frozen=True)
class Interval:
    """A difference of two means, or a mean of differences.

    Attributes:
        difference: of the logarithms.
        error: its standard error.
        freedom: the degrees of freedom of that error.
    """

    difference: float
    error: float
    freedom: float

    @property
    def quantile(self) -> float:
        """How many errors lie between the middle and an end of the interval."""
        return quantile((1 + CONFIDENCE) / 2, self.freedom)

    @property
    def change(self) -> float:
        """The relative change: -.04 is -4 %."""
        return math.expm1(self.difference)

    @property
    def low(self) -> float:
        """The lower end of the interval, as a relative change."""
        return math.expm1(self.difference - self.quantile * self.error)

    @property
    def high(self) -> float:
        """The upper end of the interval, as a relative change."""
        return math.expm1(self.difference + self.quantile * self.error)

    @property
    def excludes_zero(self) -> bool:
        """Whether the change is beyond what chance explains."""
        return self.low > 0 or self.high < 0


def of_two_groups(before: Sequence[float], after: Sequence[float]) -> Interval:
    """The mean of one group less that of the other, by Welch's method: the groups may vary differently.

    Welch's degrees of freedom are too many where one group has two to four numbers and the other one far more. So they
    are at most those of two groups of the smaller size.

    Raises ValueError for a group with fewer than two numbers.
    """
    smaller = min(len(before), len(after))
    if smaller < LEAST:
        raise ValueError(f"a group of {smaller} does not say how much it varies")
    of_before = variance(before) / len(before)
    of_after = variance(after) / len(after)
    most = 2.0 * (smaller - 1)
    total = of_before + of_after
    uncertainty = of_before**2 / (len(before) - 1) + of_after**2 / (len(after) - 1)
    freedom = min(total**2 / uncertainty, most) if uncertainty > 0 else most
    return Interval(fmean(after) - fmean(before), math.sqrt(total), freedom)


def of_pairs(differences: Sequence[float]) -> Interval:
    """The mean of differences that were each seen in one session. Raises ValueError for fewer than two."""
    if len(differences) < LEAST:
        raise ValueError(f"{len(differences)} differences do not say how much they vary")
    error = math.sqrt(variance(differences) / len(differences))
    return Interval(fmean(differences), error, len(differences) - 1)
