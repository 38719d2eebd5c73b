"""How much processor time and memory the control groups of this process allow, under version 1 and version 2.

A limit binds all groups below it, so each group is read, from the innermost to the outermost that can be seen. Inside a
container the outermost is the container's own; a group above it (of a pod, of a node's slice) cannot be seen.
Sources: the kernel's Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst; proc(5), cgroups(7).
"""

from __future__ import annotations

import math
import os
import re
from typing import Dict, List, NamedTuple, Optional, Union

UNLIMITED = 2**62  # version 1 says "no limit" with the largest number of whole pages


class Throttling(NamedTuple):
    """How often a group's quota was used up since the group was made."""

    periods: int
    throttled: int  # periods in which it was used up
    throttled_s: float


def cpu_quota(root: str = "/") -> Optional[float]:
    """Return how many cores' time the tightest quota gives: 0.9 is nine tenths of one core.

    math.inf where no group sets a quota, None where that cannot be known.
    """
    folders = _folders("cpu", root)
    try:
        quotas = [_quota(folder) for folder in folders]
    except (OSError, ValueError):
        return None
    return min(quotas) if quotas else None


def on_wire(quota: Optional[float]) -> Union[float, str, None]:
    """Return a quota as the wire has it: in cores, "max" (the kernel's word) where none is set, None where unknown."""
    return "max" if quota == math.inf else quota


def throttling(root: str = "/") -> Dict[str, Throttling]:
    """Return what each group has counted, by the group's folder; without the groups that count nothing."""
    throttlings = {}
    for folder in _folders("cpu", root):
        counted = dict(re.findall(r"^(\w+) (\d+)$", _text(folder, "cpu.stat") or "", re.MULTILINE))
        if "nr_periods" not in counted:
            continue
        if "throttled_usec" in counted:  # version 2
            throttled_s = int(counted["throttled_usec"]) / 1e6
        else:
            throttled_s = int(counted.get("throttled_time", 0)) / 1e9
        throttlings[folder] = Throttling(int(counted["nr_periods"]), int(counted.get("nr_throttled", 0)), throttled_s)
    return throttlings


def memory_limit(root: str = "/") -> Optional[int]:
    """Return the bytes that the tightest group allows; None where no group has a limit, or it cannot be known."""
    limits = []
    for folder in _folders("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            try:
                text = _text(folder, name) or ""
            except OSError:
                continue
            if text.strip().isdigit() and int(text) < UNLIMITED:
                limits.append(int(text))
    return min(limits, default=None)


def _quota(folder: str) -> float:
    """Return one group's quota in cores; math.inf if it has none. Raises OSError, ValueError if it cannot be read."""
    text = _text(folder, "cpu.max")
    if text is None:
        quota = _text(folder, "cpu.cfs_quota_us")
        period = _text(folder, "cpu.cfs_period_us")
        text = f"{quota} {period}" if quota and period else "max 100000"
    allowed, period = text.split()
    return math.inf if allowed in ("max", "-1") else int(allowed) / int(period)


def _text(folder: str, name: str) -> Optional[str]:
    """Return the text of a group's file; None if the group has no such file. Raises OSError if it may not be read."""
    try:
        with open(os.path.join(folder, name), encoding="ascii", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _folders(controller: str, root: str) -> List[str]:
    """Return the folders of this process's groups under a controller, the innermost first. [] if it cannot see them."""
    try:
        with open(os.path.join(root, "proc/self/cgroup"), encoding="utf-8", errors="replace") as file:
            memberships = [line.rstrip("\n").split(":", 2) for line in file]
        with open(os.path.join(root, "proc/self/mountinfo"), encoding="utf-8", errors="replace") as file:
            mounts = [line.split() for line in file]
    except OSError:
        return []
    paths = {}  # of the group, by controller; version 2 has one line, which names no controller
    for membership in memberships:
        if len(membership) == 3:
            _, controllers, group = membership
            for name in controllers.split(","):
                paths[name] = group
    path = paths.get(controller, paths.get(""))
    if path is None:
        return []
    for fields in mounts:
        kind, _, options = fields[fields.index("-") + 1 :][:3]
        is_version_1 = kind == "cgroup" and controller in options.split(",")
        is_version_2 = kind == "cgroup2" and controller not in paths
        if is_version_1 or is_version_2:
            return _upwards(path, mounted=fields[3], at=os.path.join(root, fields[4].lstrip("/")))
    return []


def _upwards(path: str, mounted: str, at: str) -> List[str]:
    """Return the folders from the group `path` up to the group `mounted`, which is mounted at the folder `at`."""
    if mounted.startswith("/.."):  # mounted outside of this cgroup namespace, which hides the names on the way
        return []
    inside = os.path.relpath(path, mounted)
    folders = []
    while inside not in ("", ".") and not inside.startswith(".."):  # "..": outside of what this container sees
        folders.append(os.path.join(at, inside))
        inside = os.path.dirname(inside)
    return [folder for folder in [*folders, at] if os.path.isdir(folder)]
