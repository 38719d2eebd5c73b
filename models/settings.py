"""What a benchmark's configurations and sizes are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

Shape = Tuple[int, ...]


def by(shape: Shape) -> str:
    """As people write it, and --shape takes it: 768x1152."""
    return "x".join(map(str, shape))


@dataclass(frozen=True)
class Configuration:
    """global_batch None: so many samples on each rank as the device holds. dtype auto: the device's best."""

    global_batch: Optional[int]
    dtype: str
    channels_last: bool


@dataclass(frozen=True)
class Size:
    """What is trained on, and how long: optimiser steps to warm up, then windows of so many steps.

    shape: a sample's, without its channels. steps_per_window None: each is an epoch. local_batch: stands above the
    configuration's batch. window_s: a window has more steps where it would be shorter than this, in seconds; 0: never.
    """

    shape: Shape
    warmup_steps: int
    windows: int
    steps_per_window: Optional[int]
    local_batch: Optional[int] = None
    window_s: float = 0.0


# Beside other work the rate of a single step of a second or two scatters by a quarter from run to run.
QUICK_WINDOW_S = 5.0
