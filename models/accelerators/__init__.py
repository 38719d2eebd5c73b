"""Device families: one module each, listed in FAMILIES. The loop uses a device only through `Accelerator`."""

from __future__ import annotations

import importlib
from typing import Any, Callable, ContextManager, Dict, Iterable, Iterator, Mapping, Optional, Protocol, Tuple

from models.errors import ImpossibleRequest
from models.world import World


class TrainingStep(Protocol):
    """Model, optimiser and loader of one rank, ready to train: what a family makes of a benchmark.

    A batch is what one call trains on: a micro-batch where the host starts each pass (CPUs, GPUs), one or several whole
    optimiser steps where the device's program repeats and accumulates by itself (`Request.batches_per_step`,
    `Request.device_iterations`). Its second part has one entry per sample, so that the meter can count.
    """

    compile_s: Optional[float]
    """Seconds in which the program was compiled, before the first window; None: nothing is compiled."""
    compile_cache: Optional[str]
    """`hit` if a compiled program was found and used, `miss` if it had to be made; None: unknown, or not compiled."""

    def batches(self) -> Iterable[Any]:
        """Return an endless iterable of batches."""
        ...

    def __call__(self, number: int, batch: Any) -> Any:
        """Train on batch `number`, counted from 0. Return its mean loss, a number or a tensor of one.

        Raises CompileFailed or DeviceOutOfMemory with the compiler's message.
        """
        ...

    def trained(self) -> Any:
        """Return the model with its trained parameters, after the loop."""
        ...


class Accelerator(Protocol):
    """One device of one rank, or the devices that it drives, and what its family can do.

    A new family is a module with a class that has these members, and a line in FAMILIES. It raises ImpossibleRequest,
    with a sentence that ends in what to type, for everything that it cannot do; it never silently does something else.
    """

    type: str
    """`cpu`, `cuda`, `rocm`, `ipu` or `csx`, as hpcml_start has it."""
    family: str
    """The word of --device, its key in FAMILIES. ROCm is `cuda`, as in torch."""
    backend: str
    """The torch.distributed backend that suits it: `gloo`, `nccl`."""
    pinned: bool
    """Whether host batches should lie in pinned memory."""
    device: Any
    """The torch.device of this rank's tensors; set by `select`."""
    accumulates: bool
    """Whether it is a DrivingAccelerator, which puts the micro-batches of an optimiser step together by itself; else an
    EagerAccelerator."""
    no_split: Optional[str]
    """Why waiting for data and computing cannot be told apart there, one clause; None: they can (docs/measuring.md)."""

    def count(self) -> int:
        """Return how many devices of this family this process sees on the node."""
        ...

    def devices(self, world: World) -> int:
        """Return how many times `peak_flops` is the peak of the whole job."""
        ...

    def select(self, world: World) -> None:
        """Choose this rank's device. Raises ImpossibleRequest if the node has fewer devices than ranks."""
        ...

    def device_iterations(self, most: int) -> int:
        """Return how many optimiser steps a batch of the loop holds: 1, or a divisor of `most` up to it."""
        ...

    def replicas(self, world: World) -> Tuple[int, int]:
        """Return how many copies of the model train in the whole job, and on how many devices each, as the device's own
        software has it. Called after the training step is made."""
        ...

    def dtypes(self) -> Tuple[str, ...]:
        """Return the dtypes it can train in; the first is the best, which `auto` means in a tuned run."""
        ...

    def settle(self, dtype: str) -> None:
        """Set the process-wide switches for `dtype`: fp32 means no TF32, in matrix products and in convolutions."""
        ...

    def clock(self) -> Any:
        """Return the meter's clock: HostClock where the host is the device, else the device's own."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has finished all its work."""
        ...

    def peak_flops(self, dtype: str) -> Optional[float]:
        """Return the peak of one device in FLOP/s; None: unknown."""
        ...

    def attainable_flops(self, dtype: str) -> Optional[float]:
        """Measure what this rank's share of the device reaches in plain kernels, in FLOP/s; None: not measured.

        For families whose `peak_flops` is computed and much too high. Takes some tenths of a second.
        """
        ...

    def facts(self, dtype: str) -> Dict[str, object]:
        """Return the `device` part of hpcml_start (docs/wire.md)."""
        ...

    def identity(self) -> Optional[str]:
        """Return an identifier that no other device of the node has; None where ranks may share it, or if unknown."""
        ...

    def health(self) -> Optional[Mapping[str, object]]:
        """Return clocks, power, temperature, throttling now; None: unknown. Must not be called inside a window."""
        ...

    def memory_bytes(self) -> Optional[int]:
        """Return the size of the device's memory; None: unknown."""
        ...

    def peak_memory_bytes(self) -> Optional[int]:
        """Return the largest amount of memory that this process had on the device; None: unknown."""
        ...


class EagerAccelerator(Accelerator, Protocol):
    """A family whose operations PyTorch starts one by one, one device per rank: models/eager_step.py trains on it."""

    def to_device(self, batch: Any) -> Any:
        """Copy a batch, a sequence of tensors, to the device and wait for it; tensors that are there stay."""
        ...

    def ahead(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the loader's batches on the device, each copied while the one before it is computed (overlap mode)."""
        ...

    def autocast(self, dtype: str) -> ContextManager[Any]:
        """Return the context of the forward pass and the loss; parameters stay fp32."""
        ...

    def seed(self, number: int) -> None:
        """Seed the generator of dropout on this device; torch.manual_seed seeds every device, which costs more."""
        ...

    def loss_scale(self, dtype: str) -> float:
        """Return the factor of the loss that keeps fp16 gradients from vanishing; gradients are divided by it."""
        ...


class DrivingAccelerator(Accelerator, Protocol):
    """A family whose compiler makes one program of forward, backward and update, for all devices that a rank drives."""

    def training_step(
        self,
        setup: Any,
        *,
        loader: Callable[[], Iterable[Any]],
        rate: Callable[[int], float],
        meter: Any,
        take_first: Callable[[Any], None],
    ) -> TrainingStep:
        """Build and compile the program.

        setup: the models.training_setup.TrainingSetup. loader: makes the endless batches of this rank. rate: the
        learning rate of an optimiser step, counted from 0. take_first: is given the samples of the first batch, N x ...
        x channels as they are in the files. Raises CommandError.
        """
        ...


class OneDevicePerRank:
    """The members that all eager families share."""

    accumulates = False
    no_split = None

    def device_iterations(self, most: int) -> int:
        return 1

    def replicas(self, world: World) -> Tuple[int, int]:
        return world.size, 1


FAMILIES: Dict[str, str] = {
    "cpu": "models.accelerators.cpu:Cpu",
    "cuda": "models.accelerators.cuda:Cuda",
    "csx": "models.accelerators.csx:Csx",
    "ipu": "models.accelerators.ipu:Ipu",
}


def choose(name: str) -> Accelerator:
    """Return the accelerator of a family; `auto` is cuda if torch sees such a device, else cpu.

    Raises ImpossibleRequest for an unknown family, or one that this machine or this torch does not have.
    """
    if name == "auto":
        import torch

        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in FAMILIES:
        raise ImpossibleRequest(f"unknown device {name!r}; --device is one of auto, {', '.join(FAMILIES)}")
    module, _, family = FAMILIES[name].partition(":")
    accelerator: Accelerator = getattr(importlib.import_module(module), family)()
    return accelerator
