"""Device families: one module each, found through one dict. The loop knows a device only through `Accelerator`."""

from __future__ import annotations

import importlib
from typing import Any, ContextManager, Dict, Iterable, Iterator, Mapping, Optional, Protocol, Tuple

from models.errors import Impossible
from models.world import World


class Accelerator(Protocol):
    """One device of one rank, and what its family can do.

    A new family is a module with a class of this shape and a line in FAMILIES. A family says `Impossible`, in one
    sentence that ends in what to type, to everything it cannot do; it never silently does something else.
    """

    type: str
    """What it is: `cpu`, `cuda`, `rocm`; stands in hpcml_start."""
    family: str
    """What it is asked for with: its key in FAMILIES. ROCm answers to `cuda`, as in torch."""
    backend: str
    """The torch.distributed backend that fits it: `gloo`, `nccl`."""
    pinned: bool
    """Whether host batches should lie in pinned memory."""
    device: Any
    """The torch.device of this rank; set by `select`."""

    def count(self) -> int:
        """Devices of this family on the node, as far as this process sees them."""
        ...

    def devices(self, world: World) -> int:
        """How many times `peak_flops` the whole job can do."""
        ...

    def select(self, world: World) -> None:
        """Take this rank's device. Raises Impossible when the node has fewer devices than ranks."""
        ...

    def dtypes(self) -> Tuple[str, ...]:
        """The dtypes it can train in, the best one first: what `auto` means for a tuned run."""
        ...

    def settle(self, dtype: str) -> None:
        """Set the process-wide switches for `dtype`: fp32 means no TF32, in matrix products and in convolutions."""
        ...

    def clock(self) -> Any:
        """What models.meter reads times from: HostClock where the host is the device, else one of the device's own."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has done all that was asked of it."""
        ...

    def to_device(self, batch: Any) -> Any:
        """A batch (a sequence of tensors) on the device, by a copy that blocks; what is there already stays there."""
        ...

    def ahead(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The loader's batches on the device, each copied there while the one before it is computed (overlap mode)."""
        ...

    def autocast(self, dtype: str) -> ContextManager[Any]:
        """Forward and loss run in it; parameters stay fp32."""
        ...

    def seed(self, number: int) -> None:
        """Seed what dropout draws from on this device; cheaper than torch.manual_seed, which seeds every device."""
        ...

    def loss_scale(self, dtype: str) -> float:
        """What the loss is multiplied by, and the gradients divided by, so that fp16 gradients do not vanish."""
        ...

    def peak_flops(self, dtype: str) -> Optional[float]:
        """What one device can do at most, in FLOP/s; None: unknown."""
        ...

    def attainable_flops(self, dtype: str) -> Optional[float]:
        """What this rank's share of the device reaches in plain kernels, measured now, in FLOP/s; None: not measured.

        For families whose `peak_flops` is computed and far away. Takes some tenths of a second.
        """
        ...

    def facts(self, dtype: str) -> Dict[str, object]:
        """The `device` part of hpcml_start (docs/wire.md)."""
        ...

    def identity(self) -> Optional[str]:
        """What tells this device from every other on the node; None where ranks may share it, or it cannot be known."""
        ...

    def health(self) -> Optional[Mapping[str, object]]:
        """Clocks, power, temperature, throttling now; None: not known. Not for use inside a window."""
        ...

    def memory_bytes(self) -> Optional[int]:
        """The device's memory."""
        ...

    def peak_memory_bytes(self) -> Optional[int]:
        """The most memory that this process had on the device at any time."""
        ...


FAMILIES: Dict[str, str] = {
    "cpu": "models.accelerators.cpu:Cpu",
    "cuda": "models.accelerators.cuda:Cuda",
}


def choose(name: str) -> Accelerator:
    """The accelerator of that family; `auto` is cuda where torch sees such a device, else cpu.

    Raises Impossible for a family nobody wrote, or one that this machine or this torch does not have.
    """
    if name == "auto":
        import torch

        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in FAMILIES:
        raise Impossible(f"unknown device {name!r}; --device is one of auto, {', '.join(FAMILIES)}")
    module, _, family = FAMILIES[name].partition(":")
    accelerator: Accelerator = getattr(importlib.import_module(module), family)()
    return accelerator
