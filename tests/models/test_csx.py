"""Cerebras CS systems: learning rates in a traced step, and what is refused without the package or a cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from models.accelerators import choose
from models.accelerators.csx import BACKEND, Csx
from models.accelerators.csx_schedule import MOST_STRETCHES, stretches_of
from models.benchmarks import load
from models.errors import ImpossibleRequest
from models.world import World

NO_PACKAGE = "cerebras.pytorch cannot be imported in .*python3.11 -m venv csx .*cerebras-pytorch==2.10.0"


def computed(rate: Callable[[int], float], steps: int) -> tuple[list[float], int]:
    """Every rate as the program computes it, and of how many stretches."""
    stretches = stretches_of(rate, steps)
    rates = []
    for step in range(steps):
        stretch = next(stretch for stretch in stretches if step < stretch.end)
        rates.append(stretch.rate(step))
    return rates, len(stretches)


@pytest.mark.parametrize(
    ("name", "steps", "steps_per_epoch", "batch", "stretches"),
    [
        ("resnet50", 14, 16, 4, 2),
        ("resnet50", 150_000, 5_004, 256, 2),  # a rise and a fall
        ("cosmoflow", 2_000, 16, 32, 7),  # four epochs of warm-up, three levels
        ("deepcam", 1_500, 10, 64, 3),
    ],
)
def test_each_benchmarks_rates_are_a_few_polynomials(
    name: str, steps: int, steps_per_epoch: int, batch: int, stretches: int
) -> None:
    schedule = load(name).Schedule(steps, steps_per_epoch, batch)
    rates, count = computed(schedule.rate, steps)
    largest = max(schedule.rate(step) for step in range(steps))
    assert rates == pytest.approx([schedule.rate(step) for step in range(steps)], rel=0, abs=2e-9 * largest)
    assert count <= stretches


def test_rates_that_are_no_polynomials_are_refused() -> None:
    def rate(step: int) -> float:
        return (step * 7919) % 1009 / 1009

    with pytest.raises(ImpossibleRequest, match=f"no {MOST_STRETCHES} polynomials"):
        stretches_of(rate, 1_000)


def test_without_the_package_it_says_where_it_comes_from() -> None:
    with pytest.raises(ImpossibleRequest, match=NO_PACKAGE):
        Csx({BACKEND: "CPU"}).select(World())


def test_several_ranks_are_refused() -> None:
    with pytest.raises(ImpossibleRequest, match="2 ranks were started, and one process drives all CS systems"):
        Csx({}).select(World(rank=0, size=2, local_size=2, launcher="torchrun"))


def test_a_backend_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BACKEND, "GPU")
    with pytest.raises(ImpossibleRequest, match="HPC_ML_BENCH_CSX_BACKEND is CSX or CPU, not 'GPU'"):
        choose("csx")
