"""NVIDIA GPUs and, through the same torch.cuda, AMD's. What they say of their health: gpu_health.py."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any, ContextManager, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from models import meter
from models.accelerators import OneDevicePerRank
from models.accelerators.gpu_health import amd_smi_energy, amd_smi_health, nvml_energy, nvml_health, nvml_index
from models.accelerators.peaks import gpu_peak
from models.dtypes import FP16_LOSS_SCALE, TORCH_DTYPES
from models.energy import EnergySource
from models.errors import ImpossibleRequest
from models.prefetch import prefetch_one
from models.world import World

# They hide GPUs from HIP one after the other: each counts from 0 in what the one before it leaves. HIP reads the last
# one only if HIP_VISIBLE_DEVICES is not set.
ROCM_VARIABLES: Tuple[str, ...] = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


class Cuda(OneDevicePerRank):
    """One GPU of this rank."""

    family = "cuda"
    backend = "nccl"
    pinned = True

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise ImpossibleRequest(no_gpu_text())
        self.type = "rocm" if torch.version.hip else "cuda"
        self.device = torch.device("cuda", 0)

    def count(self) -> int:
        return int(torch.cuda.device_count())

    def devices(self, world: World) -> int:
        return world.size

    def select(self, world: World) -> None:
        """Choose the GPU of this rank's number on the node.

        srun and mpiexec may let each rank see only its own GPU, which then is number 0 on each of them. The ranks check
        later that these are different GPUs (`identity`).
        """
        visible = self.count()
        is_bound = visible == 1 and world.launcher in ("slurm", "openmpi", "pmi")
        if world.local_size > visible and not is_bound:
            variables = ROCM_VARIABLES if self.type == "rocm" else ("CUDA_VISIBLE_DEVICES",)
            raise ImpossibleRequest(
                f"{world.local_size} ranks on this node and {visible} accelerator(s) that torch sees; start at most "
                f"{visible}, or look at {hidden_by(variables)} and at what the job asked for"
            )
        self.device = torch.device("cuda", 0 if is_bound else world.local_rank)
        torch.cuda.set_device(self.device)

    def dtypes(self) -> Tuple[str, ...]:
        properties = torch.cuda.get_device_properties(self.device)
        if self.type == "rocm":  # bf16 matrix instructions came with the MI100, gfx908; TF32 is not in stock ROCm torch
            has_bf16 = not re.match(r"gfx(8|900|906)", getattr(properties, "gcnArchName", "gfx9"))
            return ("bf16", "fp16", "fp32") if has_bf16 else ("fp16", "fp32")
        if properties.major >= 8:
            return ("bf16", "fp16", "tf32", "fp32")
        return ("fp16", "fp32") if properties.major >= 6 else ("fp32",)

    def settle(self, dtype: str) -> None:
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        torch.backends.cudnn.allow_tf32 = dtype == "tf32"
        torch.backends.cudnn.benchmark = True  # shapes never change; the search happens in the warm-up
        torch.cuda.reset_peak_memory_stats(self.device)

    def clock(self) -> meter.CudaClock:
        return meter.CudaClock(torch, self.device)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def to_device(self, batch: Any) -> Any:
        return [part.to(self.device) for part in batch]

    def ahead(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches on the device; a thread takes and copies the next one while the consumer has a batch.

        A batch is yielded as soon as its copy is issued, even if the next one is late. The thread copies on a stream of
        its own. The stream that computes waits for the copy; the host does not. record_stream keeps the memory of a
        batch from the next copy until the computation is done.
        """
        for batch, copied in prefetch_one(self._copies(iter(loader))):
            computing = torch.cuda.current_stream(self.device)
            computing.wait_event(copied)
            for part in batch:
                part.record_stream(computing)
            yield batch

    def _copies(self, batches: Iterator[Sequence[Any]]) -> Iterator[Tuple[List[Any], Any]]:
        """Yield each batch on the device, with the event at the end of its copy."""
        torch.cuda.set_device(self.device)  # each thread has a current device of its own
        stream = torch.cuda.Stream(self.device)
        for batch in batches:
            with torch.cuda.stream(stream):
                copies = [part.to(self.device, non_blocking=True) for part in batch]
            yield copies, stream.record_event()

    def autocast(self, dtype: str) -> ContextManager[Any]:
        if TORCH_DTYPES[dtype] == torch.float32:
            return contextlib.nullcontext()
        autocast: ContextManager[Any] = torch.autocast("cuda", dtype=TORCH_DTYPES[dtype])
        return autocast

    def seed(self, number: int) -> None:
        torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(number)

    def loss_scale(self, dtype: str) -> float:
        return FP16_LOSS_SCALE if dtype == "fp16" else 1.0

    def peak_flops(self, dtype: str) -> Optional[float]:
        return gpu_peak(torch.cuda.get_device_name(self.device), dtype)

    def attainable_flops(self, dtype: str) -> Optional[float]:
        return None  # the data sheet has the peak

    def product_flops(self, dtype: str) -> Optional[float]:
        return None

    def facts(self, dtype: str) -> Dict[str, object]:
        return {
            "type": self.type,
            "name": torch.cuda.get_device_name(self.device),
            "count": self.count(),
            "memory_bytes": self.memory_bytes(),
            "driver": driver_version(),
            "peak_flops": self.peak_flops(dtype),
            "peak_is": "data sheet, dense",
        }

    def identity(self) -> Optional[str]:
        properties = torch.cuda.get_device_properties(self.device)
        uuid = getattr(properties, "uuid", None)  # newer torch only
        address = pci_address(properties)
        if self.type == "cuda":
            kind = "MIG" if " MIG " in properties.name else "GPU"
            return address if uuid is None else f"{kind}-{uuid}"
        # ROCm has no uuid for some GPUs and calls all of them "XX", so the address counts, too (58: X in ASCII).
        has_uuid = uuid is not None and not str(uuid).startswith("5858")
        parts = [address, str(uuid) if has_uuid else None]
        return " ".join(part for part in parts if part) or None

    def health(self) -> Optional[Mapping[str, object]]:
        properties = torch.cuda.get_device_properties(self.device)
        if self.type == "rocm":
            return amd_smi_health(pci_address(properties))
        uuid = getattr(properties, "uuid", None)
        return nvml_health(None if uuid is None else f"GPU-{uuid}", nvml_index(os.environ, self.device.index or 0))

    def energy_source(self) -> Union[EnergySource, str, None]:
        properties = torch.cuda.get_device_properties(self.device)
        if self.type == "rocm":
            return amd_smi_energy(pci_address(properties))
        uuid = getattr(properties, "uuid", None)
        return nvml_energy(None if uuid is None else f"GPU-{uuid}")

    def memory_bytes(self) -> Optional[int]:
        return int(torch.cuda.get_device_properties(self.device).total_memory)

    def peak_memory_bytes(self) -> Optional[int]:
        return int(torch.cuda.max_memory_allocated(self.device))


def pci_address(properties: Any) -> Optional[str]:
    """Return domain, bus and device of a GPU, as in `0000:c9:00`; None where this torch does not know them."""
    domain, bus, device = (getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
    if domain is None or bus is None or device is None:
        return None
    return f"{domain:04x}:{bus:02x}:{device:02x}"


def no_gpu_text() -> str:
    """Say why torch sees no GPU, and what to check."""
    if not (torch.version.cuda or torch.version.hip):
        return (
            f"this torch ({torch.__version__}) is built for CPUs only; install one for the GPU: pip install torch "
            "--index-url https://download.pytorch.org/whl/cu128 (AMD: …/whl/rocm6.3), or use --device cpu"
        )
    if torch.version.hip:
        tool, variables = "rocm-smi", ROCM_VARIABLES
    else:
        tool, variables = "nvidia-smi", ("CUDA_VISIBLE_DEVICES",)
    text = (
        f"torch {torch.__version__} sees no GPU: run {tool} on the node for the driver, look at "
        f"{hidden_by(variables)}, and at what the job asked the scheduler for"
    )
    if sum(bool(os.environ.get(name)) for name in variables) > 1:
        text += ". Set one of them only: HIP counts from 0 among the GPUs that ROCR_VISIBLE_DEVICES leaves"
    return text


def hidden_by(variables: Sequence[str]) -> str:
    """Return the variables that hide GPUs from this process, with their values."""
    values = {name: os.environ.get(name) for name in variables}
    return ", ".join(f"{name} (not set)" if value is None else f"{name}={value!r}" for name, value in values.items())


def driver_version() -> Optional[str]:
    """Return the version that the kernel driver reports."""
    for path, pattern in (
        ("/proc/driver/nvidia/version", r"Kernel Module.*?\s(\d+\.\d+[.\d]*)\s"),
        ("/sys/module/amdgpu/version", r"(\S+)"),
    ):
        with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
            found = re.search(pattern, file.read())
            if found:
                return found[1]
    return None
