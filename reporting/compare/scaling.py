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
NO_BATCH = "not known: the batch is not known"
BOTH_DIFFER = "not known: the global batch and that of each device differ"
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
        efficiency: the throughput of each device as a fraction of that of the smallest layout; None of
            BASE and NEITHER.
        lost: in which parts of the step the rest of the efficiency is, in words.
        doubts: of its runs (docs/history.md).
    """

    layout: str
    devices: int
    kind: Kind
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
    sessions: dict[tuple[str, ...], list[Envelope]] = {}
    for one in sorted(filter(_is_measured, envelopes), key=lambda envelope: envelope.time_s):
        test = (one.platform, one.key.test.partition("[")[0], setting_of(one.key.test), one.trial.label or "")
        sessions.setdefault((*test, one.key.run_id), []).append(one)
    several = {key[:-1]: runs for key, runs in sessions.items() if len({run.layout for run in runs}) > 1}
    return [_scaling(several[test]) for test in sorted(several)]


def _is_measured(envelope: Envelope) -> bool:
    is_whole = envelope.sane and envelope.trial.role is Role.MEASURE and _devices(envelope.layout) > 0
    return is_whole and THROUGHPUT in envelope.metrics and 0 < envelope.metrics[THROUGHPUT].value < math.inf


def _scaling(runs: Sequence[Envelope]) -> Scaling:
    layouts = sorted({run.layout for run in runs}, key=lambda layout: (_devices(layout), layout))
    base, *others = of_layouts = [[run for run in runs if run.layout == layout] for layout in layouts]
    first = base[0]
    notes = [NO_SCALING] if first.fields.get("size") == "smoke" else []
    for one, *_ in others:
        same = [{**run.fields, "layout": "", "devices": ""} for run in (first, one)]
        notes += [f"{one.layout}: {sentence}" for sentence in differences(*same)]
    function = first.key.test.partition("::")[2].partition("[")[0].removeprefix("test_")
    name = " ".join(filter(None, [function, setting_of(first.key.test), first.trial.label]))
    scaled = tuple(_scaled(of_layout, base) for of_layout in of_layouts)
    return Scaling(name, first.platform, first.key.run_id, first.metrics[THROUGHPUT].unit, scaled, tuple(notes))


def _scaled(runs: Sequence[Envelope], base: Sequence[Envelope]) -> ScaledLayout:
    throughput, of_base = (median(run.metrics[THROUGHPUT].value for run in side) for side in (runs, base))
    layout, devices, batch, batch_of_base = runs[0].layout, _devices(runs[0].layout), _batch(runs), _batch(base)
    ratio = devices / _devices(base[0].layout)
    efficiency = None
    kind = Kind.BASE if runs is base else Kind.NEITHER
    lost = "-"
    if kind is Kind.NEITHER and batch and batch_of_base and batch in (batch_of_base, batch_of_base * ratio):
        kind = Kind.STRONG if batch == batch_of_base else Kind.WEAK
        efficiency = throughput / of_base / ratio
        lost = lost_in(*_parts(runs, base), efficiency, batch / batch_of_base / ratio)
        if lost == UNSPLIT and runs[-1].no_split:
            lost = f"{UNSPLIT} ({runs[-1].no_split})"
    elif kind is Kind.NEITHER:
        lost = BOTH_DIFFER if batch and batch_of_base else NO_BATCH
    doubts = tuple(dict.fromkeys(doubt for run in runs for doubt in run.doubts))
    return ScaledLayout(layout, devices, kind, batch, throughput, throughput / of_base, efficiency, lost, doubts)


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
    now, of_base = _medians(runs), _medians(base)
    if EXCHANGE in now and _devices(base[0].layout) == 1:
        of_base.setdefault(EXCHANGE, 0.0)
    is_split = EXCHANGE in now and EXCHANGE in of_base
    for side in (now, of_base):
        exchange = side.pop(EXCHANGE, 0.0)
        if is_split and "step_ms" in side:
            side |= {EXCHANGE: exchange, COMPUTING: side.pop("step_ms") - exchange}
    return now, of_base


def _medians(runs: Sequence[Envelope]) -> dict[str, float]:
    names = [name for name in (*STEP_PARTS, EXCHANGE) if all(name in run.beside for run in runs)]
    return {name: median(run.beside[name].value for run in runs) for name in names}


def _batch(runs: Sequence[Envelope]) -> int | None:
    """The global batch size that all runs have: `32 in 2` is 32."""
    found = {str(run.provenance.get("batch", "")).partition(" ")[0] for run in runs}
    return int(batch) if len(found) == 1 and (batch := found.pop()).isdecimal() else None


def _devices(layout: str) -> int:
    """The devices of a layout; 0 if it is none, as that of an imported run."""
    numbers = _LAYOUT.fullmatch(layout)
    return int(numbers[1]) * int(numbers[2]) if numbers else 0
