"""From values and nights to places in a chart: the range that is shown, round ticks and their labels."""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from reporting.report.charts.prose import MINUS

LEAST_SPAN = 0.06
"""Of the level: a change of 2 % then takes a third of the height, and noise of some tenths of a per cent looks calm."""
LATEST = 7  # runs that are always within the range; the gate compares the last seven nights together
OUTER_SHARE = 0.03  # of the values at each end: these alone do not widen the range much
WIDENED = 2.0  # by how much all values together may widen the range; what lies beyond is shown at the edge
MARGIN = 0.06
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
DAY_STEPS = (1, 2, 4, 7, 14, 28)
MONTH_STEPS = (1, 3, 6, 12)
MONTHS_FROM = 100  # nights, beyond which the labels are those of months
LETTER = 7.2  # px, the mean width of a letter of 12 px
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class ValueScale:
    """The values from `low` to `high` stand between `bottom` and `top`, in px; y grows downwards."""

    low: float
    high: float
    top: float
    bottom: float

    def y(self, value: float) -> float:
        """Where a value stands. One that is beyond the range stands at its edge."""
        share = (value - self.low) / (self.high - self.low)
        return self.bottom - min(max(share, 0.0), 1.0) * (self.bottom - self.top)

    def shows(self, value: float) -> bool:
        return self.low <= value <= self.high


def value_range(values: Sequence[float], always: Sequence[float]) -> tuple[float, float]:
    """The lowest and the highest value that a trend shows.

    The noise and a change of 2 % must both be visible. So the range is at least 6 % of the level, and a few values
    that are far from all others do not widen it.

    Args:
        values: of all runs, one at least.
        always: what must be seen whatever it is, such as levels and the last runs.
    """
    ordered = sorted(values)
    outer = int(len(ordered) * OUTER_SHARE)
    core = [ordered[outer], ordered[-1 - outer], *always]
    low, high = min(core), max(core)
    reference = abs(always[0] if always else median(ordered)) or max(abs(low), abs(high)) or 1.0
    span = max(high - low, LEAST_SPAN * reference)
    all_low, all_high = min(low, ordered[0]), max(high, ordered[-1])
    if all_high - all_low <= WIDENED * span:
        low, high = all_low, all_high
    missing = max(span - (high - low), 0.0)
    margin = MARGIN * max(high - low, span) + missing / 2
    return low - margin, high + margin


def round_ticks(low: float, high: float, intervals: int = 5) -> list[float]:
    """About so many round values from low to high: multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / intervals
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.7)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def exponent_of(low: float, high: float) -> int:
    """The power of ten that the unit takes from the labels of a range, a multiple of 3; 0 for everyday numbers."""
    largest = max(abs(low), abs(high))
    return 0 if 1e-2 <= largest < 1e5 else 3 * math.floor(math.log10(largest) / 3)


def tick_labels(ticks: Sequence[float], exponent: int) -> list[str]:
    """Labels of equally spaced ticks, in units of a power of ten."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 10.0 ** (exponent - 1)
    decimals = max(0, -math.floor(math.log10(step / 10.0**exponent) + 1e-9))
    return [f"{tick / 10.0**exponent + 0.0:.{decimals}f}".replace("-", MINUS) for tick in ticks]


def scaled_unit(unit: str, exponent: int) -> str:
    """The unit with its power of ten before it: `10⁶ samples/s`."""
    power = f"10{str(exponent).translate(SUPERSCRIPTS)}" if exponent else ""
    return " ".join(filter(None, [power, unit]))


@dataclass(frozen=True)
class NightScale:
    """The nights from `first` to `last`, both included, in equal steps over the whole width."""

    first: datetime.date
    last: datetime.date

    @property
    def nights(self) -> int:
        return (self.last - self.first).days + 1

    def number(self, night: str) -> int:
        """Of a night; that of the first one is 0."""
        return (datetime.date.fromisoformat(night) - self.first).days

    def percent(self, number: float) -> str:
        """Where a night's middle stands, as `43.2%`."""
        return f"{100 * (number + 0.5) / self.nights:.1f}".rstrip("0").rstrip(".") + "%"

    @lru_cache  # noqa: B019 - the trends of a page have few scales
    def ticks(self, width: float) -> list[tuple[int, str]]:
        """The numbers and the labels of round nights, as many as have room beside each other in so many px."""
        has_days = self.nights <= MONTHS_FROM
        labels: list[tuple[int, str]] = []
        for step in DAY_STEPS if has_days else MONTH_STEPS:
            labels = self._days(step) if has_days else self._months(step)
            if _have_room(labels, width / self.nights):
                return labels
        return labels[-1:]

    def _days(self, step: int) -> list[tuple[int, str]]:
        """The last night, and those before it at this distance."""
        numbers = range((self.nights - 1) % step, self.nights, step)
        return [(number, day(str(self._night(number)), str(self.last))) for number in numbers]

    def _months(self, step: int) -> list[tuple[int, str]]:
        """The first nights of every so many months. January is the year; without one the first label has it."""
        labels = []
        for number in range(self.nights):
            night = self._night(number)
            if night.day == 1 and (night.month - 1) % step == 0:
                labels.append((number, str(night.year) if night.month == 1 else MONTHS[night.month - 1]))
        if labels and not any(label.isdigit() for _number, label in labels):
            labels[0] = (labels[0][0], f"{labels[0][1]} {self._night(labels[0][0]).year}")
        return labels

    def _night(self, number: int) -> datetime.date:
        return self.first + datetime.timedelta(days=number)


def _have_room(labels: Sequence[tuple[int, str]], px_per_night: float) -> bool:
    for (before, left), (after, right) in itertools.pairwise(labels):
        if (after - before) * px_per_night < LETTER * (len(left) + len(right)) / 2 + 10:
            return False
    return True


def day(night: str, beside: str = "") -> str:
    """`17 Nov`; with its year if it is of another year than the night beside it."""
    date = datetime.date.fromisoformat(night)
    text = f"{date.day} {MONTHS[date.month - 1]}"
    return text if beside[:4] == night[:4] else f"{text} {date.year}"
