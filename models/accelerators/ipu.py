"""Graphcore's IPUs through PopTorch 3.x. A process drives all IPUs of its replicas, and compiles one program for them.

What is checked here against PopTorch's own source (github.com/graphcore/poptorch at 2023-09-29, the last one) names the
file. `poptorch` and `popdist` come with the Poplar SDK only, so they are imported when an IPU is asked for.
docs/accelerators.md says how a benchmark runs there.
"""

from __future__ import annotations

import functools
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

import torch

from models import meter
from models.accelerators.ipu_program import (
    blank_batch,
    cache_folder,
    cut_of,
    executables,
    explained,
    imported,
    make_optimizer,
    make_options,
)
from models.errors import ImpossibleRequest
from models.world import World

# Optimiser steps of one call: the host is asked less often, the learning rate stays for as many steps. A warm-up of 10
# steps still has two calls, of which --time-limit-s needs the second.
STEPS_PER_CALL = 5
MEMORY_BYTES = {1: 1216 * 256 * 1024, 2: 1472 * 624 * 1024, 21: 1472 * 624 * 1024}  # tiles x memory of a tile
BOW_FLOPS = {"fp16": 350e12, "fp32": 87.5e12}  # Bow-2000's data sheet, per IPU
# PopTorch's stamps are cut to milliseconds (popart_compiler/source/CompilerImpl.cpp, StepIO::timestamp).
CLOCK_S = 0.002
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


def first_samples_there(counters: Mapping[str, List[List[float]]]) -> Optional[float]:
    """Return when the first micro-batch had been transferred, all of its tensors; None where it is not known.

    The counters have a list for each input of the program, with a stamp for each micro-batch of each replica
    (python/_poplar_executor.py, getPerfCounters).
    """
    stamps = counters["input_complete"]
    if not all(stamps):
        return None
    return max(min(of_input) for of_input in stamps)
