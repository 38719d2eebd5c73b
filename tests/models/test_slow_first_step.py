"""A first step that takes long, as while a library searches for algorithms, lets a loader read ahead of the windows.

Loader and device are sleeps, and a sleep never takes less than is asked of it. So the rate of the planted loader is one
that no run exceeds, on whatever machine.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from models.data.process_loader import ProcessLoader
from models.data.sampling import StepSampler
from models.data.thread_loader import ThreadLoader
from models.meter import Meter, Wire

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),  # 3.12 dislikes fork beside any thread
]
at_night = pytest.mark.nightly("models/data/process_loader.py", "models/data/thread_loader.py", "models/meter.py")

LOCAL_BATCH = 16
BATCH_S = 0.04  # of the loader with all of its workers
STEP_S = BATCH_S / 2  # of the device
SLOW_STEP_S = 20 * BATCH_S


class Slow:
    """Samples that take so long to read that `workers` together take BATCH_S for a batch."""

    blank = (((2,), torch.float32), ((), torch.int64))

    def __init__(self, workers: int) -> None:
        self.sample_s = BATCH_S * max(1, workers) / LOCAL_BATCH

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, key: tuple[int, int]) -> tuple[torch.Tensor, int]:
        time.sleep(self.sample_s)
        return torch.zeros(2), 0

    def fill(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None:
        time.sleep(self.sample_s)


def measured(
    kind: str, data: Slow, workers: int, local_batch: int, first_s: float, step_s: float, **counts: int
) -> tuple[list[Any], float]:
    """The windows where the first step takes `first_s` and each other one `step_s`; the seconds after the first one."""
    sampler = StepSampler(len(data), local_batch=local_batch, rank=0, world=1, accumulation=1, seed=0)
    loader = (
        ThreadLoader(data, sampler, workers=workers, pinned=False)
        if kind == "thread"
        else ProcessLoader(data, sampler, local_batch=local_batch, workers=workers, start="fork", pinned=False)
    )
    with Path(os.devnull).open("wb") as file:
        meter = Meter(samples=local_batch, wire=Wire(fd=file.fileno()), folder=None, **counts)
        for step, _ in enumerate(meter.steps(loader)):
            time.sleep(step_s if step else first_s)
            if step == 0:
                begin_s = time.monotonic()
        later_s = time.monotonic() - begin_s
        assert meter.finish() == 0
    return meter._closed, later_s


@pytest.mark.parametrize("kind", ["process", "thread"])
@pytest.mark.parametrize("workers", [1, 4, *(pytest.param(number, marks=at_night) for number in (0, 2, 8, 15))])
def test_the_windows_are_not_served_from_what_a_slow_first_step_let_wait(kind: str, workers: int) -> None:
    counts = {"warmup_steps": 10, "windows": 3, "steps_per_window": 10}
    windows, _ = measured(kind, Slow(workers), workers, LOCAL_BATCH, SLOW_STEP_S, STEP_S, **counts)
    walls = [window["wall_s"] / window["steps"] for window in windows]
    assert sum(walls) / len(walls) > 0.9 * BATCH_S
    assert walls[0] > 0.85 * BATCH_S


@pytest.mark.parametrize("kind", ["process", "thread"])
@pytest.mark.parametrize(
    ("first_step", "loader_s", "lasting_s"),
    [(4, 0.15, 0.3), (4, 0.6, 0.6), pytest.param(1, 0.6, 0.6, marks=at_night)],
)
def test_two_windows_of_one_step_have_the_rate_that_lasts(
    kind: str, first_step: int, loader_s: float, lasting_s: float
) -> None:
    """A step takes 0.3 s. What the loader has read before the windows is read again within them."""
    data = Slow(1)
    data.sample_s = loader_s
    counts = {"warmup_steps": 1, "windows": 2, "steps_per_window": 1}
    windows, later_s = measured(kind, data, 1, 1, first_step * 0.3, 0.3, **counts)
    for window in windows:
        assert window["wall_s"] > 0.85 * lasting_s
        stall_s = window["wall_s"] - window["busy"][0]
        apart_s = abs(window["wait"][0] - stall_s)
        assert apart_s < 0.5 * window["wall_s"]  # the identity holds: what was read again is waiting for data
    assert sum(window["wall_s"] for window in windows) < 1.01 * later_s  # and nothing is counted twice
