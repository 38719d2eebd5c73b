"""Batches of a map-style data set, each read by all loader processes together, straight into memory that they share.

torch's DataLoader gives each process whole batches, so at least as many batches are under way as there are processes,
and all of them lie ready after one slow step: with 15 processes a window is then served for dozens of steps at a rate
that the processes cannot keep. Here they share the samples of each batch, so two batches keep all of them busy.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import signal
import traceback
from collections import deque
from typing import Any, Deque, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.multiprocessing

from models import host
from models.ahead import one_ahead
from models.errors import JobError

AHEAD = 2  # batches under way while the consumer has one
PIECES = 2  # of a batch for each process: a faster one takes more of them
LOOK_S = 1.0  # how often a consumer that waits looks whether the processes live
END_PATIENCE_S = 5.0

Keys = Sequence[Tuple[int, int]]
Batch = Tuple[torch.Tensor, torch.Tensor]


class ProcessLoader:
    """(inputs, targets) for each item of `sampler`, in its order: N samples for a list of N pairs (epoch, index).

    data           gives (tensor, tensor or number) for such a pair; its `blank` is the shape and dtype of both
    local_batch    samples of a batch at most
    workers        processes that read; 0: the consumer reads itself
    start          how they start: fork, forkserver, spawn
    pinned         batches lie in page-locked memory; a thread copies one there while the consumer has the one before

    While the consumer has a batch, AHEAD are under way, more where they are too small to keep all processes busy, and
    one more lies ready if they are pinned. The processes start with iter() and end with the iterator. What the data set
    raises is raised by next() in the place of its batch; a process that ends is a JobError.
    """

    def __init__(
        self, data: Any, sampler: Iterable[Keys], *, local_batch: int, workers: int, start: str, pinned: bool
    ) -> None:
        self.data, self.sampler, self.local_batch = data, sampler, local_batch
        self.workers, self.start, self.pinned = workers, start, pinned

    def __iter__(self) -> Iterator[Batch]:
        if not self.workers:
            return self._by_itself()
        depth = max(AHEAD, -(-self.workers // self.local_batch) + 1)
        slots = [self._shared() for _ in range(depth + 1)]
        batches = self._by_processes(_Processes(self.data, slots, self.workers, self.start), slots)
        return one_ahead(batches) if self.pinned else batches

    def _by_itself(self) -> Iterator[Batch]:
        for keys in self.sampler:
            batch = self._empty(len(keys))
            _read(self.data, keys, batch, 0)
            yield batch

    def _by_processes(self, processes: _Processes, slots: Sequence[Batch]) -> Iterator[Batch]:
        with contextlib.closing(processes):
            coming: Deque[_Coming] = deque()
            for number, keys in enumerate(self.sampler):
                coming.append(processes.begin(number % len(slots), keys))
                if len(coming) == len(slots):
                    yield self._finished(processes, coming.popleft(), slots)
            while coming:
                yield self._finished(processes, coming.popleft(), slots)

    def _finished(self, processes: _Processes, batch: _Coming, slots: Sequence[Batch]) -> Batch:
        """A copy: the slot is used again for the next batch that is begun."""
        processes.finish(batch)
        out = self._empty(batch.samples)
        for part, slot in zip(out, slots[batch.slot]):
            part.copy_(slot[: batch.samples])
        return out

    def _empty(self, samples: int) -> Batch:
        pinned = self.pinned
        x, y = (torch.empty((samples, *shape), dtype=dtype, pin_memory=pinned) for shape, dtype in self.data.blank)
        return x, y

    def _shared(self) -> Batch:
        """Memory for a batch that the processes write to. What fork inherits takes no /dev/shm, which may be small."""
        x, y = (self._shared_tensor((self.local_batch, *shape), dtype) for shape, dtype in self.data.blank)
        return x, y

    def _shared_tensor(self, shape: Tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if self.start != "fork":
            return torch.empty(shape, dtype=dtype).share_memory_()
        size = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
        return torch.frombuffer(mmap.mmap(-1, size), dtype=dtype).view(shape)


def _read(data: Any, keys: Keys, batch: Batch, first: int) -> None:
    """Read these samples to their places in a batch, the first of them at `first`."""
    inputs, targets = batch
    for place, key in enumerate(keys, first):
        inputs[place], targets[place] = data[key]


# --- the processes ---------------------------------------------------------------------------------------------------


class _Task(NamedTuple):
    """Samples to read into a slot, from place `first` on."""

    slot: int
    first: int
    keys: Keys


class _Done(NamedTuple):
    """A task of this slot was done, or why not."""

    slot: int
    error: Optional[Exception]


class _Coming:
    """A batch under way."""

    def __init__(self, slot: int, samples: int, tasks: int) -> None:
        self.slot, self.samples, self.tasks_left = slot, samples, tasks
        self.error: Optional[Exception] = None


class _Pipe(NamedTuple):
    """A pipe with one end in each process; who holds the lock may use the processes' end."""

    reader: Any
    writer: Any
    lock: Any


def _pipe(context: Any) -> _Pipe:
    reader, writer = context.Pipe(duplex=False)
    return _Pipe(reader, writer, context.Lock())


class _Processes:
    """Processes that take tasks, first come, first served, and say when each is done."""

    def __init__(self, data: Any, slots: Sequence[Batch], count: int, start: str) -> None:
        context = torch.multiprocessing.get_context(start)
        self._tasks, self._done = _pipe(context), _pipe(context)
        self._coming: List[Optional[_Coming]] = [None] * len(slots)  # by slot
        arguments = (data, slots, self._tasks, self._done)
        self._processes = [context.Process(target=_work, args=arguments, daemon=True) for _ in range(count)]
        for process in self._processes:
            process.start()

    def begin(self, slot: int, keys: Keys) -> _Coming:
        pieces = min(len(keys), PIECES * len(self._processes))
        cuts = [number * len(keys) // pieces for number in range(pieces + 1)]
        batch = self._coming[slot] = _Coming(slot, len(keys), pieces)
        for first, end in zip(cuts, cuts[1:]):
            self._tasks.writer.send(_Task(slot, first, keys[first:end]))
        return batch

    def finish(self, batch: _Coming) -> None:
        """Wait until the batch is there. Raises the first error of its samples, JobError for a process that ended."""
        while batch.tasks_left:
            if not self._done.reader.poll(LOOK_S):
                self._check_alive()
                continue
            done = self._done.reader.recv()
            of_slot = self._coming[done.slot]
            assert of_slot is not None
            of_slot.tasks_left -= 1
            of_slot.error = of_slot.error or done.error
        if batch.error is not None:
            raise batch.error

    def _check_alive(self) -> None:
        codes = [process.exitcode for process in self._processes if process.exitcode is not None]
        if codes:
            raise JobError(self._ended(codes))

    def _ended(self, codes: Sequence[int]) -> str:
        text = f"{len(codes)} of {len(self._processes)} loader processes ended"
        if -signal.SIGKILL in codes:
            return f"{text}, killed: the node or the container may be out of memory, see dmesg; ask for fewer --workers"
        if -signal.SIGBUS in codes:
            return (
                f"{text} for want of shared memory: make /dev/shm larger, or use --worker-start fork, which needs none"
            )
        return f"{text} without an error, with exit code {codes[0]}"

    def close(self) -> None:
        """End the processes, whatever they do."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(END_PATIENCE_S)  # one that hangs in a file system is left to the kernel
        for pipe in (self._tasks, self._done):
            pipe.reader.close()
            pipe.writer.close()


def _work(data: Any, slots: Sequence[Batch], tasks: _Pipe, done: _Pipe) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the consumer ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    host.run_on(host.AFFINITY)
    torch.set_num_threads(1)
    tasks.writer.close()  # else no process would notice that the consumer is gone
    while True:
        try:
            with tasks.lock:
                task = tasks.reader.recv()
        except EOFError:
            return
        error = _attempt(data, slots, task)
        with done.lock:
            done.writer.send(_Done(task.slot, error))


def _attempt(data: Any, slots: Sequence[Batch], task: _Task) -> Optional[Exception]:
    try:
        _read(data, task.keys, slots[task.slot], task.first)
    except (JobError, MemoryError) as error:
        return error
    except Exception as error:  # which may not survive pickling
        traceback.print_exc()
        return JobError(f"a loader process failed, its traceback stands above: {type(error).__name__}: {error}")
    return None
