"""What the control groups of this process allow it: processor time and memory, under version 1 and version 2.

A limit binds everything below it, so each group is read from the innermost to the outermost that can be seen. Inside
a container the outermost is the container's own: what stands above it (a pod, a node's slice) is not seen.
Sources: the kernel's Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst; proc(5), cgroups(7).
"""

from __future__ import annotations

import math
import os
import re
from typing import Dict, List, NamedTuple, Optional

UNLIMITED = 2**62  # version 1 says "no limit" with the largest number of whole pages


class Throttling(NamedTuple):
    """How often a group's quota was used up, since the group was made."""

    periods: int
    throttled: int  # periods in which it was used up
    throttled_s: float


def cpu_quota(root: str = "/") -> Optional[float]:
    """How many cores' time the tightest quota gives: 0.9 is nine tenths of one core.

    Returns math.inf where no group sets a quota, None where that cannot be known.
    """
    folders = _folders("cpu", root)
    try:
        quotas = [_quota(folder) for folder in folders]
    except (OSError, ValueError):
        return None
    return min(quotas) if quotas else None


def throttling(root: str = "/") -> Dict[str, Throttling]:
    """What each group that counts it has counted, by the group's folder."""
    found = {}
    for folder in _folders("cpu", root):
        counted = dict(re.findall(r"^(\w+) (\d+)$", _text(folder, "cpu.stat") or "", re.MULTILINE))
        if "nr_periods" in counted:
            version_2 = "throttled_usec" in counted
            time_s = int(counted["throttled_usec"]) / 1e6 if version_2 else int(counted.get("throttled_time", 0)) / 1e9
            found[folder] = Throttling(int(counted["nr_periods"]), int(counted.get("nr_throttled", 0)), time_s)
    return found


def memory_limit(root: str = "/") -> Optional[int]:
    """Bytes that the tightest group allows; None where none is set, or it cannot be known."""
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
    """One group's quota in cores; math.inf where it has none. Raises OSError, ValueError where it cannot be read."""
    text = _text(folder, "cpu.max")
    if text is None:
        quota = _text(folder, "cpu.cfs_quota_us")
        period = _text(folder, "cpu.cfs_period_us")
        text = f"{quota} {period}" if quota and period else "max 100000"
    allowed, period = text.split()
    return math.inf if allowed in ("max", "-1") else int(allowed) / int(period)


def _text(folder: str, name: str) -> Optional[str]:
    """A group's file; None where the group has no such file. Raises OSError where it may not be read."""
    try:
        with open(os.path.join(folder, name), encoding="ascii", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _folders(controller: str, root: str) -> List[str]:
    """The folders of this process's groups under that controller, the innermost first. [] where they cannot be seen."""
    try:
        with open(os.path.join(root, "proc/self/cgroup"), encoding="utf-8", errors="replace") as file:
            memberships = [line.rstrip("\n").split(":", 2) for line in file]
        with open(os.path.join(root, "proc/self/mountinfo"), encoding="utf-8", errors="replace") as file:
            mounts = [line.split() for line in file]
    except OSError:
        return []
    paths = {name: fields[2] for fields in memberships if len(fields) == 3 for name in fields[1].split(",")}
    path = paths.get(controller, paths.get(""))  # version 2 has one line, which names no controller
    if path is None:
        return []
    for fields in mounts:
        kind, _, options = fields[fields.index("-") + 1 :][:3]
        version_1 = kind == "cgroup" and controller in options.split(",")
        version_2 = kind == "cgroup2" and controller not in paths
        if version_1 or version_2:
            return _upwards(path, mounted=fields[3], at=os.path.join(root, fields[4].lstrip("/")))
    return []


def _upwards(path: str, mounted: str, at: str) -> List[str]:
    """From the group `path` to the top of what is mounted: the group `mounted`, seen at the folder `at`."""
    if mounted.startswith("/.."):  # mounted outside of this cgroup namespace, which hides the names on the way
        return []
    inside = os.path.relpath(path, mounted)
    folders = []
    while inside not in ("", ".") and not inside.startswith(".."):  # "..": outside of what this container sees
        folders.append(os.path.join(at, inside))
        inside = os.path.dirname(inside)
    return [folder for folder in [*folders, at] if os.path.isdir(folder)]
