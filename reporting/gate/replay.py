"""Replays the gate over a series' own nights in shuffled order: every red is a false alarm, since the order is chance.

Unlike reporting/gate/power.py this assumes nothing about the noise. A run that repeats have cleared is no red in any
order, since its repeat is what it was.
"""

from __future__ import annotations

import dataclasses
import datetime
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reporting.gate.course import course_of, noise_of_level
from reporting.gate.estimates import PIN_RUNS, Strictness
from reporting.gate.quiet import quiet_runs
from reporting.gate.series import Pin, RunValue, Series, pin_of
from reporting.gate.verdict import Kind

LEAST_NIGHTS = 10
"""The order of fewer nights shows nothing."""
BLOCK = 14
"""Nights that stay together in a series with autocorrelation: twice the gate's window."""


@dataclass(frozen=True)
class Replay:
    """What the gate said of shuffled nights: how many it judged, in all orders together, and how often a red began."""

    nights: int
    alarms: int


def replay(series: Series, pin: Pin, shuffles: int, strictness: Strictness | None = None) -> Replay | None:
    """Judge a series' quiet runs in shuffled order, so many times; whole nights are shuffled.

    The first 20 runs become the pin each time. The same series has the same answer.

    Returns:
        None for a series of fewer than 10 quiet nights, or of no more runs than a pin has, or whose pin is 0.
    """
    strictness = strictness or Strictness()
    runs = quiet_runs(series, pin, strictness)
    if len(runs) <= PIN_RUNS or len({run.night for run in runs}) < LEAST_NIGHTS or pin.level == 0:
        return None
    block = nights_together(noise_of_level(series, pin, strictness).autocorrelation)
    nights = 0
    alarms = 0
    generator = random.Random(1)
    for _ in range(shuffles):
        order = shuffled(runs, block, generator)
        mixed = dataclasses.replace(series, runs=tuple(order))
        first_pin = pin_of(mixed, None)
        nights += len({run.night for run in order[PIN_RUNS:]})
        if first_pin is not None:
            alarms += sum(1 for _red in begun(mixed, first_pin, strictness))
    return Replay(nights, alarms)


def nights_together(autocorrelation: float) -> int:
    """How many neighbouring nights keep their order.

    Single nights in shuffled order remember nothing, so of a series with autocorrelation they would say that it cries
    less often than it does.
    """
    if autocorrelation > 0:
        return BLOCK
    return 1


def shuffled(runs: Sequence[RunValue], block: int, generator: random.Random) -> list[RunValue]:
    """The same runs with their nights in shuffled order; `block` neighbouring nights stay together."""
    by_night: dict[datetime.date, list[RunValue]] = {}
    for run in runs:
        by_night.setdefault(run.night, []).append(run)
    dates = list(by_night)
    blocks = [dates[first : first + block] for first in range(0, len(dates), block)]
    generator.shuffle(blocks)
    mixed = [date for dates_of_block in blocks for date in dates_of_block]
    return [
        run._replace(night=date, calm=True, judged=True)
        for date, origin in zip(dates, mixed, strict=True)
        for run in by_night[origin]
    ]


def begun(series: Series, pin: Pin, strictness: Strictness) -> Iterator[Kind]:
    """With which reds a series begins to be red, in their order. A step that repeats have cleared is none."""
    course = course_of(series, pin, strictness)
    begins = {loss.seen for loss in course.losses}
    was_red = False
    for index, run in enumerate(course.runs):
        step = course.steps[index] and not series.passed_step(run)
        is_red = step or course.was_red(index)
        if is_red and not was_red:
            if index in begins and not step:
                yield Kind.DRIFTED
            else:
                yield Kind.SLOWER
        was_red = is_red
