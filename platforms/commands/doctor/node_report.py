"""Reports what a job finds on its node as one line of JSON.

The report has Python, torch and its devices, the packages, memory, cores, the job's limits of these two, which of the
folders on the command line exist, and for each word `import=PACKAGE` there whether that package can be imported. This
is one file of the standard library for Python 3.8 and newer, since doctor sends it alone.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys

MARK = "hpcml_doctor "
IMPORT = "import="
PACKAGES = ("torch", "numpy", "h5py", "PIL")


def package(name: str) -> dict[str, object]:
    """Import a package. Returns its version, or the error of the import, which is None for a missing package."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        reason = None if error.name in (name, name.partition(".")[0]) else str(error)
        return {"version": None, "error": reason}
    except Exception as error:  # a package built for another machine may raise anything
        return {"version": None, "error": f"{type(error).__name__}: {error}"}
    return {"version": str(getattr(module, "__version__", "of unknown version")), "error": None}


def devices() -> list[str]:
    """List the GPUs that torch can use, with their memory. torch has been imported."""
    cuda = sys.modules["torch"].cuda
    if not cuda.is_available():
        return []
    gpus = [cuda.get_device_properties(index) for index in range(cuda.device_count())]
    return [f"{gpu.name} ({gpu.total_memory / 2**30:.0f} GiB)" for gpu in gpus]


def free_bytes() -> int | None:
    """Read how many bytes new processes of this node can have. Returns None where that is not known."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 (pathlib is 10 ms)
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def groups(controller: str, root: str = "/") -> list[str]:
    """List the folders of this process's control groups under a controller, innermost first; [] where none is visible.

    models/cgroups.py has the same function, but is not sent with this file.
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
        is_outside = fields[3].startswith("/..")
        if path is not None and (version_1 or version_2) and not is_outside:
            folders = []
            inside = os.path.relpath(path, fields[3])
            top = os.path.join(root, fields[4].lstrip("/"))  # noqa: PTH118
            while inside not in ("", ".") and not inside.startswith(".."):
                folders.append(os.path.join(top, inside))  # noqa: PTH118
                inside = os.path.dirname(inside)  # noqa: PTH120
            return [*folders, top]
    return []


def numbers(folder: str, name: str) -> list[int]:
    """Read the whole numbers in a group's file: -1 for "max", which means no limit; [] without such a file."""
    try:
        with open(os.path.join(folder, name), encoding="ascii") as file:  # noqa: PTH118, PTH123
            return [-1 if word == "max" else int(word) for word in file.read().split()]
    except (OSError, ValueError):
        return []


def limit_bytes(root: str = "/") -> int | None:
    """Read how many bytes of memory the job may have. Returns None without a limit, or where it is not known."""
    limits = []
    for folder in groups("memory", root):
        for size in numbers(folder, "memory.max") + numbers(folder, "memory.limit_in_bytes"):
            if 0 <= size < 2**62:  # version 1 writes the largest number of whole pages for "no limit"
                limits.append(size)
    return min(limits, default=None)


def cpu_quota(root: str = "/") -> float | None:
    """Read how many cores' time the job may have. Returns None without a limit, or where it is not known."""
    quotas = []
    for folder in groups("cpu", root):
        quota_and_period = numbers(folder, "cpu.max")
        if not quota_and_period:  # version 1
            quota_and_period = numbers(folder, "cpu.cfs_quota_us") + numbers(folder, "cpu.cfs_period_us")
        if len(quota_and_period) == 2 and quota_and_period[0] > 0:
            quotas.append(quota_and_period[0] / quota_and_period[1])
    return min(quotas, default=None)


def report() -> dict[str, object]:
    """Collect the whole report."""
    asked = [word[len(IMPORT) :] for word in sys.argv[1:] if word.startswith(IMPORT)]
    folders = [word for word in sys.argv[1:] if not word.startswith(IMPORT)]
    packages = {name: package(name) for name in (*PACKAGES, *asked)}
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
        "folders": {path: os.path.isdir(path) for path in folders},  # noqa: PTH112 (pathlib is 10 ms)
    }


if __name__ == "__main__":
    print(MARK + json.dumps(report()), flush=True)
