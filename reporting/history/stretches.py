"""The windows of a run: all of them together, which the gate judges, and the fastest stretch of about five seconds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from platforms.job import Window

SHORTEST_S = 4.0
"""A stretch lasts at least so long. Windows are made to last five seconds; one may become a little shorter."""


def all_windows(windows: Sequence[Window]) -> Window:
    """All windows of a run as one; there is at least one."""
    return reduce(_joined, windows)


def fastest_stretch(windows: Sequence[Window]) -> Window:
    """The stretch with the highest effective throughput, as one window. A run of less than two stretches is one.

    Others' work slows a run down and never speeds it up, so this says what the run was where it was disturbed least.
    """
    return max(stretches(windows), key=lambda stretch: stretch.samples / stretch.wall_s)


def stretches(windows: Sequence[Window]) -> list[Window]:
    """The windows, each joined with those behind it until it lasts SHORTEST_S. What is left joins the last stretch."""
    found: list[Window] = []
    for window in windows:
        if found and found[-1].wall_s < SHORTEST_S:
            found[-1] = _joined(found[-1], window)
        else:
            found.append(window)
    if len(found) > 1 and found[-1].wall_s < SHORTEST_S:
        rest = found.pop()
        found[-1] = _joined(found[-1], rest)
    return found


def _joined(first: Window, second: Window) -> Window:
    return Window(
        samples=first.samples + second.samples,
        steps=first.steps + second.steps,
        wall_s=first.wall_s + second.wall_s,
        stall_s=_sum(first.stall_s, second.stall_s),
        compute_s=_sum(first.compute_s, second.compute_s),
        stall_h2d_s=_sum(first.stall_h2d_s, second.stall_h2d_s),
    )


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
