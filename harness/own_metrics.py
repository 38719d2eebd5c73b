"""Checks the metrics that a test passes to `record`: a name, and `(value, unit, direction)`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from platforms.job import Metric, is_judgeable

OURS = ("effective_throughput", "compute_throughput", "compute_fraction")
NAME = re.compile(r"[A-Za-z][\w.:/+-]{0,63}", re.ASCII)
LONGEST_UNIT = 24  # characters


def checked(metrics: Mapping[str, Sequence[object]]) -> dict[str, Metric]:
    """Check metrics as a test writes them, such as `{"triad": (812, "GB/s", "higher")}`.

    Raises ValueError with a sentence on the first that cannot be judged.
    """
    return {name: _metric(name, parts) for name, parts in metrics.items()}


def _metric(name: str, parts: Sequence[object]) -> Metric:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} can be no name of a metric: write a letter, then letters, digits and . _ : / + - (64 at most)"
        )
    if name in OURS:
        raise ValueError(f"{name} is a number of the suite itself: give the metric another name")
    if isinstance(parts, str) or not isinstance(parts, Sequence) or len(parts) != 3:
        raise ValueError(f"{name}: write (value, unit, direction), as in (812, 'GB/s', 'higher'), and not {parts!r}")
    value, unit, better = parts
    if not isinstance(unit, str) or not unit.strip() or len(unit) > LONGEST_UNIT or not unit.isprintable():
        raise ValueError(f"{name}: {unit!r} is no unit: write a short text, such as 'GB/s'")
    if better == "higher":
        return Metric(_number(name, value), unit, "higher")
    if better == "lower":
        return Metric(_number(name, value), unit, "lower")
    raise ValueError(f"{name}: {better!r} is no direction: write 'higher' or 'lower', whichever is better")


def _number(name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not is_judgeable(number) or number <= 0:
        raise ValueError(f"{name}: {value!r} cannot be judged: the value must be above 0, and below 1e150")
    return number
