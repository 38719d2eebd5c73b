"""Quantiles of Student's t distribution, with the standard library alone."""

from __future__ import annotations

import functools
import math

_TINY = 1e-300
_PRECISION = 1e-15
_MOST_TERMS = 10_000
_LARGEST_QUANTILE = 1e9  # that of 1 - 1e-10 with one degree of freedom is 3e9


@functools.lru_cache(maxsize=1024)
def quantile(probability: float, freedom: float) -> float:
    """The value below which Student's t lies with a probability.

    Args:
        probability: from .5 to 1, both excluded, such as .975 for a two-sided interval of 95 %.
        freedom: the degrees of freedom, above 0; they need not be whole.

    Raises ValueError for other arguments.
    """
    if not (0.5 < probability < 1 and freedom > 0):
        raise ValueError(f"no quantile of t for the probability {probability} and {freedom} degrees of freedom")
    low, high = 0.0, 1.0
    while _upper_tail(high, freedom) > 1 - probability and high < _LARGEST_QUANTILE:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _upper_tail(middle, freedom) > 1 - probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _upper_tail(value: float, freedom: float) -> float:
    """How probable it is that t lies above a value, which is not negative."""
    return incomplete_beta(freedom / (freedom + value * value), freedom / 2, 0.5) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b) for x from 0 to 1.

    It is the continued fraction 8.17.22 of the NIST Digital Library of Mathematical Functions. That converges fast for
    x below (a + 1) / (a + b + 2). Beyond this the symmetry I_x(a, b) = 1 - I_1-x(b, a) is used.
    """
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(1 - x, b, a)
    log_factor = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_factor) / a * _continued_fraction(x, a, b)


def _continued_fraction(x: float, a: float, b: float) -> float:
    """1 / (1 + d1 / (1 + d2 / (1 + …))), by the modified method of Lentz."""
    numerator = 1.0
    denominator = 0.0
    value = 1.0
    for term in range(_MOST_TERMS):
        half = term // 2
        if term == 0:
            coefficient = 1.0
        elif term % 2 == 0:
            coefficient = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        else:
            coefficient = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        denominator = 1 + coefficient * denominator
        denominator = 1 / (denominator if abs(denominator) > _TINY else _TINY)
        numerator = 1 + coefficient / numerator
        numerator = numerator if abs(numerator) > _TINY else _TINY
        step = numerator * denominator
        value *= step
        if abs(step - 1) < _PRECISION:
            break
    return value - 1
