"""A benchmark's learning rates in a step that is traced once: as polynomials of the step's number.

Python runs in the first step only, so a rate must be computed by the program from its own count of steps. Any sequence
of rates is cut into the fewest stretches in which a polynomial of degree 2 at most gives every rate.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional

import numpy as np
import torch

from models.errors import ImpossibleRequest

TOLERANCE = 1e-9  # of the largest rate
MOST_STRETCHES = 64  # each adds some operations to the program


class Stretch(NamedTuple):
    """Steps before `end`: the rate is a + b x + c x^2 of x = (step - base) * scale.

    base: the end of the stretch where the rate is lowest, so that nothing cancels in fp32.
    """

    end: int
    base: int
    scale: float
    a: float
    b: float
    c: float

    def rate(self, step: Any) -> Any:
        x = (step - self.base) * self.scale
        return self.a + x * (self.b + x * self.c)


def stretches_of(rate: Callable[[int], float], steps: int) -> List[Stretch]:
    """Return the stretches of steps 0 to `steps` - 1. Raises ImpossibleRequest where there are too many."""
    rates = np.array([rate(step) for step in range(steps)])
    found: List[Stretch] = []
    first = 0
    while first < steps:
        found.append(_longest(rates, first))
        first = found[-1].end
        if len(found) > MOST_STRETCHES:
            raise ImpossibleRequest(
                f"the learning rates of this run are no {MOST_STRETCHES} polynomials of degree 2, and a CS system "
                "computes them in its program; use a GPU for this benchmark"
            )
    return found


def _longest(rates: Any, first: int) -> Stretch:
    """Return the longest stretch from `first` on, if any beginning of a stretch is one, too."""
    fits = _fitted(rates, first, first + 1)
    assert fits is not None  # one rate is a polynomial
    too_long = len(rates) + 1
    while fits.end < len(rates):  # double its length while it fits
        end = min(first + 2 * (fits.end - first), len(rates))
        longer = _fitted(rates, first, end)
        if longer is None:
            too_long = end
            break
        fits = longer
    while fits.end + 1 < too_long and fits.end < len(rates):  # then halve what is left
        middle = (fits.end + too_long) // 2
        longer = _fitted(rates, first, middle)
        if longer is None:
            too_long = middle
        else:
            fits = longer
    return fits


def _fitted(rates: Any, first: int, end: int) -> Optional[Stretch]:
    """Return the polynomial through the first, the middle and the last rate if it gives all the others, too."""
    last = end - 1
    rises = bool(rates[first] <= rates[last])
    base = first if rises else last
    scale = (1.0 if rises else -1.0) / max(1, last - first)
    x = (np.arange(first, end) - base) * scale
    points = sorted({0, (last - first) // 2, last - first})
    coefficients = np.polynomial.polynomial.polyfit(x[points], rates[first:end][points], len(points) - 1)
    a, b, c = [*coefficients.tolist(), 0.0, 0.0][:3]
    stretch = Stretch(end, base, scale, a, b, c)
    wrong = np.abs(stretch.rate(np.arange(first, end)) - rates[first:end]).max()
    return stretch if wrong <= TOLERANCE * np.abs(rates).max() else None


def scheduler_of(cstorch: Any, optimizer: Any, rate: Callable[[int], float], steps: int) -> Any:
    """Return a scheduler of the package that sets the benchmark's rate of each step."""
    stretches = stretches_of(rate, steps)

    def rate_of(step: Any) -> Any:
        count = step.to(torch.get_default_dtype())
        value = stretches[-1].rate(count)
        for stretch in reversed(stretches[:-1]):
            value = torch.where(step < stretch.end, stretch.rate(count), value)
        return value

    class Rates(cstorch.optim.lr_scheduler.LambdaLR):
        """Its documented way: the rate is the initial one times these functions (pytorch/optim/scheduler.py)."""

        def set_value_lambda(self) -> List[Callable[[Any], Any]]:
            return [rate_of]

    return Rates(optimizer, initial_learning_rate=1.0)
