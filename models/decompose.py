"""--decompose: short phases after the windows, in the same job, that show what bounds the run (docs/measuring.md).

Each phase leaves out a part of the training: the loader, the exchange of gradients, or all computing. What the windows
lose by it is what that part costs. The model is of no use afterwards, so this comes last.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import multiprocessing
import os
import time
from dataclasses import asdict, replace
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch

from models import bounds, fault_injection
from models.abort import attempt
from models.accelerators import EagerAccelerator
from models.bounds import Evidence, Loading, Rank
from models.contention import ELSEWHERE_SHARE, OTHERS_CORES
from models.data import pagecache
from models.errors import CommandError
from models.host import read_text
from models.loaders import loader_of
from models.meter import Meter
from models.ranks import Ranks
from models.request import cores_of_rank
from models.steps.eager import EagerStep
from models.time_limit import LEAST_STEPS, MOST_S
from models.training_setup import TrainingSetup, make_sampler

WAITS = 0.05  # of a step: from this wait for data on, more is asked of the loader
FEW_CORES = 0.75  # of a rank's cores: with fewer threads it is asked what all cores would give
CLOCK_READS = 4  # at most, until two agree
MOST_READERS = 16  # of a node: workers that wait for storage need no core each, and each holds a sample in memory

Keys = List[Tuple[int, int]]


def write(
    step: Any,
    setup: TrainingSetup,
    ranks: Ranks,
    meter: Meter,
    counted: Optional[Mapping[str, Any]],
    contention: Optional[Mapping[str, Any]],
) -> None:
    """Run the phases and write the line of the wire. All ranks call it.

    counted: by this rank's ContentionWatch in the windows. contention: of all ranks (models/contention.py).

    Raises CommandError if a phase fails on one of several ranks, for which the others wait in vain.
    """
    if ranks.rank == 0:
        meter.wire.emit("hpcml_progress", {"phase": "decompose"})
    phases = Phases(step, setup, ranks, meter)
    value, error = attempt(lambda: measure(phases, counted, contention))
    if error is not None and ranks.size > 1:
        raise CommandError(f"--decompose, after all windows: {error}; leave it out")
    if error is not None:
        setup.warnings.append(f"--decompose: {error}")
    if value and ranks.rank == 0:
        meter.wire.emit("hpcml_decomposition", value)


def measure(
    phases: Phases, counted: Optional[Mapping[str, Any]], contention: Optional[Mapping[str, Any]]
) -> Dict[str, Any]:
    """Run the phases; return the value of `hpcml_decomposition`, the same on every rank; {} if there is no window."""
    ranks = phases.ranks
    windows, exchange_share, slowest = phases.meter.so_far()
    if not windows:  # the gate of steps says why
        return {}
    steps = sum(window["steps"] for window in windows)
    step_ms, stall_ms, copy_ms, busy_ms = (
        1000 * math.fsum(window[key] for window in windows) / steps
        for key in ("wall_s", "stall_s", "stall_h2d_s", "compute_s")
    )
    phases.steps = max(LEAST_STEPS, min(windows[-1]["steps"], int(1000 * MOST_S / step_ms)))

    # Computing, on one batch that stays on the device: with the exchange of gradients, and without it.
    computing_ms = max(phases.computing())
    alone_ms: Sequence[Optional[float]] = [None] * ranks.size
    if phases.can_be_alone:
        alone_ms = phases.computing(exchanges=False)
    places = ranks.gather((phases.meter.place, _core_wait(counted)))
    evidence = Evidence(
        step_ms=step_ms,
        wait_ms=stall_ms - copy_ms,
        copy_ms=copy_ms,
        busy_ms=busy_ms,
        computing_ms=computing_ms,
        ranks=[Rank(place, own_ms, core_wait) for (place, core_wait), own_ms in zip(places, alone_ms)],
        exchange_ms=None if exchange_share is None else exchange_share * step_ms,
        straggler=None if slowest is None else (slowest["rank"], 1000 * (slowest["own_s"] - slowest["others_own_s"])),
        threads=max(ranks.gather(torch.get_num_threads())),
        **_of_node(contention, ranks.gather(counted), phases.is_cpu),
    )

    # The same in more threads, where cores are idle.
    cores = min(ranks.gather(cores_of_rank(phases.setup.world)))  # all ranks decide the same
    if phases.is_cpu and evidence.threads <= FEW_CORES * cores and evidence.quota is None:
        evidence = replace(evidence, more_threads=cores, more_threads_ms=max(phases.computing(threads=cores)))
    evidence = with_loader(evidence, phases, cores)
    return {**bounds.decomposition(evidence), "phases": _phases(evidence, phases.steps)}


def with_loader(evidence: Evidence, phases: Phases, cores: int) -> Evidence:
    """Add the loader alone; if the loop waits for it, also once more from memory, and with more workers.

    cores: of each rank.
    """
    workers = max(phases.ranks.gather(phases.setup.request.workers))
    loading = phases.loading(workers)
    evidence = replace(evidence, loading=loading)
    if loading is None or evidence.wait_ms <= WAITS * evidence.step_ms:
        return evidence
    if loading.blocked > WAITS:
        evidence = replace(evidence, again=phases.loading(workers, again=True))
    readers = MOST_READERS // phases.setup.world.local_size if loading.blocked > bounds.EXPLAINED else cores
    more = _more_workers(loading, evidence, min(phases.ranks.gather(max(cores, readers))))
    if more > loading.workers:
        evidence = replace(evidence, more=phases.loading(more))
    return evidence


def _more_workers(loading: Loading, evidence: Evidence, most: int) -> int:
    """Return with how many workers the loader is tried: as many as would keep up with computing."""
    needed = math.ceil(bounds.MARGIN * loading.workers * loading.step_ms / evidence.computing_ms)
    return min(most, max(2 * loading.workers, needed))


def _core_wait(counted: Optional[Mapping[str, Any]]) -> float:
    """Return the share of the windows in which this rank's busiest thread could have run and had no core."""
    if counted is None or counted["waited_most_s"] is None:
        return 0.0
    return min(1.0, counted["waited_most_s"] / counted["elapsed_s"])


def _of_node(
    contention: Optional[Mapping[str, Any]], counted: Sequence[Optional[Mapping[str, Any]]], is_cpu: bool
) -> Dict[str, Any]:
    """Return what quota and neighbours took, as Evidence has it."""
    if contention is None:
        return {}
    quotas = [quota for of_rank in counted if of_rank for quota in of_rank["quotas"] if quota is not None]
    periods = contention["periods"]
    cores = max(len(of_rank["cores"][1]) for of_rank in counted if of_rank)
    found: Dict[str, Any] = {
        "quota": min((quota for quota in quotas if quota < math.inf), default=None),
        "throttled": contention["throttled_periods"] / periods if periods else 0.0,
        "on_device": not is_cpu,
    }
    if (contention["neighbours_cores"] or 0.0) >= OTHERS_CORES:
        found["neighbours"] = contention["neighbours_cores"]
    if is_cpu and (contention["elsewhere_cores"] or 0.0) >= max(OTHERS_CORES, ELSEWHERE_SHARE * cores):
        found["elsewhere"] = contention["elsewhere_cores"]
    return found


def _phases(evidence: Evidence, steps: int) -> Dict[str, Any]:
    alone_ms = [rank.alone_ms for rank in evidence.ranks if rank.alone_ms is not None]
    phases: Dict[str, Any] = {"steps": steps, "computing": {"step_ms": evidence.computing_ms}}
    if alone_ms and len(evidence.ranks) > 1:
        phases["without exchange"] = {"step_ms": [min(alone_ms), max(alone_ms)]}
    if evidence.more_threads is not None:
        phases["more threads"] = {"threads": evidence.more_threads, "step_ms": evidence.more_threads_ms}
    for name, loading in (
        ("loading", evidence.loading), ("loading again", evidence.again), ("more workers", evidence.more)
    ):  # fmt: skip
        if loading is not None:
            phases[name] = asdict(loading)
    return phases


class Phases:
    """The phases of one rank. Each is begun by all ranks at the same time."""

    def __init__(self, step: EagerStep, setup: TrainingSetup, ranks: Ranks, meter: Meter) -> None:
        self.step = step
        self.setup = setup
        self.ranks = ranks
        self.meter = meter
        self.is_cpu = setup.accelerator.family == "cpu"
        self.steps = LEAST_STEPS
        self.can_be_alone = ranks.size > 1 and not setup.request.sharded  # a split model exchanges weights in a step
        self._used = meter.batches_so_far  # so many batches of the sampler were used, or are under way
        self._keys: List[Keys] = []  # of the last phase of the loader
        assert isinstance(setup.accelerator, EagerAccelerator)
        self._accelerator = setup.accelerator
        self._batch: Any = None
        step.copy_delay_s = 0.0  # of a copy that is late on purpose: here nothing is copied

    def computing(self, exchanges: bool = True, threads: Optional[int] = None) -> List[float]:
        """Train on one batch again and again. Return each rank's ms per step, in the order of the ranks."""
        if self._batch is None:
            with contextlib.closing(iter(self.step.batches())) as batches:  # type: ignore[type-var]
                self._batch = self._accelerator.to_device(next(batches))
        self.step.exchanges = exchanges
        threads_before = torch.get_num_threads()
        torch.set_num_threads(threads or threads_before)
        self._train(1)
        self._accelerator.synchronize()
        self.ranks.barrier()
        begin_s = time.perf_counter()
        self._train(self.steps)
        self._accelerator.synchronize()
        elapsed_s = time.perf_counter() - begin_s
        torch.set_num_threads(threads_before)
        return self.ranks.gather(1000 * elapsed_s / self.steps)

    def _train(self, steps: int) -> None:
        """Make the last optimiser step of the run again, so often: the schedule of the learning rate ends there."""
        request = self.setup.request
        first = (request.steps - 1) * self.step.micro_batches
        batches = itertools.repeat(self._batch, steps * self.step.micro_batches)
        slowed = fault_injection.slowed(batches, request, self.setup.world.rank, self._accelerator)
        for number, batch in enumerate(slowed):
            self.step(first + number % self.step.micro_batches, batch)

    def loading(self, workers: int, again: bool = False) -> Optional[Loading]:
        """Take batches from a loader and do nothing with them. Return what the slowest rank saw; None: a rank failed.

        again: the samples of the last time, and not others, which are as cold as those of the windows were.
        """
        self.ranks.barrier()
        mine, error = attempt(lambda: self._load(workers, again))
        of_ranks = self.ranks.gather(mine)
        if error is not None or None in of_ranks:
            self.setup.warnings.append(f"--decompose: the loader alone failed: {error or 'on another rank'}")
            return None
        slowest: Loading = max(of_ranks, key=lambda loading: loading.step_ms)
        return slowest

    def _load(self, workers: int, again: bool) -> Loading:
        request = self.setup.request
        per_step = request.batches_per_step
        ahead = 2 * max(1, workers) + 8  # batches that the loader may have under way
        warmup = 1 + -(-2 * workers // request.batch_of_rank)
        if not again:
            sampler = make_sampler(request, len(self.setup.data), self.setup.world.rank)
            count = warmup + self.steps * per_step + ahead
            self._keys = list(itertools.islice(sampler, self._used + ahead, self._used + ahead + count))
            self._used += ahead + count
        resident = self._prepare(again)

        data = TimedData(self.setup.data, request.worker_start)
        loader = loader_of(
            data, self._keys, request, local_batch=request.batch_of_rank, workers=workers,
            pinned=self._accelerator.pinned,
        )  # fmt: skip
        batches: Iterator[Any] = iter(fault_injection.stalled(loader, request, self.setup.world.rank))
        try:
            _take(batches, warmup)
            before, begin_s = data.totals(), time.perf_counter()
            taken = _take(batches, self.steps * per_step, least=LEAST_STEPS * per_step)
            after, elapsed_s = data.totals(), time.perf_counter() - begin_s
        finally:
            batches.close()  # type: ignore[attr-defined]
        read_s, processor_s, queued_s = (late - early for early, late in zip(before, after))
        if read_s <= 0:
            raise CommandError("no sample was read")
        steps = taken / per_step
        processor = min(1.0, processor_s / read_s)
        queued = min(1.0 - processor, queued_s / read_s)
        return Loading(
            workers=max(1, workers),
            step_ms=1000 * elapsed_s / steps,
            processor=processor,
            blocked=1.0 - processor - queued,
            queued=queued,
            occupied=read_s / (elapsed_s * max(1, workers)),
            processor_ms=1000 * processor_s / steps,
            resident=resident,
        )

    def _prepare(self, again: bool) -> Optional[float]:
        """Bring the files to where those of the windows were, in memory or not; return what share is in memory now."""
        path = self.setup.data.path
        files = [os.fsencode(name) for name in dict.fromkeys(path(index) for keys in self._keys for _, index in keys)]
        before = self.setup.resident
        if before is not None and not again:
            with contextlib.suppress(CommandError):
                if before <= pagecache.COLD:
                    pagecache.drop(files)
                elif before >= pagecache.WARM:
                    pagecache.load(files)
        inside, size = pagecache.resident(files) or (0, 0)
        return inside / size if size else None


def _take(batches: Iterator[Any], number: int, least: int = 1) -> int:
    """Take so many batches, but no more after MOST_S when there are at least `least`. Return how many there were."""
    end_s = time.perf_counter() + MOST_S
    for taken in range(1, number + 1):
        next(batches)
        if taken >= least and time.perf_counter() > end_s:
            return taken
    return number


class TimedData:
    """A data set, with the time that reading its samples takes, in whichever process or thread they are read."""

    def __init__(self, data: Any, worker_start: str) -> None:
        self.blank = data.blank
        self._data = data
        context = multiprocessing.get_context("fork" if worker_start == "thread" else worker_start)
        self._totals = context.Array("d", 3)  # seconds: in all, of the processor, waiting for a core

    def totals(self) -> List[float]:
        return [self._totals[place] for place in range(3)]

    def fill(self, index: int, x: Any, y: Any) -> None:
        with self._timed():
            self._data.fill(index, x, y)

    def __getitem__(self, key: Tuple[int, int]) -> Any:
        with self._timed():
            return self._data[key]

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        begin = _clocks()
        yield
        end = _clocks()
        with self._totals.get_lock():
            for place in range(3):
                self._totals[place] += end[place] - begin[place]


def _clocks() -> Tuple[float, float, float]:
    """Return the time, this thread's processor time, and for how long it has waited for a core, at one moment.

    A kernel gives a core to others where a system call returns, and to read a clock is one. If this thread waited
    meanwhile, the clocks are read again.
    """
    queued_s = _queued_s()
    for _ in range(CLOCK_READS):
        now_s, processor_s, before_s = time.perf_counter(), time.thread_time(), queued_s
        queued_s = _queued_s()
        if queued_s == before_s:
            break
    return now_s, processor_s, queued_s


def _queued_s() -> float:
    """Return for how long this thread could have run and had no core; 0 where the kernel does not say it."""
    fields = read_text("/", "proc/thread-self/schedstat").split()
    return int(fields[1]) / 1e9 if len(fields) == 3 else 0.0
