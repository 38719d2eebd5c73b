"""What a GPU says of itself through its vendor's management library: NVIDIA's NVML, AMD's AMD SMI.

Both libraries are optional. They see all GPUs of a node, whatever CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and
HIP_VISIBLE_DEVICES say, so a GPU is found by its own identity and not by torch's number.
"""

from __future__ import annotations

import contextlib
import io
import math
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from models.energy import EnergySource
from models.node_devices import NVIDIA_REASONS

# --- NVIDIA: nvidia-ml-py ---------------------------------------------------------------------------------------------


def nvml_index(environ: Mapping[str, str], index: int) -> Optional[int]:
    """Return NVML's number of torch's device `index`; NVML ignores CUDA_VISIBLE_DEVICES. None: unknown."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return index
    names = [name.strip() for name in visible.split(",")]
    return int(names[index]) if index < len(names) and names[index].isdigit() else None


def nvml_health(uuid: Optional[str], index: Optional[int]) -> Optional[Dict[str, object]]:
    """Return clocks (MHz), temperature (°C), power (W), throttling and ECC errors of one GPU, and how many processes
    hold memory there (0: it does not tell, as in a container).

    None without nvidia-ml-py, a driver, or the GPU's identity.
    """
    try:
        pynvml, gpu = _nvml_gpu(uuid, index)
    except Exception:  # not installed, no driver, a MIG slice: in each case it is unknown
        return None
    reasons = _ask(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", gpu)
    power = _ask(pynvml, "nvmlDeviceGetPowerUsage", gpu)
    limit = _ask(pynvml, "nvmlDeviceGetEnforcedPowerLimit", gpu)
    processes = _ask(pynvml, "nvmlDeviceGetComputeRunningProcesses", gpu)
    return {
        "clock_mhz": _ask(pynvml, "nvmlDeviceGetClockInfo", gpu, 1),  # NVML_CLOCK_SM
        "clock_max_mhz": _ask(pynvml, "nvmlDeviceGetMaxClockInfo", gpu, 1),
        "memory_clock_mhz": _ask(pynvml, "nvmlDeviceGetClockInfo", gpu, 2),  # NVML_CLOCK_MEM
        "temperature_c": _ask(pynvml, "nvmlDeviceGetTemperature", gpu, 0),  # NVML_TEMPERATURE_GPU
        "power_w": None if power is None else power / 1000,
        "power_limit_w": None if limit is None else limit / 1000,
        "throttled": None if reasons is None else [text for bit, text in NVIDIA_REASONS.items() if reasons & bit],
        "ecc_uncorrected": _ask(pynvml, "nvmlDeviceGetTotalEccErrors", gpu, 1, 0),  # uncorrected, since the last boot
        "processes": None if processes is None else len(processes),
    }


def nvml_energy(uuid: Optional[str]) -> Union[EnergySource, str]:
    """Return what NVML says of one GPU's energy, or why it says nothing.

    Without the UUID it would be a guess which GPU is meant.
    """
    try:
        pynvml, gpu = _nvml_gpu(uuid, None)
    except Exception as error:
        return f"NVML does not answer for this GPU: {error}"
    mig_mode = _ask(pynvml, "nvmlDeviceGetMigMode", gpu)  # now, and after the next reset
    if mig_mode is not None and mig_mode[0]:
        return "a MIG slice has no counter, and that of its GPU is of all slices"

    def thousandths(function: str) -> Optional[float]:
        value = _ask(pynvml, function, gpu)
        return None if not value else float(value) / 1000

    return EnergySource(
        str(uuid),
        lambda: thousandths("nvmlDeviceGetTotalEnergyConsumption"),
        lambda: thousandths("nvmlDeviceGetPowerUsage"),
        thousandths("nvmlDeviceGetEnforcedPowerLimit"),
    )


def _nvml_gpu(uuid: Optional[str], index: Optional[int]) -> Tuple[Any, Any]:
    """Return NVML and its handle of a GPU. Raises whatever NVML does."""
    import pynvml  # type: ignore[import-untyped, import-not-found, unused-ignore]

    pynvml.nvmlInit()
    if uuid is not None:
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
    if index is None:
        raise LookupError("this torch does not tell which one it is")
    return pynvml, pynvml.nvmlDeviceGetHandleByIndex(index)


# --- AMD: amdsmi, a part of ROCm --------------------------------------------------------------------------------------

# What amdsmi_get_violation_status says of this moment. GPUs before the MI300 do not have it.
AMD_VIOLATIONS = {
    "active_ppt_pwr": "power cap",
    "active_socket_thrm": "socket thermal",
    "active_vr_thrm": "voltage regulator thermal",
    "active_hbm_thrm": "memory thermal",
    "active_prochot_thrm": "processor hot",
}
# Bits of indep_throttle_status (SMU_THROTTLER_* in the Linux kernel's amdgpu_smu.h), in its groups.
AMD_REASONS = {
    range(0, 8): "power cap",
    range(16, 24): "current limit",
    range(32, 46): "thermal",
    range(46, 48): "processor hot",
}
UNNAMED_REASON = "no reason given"
NO_VALUES = (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # ROCm 6.0 returns these where later versions return "N/A"


def amd_smi_health(address: Optional[str]) -> Optional[Dict[str, object]]:
    """Return the same of one AMD GPU as `nvml_health` of an NVIDIA one.

    address: PCI domain, bus and device, as in `0000:c9:00`. None without amdsmi, a driver, or the address.
    """
    try:
        amdsmi, gpus = _amd_gpus(address)
        kinds, sensors = amdsmi.AmdSmiClkType, amdsmi.AmdSmiTemperatureType
        now = amdsmi.AmdSmiTemperatureMetric.CURRENT
    except Exception:  # not installed, no driver, another interface: in each case it is unknown
        return None
    gpu = gpus[0]
    clock = _ask(amdsmi, "amdsmi_get_clock_info", gpu, kinds.GFX)
    memory_clock = _ask(amdsmi, "amdsmi_get_clock_info", gpu, kinds.MEM)
    limit = _number(_ask(amdsmi, "amdsmi_get_power_cap_info", gpu), "power_cap")
    errors = _ask(amdsmi, "amdsmi_get_gpu_total_ecc_count", gpu)
    return {
        "clock_mhz": _number(clock, "clk", "cur_clk"),  # cur_clk: before ROCm 6.2
        "clock_max_mhz": _number(clock, "max_clk"),
        "memory_clock_mhz": _number(memory_clock, "clk", "cur_clk"),
        "temperature_c": _celsius(_ask(amdsmi, "amdsmi_get_temp_metric", gpu, sensors.JUNCTION, now)),
        "power_w": _amd_watts(amdsmi, gpu),
        "power_limit_w": None if not limit else limit / 1e6,  # µW
        "throttled": _amd_throttled(amdsmi, gpu),
        "ecc_uncorrected": _number(errors, "uncorrectable_count"),
    }


def amd_smi_energy(address: Optional[str]) -> Union[EnergySource, str]:
    """Return the same as `nvml_energy`. A GPU that is divided has the counters of all its partitions together."""
    try:
        amdsmi, gpus = _amd_gpus(address)
    except Exception as error:
        return f"AMD SMI does not answer for this GPU: {error!r}"

    def joules() -> Optional[float]:
        answer = _ask(amdsmi, "amdsmi_get_energy_count", gpus[0])
        ticks = _number(answer, "energy_accumulator", "power")  # power: before ROCm 6.1
        microjoules = _number(answer, "counter_resolution")  # of a tick
        return ticks * microjoules / 1e6 if ticks and microjoules else None

    limit = _number(_ask(amdsmi, "amdsmi_get_power_cap_info", gpus[0]), "power_cap")  # µW
    limit_w = limit / 1e6 if limit else None
    return EnergySource(str(address), joules, lambda: _amd_watts(amdsmi, gpus[0]), limit_w, parts=len(gpus))


def _amd_watts(amdsmi: Any, gpu: Any) -> Optional[float]:
    """Return the power now. The MI200 has the average only, and the MI300 the current one."""
    power = _ask(amdsmi, "amdsmi_get_power_info", gpu)
    watts = [_number(power, name) for name in ("current_socket_power", "average_socket_power")]
    return next((value for value in watts if value), None)  # no GPU that runs needs 0 W


def _amd_gpus(address: Optional[str]) -> Tuple[Any, List[Any]]:
    """Return AMD SMI and its handles of the GPU with this PCI address. Their numbers mean nothing to HIP.

    A partition of an MI300 differs from its neighbour in the PCI function only; the first one answers for the GPU.
    Raises whatever AMD SMI does.
    """
    with contextlib.redirect_stdout(io.StringIO()):  # without libamd_smi.so it prints two lines and raises KeyError
        import amdsmi
    amdsmi.amdsmi_init()
    found = []
    for gpu in amdsmi.amdsmi_get_processor_handles():
        bdf = str(amdsmi.amdsmi_get_gpu_device_bdf(gpu))  # domain:bus:device.function
        if bdf.lower().rpartition(".")[0] == address:
            found.append(gpu)
    if not found:
        raise LookupError(f"it knows none at {address}")
    return amdsmi, found


def _amd_throttled(amdsmi: Any, gpu: Any) -> Optional[List[str]]:
    """Return why the GPU is slower than it could be now; None: unknown."""
    violations = _ask(amdsmi, "amdsmi_get_violation_status", gpu) or {}
    known = {name: violations[name] for name in AMD_VIOLATIONS if isinstance(violations.get(name), (bool, int))}
    if known:
        return [AMD_VIOLATIONS[name] for name, is_active in known.items() if is_active]
    status = (_ask(amdsmi, "amdsmi_get_gpu_metrics_info", gpu) or {}).get("indep_throttle_status")
    if isinstance(status, bool):  # ROCm 6.1 and newer say whether a bit is set, and not which
        return [UNNAMED_REASON] if status else []
    if not isinstance(status, int) or status in NO_VALUES:
        return None
    reasons = [text for bits, text in AMD_REASONS.items() if any(status >> bit & 1 for bit in bits)]
    return reasons or ([UNNAMED_REASON] if status else [])


def _number(answer: Optional[Mapping[str, object]], *names: str) -> Optional[float]:
    """Return the first of these fields that is a number; AMD SMI puts "N/A" where the GPU has none."""
    for name in names:
        value = (answer or {}).get(name)
        if isinstance(value, (int, float)) and math.isfinite(value) and value not in NO_VALUES:
            return value
    return None


def _celsius(temperature: Optional[int]) -> Optional[float]:
    """Read a temperature. The documentation says millidegrees; the library divides by 1000 (amd_smi.cc)."""
    if temperature is None or temperature < 1000:
        return temperature
    return temperature / 1000


def _ask(library: Any, function: str, *arguments: Any) -> Any:
    """Call a function of NVML or AMD SMI; None if this GPU or this driver has no answer."""
    try:
        return getattr(library, function)(*arguments)
    except Exception:
        return None
