"""Why a job ends other than well: each error carries its exit code (docs/wire.md) and one sentence for the user."""

from __future__ import annotations

import sys


class JobError(Exception):
    """A job that cannot go on. Takes one string: so it survives the way from a loader process."""

    exit_code = 1
    gate = "failed"

    def __init__(self, text: str) -> None:
        super().__init__(text)


class GateFailed(JobError):
    """It ran, and what came out is wrong."""

    exit_code = 3
    gate = "gate"


class CompileFailed(JobError):
    """The compiler refused the model; how fast it would have been is not known."""

    exit_code = 4
    gate = "compile"


class DeviceOutOfMemory(JobError):
    """The device's memory does not hold this local batch size."""

    exit_code = 5
    gate = "device_memory"


class DataCorrupt(JobError):
    """A file of the data set cannot be read; the text names it."""

    exit_code = 65
    gate = "data"


class DataMissing(JobError):
    """The data set is not there; the text says where it was looked for and what makes it."""

    exit_code = 66
    gate = "data"


class Impossible(JobError):
    """A request that this machine or installation cannot fulfil, or a missing package; refused before any training."""

    exit_code = 78
    gate = "request"


def not_importable(error: ImportError) -> Impossible:
    """A package that is missing, or one that is there and cannot be imported, as one sentence."""
    name = str(error.name or "").partition(".")[0]
    package = {"PIL": "Pillow", "": "numpy torch Pillow h5py"}.get(name, name)
    if isinstance(error, ModuleNotFoundError):
        return Impossible(f"the package {package} is missing in {sys.executable}; pip install {package}")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["it says nothing"]
    cause = next((line for line in lines if line.startswith("Original error was")), lines[0])  # numpy says it last
    return Impossible(
        f"a package cannot be imported in {sys.executable} ({cause}); pip install --force-reinstall {package}"
    )
