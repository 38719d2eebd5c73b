"""How a training fits into the memory of its devices: whether the model is split over the ranks, and what is kept.

Small models have their place beside the samples anyway. A benchmark whose model is a large part of the memory says how
large (`LargeModel` in models/benchmarks/__init__.py); then three things are decided here, in this order: whether each
rank has the whole model (DDP) or a share of it (FSDP), whether the backward pass computes the blocks again, and how
many samples fit.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Optional

from models.accelerators import Accelerator
from models.benchmarks import Benchmark, large_model
from models.errors import ImpossibleRequest
from models.settings import Shape
from models.world import World

USED = 0.8  # of the memory, at most


@dataclass(frozen=True)
class MemoryPlan:
    """sharded: whether each rank has a share of the model; recompute: whether the backward pass computes blocks again;
    largest_batch: of samples on a rank, a power of two."""

    sharded: bool
    recompute: bool
    largest_batch: int


def make_plan(
    options: argparse.Namespace,
    benchmark: Benchmark,
    accelerator: Accelerator,
    world: World,
    *,
    dtype: str,
    variant: str,
    shape: Shape,
) -> MemoryPlan:
    """Decide what the options leave open. Raises ImpossibleRequest where the model does not fit.

    Where the size of the memory is unknown, it is taken to hold anything.
    """
    sample = benchmark.sample_bytes(dtype, variant, shape)
    large = large_model(benchmark)
    memory = accelerator.memory_bytes()
    sharing = world.local_size if accelerator.family == "cpu" else 1
    room = None if memory is None else USED * memory / sharing
    if large is None:
        for option, value in (("--shard", options.shard), ("--recompute", options.recompute)):
            if value == "on":
                raise ImpossibleRequest(
                    f"{option} on is for large models, and {options.benchmark} is none: leave it out"
                )
        return MemoryPlan(False, False, _largest(room, sample))

    state = large.state_bytes(dtype, variant)
    recomputed = large.recomputed_bytes(dtype, variant, shape)
    least = sample if options.recompute == "off" else recomputed
    if options.shard == "on" and world.size == 1:
        raise ImpossibleRequest("--shard on: one rank has nobody to share the model with; start more, or leave it out")
    sharded = options.shard == "on"
    if options.shard == "auto" and room is not None and world.size > 1:
        sharded = state + least > room
    if room is not None:
        gathered = large.gathered_bytes(dtype, variant)
        share = state / world.size + gathered if sharded else state
        if share + least > room:
            raise ImpossibleRequest(
                f"{variant} needs {state / 1e9:,.1f} GB for weights, gradients and the optimiser, and each rank "
                f"{least / 1e9:,.1f} GB for a sample; {world.size} rank(s) that may use {room / 1e9:,.1f} GB each "
                f"are too few: {_advice(state, least + gathered, room)}"
            )
        room -= share
    recompute = options.recompute == "on" or (options.recompute == "auto" and room is not None and sample > room)
    return MemoryPlan(sharded, recompute, _largest(room, recomputed if recompute else sample))


def _advice(state: float, sample: float, room: float) -> str:
    if sample >= room:
        return "give a smaller --variant or --shape"
    return f"start {int(state / (room - sample)) + 1} or more, or give a smaller --variant"


def _largest(room: Optional[float], sample_bytes: int) -> int:
    """Return the largest power of two of samples that fit into `room` bytes; at least one."""
    if room is None:
        return 2**30
    return int(2 ** max(0, int(room / sample_bytes).bit_length() - 1))
