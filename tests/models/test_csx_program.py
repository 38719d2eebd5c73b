"""Programs for Cerebras CS systems: rates and optimisers in a traced step, the input function, and what is refused."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from models.accelerators import choose, csx, refuse
from models.accelerators.csx import Csx
from models.benchmarks import load
from models.command_line import parser
from models.errors import ImpossibleRequest
from models.steps import csx as steps_of_csx
from models.steps.csx_input import TIMED_BATCHES, rate_alone
from models.steps.csx_rates import MOST_STRETCHES, stretches_of
from models.world import World
from tests.models.vendors import CEREBRAS, importable

NO_PACKAGE = (
    "needs cerebras.pytorch, which cannot be imported in .*python3.11 -m venv env-csx .*cerebras-pytorch==2.10.0"
)


@pytest.mark.parametrize(
    ("name", "steps", "steps_per_epoch", "batch", "most"),
    [
        ("resnet50", 14, 16, 4, 2),
        ("resnet50", 150_000, 5_004, 256, 2),  # a rise and a fall
        ("cosmoflow", 2_000, 16, 32, 7),  # four epochs of warm-up, three levels
        ("deepcam", 1_500, 10, 64, 3),
    ],
)
@pytest.mark.slow
def test_each_benchmarks_rates_are_a_few_polynomials(
    name: str, steps: int, steps_per_epoch: int, batch: int, most: int
) -> None:
    schedule = load(name).Schedule(steps, steps_per_epoch, batch)
    stretches = stretches_of(schedule.rate, steps)
    some = [*range(0, steps, max(1, steps // 2000)), steps - 1]
    expected = [schedule.rate(step) for step in some]
    found = [next(stretch for stretch in stretches if step < stretch.end).rate(step) for step in some]
    assert found == pytest.approx(expected, rel=0, abs=2e-9 * max(expected))
    assert len(stretches) <= most


def test_rates_that_are_no_polynomials_are_refused() -> None:
    def rate(step: int) -> float:
        return (step * 7919) % 1009 / 1009

    with pytest.raises(ImpossibleRequest, match=f"no {MOST_STRETCHES} polynomials"):
        stretches_of(rate, 1_000)


@pytest.mark.slow
def test_the_package_has_the_optimiser_of_a_benchmark_or_refuses_it() -> None:
    weights = [torch.nn.Parameter(torch.ones(2))]
    with importable(CEREBRAS):
        package = importlib.import_module("cerebras.pytorch")
        made = steps_of_csx.package_optimizer(package, torch.optim.SGD(weights, lr=0.1, momentum=0.9))
        assert made.defaults["momentum"] == 0.9
        with pytest.raises(ImpossibleRequest, match=r"has no torch\.optim\.adam\.Adam, this benchmark's optimiser"):
            steps_of_csx.package_optimizer(package, torch.optim.Adam(weights))
        with pytest.raises(ImpossibleRequest, match="SGD knows no foreach"):
            steps_of_csx.package_optimizer(package, torch.optim.SGD(weights, lr=0.1, foreach=True))


def test_losses_are_fetched_at_the_edges_of_windows() -> None:
    def every(warmup_steps: int, steps_per_window: int, *, window_s: float = 0.0, traced: bool = False) -> int:
        request: Any = SimpleNamespace(warmup_steps=warmup_steps, steps_per_window=steps_per_window, window_s=window_s)
        return steps_of_csx.steps_between_losses(request, traced)

    assert (every(100, 500), every(100, 5004), every(10, 50), every(7, 5)) == (20, 4, 10, 1)
    assert (every(100, 500, traced=True), every(100, 500, window_s=5.0)) == (1, 1)


# --- the input function


def test_linked_samples_are_mounted_from_where_they_are(tmp_path: Path) -> None:
    there = tmp_path / "volume" / "samples"
    there.mkdir(parents=True)
    here = tmp_path / "data"
    here.mkdir()
    for name in ("1", "2"):
        (there / name).touch()
        (here / name).symlink_to(there / name)
    (here / "3").touch()
    names = ["1", "2", "3"]

    class Data:
        def __len__(self) -> int:
            return len(names)

        def path(self, index: int) -> str:
            return str(here / names[index])

    assert steps_of_csx.folders_of(str(here), Data()) == [str(here), str(there)]


def test_the_input_function_is_timed_after_its_workers_have_started() -> None:
    clock = itertools.count(step=2.0)
    assert rate_alone([(None, range(6))] * 20, now=lambda: next(clock)) == 6 * TIMED_BATCHES / 2.0
    assert rate_alone([(None, range(6))] * TIMED_BATCHES) is None


# --- what is refused


def test_without_the_package_it_says_where_it_comes_from() -> None:
    with pytest.raises(ImpossibleRequest, match=NO_PACKAGE):
        Csx({csx.BACKEND: "CPU"}).select(World())


def test_several_ranks_are_refused() -> None:
    with pytest.raises(ImpossibleRequest, match="2 ranks were started, and one process drives all CS systems"):
        Csx({}).select(World(rank=0, size=2, local_size=2, launcher="torchrun"))


def test_a_backend_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(csx.BACKEND, "GPU")
    with pytest.raises(ImpossibleRequest, match="HPC_ML_BENCH_CSX_BACKEND is CSX or CPU, not 'GPU'"):
        choose("csx")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mode", "blocking"], "--mode blocking: samples are streamed while the system computes"),
        (["--warmup-steps", "0"], "--warmup-steps 0: the first step compiles; use at least 1"),
        (["--inject-stall-s", "1"], "--inject-stall-s: other nodes read the samples"),
        (["--devices-per-replica", "2"], "--devices-per-replica 2: each CS system holds a whole copy"),
    ],
)
def test_what_neither_backend_can_do_is_refused(words: list[str], said: str) -> None:
    options = parser().parse_args(["train", "cosmoflow", "--data-dir", "x", "--device", "csx", *words])
    with pytest.raises(ImpossibleRequest, match=f"--device csx does not take {said}"):
        csx.refuse(options, {csx.BACKEND: "CPU"})


@pytest.mark.parametrize(
    ("on_wafer", "asked", "said"),
    [
        (False, {"accumulation_steps": 2}, "--accumulation-steps 2: the CPU backend trains on a whole batch"),
        (False, {"replicas": 2}, "--replicas 2: the CPU backend has one"),
        (True, {"window_s": 5.0}, "--size quick without --steps-per-window: a run must know its steps"),
    ],
)
def test_what_one_of_the_backends_cannot_do_is_refused(on_wafer: bool, asked: dict[str, Any], said: str) -> None:
    request: Any = SimpleNamespace(
        **{"size": "quick", "window_s": 0.0, "accumulation_steps": 1, "replicas": 1, **asked}
    )
    with pytest.raises(ImpossibleRequest, match=f"--device csx does not take {said}"):
        steps_of_csx.refuse(request, on_wafer)
    steps_of_csx.refuse(request, not on_wafer)


def test_slowing_this_process_on_purpose_is_refused_where_a_cluster_makes_the_steps() -> None:
    """There it would change nothing, and the result would say that it was slowed."""
    line = "train resnet50 --data-dir x --device csx --configuration tuned --inject-slow 2"
    with pytest.raises(ImpossibleRequest, match="does not take --inject-slow: the cluster makes its steps by itself"):
        csx.refuse(parser().parse_args(line.split()), {})
    csx.refuse(parser().parse_args(line.split()), {csx.BACKEND: "CPU"})


@pytest.mark.parametrize("device", ["csx", "ipu"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--compile"], "--compile: that is torch.compile, and its own compiler always runs; leave it out"),
        (["--inject-copy-s", "1"], "--inject-copy-s: its own program copies the batches; leave it out"),
        (["--channels-last", "on"], "--channels-last on: its compiler chooses memory formats; leave it out"),
    ],
)
def test_what_no_device_with_a_compiler_takes_is_refused(device: str, words: list[str], said: str) -> None:
    options = parser().parse_args(["train", "resnet50", "--data-dir", "x", "--device", device, *words])
    with pytest.raises(ImpossibleRequest) as error:
        refuse(options)
    assert str(error.value) == f"--device {device} does not take {said}"


def test_the_loader_alone_is_measured_on_cs_systems_only() -> None:
    words = ["train", "resnet50", "--data-dir", "x", "--measure-loader"]
    with pytest.raises(ImpossibleRequest, match=r"--measure-loader is for csx; .*: leave it out"):
        refuse(parser().parse_args(words))
