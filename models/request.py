"""What a training run is asked to do: fills in every default and refuses, before any training, what cannot be done."""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import asdict, dataclass, replace
from typing import Any, Dict, Mapping, Optional, Tuple

from models.accelerators import Accelerator
from models.benchmarks import Benchmark, large_model
from models.cgroups import cpu_quota
from models.errors import ImpossibleRequest
from models.host import own_cores
from models.memory_plan import make_plan
from models.meter import MOST_STEPS
from models.settings import Configuration, Shape, Size, shape_text
from models.world import World


@dataclass(frozen=True)
class Request:
    """The `request` of hpcml_start (docs/wire.md). Batch sizes count samples; steps are the optimiser's."""

    configuration: str
    size: str
    mode: str
    variant: str
    dtype: str
    channels_last: bool
    compile: bool
    seed: int
    workers: int
    global_batch_size: int
    local_batch_size: int
    accumulation_steps: int
    world_size: int
    device: str
    warmup_steps: int
    windows: int
    steps_per_window: int  # 0 where a window is an epoch, until the data set is open; with window_s the least number
    window_s: float  # a window that would be shorter gets more steps, MOST_STEPS at most; 0: never
    shape: Shape
    augment: bool
    skip_corrupt: bool
    cache: str
    worker_start: str
    inject: Optional[Dict[str, float]] = None
    # A global batch is local_batch_size x replicas x accumulation_steps.
    drives_devices: bool = False  # whether a rank may drive several devices (IPUs, CS systems)
    replicas: int = 1  # copies of the model in the whole job; one on each rank where it drives one device
    devices_per_replica: int = 1
    sharded: bool = False  # whether each rank has a share of the model (models/memory_plan.py)
    recompute: bool = False  # whether the backward pass computes blocks again
    steps_per_batch: int = 1  # optimiser steps that the device makes of one batch of the loop
    batches_per_step: int = 1  # batches of the loop in an optimiser step; 1 where the device accumulates by itself

    @property
    def batch_of_rank(self) -> int:
        """Samples that one batch of the loop has on this rank."""
        step = self.local_batch_size * self.accumulation_steps * self.replicas // self.world_size
        return step // self.batches_per_step * self.steps_per_batch

    @property
    def steps(self) -> int:
        """How many optimiser steps the run has at most."""
        per_window = max(self.steps_per_window, MOST_STEPS) if self.window_s else self.steps_per_window
        return self.warmup_steps + self.windows * per_window

    def wire(self) -> Dict[str, object]:
        """Return it as the wire has it: what says nothing on this device family is left out."""
        values = {**asdict(self), "shape": shape_text(self.shape)}
        del values["batches_per_step"], values["drives_devices"]
        for key in ("inject", "sharded", "recompute"):
            if not values[key]:
                del values[key]
        if not self.drives_devices:
            for key in ("replicas", "devices_per_replica", "steps_per_batch"):
                del values[key]
        return values


def resolve(options: argparse.Namespace, benchmark: Benchmark, accelerator: Accelerator, world: World) -> Request:
    """Fill in what the options leave open. Raises ImpossibleRequest for what cannot be done."""
    configuration = _one_of("configuration", options.configuration, benchmark.CONFIGURATIONS)
    if accelerator.family in benchmark.UNSUPPORTED:
        reason = benchmark.UNSUPPORTED[accelerator.family]
        raise ImpossibleRequest(f"{options.benchmark} is not trained on {accelerator.family}: {reason}")
    size = of_family(_one_of("size", options.size, benchmark.SIZES), accelerator)
    variant = options.variant or size.variant or next(iter(benchmark.VARIANTS))
    _one_of("variant", variant, benchmark.VARIANTS)
    if options.expect_world_size not in (None, world.size):
        raise ImpossibleRequest(
            f"--expect-world-size {options.expect_world_size}, and {world.size} rank(s) were started (launcher: "
            f"{world.launcher}); check the launcher's number of tasks, and that the job is started by the launcher"
        )
    if options.checkpoint and accelerator.accumulates:
        raise ImpossibleRequest(f"--checkpoint is for CPUs and GPUs, not for {accelerator.family}; leave it out")
    if options.no_augment and not benchmark.AUGMENTS:
        raise ImpossibleRequest(f"{options.benchmark} augments nothing; leave out --no-augment")
    wish = configuration.dtype_of(accelerator.family) if options.dtype == "auto" else options.dtype
    dtype = _dtype(wish, accelerator)
    shape = options.shape or _shape(size, benchmark, variant)
    plan = make_plan(options, benchmark, accelerator, world, dtype=dtype, variant=variant, shape=shape)
    if plan.sharded and options.compile:
        raise ImpossibleRequest(
            f"--compile has not been tried with a model that is split over {world.size} ranks: leave it out, or use "
            "--shard off"
        )
    largest_batch = plan.largest_batch
    tuned_batch = min(largest_batch, of_family(benchmark.TUNED_BATCH, accelerator))
    # A program of its own cuts each step into micro-batches of the size that suits it.
    micro_batch_limit = tuned_batch if accelerator.accumulates else largest_batch
    replicas = accelerator.replicas(options, world)
    global_batch, accumulation = _batches(options, size, configuration, replicas, micro_batch_limit, tuned_batch)
    warmup_steps = size.warmup_steps if options.warmup_steps is None else options.warmup_steps
    steps_per_window = options.steps_per_window or size.steps_per_window or 0
    return Request(
        configuration=options.configuration,
        size=options.size,
        mode=options.mode,
        variant=variant,
        dtype=dtype,
        channels_last=_channels_last(options, configuration, accelerator),
        compile=options.compile,
        seed=options.seed,
        workers=_workers(options.workers, accelerator, world),
        global_batch_size=global_batch,
        local_batch_size=global_batch // (replicas * accumulation),
        accumulation_steps=accumulation,
        world_size=world.size,
        device=accelerator.family,
        warmup_steps=warmup_steps,
        windows=options.windows or size.windows,
        steps_per_window=steps_per_window,
        window_s=0.0 if options.steps_per_window or options.cache == "cold" else size.window_s,
        shape=shape,
        augment=benchmark.AUGMENTS and not options.no_augment,
        skip_corrupt=options.skip_corrupt,
        cache=options.cache,
        worker_start=_worker_start(options, benchmark, accelerator),
        inject=_inject(options, world),
        drives_devices=accelerator.accumulates,
        replicas=replicas,
        devices_per_replica=options.devices_per_replica or 1,
        sharded=plan.sharded,
        recompute=plan.recompute,
        steps_per_batch=accelerator.steps_per_batch(math.gcd(warmup_steps, steps_per_window)),
        batches_per_step=1 if accelerator.accumulates else accumulation,
    )


def of_family(values: Mapping[str, Any], accelerator: Accelerator) -> Any:
    """Return a benchmark's value for a device family; one that it does not name is like a GPU, or else a processor."""
    for family in (accelerator.family, "cuda", "cpu"):
        if family in values:
            return values[family]
    raise ImpossibleRequest(f"this benchmark says nothing about {accelerator.family}; add it to SIZES and TUNED_BATCH")


def _shape(size: Size, benchmark: Benchmark, variant: str) -> Shape:
    large = large_model(benchmark)
    if size.shape is not None:
        return size.shape
    assert large is not None, "a size without a shape is one of a large model, whose variants have shapes"
    return large.shape_of(variant)


def fit(request: Request, data: Any, benchmark: str, data_dir: str) -> Request:
    """Fit the request to the data set: fill in the steps of a window that is an epoch.

    Raises ImpossibleRequest where an epoch of real data holds no step, or a cold run would read a sample twice. A
    synthetic set may be smaller than a step; its samples then repeat, and the result says that its data came from
    memory.
    """
    batch = request.global_batch_size
    samples = len(data)
    if batch > samples and data.kind != "synthetic":
        raise ImpossibleRequest(
            f"a step takes {batch} samples (global batch size) and the data set at {data_dir} has {samples}; ask for "
            f"fewer ranks or a smaller batch, or write a synthetic set: {_write_set(request, benchmark, 4 * batch)}"
        )
    of_batch = request.steps_per_batch
    epoch = max(1, samples // batch // of_batch) * of_batch
    request = replace(request, steps_per_window=request.steps_per_window or epoch)
    if request.cache == "cold" and request.steps * batch > samples:
        raise ImpossibleRequest(
            f"a cold run must not read a sample twice; this one reads {request.steps * batch} and the data set at "
            f"{data_dir} has {samples}: ask for fewer --windows or --steps-per-window, or write more: "
            f"{_write_set(request, benchmark, request.steps * batch)}"
        )
    return request


def _write_set(request: Request, benchmark: str, samples: int) -> str:
    size = "quick" if request.size == "full" else request.size
    return f"python -m models data {benchmark} --size {size} --data-dir NEW_FOLDER --samples {samples}"


def _one_of(option: str, name: str, choices: Mapping[str, Any]) -> Any:
    if name not in choices:
        raise ImpossibleRequest(f"unknown {option} {name!r}; --{option} is one of {', '.join(choices)}")
    return choices[name]


def _dtype(wish: str, accelerator: Accelerator) -> str:
    dtypes = accelerator.dtypes()
    if wish == "auto":
        return dtypes[0]
    if wish not in dtypes:
        name = accelerator.facts("fp32")["name"]
        raise ImpossibleRequest(f"{name} does not train in {wish}; --dtype is one of auto, {', '.join(dtypes)} there")
    return wish


def _batches(
    options: argparse.Namespace,
    size: Size,
    configuration: Configuration,
    replicas: int,
    micro_batch_limit: int,
    tuned_local: int,
) -> Tuple[int, int]:
    """Return the global batch size and the number of micro-batches of a step.

    The options have precedence over the size's batch, and that over the configuration's. A global batch is cut into as
    few micro-batches as let none be larger than `micro_batch_limit`, unless --accumulation-steps gives their number.
    replicas: copies of the model in the whole job, each trained on a micro-batch at a time.
    """
    if options.global_batch_size and options.local_batch_size:
        raise ImpossibleRequest("--global-batch-size and --local-batch-size say the same thing twice; give one of them")
    micro_batches = options.accumulation_steps or 1
    local = options.local_batch_size
    if not local and not options.global_batch_size:
        local = size.local_batch
    total = options.global_batch_size or configuration.global_batch

    if local or not total:  # the local batch is given, so the global one follows from it
        return int(local or tuned_local) * replicas * micro_batches, micro_batches

    if total % (replicas * micro_batches):
        possible = " or ".join(str(n) for n in range(1, total + 1) if total % (n * micro_batches) == 0)
        advice = f"{possible} replicas (--replicas where a rank drives several devices, else ranks), or "
        raise ImpossibleRequest(
            f"a global batch size of {total} does not divide by {replicas} replica(s) x "
            f"{micro_batches} accumulation step(s); use {advice if possible else ''}a "
            f"--global-batch-size that is a multiple of {replicas * micro_batches}"
        )
    if not options.accumulation_steps:
        share = total // replicas
        while share % micro_batches or share // micro_batches > micro_batch_limit:
            micro_batches += 1
    return int(total), micro_batches


def cores_of_rank(world: World) -> int:
    """Return how many cores this rank may fill.

    srun and mpiexec give each rank cores of its own; under torchrun the ranks of a node share all. They also share a
    quota on processor time, rounded up to whole cores.
    """
    cores = own_cores()
    is_shared = world.launcher in ("torchrun", "none") or cores == os.cpu_count()
    if is_shared:
        cores //= world.local_size
    quota = cpu_quota() or math.inf
    if quota < math.inf:
        cores = min(cores, math.ceil(quota / world.local_size))
    return max(1, cores)


def _workers(wish: str, accelerator: Accelerator, world: World) -> int:
    """Return the number of loader processes or threads of a rank.

    A core reads far more than it trains on, so a processor spares few cores; for a GPU all but one core read.
    """
    if wish != "auto":
        if not wish.isdigit():
            raise ImpossibleRequest(f"--workers is a number or auto, not {wish!r}")
        return int(wish)
    cores = cores_of_rank(world)
    readers = cores // 16 if accelerator.family == "cpu" else cores - 1
    return max(1, min(16, readers))


def _channels_last(options: argparse.Namespace, configuration: Configuration, accelerator: Accelerator) -> bool:
    """Return whether torch's memory format is channels_last. A compiler that makes a whole program chooses its own."""
    if accelerator.accumulates:
        return False
    return {"auto": configuration.channels_last, "on": True, "off": False}[options.channels_last]


def _worker_start(options: argparse.Namespace, benchmark: Benchmark, accelerator: Accelerator) -> str:
    """Return how loader workers start: as threads where the benchmark reads arrays, else by fork.

    Beside an MPI, and beside the driver of a device that compiles whole programs, it is forkserver, because a forked
    child may touch neither.
    """
    uses_threads = benchmark.LOADER == "thread"
    if options.worker_start == "thread" and not uses_threads:
        raise ImpossibleRequest(
            f"{options.benchmark} is decoded by processes; --worker-start is one of fork, forkserver, spawn"
        )
    if options.worker_start != "auto":
        return str(options.worker_start)
    if uses_threads:
        return "thread"
    return "forkserver" if options.backend == "mpi" or accelerator.accumulates else "fork"


def _inject(options: argparse.Namespace, world: World) -> Optional[Dict[str, float]]:
    if options.inject_rank is not None and options.inject_rank >= world.size:
        raise ImpossibleRequest(f"--inject-rank {options.inject_rank}: there are ranks 0 to {world.size - 1}")
    faults = {"stall_s": options.inject_stall_s, "copy_s": options.inject_copy_s, "slow": options.inject_slow}
    asked = {fault: value for fault, value in faults.items() if value is not None}
    if asked and options.inject_rank is not None:
        asked["rank"] = options.inject_rank
    return asked or None
