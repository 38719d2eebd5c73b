"""Processors: the host is the device. Nothing is copied, nothing runs asynchronously, its memory is the host's."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
from typing import Any, ContextManager, Dict, Iterable, Mapping, Optional, Tuple

import torch

from models import host, meter
from models.accelerators import OneDevicePerRank
from models.accelerators.attainable import attainable_flops, product_flops
from models.accelerators.peaks import cpu_bound
from models.errors import ImpossibleRequest
from models.world import World

# The kernel's flags for bf16 arithmetic: AMD Zen 4 and Intel Cooper Lake, Intel Sapphire Rapids, ARMv8.6.
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def keep_memory() -> bool:
    """Make malloc keep the memory that a step frees; otherwise each step gets it from the kernel again, page by page.

    Return whether it does: the C library must be glibc, and a variable MALLOC_* in the environment has precedence.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return False
    trim_threshold, top_pad, mmap_max = -1, -2, -4  # of glibc's malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(trim_threshold, 2**31 - 1) and mallopt(top_pad, 256 << 20) and mallopt(mmap_max, 0))


class Cpu(OneDevicePerRank):
    """The node's processor. One rank uses all its cores, or several ranks share them."""

    type = "cpu"
    family = "cpu"
    backend = "gloo"
    pinned = False
    kept_memory = False

    def __init__(self, root: str = "/") -> None:
        self.device = torch.device("cpu")
        self._root = root

    def count(self) -> int:
        return host.sockets(self._root)

    def devices(self, world: World) -> int:
        return world.nodes

    def select(self, world: World) -> None:
        cores = os.cpu_count() or 1
        if world.local_size > cores:
            raise ImpossibleRequest(
                f"{world.local_size} ranks on this node, which has {cores} cores; start at most {cores}, each with "
                "OMP_NUM_THREADS=1, or fewer ranks with more threads"
            )

    def dtypes(self) -> Tuple[str, ...]:
        return ("bf16", "fp32") if self.has_bf16() else ("fp32", "bf16")

    def has_bf16(self) -> bool:
        """Tell whether it has bf16 instructions; without them bf16 works and is slow."""
        return bool(BF16_FLAGS & host.cpu_flags(self._root))

    def settle(self, dtype: str) -> None:
        """Make malloc keep memory. torch switches no TF32 here; what oneDNN does is measured (models/dtypes.py)."""
        self.kept_memory = keep_memory()

    def clock(self) -> meter.HostClock:
        return meter.HostClock()

    def synchronize(self) -> None:
        """Do nothing, because nothing runs asynchronously."""

    def to_device(self, batch: Any) -> Any:
        return batch

    def ahead(self, loader: Iterable[Any]) -> Iterable[Any]:
        return loader

    def autocast(self, dtype: str) -> ContextManager[Any]:
        if dtype == "fp32":
            return contextlib.nullcontext()
        autocast: ContextManager[Any] = torch.autocast("cpu", dtype=torch.bfloat16)
        return autocast

    def seed(self, number: int) -> None:
        torch.default_generator.manual_seed(number)

    def loss_scale(self, dtype: str) -> float:
        return 1.0

    def peak_flops(self, dtype: str) -> Optional[float]:
        """Return a bound for all cores of the node: a layout counts all sockets of a node as one device."""
        return cpu_bound(dtype, self._root)

    def attainable_flops(self, dtype: str) -> Optional[float]:
        return attainable_flops(dtype, min(torch.get_num_threads(), host.own_cores()))

    def product_flops(self, dtype: str) -> Optional[float]:
        return product_flops(dtype, torch.get_num_threads())

    def facts(self, dtype: str) -> Dict[str, object]:
        return {
            "type": self.type,
            "name": host.cpu_name(self._root),
            "count": self.count(),
            "memory_bytes": self.memory_bytes(),
            "driver": None,
            "peak_flops": self.peak_flops(dtype),
            "peak_is": "bound of the node: cores (or a lower CPU quota) x highest clock x FLOP per cycle",
            "kept_memory": self.kept_memory,
        }

    def identity(self) -> Optional[str]:
        return None

    def health(self) -> Optional[Mapping[str, object]]:
        return host.health(self._root)

    def memory_bytes(self) -> Optional[int]:
        return host.memory_bytes(self._root)

    def peak_memory_bytes(self) -> Optional[int]:
        """Return the process's peak resident size, without loader workers."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
