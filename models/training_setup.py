"""What one rank sets up before it talks to the others: device, request, data set, and what follows from them."""

from __future__ import annotations

import argparse
import itertools
import os
import platform
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Optional, Tuple

import torch

from models import benchmarks
from models import request as requests
from models.accelerators import Accelerator, EagerAccelerator, choose
from models.benchmarks import Benchmark, LearningRates
from models.data import pagecache
from models.data.sampling import SlabSampler, StepSampler
from models.data.skip_corrupt import SkipCorrupt
from models.energy import EnergyWatch, Watches
from models.errors import ImpossibleRequest
from models.meter import Meter, Wire
from models.node import NodeWatch
from models.request import Request
from models.world import World

MOST_FILES = 10_000  # samples whose files are checked, to find out what share of the data set is in memory


@dataclass(frozen=True)
class TrainingSetup:
    """Everything that the training of one rank is made of."""

    name: str  # of the benchmark
    benchmark: Benchmark
    options: argparse.Namespace
    world: World
    accelerator: Accelerator
    data: Any
    resident: Optional[float]  # share of the bytes of this rank's files that was in memory; None: unknown
    bytes_per_sample: Optional[float]  # that are read of a file, on average; None: unknown
    request: Request
    started_s: float  # when the process started, by time.perf_counter
    warnings: List[str]  # for the reader of the result; grows during the run
    multiplied_in: Dict[str, str] = field(default_factory=dict)  # of models.dtypes, as far as it is measured


def set_up(options: argparse.Namespace, world: World, started_s: float) -> TrainingSetup:
    """Choose the device, resolve the request, open the data set.

    Talks to no other rank, so that an error here leaves none waiting. Raises CommandError.
    """
    benchmark = benchmarks.load(options.benchmark)
    accelerator = choose(options.device)
    accelerator.select(world)
    request = requests.resolve(options, benchmark, accelerator, world)
    check_backend(options.backend, accelerator)

    if options.checkpoint is not None:
        from models import checkpoint  # imported late, because it takes a second

        checkpoint.check(options.checkpoint)
    data = benchmark.open_data(
        options.data_dir, variant=request.variant, shape=request.shape, augment=request.augment, seed=request.seed
    )
    request = requests.fit(request, data, options.benchmark, options.data_dir)
    files = own_files(request, data, world)
    resident = pagecache.prepare(files, request.cache) if accelerator.reads_here else None
    bytes_per_sample = getattr(data, "bytes_per_sample", None) or pagecache.mean_bytes(files)
    if request.skip_corrupt:
        data = SkipCorrupt(data)

    accelerator.settle(request.dtype)
    share_cores(world)
    return TrainingSetup(
        name=options.benchmark,
        benchmark=benchmark,
        options=options,
        world=world,
        accelerator=accelerator,
        data=data,
        resident=resident,
        bytes_per_sample=bytes_per_sample,
        request=request,
        started_s=started_s,
        warnings=[*warnings_on_request(request, benchmark, accelerator, options), *data.warnings],
    )


def own_files(request: Request, data: Any, world: World) -> List[bytes]:
    """Return the files that this rank is going to read; of a long run with --cache as-is only the first ones."""
    batch_count = request.steps * request.batches_per_step // request.steps_per_batch
    if request.cache == "as-is":
        batch_count = min(batch_count, -(-MOST_FILES // request.batch_of_rank))
    batches = itertools.islice(make_sampler(request, len(data), world.rank), batch_count)
    indices = {index for batch in batches for _, index in batch}
    return [os.fsencode(path) for path in dict.fromkeys(map(data.path, sorted(indices)))]


def check_backend(wish: str, accelerator: Accelerator) -> None:
    if wish == "nccl" and accelerator.family != "cuda":
        raise ImpossibleRequest(
            f"--backend nccl needs GPUs and the device is {accelerator.family}; use --backend gloo, or auto"
        )
    if wish == "mpi" and not (torch.distributed.is_available() and torch.distributed.is_mpi_available()):
        raise ImpossibleRequest(
            f"this torch ({torch.__version__}) is built without MPI; use --backend auto, which needs none"
        )


def backend(setup: TrainingSetup) -> str:
    """Return the torch.distributed backend of the job."""
    if setup.options.backend == "auto":
        return setup.accelerator.backend
    return str(setup.options.backend)


def share_cores(world: World) -> None:
    """Limit torch's threads to this rank's share of the node's cores, or of its CPU quota.

    OMP_NUM_THREADS in the environment has precedence.
    """
    cores = requests.cores_of_rank(world)
    is_fewer = world.local_size > 1 or cores < torch.get_num_threads()
    if is_fewer and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(cores)


def warnings_on_request(
    request: Request, benchmark: Benchmark, accelerator: Accelerator, options: argparse.Namespace
) -> List[str]:
    """Return warnings about the request: why its result may be no measurement, or not the benchmark's."""
    warnings = []
    if request.inject:
        warnings.append(f"injected on purpose, so no measurement: {request.inject}")
    if request.dtype == "bf16" and accelerator.dtypes()[0] != "bf16":
        warnings.append("this device has no bf16 instructions: they are emulated")
    if request.configuration == "tuned" and options.dtype == "auto" and request.dtype == "fp32":
        warnings.append("tuned in fp32: this device has no bf16 instructions")
    batch = benchmark.CONFIGURATIONS[request.configuration].global_batch
    if batch not in (None, request.global_batch_size):
        warnings.append(f"a global batch of {request.global_batch_size}, not the {batch} of {request.configuration}")
    configuration = benchmark.CONFIGURATIONS[request.configuration]
    if request.dtype == configuration.dtype_on.get(accelerator.family):
        other = f"{request.dtype} on {accelerator.family}, not the {configuration.dtype} of {request.configuration}"
        warnings.append(f"{other} (docs/accelerators.md)")
    if request.accumulation_steps > 1 and not options.accumulation_steps and not accelerator.accumulates:
        micro_batches = f"{request.accumulation_steps} micro-batches of {request.local_batch_size}"
        warnings.append(f"a rank's share of each step in {micro_batches}: more does not fit into the memory")
    is_typed = options.warmup_steps is not None  # the sizes have warm-ups of one batch on purpose
    if options.time_limit_s is not None and is_typed and request.warmup_steps <= request.steps_per_batch:
        short = f"a warm-up of {request.warmup_steps} step(s) does not say how long a step takes"
        warnings.append(f"--time-limit-s was not checked: {short}; use --warmup-steps {2 * request.steps_per_batch}")
    if options.no_augment:
        warnings.append("no augmentation: less decoding work than the benchmark's")
    return warnings


# --- what the loop is given -------------------------------------------------------------------------------------------


def make_meter(setup: TrainingSetup, ranks: Any, wire: Wire) -> Meter:
    request = setup.request
    peak_flops = setup.accelerator.peak_flops(request.dtype)
    if peak_flops is not None:
        peak_flops *= devices_of(setup)
    meter = Meter(
        samples=lambda batch: int(batch[1].shape[0]),
        warmup_steps=request.warmup_steps,
        windows=request.windows,
        steps_per_window=request.steps_per_window,
        window_s=request.window_s,
        micro_batches=request.batches_per_step,
        steps_per_batch=request.steps_per_batch,
        no_split=setup.accelerator.no_split,
        mode=request.mode,
        clock=setup.accelerator.clock(),
        group=ranks,
        wire=wire,
        flop_per_sample=setup.benchmark.flop_per_sample(request.variant, request.shape)[1],
        peak_flops=peak_flops,
        learnable=True,
        data_samples=len(setup.data),
        data_resident=setup.resident,
        watch=Watches(NodeWatch(of_node=setup.world.local_rank == 0), EnergyWatch(setup.accelerator.energy_source())),
    )
    if setup.accelerator.device is not None and setup.accelerator.family == "cuda":
        identity = setup.accelerator.identity()  # every rank may call its own GPU cuda:0
        meter.device = ", ".join(filter(None, [str(setup.accelerator.device), identity]))
    return meter


def devices_of(setup: TrainingSetup) -> int:
    """Return how many devices the job has, of which `Accelerator.peak_flops` is that of one."""
    request = setup.request
    if isinstance(setup.accelerator, EagerAccelerator):
        return setup.accelerator.devices(setup.world)
    return request.replicas * request.devices_per_replica


def tokens_per_sample(setup: TrainingSetup) -> Optional[int]:
    """Return the length of a sample that is a sequence of tokens; None for other samples."""
    return getattr(setup.data, "tokens_per_sample", None)


def make_sampler(request: Request, samples: int, rank: int) -> Iterable[List[Tuple[int, int]]]:
    """Return the endless batches of a rank, as pairs (epoch, index)."""
    if request.steps_per_batch > 1:
        replicas = request.replicas // request.world_size
        shares = StepSampler(
            samples,
            local_batch=request.local_batch_size * request.accumulation_steps,
            rank=rank,
            world=request.world_size,
            accumulation=replicas,
            seed=request.seed,
        )
        return SlabSampler(shares, replicas=replicas, steps=request.steps_per_batch)
    return StepSampler(
        samples,
        local_batch=request.batch_of_rank,
        rank=rank,
        world=request.world_size,
        accumulation=request.batches_per_step,
        seed=request.seed,
    )


def make_schedule(setup: TrainingSetup) -> LearningRates:
    request = setup.request
    steps_per_epoch = max(1, len(setup.data) // request.global_batch_size)
    return setup.benchmark.Schedule(request.steps, steps_per_epoch, request.global_batch_size)


def dropout_seed(setup: TrainingSetup, step: int, micro_batch: int) -> int:
    """Return the seed of a micro-batch's dropout.

    It depends on the micro-batch's number in the global batch and not on the number of ranks that share the batch.
    """
    request = setup.request
    number = (step * request.world_size + setup.world.rank) * request.accumulation_steps + micro_batch
    return (request.seed * 1_000_003 + number) % 2**63


def mlperf_keys(setup: TrainingSetup) -> Dict[str, object]:
    """Return MLPerf's keys (its rulesets: MLPERF_RULES) that stand between init_start and run_start."""
    request = setup.request
    world = setup.world
    tokens = tokens_per_sample(setup)
    accelerators_per_node = world.local_size
    if request.drives_devices:
        accelerators_per_node = request.replicas * request.devices_per_replica // world.nodes
    return {
        "submission_benchmark": setup.benchmark.MLPERF_NAME,
        "submission_org": "hpc-ml-bench",
        "submission_division": "open",
        "submission_status": "research",
        "submission_platform": platform.node(),
        "cache_clear": request.cache == "cold",
        "seed": request.seed,
        "global_batch_size": request.global_batch_size,
        "gradient_accumulation_steps": request.accumulation_steps,
        "gradient_accumulation_frequency": request.accumulation_steps,
        "train_samples": len(setup.data),
        **({"max_sequence_length": tokens} if tokens else {}),
        "number_of_nodes": world.nodes,
        "accelerators_per_node": accelerators_per_node,
        "model_bn_span": request.local_batch_size,
        **make_schedule(setup).mlperf(),
        "init_stop": None,
    }
