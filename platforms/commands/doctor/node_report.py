"""Reports what a job finds on its node as one line of JSON.

The report has Python, torch and its devices, the packages, cores, which of the folders on the command line exist, and
for each word `import=PACKAGE` there whether that package can be imported. This is one file of the standard library for
Python 3.8 and newer, since doctor sends it alone.
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
        "cores": len(os.sched_getaffinity(0)),
        "folders": {path: os.path.isdir(path) for path in folders},  # noqa: PTH112 (pathlib is 10 ms)
    }


if __name__ == "__main__":
    print(MARK + json.dumps(report()), flush=True)
