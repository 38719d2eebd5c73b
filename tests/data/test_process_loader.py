"""Processes share each batch: the batches are those of torch's loader, and few of them wait, however many processes."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from models.data.process_loader import AHEAD, ProcessLoader
from models.data.sampling import StepSampler
from models.data.thread_loader import ThreadLoader, sample
from models.errors import CommandError, DataCorrupt
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings(
    "ignore:This process:DeprecationWarning"
)  # 3.12 dislikes fork beside any thread


class Counted:
    """Samples of six numbers; each one that was begun is a byte in a file, whichever process began it."""

    blank = (((2, 3), torch.float32), ((), torch.int64))

    def __init__(self, folder: Path) -> None:
        self.begun = folder / "begun"
        self.begun.touch()

    def count(self) -> int:
        return self.begun.stat().st_size

    def __getitem__(self, key: tuple[int, int]) -> tuple[torch.Tensor, int]:
        inputs, target = sample(self, key[1])
        return inputs, int(target)

    def fill(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None:
        with self.begun.open("ab") as file:
            file.write(b".")
        x.numpy()[:] = index
        y.numpy()[...] = index


class Killed(Counted):
    """Its sample 9 takes the process that reads it with it, as the kernel does where memory is short."""

    def fill(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None:
        if index == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        super().fill(index, x, y)


class Broken(Counted):
    def fill(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None:
        if index == 9:
            raise DataCorrupt("sample 9 is cut off")
        super().fill(index, x, y)


def in_order(local_batch: int, batches: int) -> list[list[tuple[int, int]]]:
    return [[(0, number * local_batch + index) for index in range(local_batch)] for number in range(batches)]


def process_loader(data: Counted, sampler: object, local_batch: int, workers: int) -> ProcessLoader:
    return ProcessLoader(data, sampler, local_batch=local_batch, workers=workers, start="fork", pinned=False)  # type: ignore[arg-type]


def thread_loader(data: Counted, sampler: object, local_batch: int, workers: int) -> ThreadLoader:
    return ThreadLoader(data, sampler, workers=workers, pinned=False)  # type: ignore[arg-type]


at_night = pytest.mark.nightly("models/data/process_loader.py", "models/data/thread_loader.py")
LOADERS = pytest.mark.parametrize("make", [process_loader, thread_loader])


@LOADERS
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("local_batch", [1, 4, 7])
@pytest.mark.slow
def test_the_batches_are_those_of_torchs_loader(tmp_path: Path, make: object, workers: int, local_batch: int) -> None:
    data, sampler = Counted(tmp_path), StepSampler(24, local_batch=local_batch, rank=0, world=1, accumulation=1, seed=0)
    expected = itertools.islice(torch.utils.data.DataLoader(data, batch_sampler=sampler), 9)  # type: ignore[arg-type]
    found = itertools.islice(make(data, sampler, local_batch, workers), 9)  # type: ignore[operator]
    for (inputs, targets), (same_inputs, same_targets) in zip(expected, found, strict=True):
        assert torch.equal(inputs, same_inputs)
        assert torch.equal(targets, same_targets)
        assert (inputs.dtype, targets.dtype) == (same_inputs.dtype, same_targets.dtype)


def test_batches_of_several_lengths_keep_theirs(tmp_path: Path) -> None:
    sampler = [[(0, 1)], [(0, 2), (0, 3), (0, 4)], [(0, 5), (0, 6)]]
    found = list(process_loader(Counted(tmp_path), sampler, 3, 2))
    assert [targets.tolist() for _, targets in found] == [[1], [2, 3, 4], [5, 6]]


@LOADERS
@pytest.mark.parametrize("workers", [0, 1, 4, *(pytest.param(number, marks=at_night) for number in (2, 8, 15))])
@pytest.mark.slow
def test_few_batches_wait_for_a_consumer_that_stands_still(tmp_path: Path, make: object, workers: int) -> None:
    """As in a slow first step: what is read then is consumed later, faster than the workers read."""
    data, local_batch = Counted(tmp_path), 16
    batches = iter(make(data, in_order(local_batch, 100), local_batch, workers))  # type: ignore[operator]
    next(batches)
    most = (1 + AHEAD) * local_batch if workers else local_batch
    until(lambda: data.count() == most, f"{data.count()} samples are read, not {most}")
    time.sleep(0.1)
    assert data.count() == most


@LOADERS
@pytest.mark.slow
def test_every_worker_has_a_sample_where_a_batch_has_fewer(tmp_path: Path, make: object) -> None:
    data, local_batch, workers = Counted(tmp_path), 2, 15
    batches = iter(make(data, in_order(local_batch, 100), local_batch, workers))  # type: ignore[operator]
    next(batches)
    until(lambda: data.count() >= workers)
    time.sleep(0.1)
    assert data.count() <= workers + 2 * local_batch + 1


def test_an_error_keeps_its_type_and_comes_in_the_place_of_its_batch(tmp_path: Path) -> None:
    batches = iter(process_loader(Broken(tmp_path), in_order(4, 100), 4, 2))
    assert next(batches)[1].tolist() == [0, 1, 2, 3]
    assert next(batches)[1].tolist() == [4, 5, 6, 7]
    with pytest.raises(DataCorrupt, match="sample 9 is cut off"):
        next(batches)


def test_the_processes_end_with_the_iterator(tmp_path: Path) -> None:
    before = set(multiprocessing.active_children())
    batches = iter(process_loader(Counted(tmp_path), in_order(4, 100), 4, 3))
    next(batches)
    assert len(set(multiprocessing.active_children()) - before) == 3
    batches.close()  # type: ignore[attr-defined]
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.slow
def test_a_process_that_is_killed_is_said(tmp_path: Path) -> None:
    batches = iter(process_loader(Killed(tmp_path), in_order(4, 100), 4, 2))
    with pytest.raises(CommandError, match=r"1 of 2 loader processes ended, killed: .* out of memory"):
        list(batches)


@pytest.mark.parametrize("victim", range(4))
@pytest.mark.slow
def test_an_idle_process_that_is_killed_is_said(tmp_path: Path, victim: int) -> None:
    """Of the idle ones, one holds the lock under which they take samples; the others can go without a trace."""
    before = set(multiprocessing.active_children())
    data = Counted(tmp_path)
    batches = iter(process_loader(data, in_order(4, 100), 4, 4))
    with contextlib.closing(batches):  # type: ignore[type-var]
        next(batches)
        until(lambda: data.count() == 12)  # one batch is out, two lie ready
        processes = sorted(set(multiprocessing.active_children()) - before, key=lambda process: process.pid or 0)
        os.kill(processes[victim].pid or 0, signal.SIGKILL)
        processes[victim].join()
        with pytest.raises(CommandError, match=r"1 of 4 loader processes ended, killed"):
            next(batches)


CONSUMER = """
import sys
from pathlib import Path
from tests.data.test_process_loader import Counted, in_order, process_loader
from multiprocessing import active_children
batches = iter(process_loader(Counted(Path(sys.argv[1])), in_order(4, 100), 4, 3))
next(batches)
print(*(child.pid for child in active_children()), flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_the_processes_end_when_their_consumer_is_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", CONSUMER, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as consumer:
        assert consumer.stdout
        pids = [int(pid) for pid in consumer.stdout.readline().split()]
        consumer.kill()
    assert len(pids) == 3
    until(lambda: not any(alive(pid) for pid in pids))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
