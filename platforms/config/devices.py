"""Counts this machine's accelerators without torch: the kernel's device files, and the variables that hide some."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class DeviceCount:
    """The devices of this machine: `count` of one kind. A machine without accelerators has one `cpu`."""

    kind: Literal["cuda", "rocm", "cpu"]
    count: int


def count_accelerators(environ: Mapping[str, str], root: Path = Path("/")) -> DeviceCount:
    """Count the devices that a process with this environment would see.

    NVIDIA: `/dev/nvidia<N>`, then CUDA_VISIBLE_DEVICES. ROCm: `/dev/kfd` and the topology nodes that compute, then
    ROCR_VISIBLE_DEVICES, then HIP_VISIBLE_DEVICES (or CUDA_VISIBLE_DEVICES, which HIP also obeys).
    """
    count = _visible(_nvidia(root), environ.get("CUDA_VISIBLE_DEVICES"))
    if count:
        return DeviceCount("cuda", count)
    count = _visible(_rocm(root), environ.get("ROCR_VISIBLE_DEVICES"))
    count = _visible(count, environ.get("HIP_VISIBLE_DEVICES", environ.get("CUDA_VISIBLE_DEVICES")))
    return DeviceCount("rocm", count) if count else DeviceCount("cpu", 1)


def _nvidia(root: Path) -> int:
    """Count the NVIDIA devices of the machine; `/dev/nvidiactl` and the like are none."""
    return sum(1 for path in _listed(root / "dev") if re.fullmatch(r"nvidia\d+", path.name))


def _rocm(root: Path) -> int:
    """Count the AMD devices: topology nodes with SIMDs (CPUs are nodes too) whose render file is here."""
    if not (root / "dev/kfd").exists():
        return 0
    dri = root / "dev/dri"
    count = 0
    for node in _listed(root / "sys/class/kfd/kfd/topology/nodes"):
        properties = _properties(node / "properties")
        minor = properties.get("drm_render_minor", 0)
        # A container sees every node of its host, but has the render files of its own devices only.
        is_here = not minor or not dri.exists() or (dri / f"renderD{minor}").exists()
        if is_here and properties.get("simd_count", 0) > 0:
            count += 1
    return count


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _properties(path: Path) -> dict[str, int]:
    """Read lines `name number`. The file is unreadable, so empty here, if a control group forbids the device."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = [line.split() for line in lines]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _visible(count: int, variable: str | None) -> int:
    """Return how many of `count` devices a `*_VISIBLE_DEVICES` leaves: unset all, empty none.

    As CUDA and HIP read it, the list ends at the first entry that is no device, such as -1 or NoDevFiles. A process
    sees one MIG slice only, however many are listed.
    """
    if variable is None:
        return count
    entries = [entry.strip() for entry in variable.split(",")]
    devices = list(takewhile(lambda entry: _is_device(entry, count), entries))
    if any(entry.startswith("MIG-") for entry in devices):
        return min(count, 1)
    return min(count, len(devices))


def _is_device(entry: str, count: int) -> bool:
    if entry.isdecimal():
        return int(entry) < count
    return re.match(r"(GPU|MIG)-[0-9a-fA-F]", entry) is not None
