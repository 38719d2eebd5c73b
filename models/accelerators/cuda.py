"""NVIDIA GPUs and, through the same torch.cuda, AMD's. Health comes from NVML, if nvidia-ml-py is installed."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any, ContextManager, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch

from models import meter
from models.accelerators import OneDevicePerRank
from models.accelerators.peaks import gpu_peak
from models.errors import ImpossibleRequest
from models.prefetch import prefetch_one
from models.world import World

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# The reference's default for fp16 (mlcommons/training, resnet-tf2/resnet_runnable.py, default_for_fp16). It is fixed,
# because torch's GradScaler makes the host wait for a flag from the device in every step.
FP16_LOSS_SCALE = 128.0
# Bits of nvmlDeviceGetCurrentClocksThrottleReasons that mean "slower than it could" (nvml.h); idle does not.
THROTTLE_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


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
            raise ImpossibleRequest(
                f"{world.local_size} ranks on this node and {visible} accelerator(s) that torch sees; start at most "
                f"{visible}, or look at CUDA_VISIBLE_DEVICES (AMD: ROCR_VISIBLE_DEVICES) and at what the job asked for"
            )
        self.device = torch.device("cuda", 0 if is_bound else world.local_rank)
        torch.cuda.set_device(self.device)

    def dtypes(self) -> Tuple[str, ...]:
        properties = torch.cuda.get_device_properties(self.device)
        if self.type == "rocm":  # bf16 matrix instructions came with the MI100, gfx908; TF32 is not in stock ROCm torch
            modern = not re.match(r"gfx(8|900|906)", getattr(properties, "gcnArchName", "gfx9"))
            return ("bf16", "fp16", "fp32") if modern else ("fp16", "fp32")
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
        if dtype not in DTYPES:
            return contextlib.nullcontext()
        autocast: ContextManager[Any] = torch.autocast("cuda", dtype=DTYPES[dtype])
        return autocast

    def seed(self, number: int) -> None:
        torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(number)

    def loss_scale(self, dtype: str) -> float:
        return FP16_LOSS_SCALE if dtype == "fp16" else 1.0

    def peak_flops(self, dtype: str) -> Optional[float]:
        return gpu_peak(torch.cuda.get_device_name(self.device), dtype)

    def attainable_flops(self, dtype: str) -> Optional[float]:
        return None  # the data sheet has the peak

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
        for name in ("uuid", "pci_bus_id"):  # newer torch only
            if getattr(properties, name, None) is not None:
                return str(getattr(properties, name))
        return None

    def health(self) -> Optional[Mapping[str, object]]:
        if self.type == "rocm":
            return None
        uuid = getattr(torch.cuda.get_device_properties(self.device), "uuid", None)
        return nvml_health(None if uuid is None else f"GPU-{uuid}", nvml_index(os.environ, self.device.index or 0))

    def memory_bytes(self) -> Optional[int]:
        return int(torch.cuda.get_device_properties(self.device).total_memory)

    def peak_memory_bytes(self) -> Optional[int]:
        return int(torch.cuda.max_memory_allocated(self.device))


def no_gpu_text() -> str:
    """Say why torch sees no GPU, and what to check."""
    if not (torch.version.cuda or torch.version.hip):
        return (
            f"this torch ({torch.__version__}) is built for CPUs only; install one for the GPU: pip install torch "
            "--index-url https://download.pytorch.org/whl/cu128 (AMD: …/whl/rocm6.3), or use --device cpu"
        )
    tool, variable = (
        ("rocm-smi", "ROCR_VISIBLE_DEVICES") if torch.version.hip else ("nvidia-smi", "CUDA_VISIBLE_DEVICES")
    )
    return (
        f"torch {torch.__version__} sees no GPU: run {tool} on the node for the driver, and look at {variable} "
        f"(now {os.environ.get(variable, 'not set')!r}) and at what the job asked the scheduler for"
    )


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


def nvml_index(environ: Mapping[str, str], index: int) -> Optional[int]:
    """Return NVML's number of torch's device `index`; NVML ignores CUDA_VISIBLE_DEVICES. None: unknown."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return index
    names = [name.strip() for name in visible.split(",")]
    return int(names[index]) if index < len(names) and names[index].isdigit() else None


def nvml_health(uuid: Optional[str], index: Optional[int]) -> Optional[Dict[str, object]]:
    """Return clocks (MHz), temperature (°C), power (W), throttling and ECC errors of one GPU.

    None without nvidia-ml-py, a driver, or the GPU's identity.
    """
    try:
        import pynvml  # type: ignore[import-untyped, import-not-found, unused-ignore]

        pynvml.nvmlInit()
        if uuid is not None:
            gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
        elif index is not None:
            gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
        else:
            return None
    except Exception:  # not installed, no driver, a MIG slice: in each case it is unknown
        return None
    reasons = _ask(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", gpu)
    power = _ask(pynvml, "nvmlDeviceGetPowerUsage", gpu)
    limit = _ask(pynvml, "nvmlDeviceGetEnforcedPowerLimit", gpu)
    return {
        "clock_mhz": _ask(pynvml, "nvmlDeviceGetClockInfo", gpu, 1),  # NVML_CLOCK_SM
        "clock_max_mhz": _ask(pynvml, "nvmlDeviceGetMaxClockInfo", gpu, 1),
        "memory_clock_mhz": _ask(pynvml, "nvmlDeviceGetClockInfo", gpu, 2),  # NVML_CLOCK_MEM
        "temperature_c": _ask(pynvml, "nvmlDeviceGetTemperature", gpu, 0),  # NVML_TEMPERATURE_GPU
        "power_w": None if power is None else power / 1000,
        "power_limit_w": None if limit is None else limit / 1000,
        "throttled": None if reasons is None else [text for bit, text in THROTTLE_REASONS.items() if reasons & bit],
        "ecc_uncorrected": _ask(pynvml, "nvmlDeviceGetTotalEccErrors", gpu, 1, 0),  # uncorrected, since the last boot
    }


def _ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """Call a function of NVML; None if this GPU or this driver has no answer."""
    try:
        return getattr(nvml, function)(*arguments)
    except Exception:
        return None
