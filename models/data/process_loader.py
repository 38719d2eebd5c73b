"""Batches of a map-style data set; all loader processes together read the samples of each batch, into shared memory.

torch's DataLoader gives each process whole batches. So at least as many batches are under way as there are processes,
and after one slow step all of them lie ready: with 15 processes a window is then served for dozens of steps at a rate
that the processes cannot keep up. Here the processes share the samples of each batch, so two batches keep all busy.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import mmap
import signal
import traceback
from collections import deque
from typing import Any, Deque, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.multiprocessing

from models import host
from models.errors import CommandError
from models.prefetch import prefetch_one

AHEAD = 2  # batches under way while the consumer has one
PIECES = 2  # into which a batch is cut for each process; a faster process reads more of them
POLL_S = 1.0  # how often a consumer that waits checks whether the processes live
JOIN_LIMIT_S = 5.0

Keys = Sequence[Tuple[int, int]]
Batch = Tuple[torch.Tensor, torch.Tensor]


class ProcessLoader:
    """(inputs, targets) for each item of `sampler`, in its order: N samples for a list of N pairs (epoch, index).

    data           returns (tensor, tensor or number) for such a pair; its `blank` is the shape and dtype of both
    local_batch    samples of a batch at most
    workers        processes that read; with 0 the consumer reads itself
    start          how they start: fork, forkserver, spawn
    pinned         batches lie in page-locked memory; a thread copies one there while the consumer has the one before

    While the consumer has a batch, AHEAD batches are under way, and more if they are too small to keep all processes
    busy; if they are pinned, one more lies ready. The processes start with iter() and end with the iterator. next()
    raises an error of the data set in the place of its batch, and CommandError if a process has ended.
    """

    def __init__(
        self, data: Any, sampler: Iterable[Keys], *, local_batch: int, workers: int, start: str, pinned: bool
    ) -> None:
        self.data = data
        self.sampler = sampler
        self.local_batch = local_batch
        self.workers = workers
        self.start = start
        self.pinned = pinned
        self._pool: Optional[_ProcessPool] = None  # of the present iterator, if the consumer alone asks it
        self._under_way: Deque[_PendingBatch] = deque()

    def __iter__(self) -> Iterator[Batch]:
        if not self.workers:
            return self._read_here()
        depth = max(AHEAD, -(-self.workers // self.local_batch) + 1)
        slots = [self._shared_batch() for _ in range(depth + 1)]
        pool = _ProcessPool(self.data, slots, self.workers, self.start)
        if not self.pinned:
            self._pool = pool
        batches = self._read_in_processes(pool, slots)
        return prefetch_one(batches) if self.pinned else batches

    def pending(self) -> Optional[int]:
        """Return how many of the batches under way are not read; None where that is not known (pinned, no workers)."""
        if self._pool is None:
            return None
        self._pool.take_reports()
        return sum(batch.pieces_left > 0 for batch in self._under_way)

    def settle(self, pending: int) -> None:
        """Wait until at most so many batches are not read. They are read in their order. Raises what next() raises."""
        if self._pool is not None:
            for batch in itertools.islice(self._under_way, max(0, len(self._under_way) - pending)):
                self._pool.finish(batch)

    def _read_here(self) -> Iterator[Batch]:
        for keys in self.sampler:
            batch = self._new_batch(len(keys))
            _read(self.data, keys, batch, 0)
            yield batch

    def _read_in_processes(self, pool: _ProcessPool, slots: Sequence[Batch]) -> Iterator[Batch]:
        with contextlib.closing(pool):
            under_way = self._under_way = deque()
            for number, keys in enumerate(self.sampler):
                under_way.append(pool.begin(number % len(slots), keys))
                if len(under_way) == len(slots):
                    yield self._finished(pool, under_way.popleft(), slots)
            while under_way:
                yield self._finished(pool, under_way.popleft(), slots)

    def _finished(self, pool: _ProcessPool, pending: _PendingBatch, slots: Sequence[Batch]) -> Batch:
        """Wait for a batch and return a copy: its slot is used again for the next batch that is begun."""
        pool.finish(pending)
        batch = self._new_batch(pending.samples)
        for copy, slot in zip(batch, slots[pending.slot]):
            copy.copy_(slot[: pending.samples])
        return batch

    def _new_batch(self, samples: int) -> Batch:
        x, y = (torch.empty((samples, *shape), dtype=dtype, pin_memory=self.pinned) for shape, dtype in self.data.blank)
        return x, y

    def _shared_batch(self) -> Batch:
        """Return memory for a batch that the processes write to."""
        x, y = (self._shared_tensor((self.local_batch, *shape), dtype) for shape, dtype in self.data.blank)
        return x, y

    def _shared_tensor(self, shape: Tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if self.start != "fork":
            return torch.empty(shape, dtype=dtype).share_memory_()
        # Forked processes inherit a mapping, which needs no space in /dev/shm; that may be small.
        size = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
        return torch.frombuffer(mmap.mmap(-1, size), dtype=dtype).view(shape)


def _read(data: Any, keys: Keys, batch: Batch, first: int) -> None:
    """Read these samples into a batch, the first of them to position `first`."""
    inputs, targets = batch
    for position, key in enumerate(keys, first):
        inputs[position], targets[position] = data[key]


# --- the processes ----------------------------------------------------------------------------------------------------


class _Piece(NamedTuple):
    """Samples to read into a slot, from position `first` on."""

    slot: int
    first: int
    keys: Keys


class _PieceDone(NamedTuple):
    """A piece of this slot was read, or the error of it."""

    slot: int
    error: Optional[Exception]


class _PendingBatch:
    """A batch that the processes are reading."""

    def __init__(self, slot: int, samples: int, pieces: int) -> None:
        self.slot = slot
        self.samples = samples
        self.pieces_left = pieces
        self.error: Optional[Exception] = None


class _Pipe(NamedTuple):
    """A pipe between the consumer and all processes, which use their end only while they hold the lock."""

    reader: Any
    writer: Any
    lock: Any


def _pipe(context: Any) -> _Pipe:
    reader, writer = context.Pipe(duplex=False)
    return _Pipe(reader, writer, context.Lock())


class _ProcessPool:
    """Processes that take pieces, first come, first served, and report when each is read."""

    def __init__(self, data: Any, slots: Sequence[Batch], count: int, start: str) -> None:
        context = torch.multiprocessing.get_context(start)
        self._to_read = _pipe(context)
        self._done = _pipe(context)
        self._pending: List[Optional[_PendingBatch]] = [None] * len(slots)  # by slot
        arguments = (data, slots, self._to_read, self._done)
        self._processes = [context.Process(target=_work, args=arguments, daemon=True) for _ in range(count)]
        for process in self._processes:
            process.start()

    def begin(self, slot: int, keys: Keys) -> _PendingBatch:
        count = min(len(keys), PIECES * len(self._processes))
        cuts = [number * len(keys) // count for number in range(count + 1)]
        pending = _PendingBatch(slot, len(keys), count)
        self._pending[slot] = pending
        for first, end in zip(cuts, cuts[1:]):
            self._to_read.writer.send(_Piece(slot, first, keys[first:end]))
        return pending

    def finish(self, pending: _PendingBatch) -> None:
        """Wait until the batch is read. Raises the first error of its samples, CommandError if a process has ended."""
        # The others do the work of a process that ends while it is idle, so a batch that arrives is no sign.
        self._check_alive()
        while pending.pieces_left:
            if self._done.reader.poll(POLL_S):
                self._take_report()  # perhaps of a later batch
            else:
                self._check_alive()
        if pending.error is not None:
            raise pending.error

    def take_reports(self) -> None:
        """Take all reports that are there, without waiting."""
        while self._done.reader.poll():
            self._take_report()

    def _take_report(self) -> None:
        done = self._done.reader.recv()
        of_slot = self._pending[done.slot]
        assert of_slot is not None
        of_slot.pieces_left -= 1
        of_slot.error = of_slot.error or done.error

    def _check_alive(self) -> None:
        exit_codes = [process.exitcode for process in self._processes if process.exitcode is not None]
        if not exit_codes:
            return
        ended = f"{len(exit_codes)} of {len(self._processes)} loader processes ended"
        if -signal.SIGKILL in exit_codes:
            raise CommandError(
                f"{ended}, killed: the node or the container may be out of memory, see dmesg; ask for fewer --workers"
            )
        if -signal.SIGBUS in exit_codes:
            raise CommandError(
                f"{ended} because shared memory is full: make /dev/shm larger, or use --worker-start fork, which needs "
                "none"
            )
        raise CommandError(f"{ended} without an error, with exit code {exit_codes[0]}")

    def close(self) -> None:
        """End the processes, even in the middle of a piece."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(JOIN_LIMIT_S)  # one that hangs in a file system is left to the kernel
        for pipe in (self._to_read, self._done):
            pipe.reader.close()
            pipe.writer.close()


def _work(data: Any, slots: Sequence[Batch], to_read: _Pipe, done: _Pipe) -> None:
    """Read pieces until the consumer is gone: the main function of a loader process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the consumer ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    host.run_on(host.AFFINITY)
    torch.set_num_threads(1)
    to_read.writer.close()  # with an open end of its own, no process would notice that the consumer is gone
    while True:
        try:
            with to_read.lock:
                piece = to_read.reader.recv()
        except EOFError:
            return
        error = _read_piece(data, slots, piece)
        with done.lock:
            done.writer.send(_PieceDone(piece.slot, error))


def _read_piece(data: Any, slots: Sequence[Batch], piece: _Piece) -> Optional[Exception]:
    try:
        _read(data, piece.keys, slots[piece.slot], piece.first)
    except (CommandError, MemoryError) as error:
        return error
    except Exception as error:  # it may not survive pickling, so only its text is sent
        traceback.print_exc()
        return CommandError(f"a loader process failed, its traceback stands above: {type(error).__name__}: {error}")
    return None
