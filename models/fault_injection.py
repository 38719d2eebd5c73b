"""Faults on purpose: they show whether the measurement notices a slow loader, copy or rank, and calls it so.

`--inject-stall-s`, `--inject-copy-s`, `--inject-slow`. A run without a fault on this rank pays nothing: its iterables
stay as they are.
"""

from __future__ import annotations

import time
from typing import Any, Iterable, Iterator

from models.accelerators import Accelerator
from models.request import Request


def stalled(batches: Iterable[Any], request: Request, rank: int) -> Iterable[Any]:
    """Return the loader's batches, late by --inject-stall-s for each optimiser step.

    The first batch of a step is late, or a batch of several steps by as many times.
    """
    stall_s = _asked_for("stall_s", request, rank) * request.steps_per_batch
    return _late(batches, stall_s, every=request.batches_per_step) if stall_s else batches


def copy_delay_s(request: Request, rank: int) -> float:
    """Return by how many seconds the copy of each optimiser step is late (--inject-copy-s), 0 without this fault."""
    return _asked_for("copy_s", request, rank)


def delay_copy(delay_s: float, accelerator: Accelerator) -> None:
    """Let the device be idle for `delay_s` after all that it has to do, as while it waits for a copy."""
    accelerator.synchronize()
    time.sleep(delay_s)


def slowed(batches: Iterator[Any], request: Request, rank: int, accelerator: Accelerator) -> Iterator[Any]:
    """Return the meter's batches; computing with each takes --inject-slow times as long."""
    factor = _asked_for("slow", request, rank)
    return _stretched(batches, factor, accelerator) if factor else batches


def _asked_for(fault: str, request: Request, rank: int) -> float:
    """Return the option's value, 0 where the fault was not asked for on this rank."""
    inject = request.inject or {}
    if inject.get("rank", rank) != rank:
        return 0.0
    return inject.get(fault, 0.0)


def _late(batches: Iterable[Any], stall_s: float, every: int) -> Iterator[Any]:
    for number, batch in enumerate(batches):
        if number % every == 0:
            time.sleep(stall_s)
        yield batch


def _stretched(batches: Iterator[Any], factor: float, accelerator: Accelerator) -> Iterator[Any]:
    for batch in batches:
        begin_s = time.perf_counter()
        yield batch
        accelerator.synchronize()
        time.sleep((factor - 1) * (time.perf_counter() - begin_s))
