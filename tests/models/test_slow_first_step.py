"""A first step that takes long, as while a library searches for algorithms, lets a loader read ahead of the windows.

Loader and device are sleeps, and a sleep never takes less than is asked of it. So the rate of the planted loader is one
that no run exceeds, on whatever machine.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from models.data.process_loader import ProcessLoader
from models.data.sampling import StepSampler
from models.data.thread_loader import ThreadLoader
from models.meter import Meter, Wire

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process:DeprecationWarning"
)  # 3.12 dislikes fork beside any thread

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


@pytest.mark.parametrize("kind", ["process", "thread"])
@pytest.mark.parametrize("workers", [0, 1, 2, 4, 8, 15])
def test_the_windows_are_not_served_from_what_a_slow_first_step_let_wait(
    kind: str, workers: int, tmp_path: Path
) -> None:
    data = Slow(workers)
    sampler = StepSampler(len(data), local_batch=LOCAL_BATCH, rank=0, world=1, accumulation=1, seed=0)
    loader = (
        ThreadLoader(data, sampler, workers=workers, pinned=False)
        if kind == "thread"
        else ProcessLoader(data, sampler, local_batch=LOCAL_BATCH, workers=workers, start="fork", pinned=False)
    )
    with (tmp_path / "log").open("wb") as file:
        windows = {"warmup_steps": 10, "windows": 3, "steps_per_window": 10}
        meter = Meter(samples=LOCAL_BATCH, wire=Wire(fd=file.fileno()), folder=None, **windows)
        for step, _ in enumerate(meter.steps(loader)):
            time.sleep(SLOW_STEP_S if step == 0 else STEP_S)
        assert meter.finish() == 0
    walls = [window["wall_s"] / window["steps"] for window in meter._closed]
    assert sum(walls) / len(walls) > 0.9 * BATCH_S
    assert walls[0] > 0.85 * BATCH_S


@pytest.mark.parametrize("kind", ["process", "thread"])
@pytest.mark.parametrize(("first_step", "loader_s", "lasting_s"), [(1, 0.6, 0.6), (4, 0.6, 0.6), (4, 0.15, 0.3)])
def test_two_windows_of_one_step_have_the_rate_that_lasts(
    kind: str, first_step: int, loader_s: float, lasting_s: float, tmp_path: Path
) -> None:
    """A step takes 0.3 s. What the loader has read before the windows is read again within them."""
    data = Slow(1)
    data.sample_s = loader_s
    sampler = StepSampler(len(data), local_batch=1, rank=0, world=1, accumulation=1, seed=0)
    loader = (
        ThreadLoader(data, sampler, workers=1, pinned=False)
        if kind == "thread"
        else ProcessLoader(data, sampler, local_batch=1, workers=1, start="fork", pinned=False)
    )
    with (tmp_path / "log").open("wb") as file:
        windows = {"warmup_steps": 1, "windows": 2, "steps_per_window": 1}
        meter = Meter(samples=1, wire=Wire(fd=file.fileno()), folder=None, **windows)
        for step, _ in enumerate(meter.steps(loader)):
            time.sleep(0.3 if step else first_step * 0.3)
        assert meter.finish() == 0
    for window in meter._closed:
        assert window["wall_s"] > 0.85 * lasting_s
        stall_s = window["wall_s"] - window["busy"][0]
        assert abs(window["wait"][0] - stall_s) < 0.15  # the identity holds: what was read again is waiting for data
    assert sum(window["wall_s"] for window in meter._closed) < 2 * lasting_s + 0.3  # and nothing is counted twice
