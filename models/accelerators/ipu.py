"""Graphcore's IPUs through PopTorch 3.x. A process drives all IPUs of its replicas, and compiles one program for them.

What is checked here against PopTorch's own source (github.com/graphcore/poptorch at 2023-09-29, the last one) names the
file. `poptorch` and `popdist` come with the Poplar SDK only, so they are imported when an IPU is asked for.
docs/accelerators.md says how a benchmark runs there.
"""

from __future__ import annotations

import functools
import importlib
import os
import time
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple

import torch

from models import meter
from models.errors import CommandError, CompileFailed, DeviceOutOfMemory, ImpossibleRequest, MachineFailed, with_message
from models.settings import shape_text
from models.world import World

# The modules with which a new IPU begins, by benchmark and IPUs of a replica: the stages of the HPDC'24 paper.
CUTS: Dict[Tuple[str, int], Tuple[str, ...]] = {
    ("resnet50", 2): ("layer3",),  # conv1 to layer2 | layer3 to the classifier
    ("cosmoflow", 2): ("convolutions.3",),  # the first three convolutions | the rest
}
# Optimiser steps of one call: the host is asked less often, the learning rate stays for as many steps. A warm-up of 10
# steps still has two calls, of which --time-limit-s needs the second.
STEPS_PER_CALL = 5
# The same as on GPUs (models/accelerators/cuda.py). A given factor keeps the program of a run the same every night.
FP16_LOSS_SCALE = 128.0
MOST_IPUS = 64  # of one process (popart_compiler/source/CompilerImpl.cpp, assertSingleInstanceMaxNumIPUs)
MEMORY_BYTES = {1: 1216 * 256 * 1024, 2: 1472 * 624 * 1024, 21: 1472 * 624 * 1024}  # tiles x memory of a tile
BOW_FLOPS = {"fp16": 350e12, "fp32": 87.5e12}  # Bow-2000's data sheet, per IPU
CLOCK_S = (
    0.002  # PopTorch's stamps are cut to milliseconds (popart_compiler/source/CompilerImpl.cpp, StepIO::timestamp)
)
LATENCIES = {
    "host_to_device": "getHostIpuLatency",
    "compute": "getComputeLatency",
    "device_to_host": "getIpuHostLatency",
    "round_trip": "getLatency",
}


class Ipu:
    """The IPUs of one rank (models.accelerators.DrivingAccelerator)."""

    type = "ipu"
    family = "ipu"
    backend = "gloo"
    pinned = False
    accumulates = True
    no_split: Optional[str] = None

    def __init__(self) -> None:
        self.poptorch = imported("poptorch")
        self.device = torch.device("cpu")  # of the tensors that PopTorch takes and returns
        self._trained_on: Optional[Tuple[int, int]] = None

    def count(self) -> int:
        """Return the largest power of two of IPUs that the machine has as one device: PopTorch asks for no others."""
        sizes = [size for size in (1, 2, 4, 8, 16, 32, 64) if self.poptorch.ipuHardwareIsAvailable(size)]
        return max(sizes, default=0)

    def devices(self, world: World) -> int:
        replicas, devices_per_replica = self.replicas(world)
        return replicas * devices_per_replica

    def select(self, world: World) -> None:
        """PopTorch or poprun chooses the IPUs. Raises ImpossibleRequest if there is none."""
        if not self.poptorch.ipuHardwareIsAvailable(1):
            raise ImpossibleRequest(
                "PopTorch sees no IPU: run `gc-info -l` where the job runs, and look at what the job asked for"
            )

    def device_iterations(self, most: int) -> int:
        return 1 if most % STEPS_PER_CALL else STEPS_PER_CALL

    def replicas(self, world: World) -> Tuple[int, int]:
        return self._trained_on or (world.size, 1)

    def dtypes(self) -> Tuple[str, ...]:
        return ("fp16", "fp32")

    def settle(self, dtype: str) -> None:
        """There is no TF32 to switch off. What `dtype` means stands in the program's options."""

    def clock(self) -> meter.HostClock:
        return meter.HostClock()

    def synchronize(self) -> None:
        """Do nothing: a call returns when the program has ended."""

    def peak_flops(self, dtype: str) -> Optional[float]:
        """Return the Bow's peak as a bound: PopTorch tells it from a slower IPU of the same version in no way."""
        return BOW_FLOPS[dtype]

    def attainable_flops(self, dtype: str) -> Optional[float]:
        return None  # the data sheet has the peak

    def facts(self, dtype: str) -> Dict[str, object]:
        return {
            "type": self.type,
            "name": f"Graphcore IPU, version {self.poptorch.ipuHardwareVersion()}",
            "count": self.count(),
            "memory_bytes": self.memory_bytes(),
            "driver": None,
            "peak_flops": self.peak_flops(dtype),
            "peak_is": "data sheet of a Bow IPU, the fastest of its version",
        }

    def identity(self) -> Optional[str]:
        return None  # poprun gives each process IPUs of its own

    def health(self) -> Optional[Mapping[str, object]]:
        return None

    def memory_bytes(self) -> Optional[int]:
        return MEMORY_BYTES.get(self.poptorch.ipuHardwareVersion())

    def peak_memory_bytes(self) -> Optional[int]:
        return None  # a compiled program needs a fixed amount, which only a profile tells

    def training_step(
        self,
        setup: Any,
        *,
        loader: Callable[[], Iterable[Any]],
        rate: Callable[[int], float],
        meter: Any,
        take_first: Callable[[Any], None],
    ) -> IpuStep:
        options, self._trained_on = make_options(self.poptorch, setup)
        return IpuStep(self.poptorch, options, setup, loader, rate, meter, take_first)


class IpuStep:
    """A program of several optimiser steps and its loader; a call trains on one batch for all replicas of this rank."""

    def __init__(
        self,
        poptorch: Any,
        options: Any,
        setup: Any,
        loader: Callable[[], Iterable[Any]],
        rate: Callable[[int], float],
        meter: Any,
        take_first: Callable[[Any], None],
    ) -> None:
        request = setup.request
        self.poptorch = poptorch
        self.setup = setup
        self.loader = loader
        self.rate = rate
        self.meter = meter
        self.take_first = take_first

        # The model. Every rank draws the same weights.
        torch.manual_seed(request.seed)
        self.net = setup.benchmark.build(request.variant, request.shape)
        if request.dtype == "fp16":
            self.net.half()
        for ipu, name in enumerate(cut_of(setup), 1):  # what comes before the first cut runs on IPU 0
            poptorch.BeginBlock(self.net.get_submodule(name), ipu_id=ipu)
        self.optimizer = make_optimizer(poptorch, setup.benchmark.make_optimizer(self.net), request.dtype)
        self.set_rate(0)

        # Compile: forward, backward and update become one program, before the first window.
        folder = cache_folder(setup)
        options.enableExecutableCaching(folder)
        self.program = poptorch.trainingModel(NetWithLoss(poptorch, self.net, setup), options, self.optimizer)
        cached = executables(folder)
        begin_s = time.perf_counter()
        try:
            self.program.compile(*blank_batch(setup))
        except poptorch.Error as error:
            raise explained(poptorch, error, compiling=True) from error
        self.compile_s: Optional[float] = time.perf_counter() - begin_s
        # PopART writes <hash>.popef exactly when it compiled, and never when it loaded (popart, popx/devicex.cpp,
        # Devicex::prepare). The folder belongs to this program alone, and the ranks list it before one of them can have
        # compiled: all of them see what the job did.
        self.compile_cache: Optional[str] = "hit" if cached and executables(folder) == cached else "miss"

    def batches(self) -> Iterable[Any]:
        return self.loader()

    def __call__(self, number: int, batch: Any) -> torch.Tensor:
        request = self.setup.request
        samples, targets = batch
        if number == 0:
            self.take_first(samples)

        # All steps of a call have the rate of its first one.
        if self.set_rate(number * request.device_iterations):
            self.program.setOptimizer(self.optimizer)
        began_s = time.time()
        try:
            losses = self.program(samples, targets)
        except self.poptorch.Error as error:
            raise explained(self.poptorch, error, compiling=False) from error
        self.tell_split(began_s, time.time())

        # Each replica returns the sum over its micro-batches.
        return losses.float().mean() / (request.accumulation_steps * request.device_iterations)

    def trained(self) -> Any:
        """Return the net with the weights of the IPUs, which are released."""
        self.meter.device_latency_s = {
            name: dict(zip(("min", "max", "mean"), getattr(self.program, function)()))
            for name, function in LATENCIES.items()
        }
        self.program.destroy()
        return self.net

    def set_rate(self, step: int) -> bool:
        """Set the learning rate of an optimiser step; tell whether it is another one than before."""
        rate = self.rate(step)
        changes = any(group["lr"] != rate for group in self.optimizer.param_groups)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return changes

    def tell_split(self, began_s: float, ended_s: float) -> None:
        """Tell the meter for how long the IPUs worked in a call between these two Unix times.

        They cannot work before their first samples are there, and PopTorch has a stamp of that. They work until the
        call ends: an output leaves before the last backward pass and the update, so no stamp has their end. In between
        they may wait for samples that are still on their way, and no stamp tells that from computing, because the host
        prefetches. So `busy` is an upper bound.
        """
        there_s = first_samples_there(self.program.getPerfCounters())
        # The stamps are Unix times (StepIO::timestamp); PopTorch's manual promises their differences only.
        if there_s is None or not began_s - CLOCK_S <= there_s <= ended_s + CLOCK_S:
            self.meter.no_split = "PopTorch's counters do not say when the first samples of a call reached the IPUs"
            return
        self.meter.worked(max(0.0, ended_s - there_s))


class NetWithLoss(torch.nn.Module):
    """What runs on the IPUs: from the samples as they are in the files to the loss, from which PopTorch goes back.

    PopTorch takes uint8, int16 and int64 inputs as they are; the last become int32 on the host
    (poptorch/source/PoplarExecutable.cpp).
    """

    def __init__(self, poptorch: Any, net: torch.nn.Module, setup: Any) -> None:
        super().__init__()
        self.net = net
        self._mark_loss = poptorch.identity_loss
        self._criterion = setup.benchmark.criterion
        dtype = torch.float16 if setup.request.dtype == "fp16" else torch.float32
        self._prepare_on = functools.partial(setup.benchmark.Prepare, setup.data, dtype=dtype, channels_last=False)

    def forward(self, samples: torch.Tensor, targets: torch.Tensor) -> Any:
        # Constants must be made where the samples are, and while PopTorch traces that is the IPU.
        inputs = self._prepare_on(device=samples.device)(samples)
        return self._mark_loss(self._criterion(self.net(inputs), targets), reduction="none")


# --- what the program is made of --------------------------------------------------------------------------------------


def imported(name: str) -> Any:
    """Import a package of the Poplar SDK. Raises ImpossibleRequest, with where it comes from."""
    try:
        return importlib.import_module(name)
    except (ImportError, AssertionError) as error:  # AssertionError: PopTorch was made for another torch
        cause = "" if isinstance(error, ModuleNotFoundError) else f" ({' '.join(str(error).split())})"
        raise ImpossibleRequest(
            f"--device ipu needs the package {name.partition('.')[0]}, which cannot be imported{cause}: it is in "
            "Graphcore's Poplar SDK 3.x (a wheel there, and the image graphcore/pytorch:3.3.0) and not on PyPI, and it "
            "needs a machine with IPUs"
        ) from error


def cut_of(setup: Any) -> Tuple[str, ...]:
    """Return the modules with which a new IPU begins. Raises ImpossibleRequest where none are known."""
    ipus = setup.request.devices_per_replica
    if ipus == 1:
        return ()
    if (setup.name, ipus) not in CUTS:
        known = [str(number) for name, number in sorted(CUTS) if name == setup.name]
        raise ImpossibleRequest(
            f"it is not known where to cut {setup.name} for {ipus} IPUs; use --devices-per-replica "
            f"{' or '.join(['1', *known])}, or add a cut to CUTS in models/accelerators/ipu.py"
        )
    return CUTS[(setup.name, ipus)]


def check(setup: Any) -> None:
    """Raise ImpossibleRequest for what PopTorch or PopART would refuse later."""
    request = setup.request
    # A stage for each IPU's forward pass, and one for each IPU but the last for its backward pass
    # (popart_compiler/source/CompilerImpl.cpp, numPipelineStages; Compiler.cpp refuses less).
    stages = 2 * len(cut_of(setup)) + 1
    if request.accumulation_steps < stages:
        raise ImpossibleRequest(
            f"a pipeline of {request.devices_per_replica} IPUs has {stages} stages, and a step has "
            f"{request.accumulation_steps} micro-batch(es): use --accumulation-steps {stages} or more"
        )
    ipus = request.replicas // request.world_size * request.devices_per_replica
    if ipus > MOST_IPUS:
        raise ImpossibleRequest(
            f"a process drives {MOST_IPUS} IPUs at most, not {ipus}: start more processes with poprun --num-instances"
        )


def make_options(poptorch: Any, setup: Any) -> Tuple[Any, Tuple[int, int]]:
    """Return PopTorch's options, and the replicas of the whole job with the IPUs of each as they say it.

    Under poprun its popdist knows the replicas of each process, and an option may not say them again.
    """
    request = setup.request
    check(setup)
    asked = (request.replicas, request.devices_per_replica)
    if any(name.startswith("POPDIST_") for name in os.environ):
        popdist = imported("popdist")
        options = imported("popdist.poptorch").Options(ipus_per_replica=request.devices_per_replica)
        trained_on = (int(popdist.getNumTotalReplicas()), int(popdist.getNumIpusPerReplica()))
        if trained_on != asked:
            raise ImpossibleRequest(
                f"poprun was started with {trained_on[0]} replicas of {trained_on[1]} IPU(s), and {asked[0]} of "
                f"{asked[1]} were asked for: let --num-replicas and --ipus-per-replica of poprun agree with --replicas "
                "and --devices-per-replica"
            )
    else:
        options = poptorch.Options()
        options.replicationFactor(request.replicas // request.world_size)
        ipus = options.replication_factor * request.devices_per_replica
        if not poptorch.ipuHardwareIsAvailable(ipus):
            raise ImpossibleRequest(
                f"{options.replication_factor} replica(s) of {request.devices_per_replica} IPU(s) need {ipus}, and "
                "PopTorch sees no device of as many: see `gc-info -l`, or give another --replicas"
            )
        trained_on = (options.replication_factor * request.world_size, request.devices_per_replica)
    options.deviceIterations(request.device_iterations)
    options.Training.gradientAccumulation(request.accumulation_steps)
    options.setExecutionStrategy(poptorch.PipelinedExecution())
    options.outputMode(poptorch.OutputMode.Sum)  # the loss of every micro-batch counts
    options.randomSeed(request.seed)
    options.showCompilationProgressBar(False)
    if request.dtype == "fp16":
        options.Precision.setPartialsType(torch.half)
    return options, trained_on


def make_optimizer(poptorch: Any, optimizer: Any, dtype: str) -> Any:
    """Return PopTorch's counterpart of a benchmark's optimiser, with a scaled loss in fp16."""
    if not isinstance(optimizer, torch.optim.SGD):
        raise ImpossibleRequest(
            f"only the optimiser SGD is known on IPUs, and this benchmark has {type(optimizer).__name__}: see "
            "make_optimizer in models/accelerators/ipu.py, or choose another benchmark"
        )
    groups = [
        {key: group[key] for key in ("params", "lr", "momentum", "weight_decay")} for group in optimizer.param_groups
    ]
    return poptorch.optim.SGD(
        groups,
        lr=groups[0]["lr"],
        momentum=groups[0]["momentum"],
        weight_decay=groups[0]["weight_decay"],
        loss_scaling=FP16_LOSS_SCALE if dtype == "fp16" else 1.0,
    )


def blank_batch(setup: Any) -> List[torch.Tensor]:
    """Return zeros in the form of a batch: a program depends on shapes and dtypes only."""
    return [torch.zeros((setup.request.batch_of_rank, *shape), dtype=dtype) for shape, dtype in setup.data.blank]


# --- the cache of compiled programs -----------------------------------------------------------------------------------


def cache_folder(setup: Any) -> str:
    """Make and return the folder of this program in POPTORCH_CACHE_DIR, or in the user's own cache."""
    request = setup.request
    own = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "hpc-ml-bench", "poptorch")
    steps = (request.local_batch_size, request.accumulation_steps, request.device_iterations)
    devices = (request.replicas, request.devices_per_replica)
    words = (setup.name, request.variant, request.dtype, shape_text(request.shape), *steps, *devices)
    folder = os.path.join(os.environ.get("POPTORCH_CACHE_DIR") or own, "-".join(map(str, words)))
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise ImpossibleRequest(
            f"compiled programs cannot be kept in {folder} ({error.strerror}): set POPTORCH_CACHE_DIR to a folder that "
            "stays between jobs"
        ) from error
    return folder


def executables(folder: str) -> FrozenSet[Tuple[str, int]]:
    """Return the name and the time of each compiled program in a folder."""
    with os.scandir(folder) as entries:
        return frozenset((entry.name, entry.stat().st_mtime_ns) for entry in entries if entry.name.endswith(".popef"))


# --- what PopTorch says -----------------------------------------------------------------------------------------------


def first_samples_there(counters: Mapping[str, List[List[float]]]) -> Optional[float]:
    """Return when the first micro-batch had been transferred, all of its tensors; None where it is not known.

    The counters have a list for each input of the program, with a stamp for each micro-batch of each replica
    (python/_poplar_executor.py, getPerfCounters).
    """
    stamps = counters["input_complete"]
    if not all(stamps):
        return None
    return max(min(of_input) for of_input in stamps)


def explained(poptorch: Any, error: Any, *, compiling: bool) -> CommandError:
    """Turn an error of PopTorch into one of ours, with its type and its message."""
    first_line = (str(error.message).strip() or "no text").splitlines()[0]
    said = f"({error.type}: {first_line})"
    if isinstance(error, poptorch.RecoverableError):
        return MachineFailed(f"an IPU failed and needs {error.recovery_action}; then start the job again {said}")
    if isinstance(error, poptorch.UnrecoverableError):
        return MachineFailed(f"an IPU failed for good; ask the machine's administrators to take it out of use {said}")
    if "Failed to acquire" in first_line:  # popart_compiler/source/CompilerImpl.cpp
        return MachineFailed(f"the IPUs are not free; see `gc-monitor`, and start the job again later {said}")
    # Poplar's types end in memory_allocation_error. PopART's error of this kind has the type of all its errors.
    if error.type.endswith("memory_allocation_error") or "out of memory" in first_line.lower():
        advice = "--devices-per-replica 2, --dtype fp16 or a smaller --local-batch-size"
        return DeviceOutOfMemory(with_message(f"an IPU's memory does not hold this; use {advice} {said}", error))
    if compiling:
        return CompileFailed(with_message(f"PopTorch cannot compile this {said}", error))
    return CommandError(with_message(f"PopTorch failed in a step {said}", error))
