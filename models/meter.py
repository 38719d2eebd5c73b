"""Times the steps of a training loop and writes the result as lines of the log (docs/wire.md, docs/measuring.md).

One file, standard library only, Python 3.8: made to be copied into any project (docs/foreign-loops.md)::

    import meter
    for batch in meter.steps(loader):   # was: for batch in loader
    meter.finish()                      # once, after the last epoch
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import math
import os
import platform
import sys
import threading
import time
from array import array
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Callable, ContextManager, Iterable, Iterator, Mapping, Sequence

LINE_BYTES = 3500  # above a pipe's 4 KiB, lines of several ranks were seen torn
SAID_LINES = 12  # of what a compiler or a device said: with so many a line of the wire is not too long
SAID_CHARACTERS = 160  # of each
WRITE_PATIENCE_S = 30.0  # how long a non-blocking pipe may stay full before a line is given up
GATE_EXIT_CODE = 3  # of a run that ended but failed a check
IDENTITY_LIMIT = 0.03  # by how much compute throughput x compute fraction may miss effective throughput
VENDOR_LIMIT = 0.03  # by how much the rate of the device's own software may differ from ours
ATTAINABLE_MARGIN = 1.5  # what plain kernels reach is measured, so as a bound it needs room for what slowed them
FALLS_FROM_STEPS = 100  # from this many optimiser steps on, the loss must fall
SLOWER = 1.15  # a rank is named if its own work takes this many times as long as that of the others
LONGER = 0.05  # a rank is named if it waits for its data longer than the others by this share of the windows
MOST_STEPS = 50  # of a window that is made longer
READ_AHEAD = 0.03  # of the windows' batches: more of them were ready before the windows opened than after they closed
EXCHANGES = 0.3  # of the windows' time: the ranks are warned of if even the one that waits least exchanges gradients
PAUSED = 0.05  # of the windows' time: a step is named if it computes so much longer than the median one
PAUSED_TIMES = 3  # and so many times as long
PAUSED_STEPS = 6  # of a rank at least, to know its median
STALL_RISES = 0.1  # of a window's time, from the first to the last window: the loader uses up what it has read ahead
MLPERF_INTERVALS = {"init_start": "START", "init_stop": "END", "run_start": "START", "run_stop": "END"}
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
SIZES = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")  # SLURM_NTASKS: of the whole job
BOOT_ID = "/proc/sys/kernel/random/boot_id"
SPANS = ("wait", "h2d", "busy")
SPLIT = ("stall_s", "compute_s", "stall_h2d_s", "wait_s", "h2d_s", "busy_s")  # of a window; null if there is no split
# Names a file for the last line that outlives the log, as Kubernetes' termination message does.
LAST_WORD = "HPC_ML_BENCH_LAST_WORD"
IN_LAST_WORD = (
    "windows", "steps", "samples", "wall_s", "effective_throughput", "compute_fraction", "compute_throughput"
)  # fmt: skip
END = object()


def _plain(value: Any, limit: int) -> Any:
    """Return `value` as JSON can hold it: non-finite numbers become null, texts and lists beyond `limit` end in `…`."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item, limit) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, limit) for item in value[:limit]] + ["…"] * (len(value) > limit)
    if getattr(value, "ndim", None) == 0:  # a scalar of numpy or torch
        return _plain(value.item(), limit)
    text = str(value).encode("utf-8", "replace").decode()
    return text if len(text) <= limit else text[: limit - 1] + "…"


class Wire:
    """Writes one rank's lines, numbered without a gap, each by one `os.write` of at most 3,500 bytes.

    `lines` counts them; `problems` are the gates that failed here. A log that can no longer be written does not end the
    training: its lines are lost, and without its last line it never passes.
    """

    def __init__(self, rank: int = 0, fd: int = 1, now_ms: Callable[[], int] = lambda: int(time.time() * 1000)) -> None:
        self.rank = rank
        self.fd = fd
        self.lines = 0
        self.problems: dict[str, str] = {}
        self._now_ms = now_ms
        self._lock = threading.RLock()
        self._ended = False

    def emit(self, key: str, value: Any, **metadata: Any) -> None:
        """Write one line. Texts that do not fit are shortened; after hpcml_end nothing is written."""
        event = "INTERVAL_" + MLPERF_INTERVALS[key] if key in MLPERF_INTERVALS else "POINT_IN_TIME"
        with self._lock:
            if self._ended:
                return
            self._ended = key == "hpcml_end"
            line = {"namespace": "hpcml", "time_ms": self._now_ms(), "event_type": event, "key": key, "value": "…"}
            line["metadata"] = {"file": "meter.py", "lineno": 0, "rank": self.rank, "seq": self.lines, **metadata}
            self.lines += 1
            for limit in (3000, 1000, 300, 200, 150, 100, 30, 10, 3, 1):
                text = f":::MLLOG {json.dumps({**line, 'value': _plain(value, limit)})}\n"
                if len(text) <= LINE_BYTES:
                    break
            else:
                text = f":::MLLOG {json.dumps(line)}\n"
            self._write(text.encode())

    def problem(self, gate: str, text: str) -> None:
        """Write that a gate failed, once for each gate. Below the first line stands what a compiler or device said."""
        if gate not in self.problems:
            self.problems[gate] = text
            lines = [line.rstrip() for line in text.splitlines() if line.strip()]
            value: dict[str, Any] = {"gate": gate, "text": "".join(lines[:1])}
            if len(lines) > 1:
                value["said"] = [_plain(line, SAID_CHARACTERS) for line in lines[1 : 1 + SAID_LINES]]
            self.emit("hpcml_problem", value)

    def _write(self, line: bytes) -> None:
        if self.fd == 1:  # what the program printed earlier must come first
            with contextlib.suppress(AttributeError, OSError, ValueError):
                sys.stdout.flush()
        deadline = time.monotonic() + WRITE_PATIENCE_S
        while line:  # more than once only where a disk or socket is full; Python repeats what a signal interrupts
            try:
                line = line[os.write(self.fd, line) :]
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return
                time.sleep(0.01)
            except OSError:
                return


# The clock and the group are duck-typed, so that a caller can pass others.
# Clock: `apart` says whether the device has a timeline of its own, which the host runs ahead of; synchronize();
# mark() returns a point of the timeline; seconds(mark, mark) is called only after synchronize().
# Group: `rank`, `size`, barrier(), gather(thing), which returns every rank's thing, in order of rank, on every rank.


class HostClock:
    """The clock where the host is the device: a mark is the host's time."""

    apart = False

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.mark = now

    def synchronize(self) -> None:
        """Do nothing, because the host does not run ahead."""

    def seconds(self, begin: float, end: float) -> float:
        return end - begin


class CudaClock:
    """The clock of CUDA and ROCm: a mark is an event on the stream that is current when the mark is made."""

    apart = True

    def __init__(self, torch: Any, device: Any = None) -> None:
        self._cuda = torch.cuda
        self._device = device

    def synchronize(self) -> None:
        self._cuda.synchronize(self._device)

    def mark(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self._device))
        return event

    def seconds(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end)) / 1000


class Solo:
    """The group of a rank that knows no others."""

    size = 1

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank

    def barrier(self) -> None:
        """Do nothing, because there is no other rank."""

    def gather(self, thing: Any) -> list[Any]:
        return [thing]


class TorchGroup:
    """The default process group of torch.distributed, whatever its backend."""

    def __init__(self, distributed: Any) -> None:
        self._distributed = distributed
        self.barrier = distributed.barrier
        self.rank = int(distributed.get_rank())
        self.size = int(distributed.get_world_size())

    def gather(self, thing: Any) -> list[Any]:
        things: list[Any] = [None] * self.size
        self._distributed.all_gather_object(things, thing)
        return things


class Meter:
    """Measures one training loop on one rank; rank 0 writes what all ranks measured.

    samples           of one batch on this rank, or a function that counts them in a batch
    warmup_steps      optimiser steps that are not measured
    windows           how many windows of `steps_per_window` optimiser steps follow, back to back; then the loop ends.
                      With `steps_per_window=None` windows go by passes over the loader (docs/foreign-loops.md)
    window_s          seconds: windows that would be shorter, by the fastest step of the warm-up, have more steps than
                      `steps_per_window`, MOST_STEPS at most
    micro_batches     batches of one optimiser step
    steps_per_batch   optimiser steps of one batch, where the device makes several of them by itself; then warm-up and
                      windows are whole numbers of batches
    no_split          why waiting and computing cannot be told apart, one clause; None: they can
    mode              "overlap" or "blocking" (docs/measuring.md)
    now               the host's clock, in seconds
    flop_per_sample   forward and backward; None: unknown
    peak_flops        FLOP/s of all devices together; None: unknown
    learnable         whether the loss must fall over 100 optimiser steps
    folder            where `steps-rank<N>.csv.gz` is written; None: it is not
    data_samples      size of the data set: if more are read, one was read twice
    data_resident     share of this rank's files that was in memory before the loop; None: unknown
    watch             observes the node: its begin() is called before the first window opens, its end() after the last
                      one has closed; None: no observer
    """

    def __init__(
        self,
        *,
        samples: int | Callable[[Any], int],
        warmup_steps: int = 3,
        windows: int = 3,
        steps_per_window: int | None = None,
        micro_batches: int = 1,
        mode: str = "overlap",
        clock: Any = None,
        group: Any = None,
        wire: Wire | None = None,
        now: Callable[[], float] = time.perf_counter,
        flop_per_sample: float | None = None,
        peak_flops: float | None = None,
        learnable: bool = False,
        folder: str | None = ".",
        data_samples: int | None = None,
        data_resident: float | None = None,
        watch: Any = None,
        window_s: float = 0.0,
        steps_per_batch: int = 1,
        no_split: str | None = None,
    ) -> None:
        if mode not in ("overlap", "blocking"):
            raise ValueError(f"mode is overlap or blocking, not {mode!r}")
        if no_split is not None and not (isinstance(no_split, str) and no_split.strip()):
            raise ValueError(f"no_split is the reason, one clause, not {no_split!r}; None where there is a split")
        if warmup_steps % steps_per_batch or (steps_per_window or 0) % steps_per_batch:
            asked = f"warmup_steps={warmup_steps}, steps_per_window={steps_per_window}"
            raise ValueError(f"{asked}: a batch has {steps_per_batch} optimiser steps, so both are multiples of that")
        self.samples = samples
        self.warmup_steps = warmup_steps
        self.windows = windows
        self.steps_per_window = steps_per_window
        self.window_s = window_s
        self.micro_batches = micro_batches
        self.steps_per_batch = steps_per_batch
        self.no_split = no_split
        # Whether the host starts steps without waiting for them. Then only at the edges of windows the device has done
        # all its work, and the times of single steps say nothing.
        self.runs_ahead = False
        self.mode = mode
        self.clock = clock or HostClock(now)
        self.group = group or Solo()
        self.wire = wire or Wire(self.group.rank)
        self.now = now
        self.flop_per_sample = flop_per_sample
        self.peak_flops = peak_flops
        self.learnable = learnable
        self.folder = folder and os.path.abspath(folder)
        self.data_samples = data_samples
        self.data_resident = data_resident
        self.watch = watch
        self.device: str | None = None  # this rank's, as `cuda:1`; None where all ranks of a node share it
        self.of_vendor: dict[str, Any] = {}  # more keys of the summary, from the device's own software (docs/wire.md)
        self._gaps = mode == "overlap" and self.clock.apart  # stalls are gaps of the device's timeline
        # One entry for each batch since the last edge of a window, where the marks and losses of a device are read.
        self._waits = array("d")
        self._copies = array("d")
        self._marks: list[Any] = []
        self._alone_until: Any = None  # the marks of this batch's exchange with the other ranks
        self._together_from: Any = None
        self._exchanges: list[Any] = []
        self._unread: list[tuple[int, Any]] = []
        # One entry for each optimiser step of the whole run.
        self._spans = (array("d"), array("d"), array("d"))
        self._exchange_s = array("d")  # of each step's busy time, spent in exchanging gradients, or NaN
        self._losses: list[tuple[int, float]] = []
        self._closed: list[dict[str, Any]] = []  # the windows so far
        # The present state of the loop.
        self._passes = 0  # over the loader
        self._step = 0  # optimiser steps so far
        self._batches = 0  # of the step under way
        self._counted = 0  # samples
        self._loader: Any = None  # of this pass
        self._batches_of_pass: Any = None  # its iterator
        self._lag: int | None = None  # batches that a loader with settle() had not read when the first window opened
        self._asked: tuple[int, int] | None = None  # of torch's DataLoader at that moment: what _reading returns
        self._used_up = 0.0  # batches that it had ready then, and no longer when a window closed
        self._in_pass = False
        self._passes_left = 0  # passes that were left before the loader's end, as by `break`
        self._opened = (now(), 0, 0)  # time, step and samples at the last edge
        self._open = False  # whether a window is open
        self._left = 0  # windows that are still to be closed
        self._done = False  # whether all windows are closed
        self._edge_at: int | None = None  # the step of the next edge
        self._every: int | None = None  # steps from edge to edge
        self._got: Any = None  # the device's mark when the batch was there
        self._begin: Any = None  # and when its copy was done, if there is one
        self._last: Any = None  # and at the end of the last batch
        self._device_s: float | None = None  # seconds for which the device says that it worked on this batch
        self._copy_s = 0.0  # of this batch
        self._meter_s = 0.0  # the meter's own time, in the `_metered` batches that end at no edge
        self._metered = 0
        self._made_s = self._opened[0]
        self._first_batch_s: float | None = None
        self._progress_at = self._made_s if self.group.rank == 0 else math.inf
        self._exit_code: int | None = None

    def start(self, value: Mapping[str, Any], mlperf: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Write what is known before the first step: MLPerf's keys, then `hpcml_start` with the ranks' hosts.

        Call it on every rank, because each reports its node; rank 0 writes.
        """
        nodes = self.group.gather(this_node())
        if self.group.rank == 0:
            world = {**value.get("world", {}), **_placed(nodes)}
            for key, item in [*mlperf.items(), ("hpcml_start", {**value, "world": world})]:
                self.wire.emit(key, item)

    # --- in the loop

    def steps(self, loader: Iterable[Any]) -> TimedBatches:
        """Return the loader's batches, timed. They end with the loader or the last window; call it for each pass."""
        return TimedBatches(self._timed(loader), loader)

    def _timed(self, loader: Iterable[Any]) -> Iterator[Any]:
        if self._exit_code is not None:  # nothing is measured after the end
            yield from loader
            return
        now, mark, synchronize, blocking = self.now, self.clock.mark, self.clock.synchronize, self.mode == "blocking"
        self._begin_pass(loader)
        asked_s = now()
        batches = self._batches_of_pass = iter(() if self._done else loader)
        try:
            while not self._done:
                batch = next(batches, END)
                got_s = now()
                if batch is END:
                    break
                self._counted += self.samples(batch) if callable(self.samples) else self.samples
                self._copy_s = 0.0
                self._got = self._begin = mark()
                self._alone_until = self._together_from = self._device_s = None
                self._meter_s += now() - got_s
                yield batch
                resumed_s, end = now(), mark()
                if self._device_s is not None:
                    self._begin = max(self._got, end - self._device_s)
                    self._copy_s = self._begin - self._got
                if blocking:
                    synchronize()
                    resumed_s = now()
                self._waits.append(got_s - asked_s)
                self._copies.append(self._copy_s)
                self._marks += (self._got, self._begin, end)
                self._exchanges.append((self._alone_until, self._together_from))
                self._batches += 1
                edge = self._batches == self.micro_batches and self._end_step(resumed_s)
                asked_s = now()
                if not edge:
                    self._meter_s += asked_s - resumed_s
                    self._metered += 1
            self._end_pass()
        finally:
            self._batches_of_pass = None  # a loader ends its processes when its iterator is gone

    def h2d(self, host_waits: bool = False) -> ContextManager[Any]:
        """Return a context for the copy to the device. At its end the busy time begins; blocking mode synchronises.

        host_waits: the host is the device, and waits here all the same, as for a copy that is late on purpose
        """
        if self.mode == "blocking" or self._gaps or host_waits:
            return _Copy(self)
        return contextlib.nullcontext()  # the host is the device, and there is no copy

    def worked(self, seconds: float) -> None:
        """Say for how long the device worked on this batch, by its own counters: the rest of the call is the copy.

        For a host that calls the device and waits for it, with HostClock. Raises ValueError with another clock.
        """
        if self.clock.apart:
            raise ValueError("worked() is for a host that waits for its device; the marks of this clock are no seconds")
        self._device_s = seconds

    def loss(self, value: Any) -> None:
        """Keep this batch's loss, a number or a tensor of one, until the next edge: the host does not wait for it."""
        self._unread.append((self._step, value.detach() if hasattr(value, "detach") else value))

    def exchange_begins(self) -> None:
        """Mark that this rank's own gradients are there, and it waits for the other ranks'. For a hook in the backward.

        With `exchange_ends` this tells a rank whose own work is slow from those that wait for it, whose steps last as
        long. Neither makes the host wait for the device.
        """
        self._alone_until = self.clock.mark()

    def exchange_ends(self) -> None:
        """Mark that the gradients of all ranks are there: the backward has returned."""
        self._together_from = self.clock.mark()

    # --- between steps

    def _copied(self, begin_s: float) -> None:
        if self.mode == "blocking":
            self.clock.synchronize()
        if not self._gaps:
            self._copy_s += self.now() - begin_s
        self._begin = self.clock.mark()

    def _begin_pass(self, loader: Iterable[Any]) -> None:
        self._open = False  # a pass that was left early closes no window
        self._passes_left += self._in_pass
        self._end_pass()
        self._in_pass = True
        self._loader = loader
        self._batches_of_pass = None
        self.clock.synchronize()
        self._read()
        self._passes += 1
        if self._passes == 1 and self.group.rank == 0:
            self.wire.emit("run_start", None)
        self._plan(loader)
        self._opened, self._last = (self.now(), self._step, self._counted), self.clock.mark()
        if self._edge_at == self._step and self._left:
            self._edge()

    def _plan(self, loader: Any) -> None:
        """Decide at which step this pass opens its first window, and how many steps each window has (`_every`).

        None means that a window goes to the end of the pass.
        """
        self._edge_at = max(self._step, self.warmup_steps)
        self._every = None
        self._left = 1
        if self.steps_per_window is not None:
            self._every = self.steps_per_window
            self._left = self.windows - len(self._closed)
        elif self._passes == 1:
            lengths = self.group.gather(_length(loader))
            if None not in lengths:
                whole = min(lengths) - 1  # the last batch may have fewer samples, and windows have equally many
                batches = whole // self.micro_batches - self.warmup_steps // self.steps_per_batch
                self._every = max(1, batches // self.windows) * self.steps_per_batch
                self._left = self.windows
        else:
            self._edge_at = self._step
            if self._passes == 2:  # there are several passes, so the first was the warm-up
                self._closed.clear()

    def _end_step(self, now_s: float) -> bool:
        """Count an optimiser step. Return whether a window's edge was there."""
        self._step += self.steps_per_batch
        self._batches = 0
        if now_s >= self._progress_at:
            self._progress(now_s)
        if self._step == self._edge_at:
            self._edge()
            return True
        return False

    def _end_pass(self) -> None:
        if self._batches:  # the loader ended inside an optimiser step, which counts as a short one
            self._step += self.steps_per_batch
            self._batches = 0
        if self._open and self._every is None and self._step > self._opened[1]:
            self._edge()
        self._open = self._in_pass = False

    def _edge(self) -> None:
        """Close the open window and open the next at the same moment: the loader gets no pause to refill its queue."""
        if self.watch and not self._open and not self._closed:
            self.watch.begin()
        self.clock.synchronize()
        self._settle_loader()
        self.group.barrier()
        self.clock.synchronize()
        at_s, (opened_s, first, before) = self.now(), self._opened
        loss = self._read()
        if self._open:
            window: dict[str, Any] = dict(zip(SPANS, (span[first:] for span in self._spans)))
            window.update(first=first, steps=self._step - first, samples=self._counted - before, loss=loss)
            window["exchange"] = self._exchange_s[first:]
            self._closed.append({**window, "opened_s": opened_s, "wall_s": at_s - opened_s})
            self._left -= 1
        elif not self._closed:
            self._lengthen()
            at_s = self.now()
        self._open = self._left > 0
        self._edge_at = self._step + self._every if self._open and self._every else None
        self._done = self.steps_per_window is not None and not self._open
        self._opened, self._last = (at_s, self._step, self._counted), self.clock.mark()
        if self.watch and not self._open:
            self.watch.end()

    def _settle_loader(self) -> None:
        """See to it that a window gets no batch for nothing: the loader has as many ready at its end as at its begin.

        A loader with `pending` and `settle` (models/data/) reads the batches that are lacking within the window, and
        the time is that of the last step's wait. What torch's DataLoader lacks becomes a warning: in a pass that is
        about to end it reads no more.
        """
        is_first = not self._open and not self._closed
        settle = getattr(self._loader, "settle", None)
        if settle is not None and not self._gaps:
            if is_first:  # it is in the middle of a batch, so windows open when that is there
                lag = self._loader.pending()
                self._lag = lag and lag - 1
            if self._lag is not None:
                before_s = self.now()
                settle(self._lag)
                if self._open:
                    self._waits[-1] += self.now() - before_s
        asked = _reading(self._batches_of_pass)
        if is_first:
            self._asked = asked
            self._used_up = 0.0
        elif asked and self._asked and asked[0] >= self._asked[0]:  # else it has begun the last batch of the pass
            in_work = self._batches_of_pass._num_workers / 2  # each worker has half a batch, on average
            self._used_up = max(0.0, asked[1] - self._asked[1] - in_work)

    def _lengthen(self) -> None:
        """Before the first window: give each window as many steps as take `window_s`, the same number on every rank."""
        if not self.window_s or not self.steps_per_window:
            return
        steps_s = [sum(spans) for spans in zip(*self._spans)]
        fastest = [step_s for step_s in self.group.gather(min(steps_s, default=None)) if step_s]
        if fastest:
            of_batch = self.steps_per_batch
            batches = min(MOST_STEPS // of_batch, math.ceil(self.window_s / min(fastest) / of_batch))
            self._every = self.steps_per_window = max(self.steps_per_window, batches * of_batch)

    def _read(self) -> float | None:
        """Turn the marks into seconds and the losses into numbers, after a synchronisation. Return the latest loss."""
        if self._waits and not self._spans[0]:
            self._first_batch_s = self._waits[0]
        marks = iter(self._marks)
        for index, (wait, h2d, got, begin, end) in enumerate(zip(self._waits, self._copies, marks, marks, marks)):
            if self._gaps:  # the stall is how long the device was idle since the last batch's end
                wait = min(wait, max(0.0, self.clock.seconds(self._last, got)))
                h2d = max(0.0, self.clock.seconds(self._last, begin) - wait)
                self._last = end
            for total, span in zip(self._spans, (wait, h2d, self.clock.seconds(begin, end))):
                if index % self.micro_batches:
                    total[-1] += span
                else:
                    total.extend([span / self.steps_per_batch] * self.steps_per_batch)
        for index, (begin, end) in enumerate(self._exchanges):
            if not index % self.micro_batches:
                self._exchange_s.extend([math.nan] * self.steps_per_batch)
            if begin is not None and end is not None:  # in the last micro-batch of a step, the only one that exchanges
                self._exchange_s[-1] = self.clock.seconds(begin, end)
        del self._waits[:], self._copies[:], self._marks[:], self._exchanges[:]
        unread, self._unread = self._unread, []
        for step, of_step in itertools.groupby(unread, itemgetter(0)):
            self._losses.append((step, _mean([float(value) for _, value in of_step])))
        return self._losses[-1][1] if unread else None

    def _progress(self, now_s: float) -> None:
        self._progress_at = now_s + 1
        opened_s, first, before = self._opened
        elapsed_s, samples = now_s - opened_s, (self._counted - before) * self.group.size
        loss = self._losses[-1][1] if self._losses else None
        if self._unread and not self.clock.apart:  # reading it does not make the host wait
            loss = float(self._unread[-1][1])
        steps = self.steps_per_window and self.warmup_steps + self.windows * self.steps_per_window
        value = {
            "phase": "window" if self._open else "warmup",
            "epoch": None if steps else self._passes,
            "step": self._step,
            "steps": steps,
            "samples_per_s": samples / elapsed_s if elapsed_s else None,
            "loss": loss,
            # not of a warm-up, whose first step may take minutes: kernels are chosen in it
            "left_s": (steps - self._step) * elapsed_s / (self._step - first) if steps and self._open else None,
        }
        self.wire.emit("hpcml_progress", value)

    # --- at the end

    def so_far(self) -> tuple[list[dict[str, Any]], float | None, dict[str, Any] | None]:
        """Return the windows of all ranks together, as hpcml_window has them, then exchange_share and slowest.

        For use before `finish`, on every rank, when the loop has ended: the loader is given up.
        """
        self._loader = None
        ranks = self.group.gather({"windows": self._closed, "host": platform.node(), "device": self.device})
        windows = [_join(index, sides) for index, sides in enumerate(zip(*(rank["windows"] for rank in ranks)))]
        return windows, _exchange_share(ranks), _slowest(ranks)

    @property
    def place(self) -> str:
        """Where this rank is: `rank 3 on n07, cuda:1`."""
        return _place({"rank": self.group.rank, "host": platform.node(), "device": self.device})

    @property
    def batches_so_far(self) -> int:
        """How many batches the loop has taken."""
        return self._step * self.micro_batches // self.steps_per_batch

    def finish(
        self,
        parameters_identical: bool | None = None,
        peak_memory_bytes: int | None = None,
        health: Any = None,
        contention: Any = None,
        attainable_flops: float | None = None,
        product_flops: float | None = None,
        compile_s: float | None = None,
        compile_cache: str | None = None,
        warnings: Sequence[str] = (),
        exit_code: int = 0,
        input_std: Sequence[float] | None = None,
        also: Mapping[str, Any] = MappingProxyType({}),
    ) -> int:
        """Combine the ranks, check, and write windows, problems, summary and end.

        attainable_flops: what all devices together reached in plain kernels, in FLOP/s; None: not measured.
        product_flops: and in matrix products, by the clock on the wall, as the windows are timed.
        also: more of the summary, which is written as it is given.
        compile_cache: "hit" if a compiled program was found, "miss" if this rank made it; None: unknown.
        Return the exit code, GATE_EXIT_CODE if a gate failed. It is the same on every rank, and returned only after
        rank 0 has written the last line.
        """
        if self._exit_code is not None:
            return self._exit_code
        self._open, self._exit_code = False, exit_code
        self._passes_left += self._in_pass
        self.clock.synchronize()
        self._read()
        reasons = [reason for reason in self.group.gather(self.no_split) if reason is not None]
        self.no_split = reasons[0] if reasons else None  # a job has a split if each rank has one
        mine = {
            "windows": self._closed,
            "losses": self._losses,
            "read": self._counted,
            "resident": self.data_resident,
            "startup_s": self._closed[0]["opened_s"] - self._made_s if self._closed else None,
            "first_batch_s": self._first_batch_s,
            "meter_s": self._meter_s / self._metered * self.micro_batches if self._metered else None,
            "compile_s": compile_s,
            "compile_cache": compile_cache,
            "peak_memory_bytes": peak_memory_bytes,
            "parameters_identical": parameters_identical,
            "host": platform.node(),
            "device": self.device,
            "used_up": self._used_up * self.steps_per_batch / self.micro_batches,
            "problems": [*self.wire.problems],
            "warnings": [*warnings, *self._write_steps()],
            "exit_code": exit_code,
        }
        ranks = self.group.gather(mine)
        as_given = {
            **self.of_vendor,
            "health": health,
            "contention": contention,
            "attainable_flops": attainable_flops,
            "product_flops": product_flops,
            "input_std": input_std,
        }
        as_given.update(also)
        caches = {rank["compile_cache"] for rank in ranks} - {None}
        if caches:
            as_given["compile_cache"] = "miss" if "miss" in caches else "hit"
        if self.no_split is not None:
            as_given["no_split"] = self.no_split
        if self.group.rank == 0:
            self._exit_code = self._conclude(ranks, as_given)
        self._exit_code = int(self.group.gather(self._exit_code)[0])
        return self._exit_code

    def abort(self, exit_code: int, gate: str, text: str) -> None:
        """Write why the run ends here, and on rank 0 the last line. Talks to no other rank; safe at any time."""
        if self._exit_code is None:
            self._exit_code = exit_code
            self.wire.problem(gate, text)
            self._end(exit_code)

    def _end(self, exit_code: int, summary: Mapping[str, Any] = MappingProxyType({})) -> None:
        if self.group.rank == 0:
            end = {"exit_code": exit_code, "lines": self.wire.lines}
            self.wire.emit("hpcml_end", end)
            _leave_last_word({**end, **{key: summary[key] for key in IN_LAST_WORD if key in summary}})

    def _write_steps(self) -> list[str]:
        """Write one row for each optimiser step, with its window. Return a warning if the file cannot be written."""
        if self.folder is None:
            return []
        window_of = {w["first"] + i: index for index, w in enumerate(self._closed) for i in range(w["steps"])}
        has_split = self.no_split is None
        columns = ["step", "window", *SPANS] if has_split else ["step", "window", *SPANS, "whole"]
        row = "{},{},{:.9f},{:.9f},{:.9f}\n" if has_split else "{},{},,,,{:.9f}\n"
        try:
            with gzip.open(os.path.join(self.folder, f"steps-rank{self.group.rank}.csv.gz"), "wt") as file:
                file.write(",".join(columns) + "\n")
                for step, spans in enumerate(zip(*self._spans)):
                    seconds = spans if has_split else (sum(spans),)
                    file.write(row.format(step, window_of.get(step, ""), *seconds))
        except OSError as error:
            return [f"the steps of rank {self.group.rank} were not written: {error}"]
        return []

    def _conclude(self, ranks: list[dict[str, Any]], as_given: Mapping[str, Any]) -> int:
        """Write rank 0's last lines. as_given: values of the summary that come from the caller."""
        self.wire.emit("run_stop", None, status="aborted" if any(rank["exit_code"] for rank in ranks) else "success")
        windows = [_join(index, sides) for index, sides in enumerate(zip(*(rank["windows"] for rank in ranks)))]
        if self.no_split is not None:
            windows = [{**window, **dict.fromkeys(SPLIT)} for window in windows]
        for window in windows:
            self.wire.emit("hpcml_window", window)
        summary = {**self._summary(ranks, windows), **as_given}
        for gate, text in self._failed_gates(ranks, summary):
            self.wire.problem(gate, text)
        self.wire.emit("hpcml_summary", summary)
        failed = self.wire.problems or any(rank["problems"] for rank in ranks)
        exit_code = max(rank["exit_code"] for rank in ranks)
        if failed and not exit_code:
            exit_code = GATE_EXIT_CODE
        self._end(exit_code, summary)
        return exit_code

    def _summary(self, ranks: list[dict[str, Any]], windows: list[dict[str, Any]]) -> dict[str, Any]:
        def not_none(key: str) -> list[Any]:
            return [rank[key] for rank in ranks if rank[key] is not None]

        warnings = list(dict.fromkeys(itertools.chain(*not_none("warnings"))))
        if self.peak_flops is None or self.flop_per_sample is None:
            warnings.append("peak unknown: compute throughput was not compared with what the devices can do")
        warnings.extend(_on_vendor(self.of_vendor.get("vendor_throughput"), windows))
        warnings.extend(_on_read_ahead(max(rank["used_up"] for rank in ranks), sum(w["steps"] for w in windows)))
        slowest = longest_stall = exchange_share = None
        total: dict[str, Any] = {"wall_s": math.fsum(w["wall_s"] for w in windows), "stall_s": None, "compute_s": None}
        if self.no_split is None:
            slowest, longest_stall = _slowest(ranks), _longest_stall(ranks)
            exchange_share = _exchange_share(ranks)
            warnings.extend([*_on_exchange(exchange_share), *_on_pause(ranks)])
            warnings.extend([*_on_slowest(slowest), *_on_longest_stall(longest_stall), *_rising_stall(windows)])
            total.update({key: math.fsum(w[key] for w in windows) for key in ("stall_s", "compute_s")})
        total.update({key: sum(w[key] for w in windows) for key in ("steps", "samples")})
        worst = ("startup_s", "first_batch_s", "compile_s", "meter_s", "peak_memory_bytes")
        identical = not_none("parameters_identical")
        is_read_twice = bool(self.data_samples) and sum(not_none("read")) > self.data_samples
        return {
            "windows": len(windows),
            **total,
            **_three_numbers(total),
            "effective_throughput_best": max(
                (w["samples"] / w["wall_s"] for w in windows if w["wall_s"]), default=None
            ),
            **{key: max(not_none(key), default=None) for key in worst},
            "warmup_steps": self._closed[0]["first"] if windows else self._step,
            "optimizer_steps": self._step,
            "loss_first": _mean([rank["losses"][0][1] for rank in ranks if rank["losses"]]),
            "loss_last": _mean([rank["losses"][-1][1] for rank in ranks if rank["losses"]]),
            "parameters_identical": all(identical) if identical else None,
            "data_from": _origin(is_read_twice, [rank["resident"] for rank in ranks]),
            "flop_per_sample": self.flop_per_sample,
            "slowest": slowest,
            "longest_stall": longest_stall,
            "exchange_share": exchange_share,
            "step_s": None if self.runs_ahead else self._step_times(),
            "warnings": warnings,
        }

    def _step_times(self) -> list[float] | None:
        return _percentiles([sum(spans) for w in self._closed for spans in zip(*(w[key] for key in SPANS))])

    def _failed_gates(self, ranks: list[dict[str, Any]], summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the name of every gate that failed, and why."""
        if summary["windows"] < (self.windows if self.steps_per_window else 1):
            ended = f"the loader ended after {self._step} optimiser steps"
            if self._passes_left:
                left = f"{self._passes_left} of {self._passes} passes over the loader were left before its end"
                ended = f"{left}, as by `break`, and such a pass is no window (itertools.islice ends a pass early)"
            yield "steps", f"{summary['windows']} of {self.windows} windows were measured: {ended}"
        if len({tuple(w["steps"] for w in rank["windows"]) for rank in ranks}) > 1:
            yield "steps", "the ranks made different numbers of steps"
        for number, rank in enumerate(ranks):
            for step, loss in rank["losses"]:
                if not math.isfinite(loss):
                    yield "loss_finite", f"the loss of step {step} on rank {number} is {loss}"
                    break
        losses, of_batch = min(len(rank["losses"]) for rank in ranks), self.steps_per_batch
        tenth = math.ceil(losses * of_batch // 10 / of_batch)  # in batches, each with the mean loss of its steps
        if self.learnable and self._step >= FALLS_FROM_STEPS and 0 < tenth <= losses / 2:
            first = _mean([loss for rank in ranks for _, loss in rank["losses"][:tenth]])
            last = _mean([loss for rank in ranks for _, loss in rank["losses"][-tenth:]])
            if not last < first:
                yield "loss_falls", f"the loss does not fall: its first tenth is {first:.6g}, its last {last:.6g}"
        if summary["parameters_identical"] is False:
            yield "parameters_identical", "the parameters differ between ranks: their gradients were not put together"
        gap = summary["identity_gap"]
        rate = summary["compute_throughput"] or summary["effective_throughput"]  # no split: computing is no slower
        if self.mode == "blocking" and gap is not None and gap > IDENTITY_LIMIT:
            why = "time is counted twice or not at all, as when a synchronisation is missing"
            yield "identity", f"compute throughput x fraction misses effective throughput by {gap:.1%}: {why}"
        flops = (rate or 0) * (self.flop_per_sample or 0)
        if self.peak_flops and flops > self.peak_flops:
            why = f"{rate:.6g} samples/s are {flops:.4g} FLOP/s, and the devices can do {self.peak_flops:.4g}"
            yield "roofline", f"{why}: samples, time or FLOP are counted wrongly"
        attainable = summary["attainable_flops"]
        if attainable and flops > ATTAINABLE_MARGIN * attainable:
            why = f"{rate:.6g} samples/s are {flops:.4g} FLOP/s, and plain kernels reached {attainable:.4g} there"
            yield (
                "attainable",
                f"{why} (limit: {ATTAINABLE_MARGIN:g} times that): samples, time or FLOP are counted wrongly",
            )


class TimedBatches:
    """The batches of a loader, as `Meter.steps` returns them; they have a length if the loader has one."""

    def __init__(self, batches: Iterator[Any], loader: Iterable[Any]) -> None:
        self._batches = batches
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return self._batches

    def __next__(self) -> Any:
        return next(self._batches)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]


class _Copy:
    """The context that h2d() returns; a class, because a generator costs several times as much."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def __enter__(self) -> None:
        self._begin_s = self._meter.now()

    def __exit__(self, *error: object) -> None:
        self._meter._copied(self._begin_s)


def this_node(environ: Mapping[str, str] = os.environ, boot_id_file: str = BOOT_ID) -> str:
    """Return a name that all ranks of a node share, and no rank of another node has.

    On Kubernetes a pod is a node of the layout. Elsewhere it is the running kernel, which the containers of a node
    share, with Slurm's name of the node, because some sites, and tests, have several of Slurm's nodes on one machine.
    """
    if "KUBERNETES_SERVICE_HOST" in environ:
        return platform.node()
    try:
        with open(boot_id_file) as file:
            machine = file.read().strip()
    except OSError:  # no Linux
        machine = platform.node()
    return f"{environ.get('SLURMD_NODENAME', '')} {machine}"


def _placed(nodes: Sequence[str]) -> dict[str, Any]:
    """Return on how many hosts the ranks run, and how many on each; None if this rank does not know the others."""
    if len(nodes) == 1 and _environ(SIZES, 1) > 1:
        return {"hosts": None, "ranks_per_host": None}
    counts = [nodes.count(node) for node in set(nodes)]
    return {"hosts": len(counts), "ranks_per_host": [min(counts), max(counts)]}


def _leave_last_word(end: Mapping[str, Any]) -> None:
    """Write the end also to the file that the variable LAST_WORD names, for a reader that may have lost the log.

    An error does not matter.
    """
    path = os.environ.get(LAST_WORD)
    if path:
        with contextlib.suppress(OSError), open(path, "w") as file:
            json.dump({"schema": 1, **_plain(end, LINE_BYTES)}, file)


def _origin(is_read_twice: bool, resident: Sequence[float | None]) -> str:
    """Return where the bytes came from. resident: the share of each rank's files that was in memory before the loop."""
    if is_read_twice:
        return "memory"
    shares = [share for share in resident if share is not None]
    if len(shares) < len(resident):
        return "unknown"
    share = sum(shares) / len(shares)
    if share >= 0.9:
        return "memory"
    return "storage" if share <= 0.1 else "mixed"


def _join(index: int, sides: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Combine one window of all ranks: in each step the rank that stalled longest sets the pace, with its busy time."""
    steps = zip(*(zip(map(float.__add__, side["wait"], side["h2d"]), side["busy"], side["h2d"]) for side in sides))
    pace = [max(step, key=itemgetter(0)) for step in steps]
    sums = {span: [math.fsum(side[span]) for side in sides] for span in SPANS}
    return {
        "index": index,
        "steps": len(pace),
        "samples": sum(side["samples"] for side in sides),
        "wall_s": max(side["wall_s"] for side in sides),
        "stall_s": math.fsum(stall_s for stall_s, _, _ in pace),
        "compute_s": math.fsum(busy_s for _, busy_s, _ in pace),
        "stall_h2d_s": math.fsum(h2d_s for _, _, h2d_s in pace),
        **{f"{span}_s": [min(of_ranks), _mean(of_ranks), max(of_ranks)] for span, of_ranks in sums.items()},
        "loss": _mean([side["loss"] for side in sides if side["loss"] is not None]),
    }


def _slowest(ranks: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the rank that needs longest for its own work, beside the others' median, in seconds per step.

    A rank's own work is its busy time without the exchange of gradients, in which it waits for the slowest: the steps
    of all ranks take equally long. None for one rank, and where a loop does not say when it exchanges.
    """
    own_s = [
        [busy_s - exchange_s for w in rank["windows"] for busy_s, exchange_s in zip(w["busy"], w["exchange"])]
        for rank in ranks
    ]
    return _furthest(ranks, [math.fsum(steps) / len(steps) if steps else math.nan for steps in own_s], "own_s")


def _longest_stall(ranks: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the rank that waits longest for its data, beside the others' median, as shares of the windows."""
    shares = []
    for rank in ranks:
        wall_s = math.fsum(w["wall_s"] for w in rank["windows"])
        stall_s = math.fsum(math.fsum(w["wait"]) + math.fsum(w["h2d"]) for w in rank["windows"])
        shares.append(stall_s / wall_s if wall_s else math.nan)
    return _furthest(ranks, shares, "share")


def _furthest(ranks: Sequence[dict[str, Any]], values: Sequence[float], name: str) -> dict[str, Any] | None:
    """Return the rank with the largest value, its host, and the others' median; None for one rank or unknown values."""
    if len(ranks) < 2 or not all(map(math.isfinite, values)):
        return None
    number = max(range(len(values)), key=values.__getitem__)
    others = sorted(value for other, value in enumerate(values) if other != number)
    return {
        "rank": number,
        "host": ranks[number]["host"],
        **({"device": ranks[number]["device"]} if ranks[number]["device"] else {}),
        name: values[number],
        f"others_{name}": (others[(len(others) - 1) // 2] + others[len(others) // 2]) / 2,
    }


def _exchange_share(ranks: Sequence[dict[str, Any]]) -> float | None:
    """Return for which share of the windows the ranks exchange gradients after their own backward pass is done.

    In each step that of the rank that does so for the shortest time counts: the others also wait for it. None for one
    rank, and where a loop does not say when it exchanges.
    """
    wall_s = max((math.fsum(w["wall_s"] for w in rank["windows"]) for rank in ranks), default=0.0)
    steps_of_ranks = [[seconds for w in rank["windows"] for seconds in w["exchange"]] for rank in ranks]
    exchange_s = math.fsum(min(of_step) for of_step in zip(*steps_of_ranks))
    if len(ranks) < 2 or not wall_s or not all(math.isfinite(s) for steps in steps_of_ranks for s in steps):
        return None
    return exchange_s / wall_s


def _on_exchange(share: float | None) -> Iterator[str]:
    if share is not None and share > EXCHANGES:
        yield (
            f"exchange: in {share:.0%} of the time even the last rank to be ready exchanges gradients: the network "
            "between the ranks sets the pace, or a step is short"
        )


def _on_pause(ranks: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Warn of the step in which one rank's own work took much longer than in its other steps."""
    longest: tuple[float, str] = (0.0, "")
    for number, rank in enumerate(ranks):
        own_s = [
            busy_s - (exchange_s if math.isfinite(exchange_s) else 0.0)
            for w in rank["windows"]
            for busy_s, exchange_s in zip(w["busy"], w["exchange"])
        ]
        if len(own_s) < PAUSED_STEPS:
            continue
        wall_s = math.fsum(w["wall_s"] for w in rank["windows"])
        median_s, most_s = sorted(own_s)[len(own_s) // 2], max(own_s)
        if most_s - median_s > PAUSED * wall_s and most_s > PAUSED_TIMES * median_s:
            step = rank["windows"][0]["first"] + own_s.index(most_s)
            text = f"pause: step {step} of rank {number} on {rank['host']} computed for {most_s:.3g} s, and the median "
            text += f"step for {median_s:.3g} s: its process was stopped, or did something else in between"
            longest = max(longest, (most_s - median_s, text))
    if longest[1]:
        yield longest[1]


def _on_slowest(slowest: Mapping[str, Any] | None) -> Iterator[str]:
    if slowest and slowest["own_s"] > SLOWER * slowest["others_own_s"] > 0:
        times = slowest["own_s"] / slowest["others_own_s"]
        yield (
            f"straggler: {_place(slowest)} needs {times:.2f} times the others' time for its "
            f"own work ({slowest['own_s']:.3g} s a step, theirs {slowest['others_own_s']:.3g} s): they wait for it"
        )


def _place(rank: Mapping[str, Any]) -> str:
    """Return where a rank is: `rank 3 on n07, cuda:1`."""
    return f"rank {rank['rank']} on {rank['host']}" + (f", {rank['device']}" if rank.get("device") else "")


def _on_longest_stall(longest: Mapping[str, Any] | None) -> Iterator[str]:
    if longest and longest["share"] > longest["others_share"] + LONGER:
        yield (
            f"data late: {_place(longest)} waits for its data in {longest['share']:.0%} of "
            f"the time, the others in {longest['others_share']:.0%}"
        )


def _on_vendor(vendor: Mapping[str, Any] | None, windows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Warn if the device's own software counts other samples or seconds in the windows than this meter."""
    wall_s = math.fsum(window["wall_s"] for window in windows)
    theirs = vendor and vendor.get("windows")
    if not theirs or not wall_s:
        return
    ours = sum(window["samples"] for window in windows) / wall_s
    if abs(theirs - ours) > VENDOR_LIMIT * ours:
        yield (
            f"two rates: the device's own software counts {theirs:.6g} samples/s in the windows, and the meter "
            f"{ours:.6g}: one of them counts other samples or seconds"
        )


def _reading(batches: Any) -> tuple[int, int] | None:
    """Return how many batches the processes of torch's DataLoader were asked for, and how many of these are not there.

    None for any other iterator, or one that does not tell: torch has no public names for it.
    """
    try:
        asked = batches._task_info
        there = batches._data_queue.qsize() + sum(len(task) > 1 for task in asked.values())
        return len(asked), max(0, len(asked) - there)
    except (AttributeError, TypeError, NotImplementedError):
        return None


def _on_read_ahead(used_up: float, steps: int) -> Iterator[str]:
    """Warn if the windows used up batches that the loader had read before. Both are numbers of steps."""
    if used_up > READ_AHEAD * steps:
        yield (
            f"read ahead: about {used_up:.0f} of the {steps} steps in the windows used batches that the loader had "
            "read before they opened and did not read again, so the rate that lasts is lower; measure more steps, or "
            "let the loader read less ahead"
        )


def _rising_stall(windows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a warning if the device waits longer from window to window, with a tolerance of 1 % of the time."""
    shares = [window["stall_s"] / window["wall_s"] for window in windows if window["wall_s"]]
    is_rising = all(early <= late + 0.01 for early, late in zip(shares, shares[1:]))
    if not is_rising or len(shares) < 2 or shares[-1] - shares[0] < STALL_RISES:
        return []
    percentages = ", ".join(f"{share:.0%}" for share in shares)
    return [
        f"read ahead: the wait for data rises from window to window ({percentages} of the time): the first ones "
        "used what the loader had read ahead, so the rate that lasts is lower; let more warm-up steps pass, or "
        "let the loader read less ahead"
    ]


def _three_numbers(total: Mapping[str, Any]) -> dict[str, float | None]:
    """Return samples/s overall, the share of the time without stalls, samples/s of computing, and their mismatch."""
    samples, wall_s, stall_s, compute_s = (total[key] for key in ("samples", "wall_s", "stall_s", "compute_s"))
    effective = samples / wall_s if wall_s else None
    fraction = 1 - stall_s / wall_s if wall_s and stall_s is not None else None
    compute = samples / compute_s if compute_s else None
    gap = abs(effective - compute * fraction) / effective if effective and compute and fraction is not None else None
    numbers = {"effective_throughput": effective, "compute_fraction": fraction, "compute_throughput": compute}
    return {**numbers, "identity_gap": gap}


def _mean(values: Sequence[float]) -> Any:
    return sum(values) / len(values) if values else None


def _percentiles(values: Sequence[float]) -> list[float] | None:
    """Return the 5th, 50th, 95th and 99th percentiles."""
    if not values:
        return None
    ordered = sorted(values)
    return [ordered[math.ceil(len(ordered) * share) - 1] for share in (0.05, 0.5, 0.95, 0.99)]


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError):  # it does not know its length
        return None


# --- functions for any training loop: a Meter on the clock and the group in use when the loop begins ------------------

_meter: Meter | None = None


def steps(loader: Iterable[Any], **options: Any) -> TimedBatches:
    """Return the loader's batches, timed; call it for each pass. `options` are Meter's, and are read at the first call.

    Without `samples=` the samples of each batch are counted: the first dimension of its first tensor.
    """
    global _meter
    if _meter is None:
        _meter = _meter_here(options)
    return _meter.steps(loader)


def loss(value: Any) -> None:
    """Report this batch's loss. Optional; without it no gate checks the loss."""
    if _meter is not None:
        _meter.loss(value)


def h2d() -> ContextManager[Any]:
    """Return a context for the copy to the device, which blocking mode then measures by itself. Optional."""
    return _meter.h2d() if _meter is not None else contextlib.nullcontext()


def worked(seconds: float) -> None:
    """Say for how long the device worked on this batch, by its own counters. Optional; see Meter.worked."""
    if _meter is not None:
        _meter.worked(seconds)


def finish(**extra: Any) -> int:
    """Write the result: once, after the last step, on every rank. Return 0, or GATE_EXIT_CODE if a gate failed.

    `extra` are the arguments of Meter.finish. A program that ends without this call leaves a log without a last line,
    which never passes.
    """
    global _meter
    if _meter is None:
        _meter = _meter_here({})
    meter = _meter
    torch = sys.modules.get("torch")
    warnings = [*extra.pop("warnings", ())]
    if meter.group.size == 1 and _environ(SIZES, 1) > 1:
        warnings.append(
            "one rank of several: torch.distributed was not in use when the loop began, so it saw itself only"
        )
    if torch is not None and torch.cuda.is_initialized():
        extra.setdefault("peak_memory_bytes", torch.cuda.max_memory_allocated())
        if not meter.clock.apart:
            warnings.append("host clock: torch.cuda was not in use when the loop began; move the model there before it")
    return meter.finish(warnings=warnings, **extra)


def _meter_here(options: Mapping[str, Any]) -> Meter:
    """Return a Meter with CUDA's events if torch.cuda is in use, and torch.distributed's group if that is.

    Writes `hpcml_start`.
    """
    torch = sys.modules.get("torch")
    backend = None
    defaults: dict[str, Any] = {"samples": _count, "group": Solo(_environ(RANKS, 0))}
    device: dict[str, Any] = {"type": "cpu", "name": platform.processor() or platform.machine(), "count": 1}
    if torch is not None and torch.cuda.is_initialized():
        defaults["clock"] = CudaClock(torch)
        gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
        kind = "rocm" if getattr(torch.version, "hip", None) else "cuda"
        device = {"type": kind, "name": gpu.name, "count": torch.cuda.device_count(), "memory_bytes": gpu.total_memory}
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        defaults["group"] = TorchGroup(torch.distributed)
        backend = torch.distributed.get_backend()
    meter = Meter(**{**defaults, **options})
    if torch is not None and isinstance(meter.clock, CudaClock):
        meter.device = f"cuda:{torch.cuda.current_device()}"
    request_keys = ("mode", "warmup_steps", "windows", "steps_per_window")
    modules = {name: sys.modules[name] for name in ("torch", "numpy") if name in sys.modules}
    meter.start(
        {
            "schema": 1,
            **dict.fromkeys(("benchmark", "workload_version", "code", "data")),
            "request": {key: getattr(meter, key) for key in request_keys},
            "device": device,
            "world": {"size": meter.group.size, "backend": backend},
            "versions": {"python": platform.python_version(), **{n: str(m.__version__) for n, m in modules.items()}},
            "host": {"name": platform.node(), "cores": os.cpu_count()},
        }
    )
    return meter


def _environ(names: Sequence[str], default: int) -> int:
    """Return the first of these variables that holds a number."""
    for name in names:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return default


def _count(batch: Any) -> int:
    """Return the first dimension of the first tensor in a batch; 1 if it has none."""
    while isinstance(batch, (Mapping, list, tuple)) and batch:
        batch = next(iter(batch.values() if isinstance(batch, Mapping) else batch))
    return int(batch.shape[0]) if getattr(batch, "shape", ()) else 1
