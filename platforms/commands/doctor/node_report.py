"""Says what a job finds on its node, as one line of JSON: Python, torch and its devices, the packages, memory, cores,
what the job may have of these two, and which of the folders that it is given are there.

One file of the standard library for Python 3.8 and newer, since it travels alone.
"""

from __future__ import annotations

import json
import os
import platform
import sys

MARK = "hpcml_doctor "
PACKAGES = ("torch", "numpy", "h5py", "PIL")


def package(name: str) -> dict[str, object]:
    """Its version, or why it cannot be imported: None where it is not there."""
    try:
        module = __import__(name)
    except ModuleNotFoundError as error:
        return {"version": None, "error": None if error.name == name else str(error)}
    except Exception as error:  # a package built for another machine may raise anything
        return {"version": None, "error": f"{type(error).__name__}: {error}"}
    return {"version": str(getattr(module, "__version__", "of unknown version")), "error": None}


def devices() -> list[str]:
    """The names of the GPUs that torch can use, each with its memory; it has been imported."""
    cuda = sys.modules["torch"].cuda
    if not cuda.is_available():
        return []
    found = [cuda.get_device_properties(index) for index in range(cuda.device_count())]
    return [f"{one.name} ({one.total_memory / 2**30:.0f} GiB)" for one in found]


def free_bytes() -> int | None:
    """Memory that new processes of this node can have."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 (pathlib is 10 ms)
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def groups(controller: str, root: str = "/") -> list[str]:
    """The folders of this process's control groups under that controller, innermost first; [] where they are not seen.

    As in models/cgroups.py, which does not travel with this file.
    """
    try:
        with open(os.path.join(root, "proc/self/cgroup"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
            memberships = [line.rstrip("\n").split(":", 2) for line in file]
        with open(os.path.join(root, "proc/self/mountinfo"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
            mounts = [line.split() for line in file]
    except OSError:
        return []
    paths = {name: fields[2] for fields in memberships for name in fields[1].split(",")}
    path = paths.get(controller, paths.get(""))  # version 2 has one line, which names no controller
    for fields in mounts:
        kind, _, options = fields[fields.index("-") + 1 :][:3]
        version_1 = kind == "cgroup" and controller in options.split(",")
        version_2 = kind == "cgroup2" and controller not in paths
        if path is not None and (version_1 or version_2) and not fields[3].startswith("/.."):
            inside, found = os.path.relpath(path, fields[3]), []
            top = os.path.join(root, fields[4].lstrip("/"))  # noqa: PTH118
            while inside not in ("", ".") and not inside.startswith(".."):
                found.append(os.path.join(top, inside))  # noqa: PTH118
                inside = os.path.dirname(inside)  # noqa: PTH120
            return [*found, top]
    return []


def numbers(folder: str, name: str) -> list[int]:
    """The whole numbers in a group's file; -1 for "max", which means no limit. [] where it has no such file."""
    try:
        with open(os.path.join(folder, name), encoding="ascii") as file:  # noqa: PTH118, PTH123
            return [-1 if word == "max" else int(word) for word in file.read().split()]
    except (OSError, ValueError):
        return []


def limit_bytes(root: str = "/") -> int | None:
    """What the job may have of the node's memory; None where nothing limits it, or it cannot be known."""
    found = [
        size
        for folder in groups("memory", root)
        for name in ("memory.max", "memory.limit_in_bytes")
        for size in numbers(folder, name)
        if 0 <= size < 2**62  # version 1 says "no limit" with the largest number of whole pages
    ]
    return min(found, default=None)


def cpu_quota(root: str = "/") -> float | None:
    """How many cores' time the job may have; None where nothing limits it, or it cannot be known."""
    found = []
    for folder in groups("cpu", root):
        both = numbers(folder, "cpu.max") or [
            *numbers(folder, "cpu.cfs_quota_us"),
            *numbers(folder, "cpu.cfs_period_us"),
        ]
        if len(both) == 2 and both[0] > 0:
            found.append(both[0] / both[1])
    return min(found, default=None)


def report() -> dict[str, object]:
    """Everything."""
    packages = {name: package(name) for name in PACKAGES}
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "node": platform.node(),
        "packages": packages,
        "devices": devices() if packages["torch"]["version"] else [],
        "free_bytes": free_bytes(),
        "limit_bytes": limit_bytes(),
        "cpu_quota": cpu_quota(),
        "cores": len(os.sched_getaffinity(0)),
        "folders": {path: os.path.isdir(path) for path in sys.argv[1:]},  # noqa: PTH112 (pathlib is 10 ms)
    }


if __name__ == "__main__":
    print(MARK + json.dumps(report()), flush=True)
