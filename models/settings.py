"""The configurations and sizes of a benchmark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional, Tuple

Shape = Tuple[int, ...]


def shape_text(shape: Shape) -> str:
    """Write a shape as people do, and as --shape takes it: 768x1152."""
    return "x".join(map(str, shape))


@dataclass(frozen=True)
class Configuration:
    """How a benchmark is trained.

    global_batch: samples of an optimiser step; None: as many on each rank as its device holds. dtype: `auto` is the
    best one of the device. channels_last: whether inputs and weights have that memory layout. dtype_on: by device
    family, where it trains in another dtype than `dtype`.
    """

    global_batch: Optional[int]
    dtype: str
    channels_last: bool
    dtype_on: Mapping[str, str] = field(default_factory=dict)

    def dtype_of(self, family: str) -> str:
        return self.dtype_on.get(family, self.dtype)


@dataclass(frozen=True)
class Size:
    """On what and for how long a benchmark is trained: optimiser steps to warm up, then windows of steps.

    shape: of a sample, without its channels; None: that of the variant, by the benchmark's `shape_of`.
    steps_per_window: None means that a window is an epoch. local_batch: has precedence over the configuration's batch.
    window_s: a window that would be shorter, in seconds, gets more steps. variant: where none is asked for; None: the
    benchmark's first one.
    """

    shape: Optional[Shape]
    warmup_steps: int
    windows: int
    steps_per_window: Optional[int]
    local_batch: Optional[int] = None
    window_s: float = 0.0
    variant: Optional[str] = None


# Steps of a warm-up and of a window on CS systems. The first steps fill the buffers of the cluster, and a step may last
# only milliseconds.
CSX_STEPS = (100, 500)

# On a processor shared with other work, the rate of a single step of one or two seconds scatters by a quarter.
QUICK_WINDOW_S = 5.0
