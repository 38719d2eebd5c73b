"""How all reports write a change, a limit, a value, an amount and a list of names."""

from __future__ import annotations

import math
from collections.abc import Sequence

MOST_DECIMALS = 9
LEAST_HUGE = 1e12


NOT_KNOWN = "-"


def percent(fraction: float | None) -> str:
    """A change, with its sign: `-10.8 %`. What is rounded to nothing is `+0.0 %`, never `-0.0 %`; None is `-`."""
    if fraction is None:
        return NOT_KNOWN
    return f"{round(100 * fraction, 1) + 0.0:+.1f} %"


def size(fraction: float | None, decimals: int = 2) -> str:
    """A limit or an error, which has no sign: `0.62 %`; None is `-`."""
    if fraction is None:
        return NOT_KNOWN
    return f"{100 * fraction:.{decimals}f} %"


def number(value: float, level: float) -> str:
    """A value with as many decimals as make four digits of the level that it stands beside."""
    decimals = 3 - math.floor(math.log10(abs(level))) if level else 1
    if decimals > MOST_DECIMALS:
        return f"{value:.4g}"
    return f"{value:.{max(decimals, 0)}f}"


def plain(value: float, digits: int) -> str:
    """A value with so many significant digits, or all those before its point; a huge one has a power of ten."""
    if 10**digits - 0.5 <= abs(value) < LEAST_HUGE:
        return f"{value:.0f}"
    return f"{value:.{digits}g}"


def counted(count: int, one: str, several: str = "") -> str:
    """An amount: `1 test`, `3 tests`. Where an s is not enough, `several` says it: `1 run is`, `2 runs are`."""
    if count == 1:
        return f"1 {one}"
    return f"{count} {several or f'{one}s'}"


def listed(names: Sequence[str], most: int) -> str:
    """The first names of a list, and how many more there are: `n01, n02, n03 and 5 more`."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def spaced(name: str) -> str:
    """The name of a metric as it is printed: `effective throughput`."""
    return name.replace("_", " ")
