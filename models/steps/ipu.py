"""The training step on IPUs: a program that PopTorch compiles, and that a call runs on one batch.

What the program is made of: ipu_program.py. Names in brackets are files of PopTorch (github.com/graphcore/poptorch at
2023-09-29, the last one).
"""

from __future__ import annotations

import functools
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

import torch

from models.accelerators.ipu import Ipu, cut_of
from models.checks import FirstInputs
from models.dtypes import TORCH_DTYPES
from models.loaders import make_loader
from models.meter import Meter
from models.steps.ipu_program import (
    EXECUTION,
    blank_batch,
    cache_folder,
    executables,
    failed_step,
    is_sharded,
    make_optimizer,
    make_options,
    not_compiled,
    refuse_impossible,
    remove_locks,
    replicas_of,
    start_popdist,
)
from models.training_setup import TrainingSetup, make_schedule

# PopTorch's stamps are cut to milliseconds (popart_compiler/source/CompilerImpl.cpp, StepIO::timestamp).
CLOCK_S = 0.002
LATENCIES = {
    "host_to_device": "getHostIpuLatency",
    "compute": "getComputeLatency",
    "device_to_host": "getIpuHostLatency",
    "round_trip": "getLatency",
}


class IpuStep:
    """The compiled program of this rank. A call trains all its replicas on one batch (models.steps.TrainingStep)."""

    def __init__(self, accelerator: Ipu, setup: TrainingSetup, meter: Meter, inputs: FirstInputs) -> None:
        request = setup.request
        poptorch = accelerator.poptorch
        self.poptorch = poptorch
        self.setup = setup
        self.meter = meter
        self.inputs = inputs
        self.rate = make_schedule(setup).rate
        refuse_impossible(setup)
        if is_sharded():
            setup.warnings.append(f"the stages of a replica run one after the other ({EXECUTION}=sharded)")
        popdist = start_popdist()
        self.replicas: Optional[Tuple[int, int]] = replicas_of(poptorch, popdist, request)

        # The model. Every rank draws the same weights.
        torch.manual_seed(request.seed)
        self.net = setup.benchmark.build(request.variant, request.shape)
        if request.dtype == "fp16":
            self.net.half()
        cut = cut_of(setup.name, request.devices_per_replica)
        for ipu, name in enumerate(cut, 1):  # what comes before the first cut runs on IPU 0
            poptorch.BeginBlock(self.net.get_submodule(name), ipu_id=ipu)
        self.optimizer = make_optimizer(poptorch, setup.benchmark.make_optimizer(self.net), request.dtype)
        self.set_rate(request.steps_per_batch // 2)

        # Compile: forward, backward and update become one program, before the first window.
        options = make_options(poptorch, popdist, request)
        folder = cache_folder(setup)
        options.enableExecutableCaching(folder)
        if setup.world.local_rank == 0 and setup.world.size > 1:
            remove_locks(folder)
        cached = executables(folder)
        meter.group.barrier()
        self.program = poptorch.trainingModel(NetWithLoss(poptorch, self.net, setup), options, self.optimizer)
        begin_s = time.perf_counter()
        try:
            self.program.compile(*blank_batch(setup))
        except poptorch.Error as error:
            raise not_compiled(poptorch, error) from error
        self.compile_s: Optional[float] = time.perf_counter() - begin_s
        # PopART writes <hash>.popef exactly when it compiled, and never when it loaded (popart, popx/devicex.cpp,
        # Devicex::prepare). The folder belongs to this program alone, and the ranks list it before one of them
        # compiles: all of them see what the job did.
        self.compile_cache: Optional[str] = "hit" if cached and executables(folder) == cached else "miss"

    def batches(self) -> Iterable[Any]:
        return make_loader(self.setup)

    def __call__(self, number: int, batch: Any) -> torch.Tensor:
        request = self.setup.request
        samples, targets = batch
        if number == 0:
            self.inputs.take(samples)

        # All steps of a call have the rate of its middle one: the mean, where rates rise or fall steadily.
        has_new_rate = self.set_rate(number * request.steps_per_batch + request.steps_per_batch // 2)
        try:
            if has_new_rate:
                self.program.setOptimizer(self.optimizer)  # copies the rate to the IPUs
            began_s = time.time()
            losses = self.program(samples, targets)
        except self.poptorch.Error as error:
            raise failed_step(self.poptorch, error) from error
        self.tell_split(began_s, time.time())

        # Each replica returns the sum over its micro-batches.
        return losses.float().mean() / (request.accumulation_steps * request.steps_per_batch)

    def trained(self) -> Any:
        """Return the net with the weights of the IPUs, which are released."""
        self.meter.of_vendor["device_latency_s"] = {
            name: self.latency(function) for name, function in LATENCIES.items()
        }
        self.program.destroy()
        return self.net

    def latency(self, function: str) -> Optional[Dict[str, float]]:
        """Return what one of PopTorch's latency functions says of the last call; None, with a warning, if it fails.

        PopTorch asserts that the stamp of each output belongs to that of an input. With several replicas the callbacks
        that make the stamps may come in another order (python/_poplar_executor.py, _computeLatency).
        """
        try:
            return dict(zip(("min", "max", "mean"), getattr(self.program, function)()))
        except (AssertionError, IndexError, self.poptorch.Error) as error:
            self.setup.warnings.append(f"no latency from {function}: {type(error).__name__} ({error})")
            return None

    def set_rate(self, step: int) -> bool:
        """Set the learning rate of an optimiser step; tell whether it is another one than before."""
        rate = self.rate(step)
        changes = any(group["lr"] != rate for group in self.optimizer.param_groups)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return changes

    def tell_split(self, began_s: float, ended_s: float) -> None:
        """Tell the meter for how long the IPUs worked in a call between these two Unix times.

        They cannot work before their first samples are there, and PopTorch has a stamp of that, of the host's side of
        the transfer. They work until the call ends: an output leaves before the last backward pass and the update, so
        no stamp has their end. In between they may wait for samples that are still on their way, and no stamp tells
        that from computing, because the host prefetches. So `busy` is an upper bound.
        """
        there_s = first_samples_there(self.program.getPerfCounters())
        # The stamps are Unix times (StepIO::timestamp); PopTorch's manual promises their differences only.
        if there_s is None or not began_s - CLOCK_S <= there_s <= ended_s + CLOCK_S:
            self.meter.no_split = "PopTorch's counters do not say when the first samples of a call reached the IPUs"
            return
        self.meter.worked(max(0.0, ended_s - there_s))


class NetWithLoss(torch.nn.Module):
    """What runs on the IPUs: from the samples as they are in the files to the loss, where the backward pass begins.

    PopTorch takes uint8, int16 and int64 inputs as they are; the last become int32 on the host
    (poptorch/source/PoplarExecutable.cpp).
    """

    def __init__(self, poptorch: Any, net: torch.nn.Module, setup: TrainingSetup) -> None:
        super().__init__()
        self.net = net
        self._mark_loss = poptorch.identity_loss
        self._criterion = setup.benchmark.criterion
        dtype = TORCH_DTYPES[setup.request.dtype]
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
