"""Batches of an array data set, filled in place by threads: no process, no copy between processes, no /dev/shm.

Reading an array takes its time in the kernel, without Python's lock, so threads are enough. A worker process hands its
sample over through shared memory: measured on samples of 63.7 MB, that copy took 28 to 35 ms of processor time beside 8
for reading; and a Kubernetes pod has 64 MB of shared memory unless somebody gave it more.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import threading
import time
import weakref
from collections import deque
from concurrent.futures import Future
from typing import Any, Callable, Deque, Iterable, Iterator, List, Optional, Protocol, Sequence, Tuple

import numpy as np
import torch

from models import host
from models.errors import Impossible

EXIT_PATIENCE_S = 8.0  # at the interpreter's exit: a thread that hangs in a file system is left to the kernel

Fill = Callable[[int, torch.Tensor, torch.Tensor], None]
Batch = Tuple[torch.Tensor, torch.Tensor]
Coming = Tuple[Batch, "List[Future[None]]"]


class Arrays(Protocol):
    """A data set of arrays of one shape.

    blank: (shape, dtype) of one sample's input, and of its target. fill(index, x, y) reads sample `index` into two
    contiguous CPU tensors of those shapes, at the same time in several threads; best without torch's own operations,
    for which torch would start a team of threads in each of ours.
    """

    @property
    def blank(self) -> Tuple[Tuple[Tuple[int, ...], Any], Tuple[Tuple[int, ...], Any]]: ...

    def fill(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None: ...


def sample(data: Arrays, index: int) -> Batch:
    """One sample by itself, in memory of its own: what a data set's __getitem__ gives. Raises what `fill` raises."""
    x, y = (torch.empty(shape, dtype=dtype) for shape, dtype in data.blank)
    data.fill(index, x, y)
    return x, y


class ThreadLoader:
    """(inputs, targets) for each item of `sampler`, in its order: N x `blank` for a list of N pairs (epoch, index).

    workers: threads that fill, a sample each; 0 fills in the consumer's own. pinned: batches lie in page-locked memory.
    ahead: batches that are under way while the consumer has one, more where they are too small to keep all threads
    busy; beside the consumer's there are at most `ahead` + 1 in memory.

    The threads start at the first next(), so a loader may be inherited by fork. They end, at the latest after the
    sample that they are filling, when the iterator is closed, forgotten or used up. What `fill` raises is raised by
    next() in the place of its batch, behind those before it, and closes the iterator. Raises Impossible where the
    threads cannot be started.
    """

    def __init__(
        self,
        data: Arrays,
        sampler: Iterable[Sequence[Tuple[int, int]]],
        *,
        workers: int,
        pinned: bool,
        ahead: int = 2,
    ) -> None:
        self.data, self.sampler = data, sampler
        self.workers, self.pinned, self.ahead = workers, pinned, ahead

    def __iter__(self) -> Iterator[Batch]:
        return self._by_threads() if self.workers else self._by_itself()

    def _by_itself(self) -> Iterator[Batch]:
        for keys in self.sampler:
            yield self._filled(keys)  # no name for a batch in here: its memory is free as soon as the consumer lets go

    def _by_threads(self) -> Iterator[Batch]:
        with contextlib.closing(_Pool(self.data.fill, self.workers)) as pool:
            coming: Deque[Coming] = deque()
            for keys in self.sampler:
                coming.append(self._start(pool, keys))
                while len(coming) > self._depth(len(keys)):
                    yield _finished(*coming.popleft())
            while coming:
                yield _finished(*coming.popleft())

    def _depth(self, samples: int) -> int:
        """Batches behind the one that is waited for: together they hold a sample for each thread."""
        return max(self.ahead, -(-self.workers // max(1, samples)) + 1)

    def _filled(self, keys: Sequence[Tuple[int, int]]) -> Batch:
        batch = self._empty(len(keys))
        for (_, index), x, y in zip(keys, *batch):
            self.data.fill(index, x, y)
        return batch

    def _start(self, pool: _Pool, keys: Sequence[Tuple[int, int]]) -> Coming:
        batch = self._empty(len(keys))
        return batch, [pool.submit(index, x, y) for (_, index), x, y in zip(keys, *batch)]

    def _empty(self, samples: int) -> Batch:
        """Memory for a batch, taken in the consumer's thread, for which malloc and torch keep what was freed."""
        x, y = (self._memory((samples, *shape), dtype) for shape, dtype in self.data.blank)
        return x, y

    def _memory(self, shape: Tuple[int, ...], dtype: Any) -> torch.Tensor:
        """By numpy, unless it is pinned: torch aligns to 64 bytes, and glibc then finds no freed block large enough
        until two of them lie side by side; measured, that held up to three times as much memory as there were batches.
        """
        if self.pinned:
            return torch.empty(shape, dtype=dtype, pin_memory=True)
        return torch.from_numpy(np.empty(shape, torch.empty(0, dtype=dtype).numpy().dtype))


def _finished(batch: Batch, samples: List[Future[None]]) -> Batch:
    for done in samples:
        done.result()
    return batch


# --- the threads -----------------------------------------------------------------------------------------------------


class _Pool:
    """Threads that fill samples, first come, first served.

    Daemons with a queue of their own: those of concurrent.futures are waited for at the interpreter's exit, for ever if
    their file system hangs.
    """

    def __init__(self, fill: Fill, workers: int) -> None:
        self._waiting: queue.SimpleQueue[Optional[_Task]] = queue.SimpleQueue()
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
                raise Impossible(
                    f"only {number} of {workers} loader threads could be started ({error}): ask for fewer with "
                    f"--workers, or look at the limit of processes (ulimit -u, a container's pids limit)"
                ) from None

    def submit(self, index: int, x: torch.Tensor, y: torch.Tensor) -> Future[None]:
        task = _Task(index, x, y)
        self._waiting.put(task)
        return task.done

    def close(self) -> None:
        """Forget what waits and let each thread end after the sample that it is filling. Waits for none of them."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        for _ in self._threads:
            self._waiting.put(None)

    def join(self, deadline_s: float) -> None:
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline_s - time.monotonic()))


class _Task:
    """One sample to fill."""

    def __init__(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None:
        self.index, self.x, self.y = index, x, y
        self.done: Future[None] = Future()

    def run(self, fill: Fill) -> None:
        try:
            fill(self.index, self.x, self.y)
        except BaseException as error:  # whatever it is, it belongs to the consumer
            self.done.set_exception(error)
        else:
            del self.x, self.y  # before the consumer has it: who is done with a batch may want memory for another
            self.done.set_result(None)


def _work(fill: Fill, waiting: queue.SimpleQueue[Optional[_Task]]) -> None:
    host.run_on(host.AFFINITY)
    while True:
        task = waiting.get()
        if task is None:
            return
        task.run(fill)
        del task  # and with it its batch, while this thread waits for the next one


_pools: weakref.WeakSet[_Pool] = weakref.WeakSet()


@atexit.register
def _end() -> None:
    """A thread that comes back from torch to an interpreter that is gone aborts the process: give it time to end."""
    deadline_s = time.monotonic() + EXIT_PATIENCE_S
    pools = list(_pools)
    for pool in pools:
        pool.close()
    for pool in pools:
        pool.join(deadline_s)
