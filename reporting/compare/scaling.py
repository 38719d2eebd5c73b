"""How throughput grows with the layout within one session, and in which part of a step the rest is lost."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from platforms.job import Role, setting_of
from reporting.compare.split import PARTS
from reporting.history.comparability import differences
from reporting.history.envelope import Envelope
from reporting.history.run_facts import EXCHANGE, STEP_PARTS, THROUGHPUT
from reporting.phrases import plain, size

LEAST_LOST = 0.02
"""A layout that loses less loses nothing: single runs differ by so much."""
MOST_NAMED = 0.8
"""The largest parts are named until they hold so much of what is lost."""
DISAGREEMENT = 0.2
"""Of the loss: the parts of a step and the throughput may differ in it by so much."""
COMPUTING = "computing_ms"
"""The device step without the exchange of gradients."""
UNSPLIT = "not known"
NAMES: Mapping[str, str] = {**PARTS, EXCHANGE: "exchange of gradients", COMPUTING: "computing"}
NO_SCALING = "smoke: its steps are so short that several ranks mostly wait for each other; it is no measure of scaling"
_LAYOUT = re.compile(r"(\d+)x(\d+)[a-z]*")


class Kind(StrEnum):
    """What a layout shares with the smallest one."""

    BASE = "base"
    """It is the smallest one."""
    WEAK = "weak"
    """The batch of each device."""
    STRONG = "strong"
    """The global batch."""
    NEITHER = "neither"
    """No batch, or it is not known."""


@dataclass(frozen=True)
class ScaledLayout:
    """A layout beside the smallest one of its session.

    Attributes:
        batch: the global batch; None if it is not known.
        throughput: the median of the layout's runs.
        speedup: times that of the smallest layout.
        efficiency: the throughput of each device, as a fraction of that of the smallest layout; None of NEITHER.
        lost: in which parts of the step the rest of the efficiency is, in words.
        doubts: of its runs (docs/history.md).
    """

    layout: str
    devices: int
    kind: Kind
    runs: int
    batch: int | None
    throughput: float
    speedup: float
    efficiency: float | None
    lost: str
    doubts: tuple[str, ...] = ()

    @property
    def of_device(self) -> float:
        return self.throughput / self.devices


@dataclass(frozen=True)
class Scaling:
    """The layouts of one test in one session, the smallest one first.

    Attributes:
        name: of the test within its platform, without a layout: `resnet50 tuned`.
        notes: in what else the layouts differ, and what a reader must know.
    """

    name: str
    platform: str
    run_id: str
    unit: str
    layouts: tuple[ScaledLayout, ...]
    notes: tuple[str, ...] = ()

    @property
    def base(self) -> ScaledLayout:
        return self.layouts[0]


def scalings(envelopes: Sequence[Envelope]) -> list[Scaling]:
    """Of each test that has run in several layouts in one session: the last such session.

    A test in another layout is another test: its id differs in the layout alone. Only runs with numbers count, no
    repeats of suspect runs, no visits and no A/B runs.
    """
    sessions: dict[tuple[object, ...], dict[str, dict[str, list[Envelope]]]] = {}
    for one in sorted(envelopes, key=lambda envelope: envelope.time_s):
        throughput = one.metrics.get(THROUGHPUT)
        is_measured = one.sane and throughput is not None and 0 < throughput.value < math.inf
        if is_measured and one.trial.role is Role.MEASURE and _devices(one.layout):
            function = one.key.test.partition("[")[0]
            test = (one.platform, function, setting_of(one.key.test), one.trial.label, one.key.site)
            runs = sessions.setdefault(test, {}).setdefault(one.key.run_id, {})
            runs.setdefault(one.layout, []).append(one)
    found = []
    for _test, of_test in sorted(sessions.items(), key=lambda item: tuple(map(str, item[0]))):
        several = [of_layout for of_layout in of_test.values() if len(of_layout) > 1]
        if several:
            found.append(_scaling(several[-1]))
    return found


def _scaling(of_layout: Mapping[str, Sequence[Envelope]]) -> Scaling:
    _, *others = ordered = sorted(of_layout.values(), key=lambda runs: (_devices(runs[0].layout), runs[0].layout))
    first = ordered[0][0]
    notes = []
    if first.fields.get("size") == "smoke":
        notes.append(NO_SCALING)
    for runs in others:
        same = [{**run.fields, "layout": "", "devices": ""} for run in (first, runs[0])]
        notes += [f"{runs[0].layout}: {sentence}" for sentence in differences(*same)]
    function = first.key.test.partition("::")[2].partition("[")[0].removeprefix("test_")
    return Scaling(
        name=" ".join(filter(None, [function, setting_of(first.key.test)])),
        platform=first.platform,
        run_id=first.key.run_id,
        unit=first.metrics[THROUGHPUT].unit,
        layouts=tuple(_scaled(runs, ordered[0]) for runs in ordered),
        notes=tuple(notes),
    )


def _scaled(runs: Sequence[Envelope], base: Sequence[Envelope]) -> ScaledLayout:
    throughput, of_base = (median(run.metrics[THROUGHPUT].value for run in side) for side in (runs, base))
    batch, batch_of_base = _batch(runs), _batch(base)
    devices = _devices(runs[0].layout)
    ratio = devices / _devices(base[0].layout)
    speedup = throughput / of_base
    kind = Kind.NEITHER
    efficiency: float | None = speedup / ratio
    if runs is base:
        kind, lost = Kind.BASE, "-"
    elif batch is None or batch_of_base is None:
        efficiency, lost = None, "not known: the batch is not known"
    elif batch == batch_of_base * ratio:
        kind, lost = Kind.WEAK, lost_in(*_parts(runs, base), speedup / ratio, 1.0)
    elif batch == batch_of_base:
        kind, lost = Kind.STRONG, lost_in(*_parts(runs, base), speedup / ratio, 1 / ratio)
    else:
        efficiency, lost = None, "not known: the global batch and that of each device differ"
    if lost == UNSPLIT and runs[-1].no_split:
        lost = f"{UNSPLIT} ({runs[-1].no_split})"
    doubts = tuple(dict.fromkeys(doubt for run in runs for doubt in run.doubts))
    return ScaledLayout(runs[0].layout, devices, kind, len(runs), batch, throughput, speedup, efficiency, lost, doubts)


def lost_in(now: Mapping[str, float], base: Mapping[str, float], efficiency: float, share: float) -> str:
    """In which parts of the step a layout loses, with each one's share of the loss and its ms per step.

    Args:
        now, base: the parts of a step of the layout and of the smallest one, in ms.
        efficiency: by the throughputs.
        share: how much of the time of the smallest layout each part would take without a loss.
    """
    if efficiency > 1 - LEAST_LOST:
        return "nothing"
    step_ms = math.fsum(now.values())
    if now.keys() != base.keys() or not step_ms > 0:
        return UNSPLIT
    lost = {name: now[name] - share * base[name] for name in now}
    difference = math.fsum(lost.values()) / step_ms - (1 - efficiency)
    if not abs(difference) <= DISAGREEMENT * (1 - efficiency):
        return "not known: the parts of the step do not add up to the loss"
    whole = math.fsum(ms for ms in lost.values() if ms > 0)
    named: list[str] = []
    held = 0.0
    for name, ms in sorted(lost.items(), key=lambda item: -item[1]):
        if held < MOST_NAMED * whole:
            named.append(f"{NAMES[name]} {size(ms / whole, 0)} ({plain(ms, 3)} ms)")
            held += ms
    return ", ".join(named)


def _parts(runs: Sequence[Envelope], base: Sequence[Envelope]) -> tuple[dict[str, float], dict[str, float]]:
    """The parts of a step of two layouts in ms, as medians over their runs.

    The exchange of gradients is a part of its own where both know it; a single device exchanges nothing.
    """
    now, of_base = (
        {name: median(run.beside[name].value for run in side) for name in _names(side)} for side in (runs, base)
    )
    if EXCHANGE in now and _devices(base[0].layout) == 1:
        of_base.setdefault(EXCHANGE, 0.0)
    is_split = EXCHANGE in now and EXCHANGE in of_base
    for side in (now, of_base):
        exchange = side.pop(EXCHANGE, 0.0)
        if is_split and "step_ms" in side:
            side |= {EXCHANGE: exchange, COMPUTING: side.pop("step_ms") - exchange}
    return now, of_base


def _names(runs: Sequence[Envelope]) -> list[str]:
    """The parts that all of these runs know."""
    return [name for name in (*STEP_PARTS, EXCHANGE) if all(name in run.beside for run in runs)]


def _batch(runs: Sequence[Envelope]) -> int | None:
    """The global batch size that all runs have: `32 in 2` is 32."""
    found = {str(run.provenance.get("batch", "")).partition(" ")[0] for run in runs}
    return int(batch) if len(found) == 1 and (batch := found.pop()).isdecimal() else None


def _devices(layout: str) -> int:
    """The devices of a layout; 0 if it is none, as that of an imported run."""
    numbers = _LAYOUT.fullmatch(layout)
    return int(numbers[1]) * int(numbers[2]) if numbers else 0
