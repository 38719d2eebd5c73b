"""PopTorch 3.3 for machines without IPUs: its documented interface, shapes and refusals. It trains on the processor.

The source of each thing is named in brackets: files of github.com/graphcore/poptorch at its last state (2023-09-29),
and of github.com/graphcore/popart (2023-09-11). What these refuse is refused here. What they do that a caller cannot
see, or that our calls cannot meet, is left out.

Variables of the environment say what the machine has: FAKE_IPUS, the number of IPUs (8), of which it offers devices of
1, 2, 4 … IPUs, or those that FAKE_IPU_SIZES lists; FAKE_IPU_FAULT, what goes wrong (names of FAULTS, "stamps",
"counters"). FAKE_IPU_RATES names a file for the learning rate of each call.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import fcntl
import hashlib
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from . import optim as optim

__version__ = "3.3.0"


# --- errors [python/poptorch.cpp; docs/user_guide/overview.rst, "Error handling"] -------------------------------------


class Error(Exception):
    def __init__(self, type_: str, message: str) -> None:
        super().__init__(f"In unknown:0: '{type_}': {message}")  # [poptorch_err/source/ExceptionHandling.cpp]
        self.type = type_
        self.message = message


class RecoverableError(Error):
    recovery_action = "IPU_RESET"


class UnrecoverableError(Error):
    pass


FAULTS = {
    # PopART's memory_allocation_err is a popart::error [popart: willow/include/popart/error.hpp], whose type is then
    # this one [popart_compiler/source/Compiler.cpp, rethrowPopartOrPoplarException]. Its text: [popart:
    # tests/integration/out_of_memory_test.py].
    "compile:tiles": Error(
        "popart_exception", "Out of memory: Cannot fit all variable data onto one or more tiles.\nProfile saved to: ."
    ),
    # [github.com/graphcore/poptorch/issues/9]
    "compile:stream": Error(
        "poplar_stream_memory_allocation_error", "Out of memory. Single stream of length 149766584 in bufferIndex 1"
    ),
    # [popart_compiler/source/Compiler.cpp; tests/misc_test.py]
    "compile:link": Error("poplar_link_error", "Linking failed. Output: -lfoo not found"),
    "compile:busy": Error("poptorch_cpp_error", "Failed to acquire 4 IPU(s)"),  # [CompilerImpl.cpp]
    "rate:reset": RecoverableError("poplar_recoverable_runtime_error", "an ECC error on IPU 3"),
    "run:broken": UnrecoverableError("poplar_unrecoverable_runtime_error", "IPU 3 does not answer"),
    "destroy": Error("poplar_application_runtime_error", "[Host] the weights cannot be copied"),
    "run:error": Error("poplar_application_runtime_error", "[Host] stream callback failed"),
}


def _faults() -> list[str]:
    return os.environ.get("FAKE_IPU_FAULT", "").split()


def _fail(moment: str) -> None:
    for fault in _faults():
        if fault.startswith(moment):
            raise FAULTS[fault]


def _sizes() -> list[int]:
    """How many IPUs the devices have that the machine offers: a partition of fixed size offers no smaller ones."""
    if os.environ.get("FAKE_IPU_SIZES"):
        return [int(size) for size in os.environ["FAKE_IPU_SIZES"].split()]
    return [1 << power for power in range(7) if 1 << power <= int(os.environ.get("FAKE_IPUS", "8"))]


def _version_of_devices(num_ipus: int = 1) -> int:
    """[popart_compiler/source/Utils.cpp, ipuHardwareVersion: of the devices of exactly that size]"""
    return 2 if num_ipus in _sizes() else 0


poptorch_core = SimpleNamespace(ipuHardwareVersion=_version_of_devices)


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    return poptorch_core.ipuHardwareVersion(num_ipus) != 0


# --- options [python/options.py, python/_options_impl.py, python/enums.py] --------------------------------------------


class OutputMode(enum.IntEnum):
    Sum = 3
    Default = 4


class PipelinedExecution:
    """The stage of a block is the number of its IPU, where no stages are given."""


class ShardedExecution(PipelinedExecution):
    """The same stages, one after the other."""


class _OptionsDict:
    def __init__(self, **values: Any) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(name) from None

    def set(self, **values: Any) -> Any:
        for name, value in values.items():
            assert name in self._values, f"Invalid option {name}, valid options are {self._values.keys()}"
            kind = type(self._values[name])
            assert isinstance(value, kind), f"Unexpected type {type(value)} for option {name}. Expected {kind}"
            self._values[name] = value
        return self


class _Training(_OptionsDict):
    def gradientAccumulation(self, gradient_accumulation: int) -> Any:
        return self.set(gradient_accumulation=gradient_accumulation)


class _Precision(_OptionsDict):
    def setPartialsType(self, dtype: torch.dtype) -> Any:
        if dtype not in (torch.float, torch.half):
            raise ValueError("parameter to setPartialsType should be eithertorch.float or torch.half")
        return self.set(partials="half" if dtype == torch.half else "float")


class Options(_OptionsDict):
    def __init__(self) -> None:
        self.Training = _Training(gradient_accumulation=1)
        self.Precision = _Precision(partials="float")
        self.strategy = PipelinedExecution()
        self.processes = 1  # popdist sets it [python/options.py, _DistributedOptions]
        super().__init__(
            replication_factor=1, device_iterations=1, output_mode=int(OutputMode.Default), random_seed=0, cache=""
        )
        if os.environ.get("POPTORCH_CACHE_DIR"):
            self.enableExecutableCaching(os.environ["POPTORCH_CACHE_DIR"])

    def replicationFactor(self, replication_factor: int) -> Options:
        return self.set(replication_factor=replication_factor)

    def deviceIterations(self, device_iterations: int) -> Options:
        return self.set(device_iterations=device_iterations)

    def setExecutionStrategy(self, strategy: Any) -> Options:
        assert isinstance(strategy, PipelinedExecution)
        self.strategy = strategy
        return self

    def outputMode(self, output_mode: OutputMode) -> Options:
        assert isinstance(output_mode, OutputMode)
        return self.set(output_mode=output_mode.value)

    def randomSeed(self, random_seed: int) -> Options:
        assert isinstance(random_seed, int)
        torch.manual_seed(random_seed)
        return self.set(random_seed=random_seed)

    def showCompilationProgressBar(self, show: bool = True) -> Options:
        return self

    def enableExecutableCaching(self, path: str) -> Options:
        return self.set(cache=path)


# --- what a model is marked with [python/ops.py] ----------------------------------------------------------------------


class _BlockHook:
    placed: ClassVar[list[int]] = []  # the IPUs of the blocks, in the order in which a trace meets them

    def __init__(self, ipu_id: int | None) -> None:
        self.ipu_id = ipu_id

    def __call__(self, module: Any, inputs: Any) -> None:
        assert self.ipu_id is not None, "poptorch.AutoStage.SameAsIpu was selected but no IPU was specified"
        _BlockHook.placed.append(self.ipu_id)


def BeginBlock(layer_to_call: torch.nn.Module, user_id: str | None = None, ipu_id: int | None = None) -> Any:
    if any(isinstance(hook, _BlockHook) for hook in layer_to_call._forward_pre_hooks.values()):
        raise Error("poptorch_py_error", "module has already been assigned to a block.")
    layer_to_call.register_forward_pre_hook(_BlockHook(ipu_id))
    return layer_to_call


def identity_loss(x: torch.Tensor, reduction: str) -> torch.Tensor:
    assert reduction == "none", "the fake knows only a loss that is one number already"
    return x


def trainingModel(model: torch.nn.Module, options: Any = None, optimizer: Any = None) -> PoplarExecutor:
    return PoplarExecutor(model, options, optimizer)


# --- the executor [python/_poplar_executor.py] ------------------------------------------------------------------------


class PoplarExecutor:
    def __init__(self, model: torch.nn.Module, options: Any, optimizer: Any) -> None:

        self.options = copy.deepcopy(options)
        self._model = model
        self._device_model: Any = None  # None: not compiled
        self._device_optimizer: Any = None
        self._stamps: dict[str, list[list[float]]] = {}
        self.setOptimizer(optimizer)

    def setOptimizer(self, optimizer: Any) -> None:
        # [python/_optimizer_attributes.py]
        assert isinstance(optimizer, torch.optim.SGD), "Unsupported optimizer type."
        if self._device_model is not None:  # [python/_poplar_executor.py, setOptimizer: it is copied to the device]
            _fail("rate")
        self._optimizer = optimizer
        self._rates = [group["lr"] for group in optimizer.param_groups]

    def compile(self, *args: torch.Tensor) -> None:
        narrowed = [self._narrow_tensor(tensor) for tensor in args]
        # Trace: the model must not change by it.
        _BlockHook.placed = []
        with torch.random.fork_rng(), torch.no_grad():
            loss = copy.deepcopy(self._model)(*narrowed)
        assert loss.shape == (), "reduction none: PopART needs one number"
        self._check_stages()
        _fail("compile")
        with self._distributed_cache_lock() as is_first:
            if is_first:
                self._use_cache(narrowed)
        if not is_first:
            self._use_cache(narrowed)
        self._inputs = args
        self._device_model = copy.deepcopy(self._model)
        twins = dict(zip(self._model.parameters(), self._device_model.parameters(), strict=True))
        groups = self._optimizer.param_groups
        theirs = [{**group, "params": [twins[parameter] for parameter in group["params"]]} for group in groups]
        self._device_optimizer = torch.optim.SGD(theirs)

    def _narrow_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        # [poptorch/source/dispatch_tracer/Tensor.cpp, toCompilerType; Long and Double are converted on the host]
        known = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
        floats = (torch.float16, torch.float32, torch.float64)
        if tensor.dtype not in (*known, *floats):
            raise Error("poptorch_cpp_error", f"Unsupported tensor input type from pytorch: {tensor.dtype}")
        product = self._replicas * self._iterations * self._accumulation
        assert tensor.shape[0] % product == 0, (
            f"Invalid batch dimension: In the input {tensor.shape}, the batch dimension ({tensor.shape[0]}) must be a "
            f"multiple of Options.deviceIterations({self._iterations}) * Options.replicationFactor({self._replicas}) * "
            f"Options.Training.gradientAccumulation({self._accumulation}) = {product}"
        )
        return tensor.narrow(0, 0, tensor.shape[0] // product)

    @property
    def _replicas(self) -> int:
        return int(self.options.replication_factor)

    @property
    def _iterations(self) -> int:
        return int(self.options.device_iterations)

    @property
    def _accumulation(self) -> int:
        return int(self.options.Training.gradient_accumulation)

    def _check_stages(self) -> None:
        # [popart_compiler/source/Compiler.cpp, setActiveIpu and initSession; CompilerImpl.cpp, numPipelineStages]
        placed = [0, *_BlockHook.placed]
        forward_stages = 1 + sum(before != after for before, after in itertools.pairwise(placed))
        stages = 1 if isinstance(self.options.strategy, ShardedExecution) else 2 * forward_stages - 1
        if self._accumulation < stages:
            raise Error(
                "poptorch_cpp_error",
                "poptorch.Options().Training.gradientAccumulation must be greater than or equal to the number of "
                f"pipeline stages ({stages}) when using poptorch.PipelinedExecution.",
            )
        ipus = (max(placed) + 1) * self._replicas
        if ipus not in _sizes():
            raise Error("poptorch_cpp_error", f"Failed to acquire {ipus} IPU(s)")

    @contextlib.contextmanager
    def _distributed_cache_lock(self) -> Iterator[bool]:
        """[python/_impl.py, distributedCacheLock: each process appends a character; the first one is alone]"""
        if self.options.processes == 1 or not self.options.cache:
            yield False
            return
        name = Path(self.options.cache, hashlib.md5(repr(self._model).encode()).hexdigest() + ".lock")
        with name.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write("0")
            is_last = file.tell() == self.options.processes
            yield file.tell() == 1
            fcntl.flock(file, fcntl.LOCK_UN)
        if is_last:
            name.unlink()

    def _use_cache(self, narrowed: list[torch.Tensor]) -> None:
        """[popart: willow/src/popx/devicex.cpp, Devicex::prepare; executablex.cpp, getCachePath]"""
        if not self.options.cache:
            return
        options = (self.options._values, self.options.Training._values, self.options.Precision._values)
        inputs = [(tensor.shape, tensor.dtype) for tensor in narrowed]
        program = repr((self._model, type(self.options.strategy), inputs, options))
        name = int(hashlib.sha256(program.encode()).hexdigest()[:16], 16)
        executable = Path(self.options.cache, f"{name}.popef")
        executable.parent.mkdir(parents=True, exist_ok=True)
        if not executable.exists():
            executable.write_text("compiled")

    def __call__(self, *args: torch.Tensor) -> torch.Tensor:
        if self._device_model is None:
            self.compile(*args)
        for compiled, given in zip(self._inputs, args, strict=True):  # [python/_args_parser.py, validateInputs]
            if (compiled.dtype, compiled.shape) != (given.dtype, given.shape):
                raise Error("poptorch_py_error", "Shape or data type mismatch: recompile the model for the new inputs")
        _fail("run")
        counters = ("input", "input_complete", "output", "output_complete")
        self._stamps = {name: [[] for _ in (args if name.startswith("input") else ("loss",))] for name in counters}
        # The first dimension is cut by replica first [popart_compiler/source/CompilerImpl.cpp, StepIO::get].
        shape = (self._replicas, self._iterations, self._accumulation, -1)
        inputs = [tensor.view(*shape, *tensor.shape[1:]) for tensor in args]
        if "FAKE_IPU_RATES" in os.environ:
            with Path(os.environ["FAKE_IPU_RATES"]).open("a") as file:
                print(self._rates[0], file=file)
        for group, rate in zip(self._device_optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate
        sums = torch.zeros(self._replicas)
        for iteration in range(self._iterations):
            for replica in range(self._replicas):
                for micro_batch in range(self._accumulation):
                    self._stamp("input", "input_complete")
                    loss = self._device_model(*(tensor[replica, iteration, micro_batch] for tensor in inputs))
                    (loss * self._optimizer.loss_scaling / (self._accumulation * self._replicas)).backward()
                    sums[replica] += loss.detach().float()
            self._update()
        for _ in range(self._replicas):
            self._stamp("output", "output_complete")
        if "stamps" in _faults():  # callbacks push them from several threads, without a lock
            self._stamps["input"][0].pop()
            self._stamps["input_complete"][1].pop()
        assert self.options.output_mode == OutputMode.Sum, "the fake knows only the sum of all micro-batches"
        return sums if self._replicas > 1 else sums[0]  # [poptorch/source/PoplarExecutable.cpp]

    def _update(self) -> None:
        """The mean of the gradients over micro-batches and replicas, of all instances, updates the weights."""
        for parameter in self._device_model.parameters():
            parameter.grad /= self._optimizer.loss_scaling
            if torch.distributed.is_initialized():
                torch.distributed.all_reduce(parameter.grad)
                parameter.grad /= torch.distributed.get_world_size()
        self._device_optimizer.step()
        self._device_optimizer.zero_grad()

    def _stamp(self, *names: str) -> None:
        for name in names:
            for stamps in self._stamps[name]:
                stamps.append(int(time.time() * 1000) / 1000)  # [CompilerImpl.cpp, StepIO::timestamp]

    def getPerfCounters(self) -> dict[str, list[list[float]]]:
        if "counters" in _faults():
            return {name: [[]] for name in ("input", "input_complete", "output", "output_complete")}
        return self._stamps

    def _latency(self, begin: str, end: str) -> tuple[float, float, float]:
        """[python/_poplar_executor.py, _computeLatency: the stamps of the first input and output are counted]"""
        starts = [[of_input[step] for of_input in self._stamps[begin]] for step in range(len(self._stamps[begin][0]))]
        ends = [[of_output[step] for of_output in self._stamps[end]] for step in range(len(self._stamps[end][0]))]
        assert len(starts) % len(ends) == 0, "Internal PopTorch error: mismatching number of start timestamps"
        whole = max(ends[-1]) - min(starts[0])
        return whole, whole, whole

    def getHostIpuLatency(self) -> tuple[float, float, float]:
        return self._latency("input", "input_complete")

    def getComputeLatency(self) -> tuple[float, float, float]:
        return self._latency("input_complete", "output")

    def getIpuHostLatency(self) -> tuple[float, float, float]:
        return self._latency("output", "output_complete")

    def getLatency(self) -> tuple[float, float, float]:
        return self._latency("input", "output_complete")

    def destroy(self) -> None:
        """The host's weights are the old ones until they are copied, as here [docs: PoplarExecutor.destroy]."""
        if self._device_model is None:
            return
        _fail("destroy")
        self._model.load_state_dict(self._device_model.state_dict())
        self._device_model = None
