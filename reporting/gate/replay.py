"""Replays the gate over a series' own nights in shuffled order: every red is a false alarm, since the order is chance.

Unlike reporting/gate/power.py this assumes nothing about the noise. A run that repeats have cleared is no red in any
order, since its repeat is what it was.
"""

from __future__ import annotations

import dataclasses
import datetime
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from reporting.gate.comparison import compare
from reporting.gate.estimates import PIN_RUNS
from reporting.gate.quiet import quiet_runs
from reporting.gate.series import CALM, Pin, RunValue, Series, noise_before, pin_of
from reporting.gate.verdict import Kind

ALARMS = frozenset({Kind.DRIFTED, Kind.SLOWER})
LEAST_NIGHTS = 10
"""The order of fewer nights shows nothing."""
BLOCK = 14
"""Nights that stay together in a series with autocorrelation: twice the gate's window.

Single nights in shuffled order remember nothing, so they would say that such a series cries less often than it does.
"""


@dataclass(frozen=True)
class Replay:
    """What the gate said of shuffled nights.

    Attributes:
        nights: how many nights were judged, in all shuffles together.
        drifts: how often a red of the last seven nights together began.
        steps: how often a red of a single run began.
        block: how many nights stayed together.
    """

    nights: int
    drifts: int
    steps: int
    block: int


def replay(series: Series, pin: Pin, shuffles: int) -> Replay | None:
    """Judge a series' quiet runs in shuffled order, so many times; whole nights are shuffled.

    The first 20 runs become the pin each time. The same series has the same answer.

    Returns:
        None for a series of fewer than 10 quiet nights, or of no more runs than a pin has, or whose pin is 0.
    """
    runs = quiet_runs(series, pin)
    if len(runs) <= PIN_RUNS or len({run.night for run in runs}) < LEAST_NIGHTS or pin.level == 0:
        return None
    block = 1
    if noise_before(series, pin, ()).autocorrelation > 0:
        block = BLOCK
    nights = 0
    begun: Counter[Kind] = Counter()
    generator = random.Random(1)
    for _ in range(shuffles):
        order = shuffled(runs, block, generator)
        kinds = judged(dataclasses.replace(series, runs=tuple(order)))
        nights += len({run.night for run in order[PIN_RUNS:]})
        for before, now in pairwise(kinds):
            if now in ALARMS and before not in ALARMS:
                begun[now] += 1
    return Replay(nights, begun[Kind.DRIFTED], begun[Kind.SLOWER], block)


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
        dataclasses.replace(run, night=date, calm=True, judged=True)
        for date, origin in zip(dates, mixed, strict=True)
        for run in by_night[origin]
    ]


def judged(series: Series) -> list[Kind]:
    """What the gate says of each run of a series when it is the last one. A step that repeats have cleared stays so."""
    seen: list[RunValue] = []
    kinds = []
    pin = None
    for run in series.runs:
        if pin is None:
            pin = pin_of(dataclasses.replace(series, runs=tuple(seen)), None)
        kind = Kind.LEARNING
        if pin is not None:
            findings = compare(dataclasses.replace(series, runs=(*seen, run)), pin).findings()
            if series.passed_step(run):
                findings = [found for found in findings if found.kind is not Kind.SLOWER]
            kind = findings[0].kind if findings else Kind.OK
        kinds.append(kind)
        seen.append(dataclasses.replace(run, calm=kind in CALM, judged=True))
    return kinds
