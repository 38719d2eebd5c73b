"""Why a job ends other than well: each error carries its exit code (docs/wire.md) and one sentence for the user."""

from __future__ import annotations


class JobError(Exception):
    """A job that cannot go on. Takes one string: torch makes a loader worker's error again from its type and text."""

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
