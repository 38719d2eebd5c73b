"""What a device is and can: the device families, listed in FAMILIES. What is done with a batch there: models/steps/."""

from __future__ import annotations

import argparse
import importlib
from typing import Any, ContextManager, Dict, Iterable, Mapping, Optional, Protocol, Tuple, Union, runtime_checkable

from models.energy import EnergySource
from models.errors import ImpossibleRequest
from models.meter import HostClock
from models.world import World


class Accelerator(Protocol):
    """One device of one rank, or the devices that it drives, and what its family can do.

    A new family is a module with a class that has these members, and a line in FAMILIES. If it is no EagerAccelerator,
    it also has a training step of its own in models/steps/. It raises ImpossibleRequest, with a sentence that ends in
    what to type, for everything that it cannot do; it never silently does something else.
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
    """Whether its program puts the micro-batches of an optimiser step together. A rank may then drive several devices.
    False: an EagerAccelerator."""
    reads_here: bool
    """Whether this node reads the samples; else others do, of whose memory nothing is known here."""
    no_split: Optional[str]
    """Why waiting for data and computing cannot be told apart there, one clause; None: they can (docs/measuring.md)."""

    def select(self, world: World) -> None:
        """Choose this rank's device. Raises ImpossibleRequest if the node has fewer devices than ranks."""
        ...

    def replicas(self, options: argparse.Namespace, world: World) -> int:
        """Return how many copies of the model the whole job has. Raises ImpossibleRequest."""
        ...

    def steps_per_batch(self, common_divisor: int) -> int:
        """Return how many optimiser steps one batch of the loop holds. It must divide warm-up and windows, so it
        divides `common_divisor`, which is theirs."""
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

    def product_flops(self, dtype: str) -> Optional[float]:
        """Measure what this rank's share of the device reaches in matrix products, in FLOP/s; None: not measured."""
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

    def energy_source(self) -> Union[EnergySource, str, None]:
        """Return what counts the energy of this rank's device, or why nothing does; None where nobody expects it."""
        ...

    def memory_bytes(self) -> Optional[int]:
        """Return the size of the device's memory; None: unknown."""
        ...

    def peak_memory_bytes(self) -> Optional[int]:
        """Return the largest amount of memory that this process had on the device; None: unknown."""
        ...


@runtime_checkable
class EagerAccelerator(Accelerator, Protocol):
    """A family whose operations PyTorch starts one by one, one device per rank: models/steps/eager.py trains on it."""

    def devices(self, world: World) -> int:
        """Return how many devices the job has, of which `peak_flops` is that of one."""
        ...

    def to_device(self, batch: Any) -> Any:
        """Copy a batch, a sequence of tensors, to the device and wait for it; tensors that are there stay."""
        ...

    def ahead(self, loader: Iterable[Any]) -> Iterable[Any]:
        """Return the loader's batches on the device, each copied while the one before it is computed (overlap mode)."""
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


class OneDevicePerRank:
    """The members that all eager families share."""

    accumulates = False
    no_split = None
    reads_here = True
    family: str

    def replicas(self, options: argparse.Namespace, world: World) -> int:
        if options.replicas not in (None, world.size) or options.devices_per_replica not in (None, 1):
            raise ImpossibleRequest(
                f"--replicas and --devices-per-replica are for devices that a rank drives several of, and on "
                f"{self.family} each of the {world.size} rank(s) has one; leave them out"
            )
        return world.size

    def steps_per_batch(self, common_divisor: int) -> int:
        return 1

    def energy_source(self) -> Union[EnergySource, str, None]:
        return None


class DrivenByProgram:
    """The members that the families share whose compiler makes one program of a training step.

    Their software says nothing about a device's state. After a call of their step nothing is left to wait for: it
    returns when its loss is there, and on CS systems the last call of a window does.
    """

    backend = "gloo"
    pinned = False
    accumulates = True
    reads_here = True

    def replicas(self, options: argparse.Namespace, world: World) -> int:
        replicas = options.replicas or world.size
        if replicas % world.size:
            raise ImpossibleRequest(
                f"--replicas {replicas} does not divide by {world.size} rank(s), and each drives as "
                "many; use a multiple"
            )
        return int(replicas)

    def clock(self) -> HostClock:
        return HostClock()

    def synchronize(self) -> None:
        """Do nothing: the last call of a window returns when its loss is there."""

    def attainable_flops(self, dtype: str) -> Optional[float]:
        return None

    def product_flops(self, dtype: str) -> Optional[float]:
        return None

    def identity(self) -> Optional[str]:
        return None

    def health(self) -> Optional[Mapping[str, object]]:
        return None

    def energy_source(self) -> Union[EnergySource, str, None]:
        return None

    def peak_memory_bytes(self) -> Optional[int]:
        return None


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
        hint = "; torch calls AMD's GPUs cuda, too" if name.lower() in ("gpu", "rocm", "hip", "amd") else ""
        raise ImpossibleRequest(f"unknown device {name!r}; --device is one of auto, {', '.join(FAMILIES)}{hint}")
    module, _, class_name = FAMILIES[name].partition(":")
    accelerator: Accelerator = getattr(importlib.import_module(module), class_name)()
    return accelerator


def refuse(options: argparse.Namespace) -> None:
    """Raise ImpossibleRequest for what the options alone show to be impossible. Needs no torch."""
    if options.measure_loader and options.device != "csx":
        raise ImpossibleRequest(
            "--measure-loader is for csx; on other devices each run measures how long it waits for the "
            "loader: leave it out"
        )
    if options.device in ("csx", "ipu"):
        importlib.import_module(f"models.accelerators.{options.device}").refuse(options)
