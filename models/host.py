"""The node's processor, cores, memory and clocks, read from /proc and /sys. What cannot be read is None.

`root` is the folder under which /proc and /sys are looked for; tests give another one.
"""

from __future__ import annotations

import os
import platform
import re
from typing import Dict, FrozenSet, List, Optional

from models import cgroups

# The cores that this process may run on, recorded before torch is imported: with OMP_PROC_BIND its OpenMP binds the
# first thread to a single core, which every thread and process that is started later would inherit.
AFFINITY: FrozenSet[int] = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def read_text(root: str, path: str) -> str:
    """Return the content of a small file; "" where it cannot be read."""
    try:
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _processors(root: str) -> List[Dict[str, str]]:
    """Return one dict for each logical processor, as /proc/cpuinfo lists them."""
    processors = []
    for block in re.split(r"\n\s*\n", read_text(root, "proc/cpuinfo")):
        fields = {}
        for line in block.splitlines():
            key, colon, value = line.partition(":")
            if colon:
                fields[key.strip()] = value.strip()
        if "processor" in fields:
            processors.append(fields)
    return processors


def cpu_name(root: str = "/") -> str:
    """Return the processor's name; ARM processors give only numbers."""
    for processor in _processors(root):
        if "model name" in processor:
            return processor["model name"]
        if "CPU part" in processor:
            implementer = processor.get("CPU implementer")
            return f"{platform.machine()} implementer {implementer} part {processor['CPU part']}"
    return platform.processor() or platform.machine()


def cpu_flags(root: str = "/") -> FrozenSet[str]:
    """Return the instruction sets under the kernel's names (x86 `flags`, ARM `Features`)."""
    for processor in _processors(root):
        return frozenset((processor.get("flags") or processor.get("Features") or "").split())
    return frozenset()


def sockets(root: str = "/") -> int:
    ids = {processor["physical id"] for processor in _processors(root) if "physical id" in processor}
    return max(1, len(ids))


def node_cores(root: str = "/") -> int:
    """Return the number of the node's physical cores, or of its logical ones where the kernel does not tell them apart.

    Cores that this process may not use are counted too.
    """
    processors = _processors(root)
    cores = {(each.get("physical id"), each["core id"]) for each in processors if "core id" in each}
    return len(cores) or len(processors) or os.cpu_count() or 1


def physical_cores(numbers: FrozenSet[int], root: str = "/") -> Optional[int]:
    """Return on how many physical cores these logical ones are; None where the kernel does not tell them apart."""
    cores = set()
    for each in _processors(root):
        if each["processor"].isdigit() and int(each["processor"]) in numbers:
            if "core id" not in each:
                return None
            cores.add((each.get("physical id"), each["core id"]))
    return len(cores) or None


def own_cores() -> int:
    """Return on how many logical cores this process may run; a cpuset or srun's binding limits them.

    A CPU quota (`cgroups.cpu_quota`) does not: it stops the process on all of its cores for a part of the time.
    """
    return len(AFFINITY) or os.cpu_count() or 1


def run_on(cores: FrozenSet[int]) -> None:
    """Let this thread run on these cores, even if OpenMP bound its parent to one of them."""
    if cores:
        os.sched_setaffinity(0, cores)


def memory_bytes(root: str = "/") -> Optional[int]:
    """Return the size of the main memory, or the limit of the container or job where that is lower."""
    sizes = [size for size in (cgroups.memory_limit(root), main_memory_bytes(root)) if size is not None]
    return min(sizes) if sizes else None


def main_memory_bytes(root: str = "/") -> Optional[int]:
    """Return the size of the node's main memory, whatever limits this process."""
    total = re.search(r"^MemTotal:\s+(\d+) kB", read_text(root, "proc/meminfo"), re.MULTILINE)
    return int(total[1]) * 1024 if total else None


def highest_clock_hz(root: str = "/") -> Optional[float]:
    """Return the highest clock that the processor says it can reach; virtual machines seldom report one."""
    text = read_text(root, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").strip()
    return int(text) * 1000.0 if text.isdigit() else None


def health(root: str = "/") -> Dict[str, object]:
    """Return the clock now, its cap and governor, the node's load, and the ticks of all its cores since it was booted.

    On an exclusive node the load is the job's own. `stolen_ticks` are those that a hypervisor gave to other machines.
    """
    clocks = [float(processor["cpu MHz"]) for processor in _processors(root) if "cpu MHz" in processor]
    cap = read_text(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq").strip()
    load = read_text(root, "proc/loadavg").split()
    ticks = _ticks(root)
    return {
        "clock_mhz": sum(clocks) / len(clocks) if clocks else None,
        "clock_cap_mhz": int(cap) / 1000 if cap.isdigit() else None,
        "governor": read_text(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or None,
        "load": float(load[0]) if load else None,
        "cpu_ticks": sum(ticks) if ticks else None,
        "stolen_ticks": ticks[7] if len(ticks) > 7 else None,
    }


def _ticks(root: str) -> List[int]:
    """Return the time of all cores, by its use: user, nice, system, idle, iowait, irq, softirq, steal."""
    fields = read_text(root, "proc/stat").partition("\n")[0].split()
    if fields[:1] != ["cpu"]:
        return []
    return [int(ticks) for ticks in fields[1:9]]
