"""What a training run is asked to do: every default filled in, everything impossible refused before any training."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict, dataclass, replace
from typing import Any, Dict, Optional

from models.accelerators import Accelerator
from models.errors import Impossible
from models.host import own_cores
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
    steps_per_window: int  # 0 until the data set is open, when windows are epochs
    image_size: int
    augment: bool
    skip_corrupt: bool
    worker_start: str
    inject: Optional[Dict[str, float]] = None

    @property
    def steps(self) -> int:
        return self.warmup_steps + self.windows * self.steps_per_window

    def wire(self) -> Dict[str, object]:
        return {key: value for key, value in asdict(self).items() if key != "inject" or value}


def resolve(options: argparse.Namespace, benchmark: Any, accelerator: Accelerator, world: World) -> Request:
    """Fill in what the options leave open. Raises Impossible, in one sentence, for what cannot be done."""
    configuration = _known("configuration", options.configuration, benchmark.CONFIGURATIONS)
    size = _known("size", options.size, benchmark.SIZES)[accelerator.family]
    _known("variant", options.variant, benchmark.VARIANTS)
    if options.expect_world_size not in (None, world.size):
        raise Impossible(
            f"--expect-world-size {options.expect_world_size}, and {world.size} rank(s) were started (launcher: "
            f"{world.launcher}); check the launcher's number of tasks, or that the job is started through it at all"
        )
    dtype = _dtype(configuration.dtype if options.dtype == "auto" else options.dtype, accelerator)
    tuned = benchmark.tuned_local_batch(accelerator.family, accelerator.memory_bytes(), dtype, options.variant)
    parts = world.size * options.accumulation_steps
    total = _global_batch(options, size.local_batch, configuration.global_batch, tuned, parts)
    return Request(
        configuration=options.configuration,
        size=options.size,
        mode=options.mode,
        variant=options.variant,
        dtype=dtype,
        channels_last={"auto": configuration.channels_last, "on": True, "off": False}[options.channels_last],
        compile=options.compile,
        seed=options.seed,
        workers=_workers(options.workers, accelerator, world),
        global_batch_size=total,
        local_batch_size=total // parts,
        accumulation_steps=options.accumulation_steps,
        world_size=world.size,
        device=accelerator.family,
        warmup_steps=size.warmup_steps if options.warmup_steps is None else options.warmup_steps,
        windows=options.windows or size.windows,
        steps_per_window=options.steps_per_window or size.steps_per_window or 0,
        image_size=options.image_size or size.image_size,
        augment=not options.no_augment,
        skip_corrupt=options.skip_corrupt,
        worker_start=_worker_start(options),
        inject=_inject(options, world),
    )


def fit(request: Request, samples: int, data_dir: str) -> Request:
    """The request for a data set of so many samples: an epoch must hold a step; a window may be an epoch."""
    if request.global_batch_size > samples:
        raise Impossible(
            f"a step takes {request.global_batch_size} samples (global batch size) and the data set at {data_dir} has "
            f"{samples}; ask for fewer ranks or a smaller batch, or write more: "
            f"python -m models data resnet50 --data-dir NEW_FOLDER --samples {4 * request.global_batch_size}"
        )
    return replace(request, steps_per_window=request.steps_per_window or samples // request.global_batch_size)


def check_time(request: Request, elapsed_s: float, step_s: float, limit_s: float) -> None:
    """After the warm-up, so that nobody waits for a run that its time limit will cut: raises Impossible if it will."""
    steps = request.windows * request.steps_per_window
    needed_s = elapsed_s + steps * step_s
    if needed_s > limit_s:
        raise Impossible(
            f"this run needs about {needed_s:.0f} s and --time-limit-s is {limit_s:g}: {elapsed_s:.0f} s are gone and "
            f"{request.windows} windows of {request.steps_per_window} steps take {step_s:.3g} s each step; ask for at "
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


def _global_batch(
    options: argparse.Namespace, by_size: Optional[int], by_configuration: Optional[int], tuned: int, parts: int
) -> int:
    """What is typed stands above the size's batch, that above the configuration's. `parts`: micro-batches of a step."""
    if options.global_batch_size and options.local_batch_size:
        raise Impossible("--global-batch-size and --local-batch-size say the same thing twice; give one of them")
    if options.local_batch_size:
        return int(options.local_batch_size) * parts
    if by_size and not options.global_batch_size:
        return by_size * parts
    total = int(options.global_batch_size or by_configuration or tuned * parts)
    if total % parts:
        ranks = parts // options.accumulation_steps
        fitting = [str(n) for n in range(1, total + 1) if total % (n * options.accumulation_steps) == 0]
        other = f"{', '.join(fitting)} ranks, or " if fitting else ""
        raise Impossible(
            f"a global batch size of {total} does not divide by {ranks} rank(s) x {options.accumulation_steps} "
            f"accumulation step(s); use {other}a --global-batch-size that is a multiple of {parts}"
        )
    return total


def cores_of_rank(world: World) -> int:
    """Cores that this rank may fill: srun and mpiexec give each rank its own, torchrun gives all of them the same."""
    cores = own_cores()
    shared = world.launcher in ("torchrun", "none") or cores == os.cpu_count()
    return max(1, cores // world.local_size) if shared else cores


def _workers(wish: str, accelerator: Accelerator, world: World) -> int:
    """Loader processes of a rank. A core decodes some 400 images/s; a processor that also trains needs few of them."""
    if wish != "auto":
        if not wish.isdigit():
            raise Impossible(f"--workers is a number or auto, not {wish!r}")
        return int(wish)
    cores = cores_of_rank(world)
    return max(1, min(16, cores // 16 if accelerator.family == "cpu" else cores - 1))


def _worker_start(options: argparse.Namespace) -> str:
    """fork, except beside an MPI, whose library a forked child must not touch."""
    if options.worker_start != "auto":
        return str(options.worker_start)
    return "forkserver" if options.backend == "mpi" else "fork"


def _inject(options: argparse.Namespace, world: World) -> Optional[Dict[str, float]]:
    if options.inject_rank is not None and options.inject_rank >= world.size:
        raise Impossible(f"--inject-rank {options.inject_rank}: there are ranks 0 to {world.size - 1}")
    asked = {"stall_s": options.inject_stall_s, "slow": options.inject_slow, "rank": options.inject_rank}
    given = {key: value for key, value in asked.items() if value is not None}
    return given if "stall_s" in given or "slow" in given else None
