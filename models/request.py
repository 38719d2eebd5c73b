"""What a training run is asked to do: every default filled in, everything impossible refused before any training."""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import asdict, dataclass, replace
from typing import Any, Dict, Optional, Tuple

from models.accelerators import Accelerator
from models.cgroups import cpu_quota
from models.errors import Impossible
from models.host import own_cores
from models.meter import MOST_STEPS
from models.settings import Configuration, Shape, Size, by
from models.world import World


@dataclass(frozen=True)
class Request:
    """The `request` of hpcml_start (docs/wire.md), in full. Batch sizes count samples, steps are the optimiser's."""

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
    steps_per_window: int  # 0 until the data set is open, when windows are epochs; with window_s the least
    window_s: float  # a window that would be shorter has more steps, MOST_STEPS at most; 0: as many as were asked for
    shape: Shape
    augment: bool
    skip_corrupt: bool
    cache: str
    worker_start: str
    inject: Optional[Dict[str, float]] = None

    @property
    def steps(self) -> int:
        """That the run makes at most."""
        per_window = max(self.steps_per_window, MOST_STEPS) if self.window_s else self.steps_per_window
        return self.warmup_steps + self.windows * per_window

    def wire(self) -> Dict[str, object]:
        values = {key: value for key, value in asdict(self).items() if key != "inject" or value}
        return {**values, "shape": by(self.shape)}


def resolve(options: argparse.Namespace, benchmark: Any, accelerator: Accelerator, world: World) -> Request:
    """Fill in what the options leave open. Raises Impossible, in one sentence, for what cannot be done."""
    configuration = _known("configuration", options.configuration, benchmark.CONFIGURATIONS)
    size = _known("size", options.size, benchmark.SIZES)[accelerator.family]
    variant = options.variant or next(iter(benchmark.VARIANTS))
    _known("variant", variant, benchmark.VARIANTS)
    if options.expect_world_size not in (None, world.size):
        raise Impossible(
            f"--expect-world-size {options.expect_world_size}, and {world.size} rank(s) were started (launcher: "
            f"{world.launcher}); check the launcher's number of tasks, or that the job is started through it at all"
        )
    if options.no_augment and not benchmark.AUGMENTS:
        raise Impossible(f"{options.benchmark} augments nothing; leave out --no-augment")
    dtype = _dtype(configuration.dtype if options.dtype == "auto" else options.dtype, accelerator)
    shape = options.shape or size.shape
    most = fitting(accelerator, world, benchmark.sample_bytes(dtype, variant, shape))
    tuned = benchmark.TUNED_BATCH[accelerator.family]
    total, accumulation = _batches(options, size, configuration, world.size, most, tuned)
    return Request(
        configuration=options.configuration,
        size=options.size,
        mode=options.mode,
        variant=variant,
        dtype=dtype,
        channels_last={"auto": configuration.channels_last, "on": True, "off": False}[options.channels_last],
        compile=options.compile,
        seed=options.seed,
        workers=_workers(options.workers, accelerator, world),
        global_batch_size=total,
        local_batch_size=total // (world.size * accumulation),
        accumulation_steps=accumulation,
        world_size=world.size,
        device=accelerator.family,
        warmup_steps=size.warmup_steps if options.warmup_steps is None else options.warmup_steps,
        windows=options.windows or size.windows,
        steps_per_window=options.steps_per_window or size.steps_per_window or 0,
        window_s=0.0 if options.steps_per_window or options.cache == "cold" else size.window_s,
        shape=shape,
        augment=benchmark.AUGMENTS and not options.no_augment,
        skip_corrupt=options.skip_corrupt,
        cache=options.cache,
        worker_start=_worker_start(options, benchmark),
        inject=_inject(options, world),
    )


def fitting(accelerator: Accelerator, world: World, sample_bytes: int) -> int:
    """The largest local batch, a power of two, whose samples take at most four fifths of what this rank has of memory.

    Where the memory is not known, as many as any benchmark asks for.
    """
    memory = accelerator.memory_bytes()
    if memory is None:
        return 2**30
    sharing = world.local_size if accelerator.family == "cpu" else 1
    fits = int(0.8 * memory / sharing / sample_bytes)
    return 2 ** max(0, fits.bit_length() - 1)


def fit(request: Request, data: Any, benchmark: str, data_dir: str) -> Request:
    """The request for this data set: an epoch of real data must hold a step; a window may be an epoch.

    A synthetic set may be smaller than a step, whose samples then repeat: nobody learns from it, and the result says
    that its data came from memory.
    """
    batch, samples = request.global_batch_size, len(data)
    if batch > samples and data.kind != "synthetic":
        raise Impossible(
            f"a step takes {batch} samples (global batch size) and the data set at {data_dir} has {samples}; ask for "
            f"fewer ranks or a smaller batch, or write a synthetic set: {_write_set(request, benchmark, 4 * batch)}"
        )
    request = replace(request, steps_per_window=request.steps_per_window or max(1, samples // batch))
    if request.cache == "cold" and request.steps * batch > samples:
        raise Impossible(
            f"a cold run must not read a sample twice; this one reads {request.steps * batch} and the data set at "
            f"{data_dir} has {samples}: ask for fewer --windows or --steps-per-window, or write more: "
            f"{_write_set(request, benchmark, request.steps * batch)}"
        )
    return request


def _write_set(request: Request, benchmark: str, samples: int) -> str:
    size = "quick" if request.size == "full" else request.size
    return f"python -m models data {benchmark} --size {size} --data-dir NEW_FOLDER --samples {samples}"


def check_time(request: Request, elapsed_s: float, step_s: float, limit_s: float) -> None:
    """After the warm-up, so that nobody waits for a run that its time limit will cut: raises Impossible if it will."""
    steps = request.steps_per_window
    if request.window_s and step_s:
        steps = max(steps, min(MOST_STEPS, math.ceil(request.window_s / step_s)))
    needed_s = elapsed_s + request.windows * steps * step_s
    if needed_s > limit_s:
        raise Impossible(
            f"this run needs about {needed_s:.0f} s and --time-limit-s is {limit_s:g}: {elapsed_s:.0f} s are gone and "
            f"{request.windows} windows of {steps} steps take {step_s:.3g} s each step; ask for at "
            f"least {1.2 * needed_s:.0f} s, fewer --windows or --steps-per-window, or a smaller --size"
        )


def _known(what: str, name: str, known: Dict[str, Any]) -> Any:
    if name not in known:
        raise Impossible(f"unknown {what} {name!r}; --{what} is one of {', '.join(known)}")
    return known[name]


def _dtype(wish: str, accelerator: Accelerator) -> str:
    dtypes = accelerator.dtypes()
    if wish == "auto":
        return dtypes[0]
    if wish not in dtypes:
        name = accelerator.facts("fp32")["name"]
        raise Impossible(f"{name} does not train in {wish}; --dtype is one of auto, {', '.join(dtypes)} there")
    return wish


def _batches(
    options: argparse.Namespace, size: Size, configuration: Configuration, ranks: int, most: int, tuned: int
) -> Tuple[int, int]:
    """Global batch size and micro-batches of a step.

    What is typed stands above the size's batch, that above the configuration's. A given global batch is cut into as
    many micro-batches as let the local batch be at most `most`, unless their number is given as well.
    """
    if options.global_batch_size and options.local_batch_size:
        raise Impossible("--global-batch-size and --local-batch-size say the same thing twice; give one of them")
    parts = options.accumulation_steps or 1
    local = options.local_batch_size or (None if options.global_batch_size else size.local_batch)
    total = options.global_batch_size or configuration.global_batch
    if local or not total:
        return int(local or min(most, tuned)) * ranks * parts, parts
    if total % (ranks * parts):
        good = [str(n) for n in range(1, total + 1) if total % (n * parts) == 0]
        other = f"{', '.join(good)} ranks, or " if good else ""
        raise Impossible(
            f"a global batch size of {total} does not divide by {ranks} rank(s) x {parts} accumulation step(s); "
            f"use {other}a --global-batch-size that is a multiple of {ranks * parts}"
        )
    if not options.accumulation_steps:
        share = total // ranks
        parts = next(n for n in range(1, share + 1) if share % n == 0 and share // n <= most)
    return int(total), parts


def cores_of_rank(world: World) -> int:
    """Cores that this rank may fill: srun and mpiexec give each rank its own, torchrun gives all of them the same.

    A quota on processor time is shared by the ranks of the node, and makes the cores fewer, rounded up.
    """
    cores = own_cores()
    shared = world.launcher in ("torchrun", "none") or cores == os.cpu_count()
    if shared:
        cores //= world.local_size
    quota = cpu_quota() or math.inf
    if quota < math.inf:
        cores = min(cores, math.ceil(quota / world.local_size))
    return max(1, cores)


def _workers(wish: str, accelerator: Accelerator, world: World) -> int:
    """Loader processes or threads of a rank. A core reads far more than it trains on; a GPU is given what is there."""
    if wish != "auto":
        if not wish.isdigit():
            raise Impossible(f"--workers is a number or auto, not {wish!r}")
        return int(wish)
    cores = cores_of_rank(world)
    return max(1, min(16, cores // 16 if accelerator.family == "cpu" else cores - 1))


def _worker_start(options: argparse.Namespace, benchmark: Any) -> str:
    """Threads where the benchmark reads arrays; else fork, except beside an MPI, whose library no child may touch."""
    wish, threads = str(options.worker_start), benchmark.LOADER == "thread"
    if wish == "thread" and not threads:
        raise Impossible(
            f"{options.benchmark} is decoded by processes; --worker-start is one of fork, forkserver, spawn"
        )
    if wish != "auto":
        return wish
    return "thread" if threads else "forkserver" if options.backend == "mpi" else "fork"


def _inject(options: argparse.Namespace, world: World) -> Optional[Dict[str, float]]:
    if options.inject_rank is not None and options.inject_rank >= world.size:
        raise Impossible(f"--inject-rank {options.inject_rank}: there are ranks 0 to {world.size - 1}")
    asked = {"stall_s": options.inject_stall_s, "slow": options.inject_slow, "rank": options.inject_rank}
    given = {key: value for key, value in asked.items() if value is not None}
    return given if "stall_s" in given or "slow" in given else None
