"""The phases of --decompose: what they leave out, what they cost, and that the windows stay what they were."""

from __future__ import annotations

import hashlib
import itertools
import math
import multiprocessing
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from models import decompose
from models.accelerators.cpu import Cpu
from models.data.synthetic import write_set
from models.data.synthetic_resnet50 import recipe_of
from models.data.thread_loader import ThreadLoader
from models.decompose import Phases, TimedData
from models.errors import ImpossibleRequest
from models.ranks import Ranks
from models.time_limit import MOST_PHASES, check_time
from models.world import World
from tests.injected import training
from tests.models.jobs import Nursery, ranks_of
from tests.models.test_request import resolved


class Slow:
    """A data set whose samples cost processor time, or wait, for some milliseconds."""

    blank = (((1,), torch.float32), ((1,), torch.float32))

    def __init__(self, waits: bool) -> None:
        self.waits = waits

    def fill(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None:
        if self.waits:
            time.sleep(0.05)
        else:
            hashlib.sha256(bytes(4 << 20)).digest()


@pytest.mark.parametrize(("waits", "processor_share"), [(True, (0.0, 0.5)), (False, (0.5, 1.1))])
def test_reading_is_told_apart_into_running_and_waiting(waits: bool, processor_share: tuple[float, float]) -> None:
    data = TimedData(Slow(waits), "thread")
    assert len(list(ThreadLoader(data, [[(0, 0)]] * 4, workers=2, pinned=False))) == 4
    read_s, processor_s, queued_s = data.totals()
    assert read_s >= (4 * 0.05 if waits else 0)
    assert processor_share[0] <= (processor_s + queued_s) / read_s <= processor_share[1]


def test_a_wait_for_a_core_while_the_clocks_are_read_is_no_wait_for_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel gives the core to others where a system call returns, and each clock is one."""
    at = {"wall_s": 0.0, "queued_s": 0.0}
    reads = itertools.count()

    def queued_s() -> float:
        before_s = at["queued_s"]
        if next(reads) % 3 == 1:
            at.update(wall_s=at["wall_s"] + 1, queued_s=before_s + 1)
        return before_s

    monkeypatch.setattr(decompose, "_queued_s", queued_s)
    monkeypatch.setattr(decompose.time, "perf_counter", lambda: at["wall_s"])
    data = TimedData(Slow(waits=False), "thread")
    for _ in range(6):
        data.fill(0, torch.zeros(1), torch.zeros(1))
    read_s, _, waited_s = data.totals()
    assert read_s == waited_s


def test_reading_is_timed_in_a_process_of_the_loader() -> None:
    data = TimedData(Slow(waits=True), "fork")
    cell = torch.zeros(1)
    process = multiprocessing.get_context("fork").Process(target=data.fill, args=(0, cell, cell))
    process.start()
    process.join()
    assert data.totals()[0] > 0.004


@pytest.mark.parametrize(("step_s", "phases_s"), [(1.0, 6 + 5.0), (0.01, 0.06 + 0.5), (30.0, 180 + 10.0)])
def test_the_time_limit_has_room_for_the_phases(step_s: float, phases_s: float) -> None:
    """Windows of at least five seconds, one step at least; a phase has that, or ten seconds and five steps."""
    request = resolved("resnet50", "--size", "quick", family="cpu")
    steps = max(1, min(50, math.ceil(5 / step_s)))
    needed_s = 4.0 + 3 * steps * step_s + MOST_PHASES * phases_s
    check_time(request, elapsed_s=4.0, step_s=step_s, limit_s=needed_s + 1, decompose=True)
    said = f"this run needs about {needed_s:.0f} s .* and --decompose {MOST_PHASES * phases_s:.0f} s; ask for"
    with pytest.raises(ImpossibleRequest, match=said):
        check_time(request, elapsed_s=4.0, step_s=step_s, limit_s=needed_s - 1, decompose=True)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    write_set(str(folder), recipe_of(24, 3, 0), processes=1)
    return folder


@pytest.mark.slow
def test_a_decomposed_run_says_where_each_millisecond_went_and_passes(nursery: Nursery, data: Path) -> None:
    ended = nursery.run(*training(data, "--decompose", "--inject-copy-s", 0.5))
    assert ended.code == 0, ended.errors
    found = ended.value("hpcml_decomposition")
    assert math.fsum(found["parts_ms"].values()) == pytest.approx(found["step_ms"])
    assert found["step_ms"] == pytest.approx(1000 * ended.value("hpcml_summary")["wall_s"] / 2)
    assert found["parts_ms"]["copy"] >= 500
    assert found["phases"]["computing"]["step_ms"] > 0
    assert found["phases"]["loading"]["step_ms"] > 0
    assert len(ended.values("hpcml_window")) == 1


def test_the_computing_phase_trains_on_one_batch_that_is_on_the_device_already(monkeypatch: pytest.MonkeyPatch) -> None:
    copied, trained = [], []
    monkeypatch.setattr(Cpu, "to_device", lambda self, batch: copied.append(batch) or batch)

    class Step(SimpleNamespace):
        def __call__(self, number: int, batch: object) -> None:
            trained.append(batch)

    step: Any = Step(
        copy_delay_s=2.0, micro_batches=1, exchanges=True, batches=lambda: (each for each in ("first", "second"))
    )
    setup: Any = SimpleNamespace(
        request=SimpleNamespace(sharded=False, steps=3, inject=None), accelerator=Cpu(), world=World()
    )
    phases = Phases(step, setup, Ranks(World()), meter=SimpleNamespace(batches_so_far=0))  # type: ignore[arg-type]
    phases.computing()
    phases.computing(exchanges=False)
    assert copied == ["first"]
    assert set(trained) == {"first"}
    assert step.copy_delay_s == 0


@pytest.mark.slow
def test_without_the_option_no_phase_runs(nursery: Nursery, data: Path) -> None:
    assert nursery.run(*training(data)).values("hpcml_decomposition") == []


@pytest.mark.slow
def test_two_ranks_train_without_exchange_and_the_slow_one_is_placed(nursery: Nursery, data: Path) -> None:
    words = training(data, "--decompose", "--inject-slow", 4, "--inject-rank", 1)
    first, second = nursery.together(*((words, environ) for environ in ranks_of("mpich")))
    assert (first.code, second.code) == (0, 0), first.errors + second.errors
    found = first.value("hpcml_decomposition")
    fastest_ms, slowest_ms = found["phases"]["without exchange"]["step_ms"]
    assert slowest_ms > 2 * fastest_ms
    assert found["parts_ms"]["slow rank"] > 0
    assert second.values("hpcml_decomposition") == []


def test_a_loader_that_fails_in_its_phase_costs_no_window() -> None:
    request = SimpleNamespace(sharded=False, batches_per_step=1, batch_of_rank=1)
    setup: Any = SimpleNamespace(request=request, accelerator=Cpu(), warnings=[], data=())  # a set that is gone
    step: Any = SimpleNamespace(copy_delay_s=0.0)
    meter: Any = SimpleNamespace(batches_so_far=0)
    assert Phases(step, setup, Ranks(World()), meter).loading(workers=1) is None
    (warning,) = setup.warnings
    assert warning.startswith("--decompose: the loader alone failed: ")
