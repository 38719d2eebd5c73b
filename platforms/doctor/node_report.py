"""Says what a job finds on its node, as one line of JSON: Python, torch and its devices, the packages, memory, cores,
and which of the folders that it is given are there.

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
        "cores": len(os.sched_getaffinity(0)),
        "folders": {path: os.path.isdir(path) for path in sys.argv[1:]},  # noqa: PTH112 (pathlib is 10 ms)
    }


if __name__ == "__main__":
    print(MARK + json.dumps(report()), flush=True)
