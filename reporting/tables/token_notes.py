"""Lines below a table on runs that count tokens: the rate of one device, and how long a whole training would take."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from platforms.job import Run
from reporting.tables.row import device_count, number, part

DEFINITION = Path(__file__).resolve().parents[2] / "models" / "gpt_definition.json"


def token_notes(runs: Sequence[Run]) -> list[str]:
    """A line on the rate of one device where runs have several, and one for each size of the definition.

    A run whose sequence is not that of its size says nothing about the time of that size.
    """
    of_device: list[float] = []
    hours: dict[str, list[float]] = {}
    for run in runs:
        unit = run.throughput_unit
        rate = unit.of(run.effective_throughput)
        if unit.item != "token" or rate is None:
            continue
        devices = device_count(run) or 1
        if devices > 1:
            of_device.append(rate / devices)
        variant = str(part(run, "request").get("variant"))
        size = _sizes().get(variant)
        if size is not None and size["sequence"] == unit.per_sample:
            hours.setdefault(variant, []).append(size["tokens"] / rate / 3600)
    lines = [f"tokens/s on each device: {_range(of_device, number)}"] if of_device else []
    for variant, times in hours.items():
        tokens = _sizes()[variant]["tokens"]
        rates = "this rate" if len(times) == 1 else "these rates"
        lines.append(f"{variant}: {tokens:,} tokens take {_range(times, _time)} at {rates}")
    return lines


def _range(values: Sequence[float], text: Callable[[float], str]) -> str:
    return " to ".join(dict.fromkeys([text(min(values)), text(max(values))]))


def _time(hours: float) -> str:
    if hours < 1:
        return f"{60 * hours:.1f} min"
    return f"{hours:.1f} h" if hours < 100 else f"{hours / 24:.1f} days"


@cache
def _sizes() -> Mapping[str, Mapping[str, Any]]:
    """What the definition says of each size: `sequence`, and `tokens` of a whole training."""
    sizes: Mapping[str, Mapping[str, Any]] = json.loads(DEFINITION.read_text(encoding="utf-8"))["sizes"]
    return sizes
