"""One job as this rank knows it before any rank has talked to another: device, request, data set, and doubts."""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import platform
from types import ModuleType
from typing import Any, Dict, List, NamedTuple, Optional

import torch

from models import request as requests
from models.accelerators import Accelerator, choose
from models.contention import Watch
from models.data import pagecache
from models.data.sampling import StepSampler
from models.data.skipping import Skipping
from models.errors import Impossible
from models.meter import Meter, Wire
from models.request import Request
from models.world import World

MOST_LOOKED_AT = 10_000  # samples: as many as say how much of a data set is in memory
BENCHMARKS = {"resnet50": "models.resnet50", "cosmoflow": "models.cosmoflow", "deepcam": "models.deepcam"}


class Job(NamedTuple):
    """Everything that is known before any rank has talked to another."""

    name: str
    benchmark: ModuleType
    options: argparse.Namespace
    world: World
    accelerator: Accelerator
    data: Any
    resident: Optional[float]  # share of the bytes of this rank's files that was in memory; None: not known
    bytes_per_sample: Optional[float]  # mean size of this rank's files; None: not known
    request: Request
    started_s: float
    warnings: List[str]


def prepare(options: argparse.Namespace, world: World, started_s: float) -> Job:
    """Choose the device, resolve the request, open the data set. Talks to no other rank, so that none waits for it."""
    benchmark = importlib.import_module(BENCHMARKS[options.benchmark])
    accelerator = choose(options.device)
    accelerator.select(world)
    request = requests.resolve(options, benchmark, accelerator, world)
    check_backend(options.backend, accelerator)
    data = benchmark.open_data(options.data_dir, shape=request.shape, augment=request.augment, seed=request.seed)
    request = requests.fit(request, data, options.benchmark, options.data_dir)
    files = own_files(request, data, world)
    resident, bytes_per_sample = pagecache.prepare(files, request.cache), pagecache.mean_bytes(files)
    if request.skip_corrupt:
        data = Skipping(data)
    accelerator.settle(request.dtype)
    share_cores(world)
    warnings = [*doubts(request, benchmark, accelerator, options), *data.warnings]
    return Job(
        options.benchmark,
        benchmark,
        options,
        world,
        accelerator,
        data,
        resident,
        bytes_per_sample,
        request,
        started_s,
        warnings,
    )


def own_files(request: Request, data: Any, world: World) -> List[bytes]:
    """The files that this rank is going to read; of a long run whose cache is left as it is, the first ones."""
    batches = request.steps * request.accumulation_steps
    if request.cache == "as-is":
        batches = min(batches, -(-MOST_LOOKED_AT // request.local_batch_size))
    own = itertools.islice(make_sampler(request, len(data), world.rank), batches)
    return [os.fsencode(data.path(index)) for index in sorted({index for batch in own for _, index in batch})]


def check_backend(wish: str, accelerator: Accelerator) -> None:
    if wish == "nccl" and accelerator.family != "cuda":
        raise Impossible(
            f"--backend nccl needs GPUs and the device is {accelerator.family}; use --backend gloo, or auto"
        )
    if wish == "mpi" and not (torch.distributed.is_available() and torch.distributed.is_mpi_available()):
        raise Impossible(f"this torch ({torch.__version__}) is built without MPI; use --backend auto, which needs none")


def backend(job: Job) -> str:
    return job.accelerator.backend if job.options.backend == "auto" else str(job.options.backend)


def share_cores(world: World) -> None:
    """Split a node's cores, or its quota, among its ranks where the environment leaves the number of threads open."""
    cores = requests.cores_of_rank(world)
    fewer = world.local_size > 1 or cores < torch.get_num_threads()
    if fewer and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(cores)


def stolen(before: Any, after: Any) -> List[str]:
    """A warning where a hypervisor gave the node's cores to others between these two looks at its health."""
    names = ("stolen_ticks", "cpu_ticks")
    looks = [[(look or {}).get(name) for name in names] for look in (before, after)]
    if any(value is None for look in looks for value in look):
        return []
    gone, spent = (late - early for early, late in zip(*looks))
    if spent <= 0 or gone / spent < 0.02:
        return []
    return [f"a virtual machine: {gone / spent:.0%} of its processor time went to others while it ran"]


def doubts(request: Request, benchmark: ModuleType, accelerator: Accelerator, options: argparse.Namespace) -> List[str]:
    """What a reader of the result should know."""
    found = []
    if request.inject:
        found.append(f"injected on purpose, so no measurement: {request.inject}")
    if request.dtype == "bf16" and accelerator.dtypes()[0] != "bf16":
        found.append("this device has no bf16 instructions: they are emulated")
    if request.configuration == "tuned" and options.dtype == "auto" and request.dtype == "fp32":
        found.append("tuned in fp32: this device has no bf16 instructions")
    batch = benchmark.CONFIGURATIONS[request.configuration].global_batch
    if batch not in (None, request.global_batch_size):
        found.append(f"a global batch of {request.global_batch_size}, not the {batch} of {request.configuration}")
    if request.accumulation_steps > 1 and not options.accumulation_steps:
        parts = f"{request.accumulation_steps} micro-batches of {request.local_batch_size}"
        found.append(f"a rank's share of each step in {parts}: more does not fit into the memory")
    if options.no_augment:
        found.append("no augmentation: less decoding work than the benchmark's")
    return found


def make_meter(job: Job, ranks: Any, wire: Wire) -> Meter:
    request, peak = job.request, job.accelerator.peak_flops(job.request.dtype)
    return Meter(
        samples=lambda batch: int(batch[1].shape[0]),
        warmup_steps=request.warmup_steps,
        windows=request.windows,
        steps_per_window=request.steps_per_window,
        window_s=request.window_s,
        micro_batches=request.accumulation_steps,
        mode=request.mode,
        clock=job.accelerator.clock(),
        group=ranks,
        wire=wire,
        flop_per_sample=job.benchmark.flop_per_sample(request.variant, request.shape)[1],
        peak_flops=peak and peak * job.accelerator.devices(job.world),
        learnable=True,
        data_samples=len(job.data),
        data_resident=job.resident,
        watch=Watch(),
    )


def make_sampler(request: Request, samples: int, rank: int) -> StepSampler:
    return StepSampler(
        samples,
        local_batch=request.local_batch_size,
        rank=rank,
        world=request.world_size,
        accumulation=request.accumulation_steps,
        seed=request.seed,
    )


def make_schedule(job: Job) -> Any:
    request = job.request
    steps_per_epoch = max(1, len(job.data) // request.global_batch_size)
    return job.benchmark.Schedule(request.steps, steps_per_epoch, request.global_batch_size)


def injection(job: Job, key: str) -> float:
    inject = job.request.inject or {}
    return inject.get(key, 0.0) if inject.get("rank", job.world.rank) == job.world.rank else 0.0


def mlperf(job: Job) -> Dict[str, object]:
    """MLPerf's keys (its rulesets: MLPERF_RULES). init_start is written before, run_start and run_stop by the meter."""
    request, world = job.request, job.world
    return {
        "submission_benchmark": job.benchmark.MLPERF_NAME,
        "submission_org": "hpc-ml-bench",
        "submission_division": "open",
        "submission_status": "research",
        "submission_platform": platform.node(),
        "cache_clear": request.cache == "cold",
        "seed": request.seed,
        "global_batch_size": request.global_batch_size,
        "gradient_accumulation_steps": request.accumulation_steps,
        "gradient_accumulation_frequency": request.accumulation_steps,
        "train_samples": len(job.data),
        "number_of_nodes": world.nodes,
        "accelerators_per_node": world.local_size,
        "model_bn_span": request.local_batch_size,
        **make_schedule(job).mlperf(),
        "init_stop": None,
    }
