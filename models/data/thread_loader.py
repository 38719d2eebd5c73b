"""Batches of an array data set, filled in place by threads: no process, no copy between processes, no /dev/shm.

The kernel reads an array without Python's lock, so threads are enough. A worker process hands its sample over through
shared memory: measured on samples of 63.7 MB, that copy took 28 to 35 ms of processor time beside 8 ms for reading; and
a Kubernetes pod has 64 MB of shared memory unless its manifest asks for more.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import math
import queue
import threading
import time
import weakref
from collections import deque
from concurrent.futures import Future, wait
from typing import Any, Callable, Deque, Iterable, Iterator, List, Optional, Protocol, Sequence, Tuple

import numpy as np
import torch

from models import host
from models.errors import ImpossibleRequest

JOIN_LIMIT_S = 8.0  # at the interpreter's exit: a thread that hangs in a file system is left to the kernel

Fill = Callable[[int, torch.Tensor, torch.Tensor], None]
Batch = Tuple[torch.Tensor, torch.Tensor]
PendingBatch = Tuple[Batch, "List[Future[None]]"]  # its memory, and one future for each sample


class ArrayDataSet(Protocol):
    """A data set of arrays of one shape.

    blank: (shape, dtype) of one sample's input, and of its target. fill(index, x, y) reads sample `index` into two
    contiguous CPU tensors of those shapes. Several threads call it at the same time, so it should avoid torch's own
    operations, for which torch would start more threads in each of them.
    """

    @property
    def blank(self) -> Tuple[Tuple[Tuple[int, ...], Any], Tuple[Tuple[int, ...], Any]]: ...

    def fill(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None: ...


def sample(data: ArrayDataSet, index: int) -> Batch:
    """Return one sample in new memory, for a data set's __getitem__. Raises what `fill` raises."""
    x, y = (torch.empty(shape, dtype=dtype) for shape, dtype in data.blank)
    data.fill(index, x, y)
    return x, y


class ThreadLoader:
    """(inputs, targets) for each item of `sampler`, in its order: N x `blank` for a list of N pairs (epoch, index).

    workers: threads that fill, a sample each; with 0 the consumer's thread fills. pinned: batches lie in page-locked
    memory. ahead: batches that are under way while the consumer has one, and more if they are too small to keep all
    threads busy; beside the consumer's there are at most `ahead` + 1 in memory.

    The threads start at the first next(), so a loader may be inherited by fork. They end when the iterator is closed,
    garbage-collected or used up, at the latest after the sample that they are filling. next() raises an error of `fill`
    in the place of its batch, which closes the iterator, and ImpossibleRequest if the threads cannot be started.
    """

    def __init__(
        self,
        data: ArrayDataSet,
        sampler: Iterable[Sequence[Tuple[int, int]]],
        *,
        workers: int,
        pinned: bool,
        ahead: int = 2,
    ) -> None:
        self.data = data
        self.sampler = sampler
        self.workers = workers
        self.pinned = pinned
        self.ahead = ahead
        self._under_way: Optional[Deque[PendingBatch]] = None  # of the present iterator, if threads fill

    def __iter__(self) -> Iterator[Batch]:
        return self._fill_in_threads() if self.workers else self._fill_here()

    def pending(self) -> Optional[int]:
        """Return how many of the batches under way are not filled; None before the first one, and without threads."""
        if self._under_way is None:
            return None
        return sum(not all(sample.done() for sample in samples) for _, samples in self._under_way)

    def settle(self, pending: int) -> None:
        """Wait until at most so many batches are not filled. They are filled in their order."""
        under_way = self._under_way or ()
        for _, samples in itertools.islice(under_way, max(0, len(under_way) - pending)):
            wait(samples)

    # No local variable of these two generators holds a batch: its memory is free as soon as the consumer drops it.

    def _fill_here(self) -> Iterator[Batch]:
        for keys in self.sampler:
            yield self._filled(keys)

    def _fill_in_threads(self) -> Iterator[Batch]:
        with contextlib.ExitStack() as stack:
            pool = stack.enter_context(contextlib.closing(_ThreadPool(self.data.fill, self.workers)))
            under_way: Deque[PendingBatch] = deque()
            stack.callback(under_way.clear)
            self._under_way = under_way
            for keys in self.sampler:
                under_way.append(self._start(pool, keys))
                while len(under_way) > self._depth(len(keys)):
                    yield _finished(*under_way.popleft())
            while under_way:
                yield _finished(*under_way.popleft())

    def _depth(self, samples: int) -> int:
        """Return how many batches follow the one that is waited for: together they hold a sample for each thread."""
        return max(self.ahead, -(-self.workers // max(1, samples)) + 1)

    def _filled(self, keys: Sequence[Tuple[int, int]]) -> Batch:
        batch = self._empty(len(keys))
        for (_, index), x, y in zip(keys, *batch):
            self.data.fill(index, x, y)
        return batch

    def _start(self, pool: _ThreadPool, keys: Sequence[Tuple[int, int]]) -> PendingBatch:
        batch = self._empty(len(keys))
        return batch, [pool.submit(index, x, y) for (_, index), x, y in zip(keys, *batch)]

    def _empty(self, samples: int) -> Batch:
        """Allocate memory for a batch in the consumer's thread, for which malloc and torch keep freed blocks."""
        x, y = (self._memory((samples, *shape), dtype) for shape, dtype in self.data.blank)
        return x, y

    def _memory(self, shape: Tuple[int, ...], dtype: Any) -> torch.Tensor:
        """Allocate by numpy, unless the memory is pinned.

        torch aligns to 64 bytes, and glibc then finds no freed block large enough until two of them lie side by side:
        measured, that held up to three times the memory of the batches.
        """
        if self.pinned:
            return torch.empty(shape, dtype=dtype, pin_memory=True)
        size = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
        return torch.from_numpy(np.empty(size, np.uint8)).view(dtype).view(shape)  # numpy has no bfloat16


def _finished(batch: Batch, samples: List[Future[None]]) -> Batch:
    for done in samples:
        done.result()
    return batch


# --- the threads -----------------------------------------------------------------------------------------------------


class _ThreadPool:
    """Threads that fill samples, first come, first served.

    They are daemons with a queue of their own: the interpreter waits at its exit for the threads of concurrent.futures,
    for ever if their file system hangs.
    """

    def __init__(self, fill: Fill, workers: int) -> None:
        self._waiting: queue.SimpleQueue[Optional[_FillTask]] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=_work, args=(fill, self._waiting), name=f"loader-{number}", daemon=True)
            for number in range(workers)
        ]
        _pools.add(self)
        for number, thread in enumerate(self._threads):
            try:
                thread.start()
            except RuntimeError as error:
                self.close()
                raise ImpossibleRequest(
                    f"only {number} of {workers} loader threads could be started ({error}): ask for fewer with "
                    f"--workers, or look at the limit of processes (ulimit -u, a container's pids limit)"
                ) from None

    def submit(self, index: int, x: torch.Tensor, y: torch.Tensor) -> Future[None]:
        task = _FillTask(index, x, y)
        self._waiting.put(task)
        return task.done

    def close(self) -> None:
        """Drop the tasks that wait, and let each thread end after the sample that it is filling. Does not wait."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        for _ in self._threads:
            self._waiting.put(None)

    def join(self, deadline_s: float) -> None:
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline_s - time.monotonic()))


class _FillTask:
    """One sample to fill."""

    def __init__(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None:
        self.index = index
        self.x = x
        self.y = y
        self.done: Future[None] = Future()

    def run(self, fill: Fill) -> None:
        try:
            fill(self.index, self.x, self.y)
        except BaseException as error:  # any error is raised in the consumer
            self.done.set_exception(error)
        else:
            del self.x, self.y  # before the consumer has the batch, so that it alone decides when the memory is free
            self.done.set_result(None)


def _work(fill: Fill, waiting: queue.SimpleQueue[Optional[_FillTask]]) -> None:
    host.run_on(host.AFFINITY)
    while True:
        task = waiting.get()
        if task is None:
            return
        task.run(fill)
        del task  # it holds its batch, which this thread must not keep while it waits for the next task


_pools: weakref.WeakSet[_ThreadPool] = weakref.WeakSet()


@atexit.register
def _end() -> None:
    """Give the threads time to end: one that returns from torch after the interpreter's end aborts the process."""
    deadline_s = time.monotonic() + JOIN_LIMIT_S
    pools = list(_pools)
    for pool in pools:
        pool.close()
    for pool in pools:
        pool.join(deadline_s)
