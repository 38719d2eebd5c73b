"""What the node is: processor, cores, memory and clocks, read from /proc and /sys; what cannot be read is None."""

from __future__ import annotations

import os
import platform
import re
from typing import Dict, FrozenSet, List, Optional

from models import cgroups

# The cores that this process may run on, seen before torch is imported: its OpenMP binds the first thread to a single
# one of them where OMP_PROC_BIND asks for it, and every thread and process started from there inherits that.
AFFINITY: FrozenSet[int] = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def _read(root: str, path: str) -> str:
    try:
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _processors(root: str) -> List[Dict[str, str]]:
    """One mapping a logical processor, as /proc/cpuinfo lists them."""
    blocks = re.split(r"\n\s*\n", _read(root, "proc/cpuinfo"))
    lines = [[line.partition(":") for line in block.splitlines() if ":" in line] for block in blocks]
    found = [{key.strip(): value.strip() for key, _, value in block} for block in lines]
    return [block for block in found if "processor" in block]


def cpu_name(root: str = "/") -> str:
    """The processor's name; ARM processors tell only numbers."""
    for block in _processors(root):
        if "model name" in block:
            return block["model name"]
        if "CPU part" in block:
            return f"{platform.machine()} implementer {block.get('CPU implementer')} part {block['CPU part']}"
    return platform.processor() or platform.machine()


def cpu_flags(root: str = "/") -> FrozenSet[str]:
    """The instruction sets, in the kernel's words (x86 `flags`, ARM `Features`)."""
    for block in _processors(root):
        return frozenset((block.get("flags") or block.get("Features") or "").split())
    return frozenset()


def sockets(root: str = "/") -> int:
    return max(1, len({block["physical id"] for block in _processors(root) if "physical id" in block}))


def node_cores(root: str = "/") -> int:
    """Physical cores of the node, whoever may use them; logical ones where the kernel does not say."""
    blocks = _processors(root)
    cores = {(block.get("physical id"), block["core id"]) for block in blocks if "core id" in block}
    return len(cores) or len(blocks) or os.cpu_count() or 1


def own_cores() -> int:
    """Logical cores that this process may run on: a cpuset or srun's binding makes them fewer.

    A quota (`cgroups.cpu_quota`) takes none of them away: it stops the process on all of them for a part of the time.
    """
    return len(AFFINITY) or os.cpu_count() or 1


def run_on(cores: FrozenSet[int], worker: int = 0) -> None:
    """Let this thread, or loader process number `worker`, run on these cores, wherever OpenMP bound its parent."""
    if cores:
        os.sched_setaffinity(0, cores)


def memory_bytes(root: str = "/") -> Optional[int]:
    """Main memory, or the limit of the container or of the job where it is lower."""
    total = re.search(r"^MemTotal:\s+(\d+) kB", _read(root, "proc/meminfo"), re.MULTILINE)
    limit = cgroups.memory_limit(root)
    sizes = [] if limit is None else [limit]
    if total:
        sizes.append(int(total[1]) * 1024)
    return min(sizes) if sizes else None


def _ticks(root: str) -> List[int]:
    """Time of all cores together, by what it was spent on: user, nice, system, idle, iowait, irq, softirq, steal."""
    words = _read(root, "proc/stat").partition("\n")[0].split()
    return [int(word) for word in words[1:9]] if words[:1] == ["cpu"] else []


def highest_clock_hz(root: str = "/") -> Optional[float]:
    """The highest clock the processor says it can reach; virtual machines seldom say."""
    text = _read(root, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").strip()
    return int(text) * 1000.0 if text.isdigit() else None


def health(root: str = "/") -> Dict[str, object]:
    """Clock now, its cap and governor; the node's load, which on an exclusive node is the job's own; and, since it was
    booted, the time of all its cores and how much of it a hypervisor gave to others, in the kernel's ticks.
    """
    clocks = [float(block["cpu MHz"]) for block in _processors(root) if "cpu MHz" in block]
    cap = _read(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq").strip()
    load, ticks = _read(root, "proc/loadavg").split(), _ticks(root)
    return {
        "clock_mhz": sum(clocks) / len(clocks) if clocks else None,
        "clock_cap_mhz": int(cap) / 1000 if cap.isdigit() else None,
        "governor": _read(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or None,
        "load": float(load[0]) if load else None,
        "cpu_ticks": sum(ticks) if ticks else None,
        "stolen_ticks": ticks[7] if len(ticks) > 7 else None,
    }
