"""One job as this rank knows it before any rank has talked to another: device, request, data set, and doubts."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
from types import ModuleType
from typing import Any, Dict, List, NamedTuple

import torch

from models import host
from models import request as requests
from models.accelerators import Accelerator, choose
from models.errors import Impossible
from models.meter import Meter, Wire
from models.request import Request
from models.world import World

BENCHMARKS = {"resnet50": "models.resnet50"}


class Job(NamedTuple):
    """Everything that is known before any rank has talked to another."""

    name: str
    benchmark: ModuleType
    options: argparse.Namespace
    world: World
    accelerator: Accelerator
    data: Any
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
    data = benchmark.open_data(
        options.data_dir,
        image_size=request.image_size,
        augment=request.augment,
        seed=request.seed,
        skip_corrupt=request.skip_corrupt,
    )
    request = requests.fit(request, len(data), options.data_dir)
    accelerator.settle(request.dtype)
    warnings = [*share_cores(world), *neighbours(accelerator, world), *doubts(request, accelerator, options.dtype)]
    return Job(options.benchmark, benchmark, options, world, accelerator, data, request, started_s, warnings)


def check_backend(wish: str, accelerator: Accelerator) -> None:
    if wish == "nccl" and accelerator.family != "cuda":
        raise Impossible(
            f"--backend nccl needs GPUs and the device is {accelerator.family}; use --backend gloo, or auto"
        )
    if wish == "mpi" and not (torch.distributed.is_available() and torch.distributed.is_mpi_available()):
        raise Impossible(f"this torch ({torch.__version__}) is built without MPI; use --backend auto, which needs none")


def backend(job: Job) -> str:
    return job.accelerator.backend if job.options.backend == "auto" else str(job.options.backend)


def share_cores(world: World) -> List[str]:
    """Split a node's cores among its ranks where nobody set the threads; a warning where they are too many."""
    cores = requests.cores_of_rank(world)
    if world.local_size > 1 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(cores)
    threads = torch.get_num_threads()
    return [f"{threads} threads in each rank, which has {cores} core(s) to itself"] if threads > cores else []


def neighbours(accelerator: Accelerator, world: World) -> List[str]:
    """A warning where others compute on this node before we do. Beside other ranks of ours nobody can tell."""
    busy = host.busy_cores() if accelerator.family == "cpu" and world.local_size == 1 else None
    if busy is None or busy < 0.25 * host.own_cores():
        return []
    return [f"not alone: others kept {busy:.1f} of {host.own_cores()} core(s) busy just before this run"]


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


def doubts(request: Request, accelerator: Accelerator, wish: str) -> List[str]:
    """What a reader of the result should know."""
    found = []
    if request.inject:
        found.append(f"injected on purpose, so no measurement: {request.inject}")
    if request.dtype == "bf16" and accelerator.dtypes()[0] != "bf16":
        found.append("this device has no bf16 instructions: they are emulated")
    if request.configuration == "tuned" and wish == "auto" and request.dtype == "fp32":
        found.append("tuned in fp32: this device has no bf16 instructions")
    if not request.augment:
        found.append("no augmentation: less decoding work than the benchmark's")
    return found


def make_meter(job: Job, ranks: Any, wire: Wire) -> Meter:
    request, peak = job.request, job.accelerator.peak_flops(job.request.dtype)
    return Meter(
        samples=lambda batch: int(batch[1].shape[0]),
        warmup_steps=request.warmup_steps,
        windows=request.windows,
        steps_per_window=request.steps_per_window,
        micro_batches=request.accumulation_steps,
        mode=request.mode,
        clock=job.accelerator.clock(),
        group=ranks,
        wire=wire,
        flop_per_sample=job.benchmark.flop_per_sample(request.variant, request.image_size)[1],
        peak_flops=peak and peak * job.accelerator.devices(job.world),
        learnable=True,
        data_samples=len(job.data),
    )


def make_schedule(job: Job) -> Any:
    request = job.request
    return job.benchmark.Schedule(request.steps, len(job.data) // request.global_batch_size, request.global_batch_size)


def injection(job: Job, key: str) -> float:
    inject = job.request.inject or {}
    return inject.get(key, 0.0) if inject.get("rank", job.world.rank) == job.world.rank else 0.0


def mlperf(job: Job) -> Dict[str, object]:
    """MLPerf's keys (training ruleset 4.0). init_start is written before, run_start and run_stop by the meter."""
    request, world = job.request, job.world
    return {
        "submission_benchmark": job.benchmark.MLPERF_NAME,
        "submission_org": "hpc-ml-bench",
        "submission_division": "open",
        "submission_status": "research",
        "submission_platform": platform.node(),
        "cache_clear": False,
        "seed": request.seed,
        "global_batch_size": request.global_batch_size,
        "gradient_accumulation_steps": request.accumulation_steps,
        "train_samples": len(job.data),
        "number_of_nodes": world.nodes,
        "accelerators_per_node": world.local_size,
        "model_bn_span": request.local_batch_size,
        **make_schedule(job).mlperf(),
        "init_stop": None,
    }
