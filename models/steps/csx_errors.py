"""What an error of cerebras.pytorch means: whose fault it is, and with that the exit code of the job.

The package's classes decide (appliance/errors.py), and where a class has several causes, its text. Only what a second
attempt may cure ends with 69, because such a job begins again. Files in brackets are those of cerebras-pytorch 2.10.0.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from typing import Iterator, Optional, Tuple, Type

from models.abort import OUT_OF_MEMORY
from models.errors import (
    CommandError,
    CompileFailed,
    DataCorrupt,
    DataMissing,
    DeviceOutOfMemory,
    ImpossibleRequest,
    LossNotFinite,
    MachineFailed,
    first_line,
    with_message,
)

Verdict = Tuple[Type[CommandError], str]

# The classes with one meaning, by name.
VERDICTS = {
    "ApplianceVersionError": (ImpossibleRequest, "the cluster's software is of another release"),
    "ApplianceUserVenvClusterVolumeError": (ImpossibleRequest, "the cluster does not see this Python environment"),
    "ClusterConfigError": (ImpossibleRequest, "the file that describes the cluster is wrong"),
    "MissingVolumeError": (ImpossibleRequest, "the cluster does not mount a folder of this job"),
    "ApplianceNanError": (LossNotFinite, "the cluster found a number that is not finite"),
    "ApplianceRuntimeJobTimeoutError": (CommandError, "the cluster ended the job at its time limit"),
    "ClusterJobCancelledByCsctl": (CommandError, "somebody cancelled the job on the cluster"),
    "ApplianceRequestCancelled": (CommandError, "a request to the cluster was cancelled"),
    "ApplianceTensorDropped": (CommandError, "the cluster no longer has a value that was asked for"),
    "ApplianceServiceInterrupted": (MachineFailed, "a service of the cluster was interrupted"),
    "ApplianceDeadlockError": (MachineFailed, "the job on the cluster made no progress"),
    "ApplianceHealthPollException": (MachineFailed, "a system of the cluster is not healthy"),
    "ApplianceCorruptionError": (MachineFailed, "a system of the cluster computed wrongly"),
    "ClusterJobScheduleError": (MachineFailed, "the cluster has no room for the job"),
}
# What errors without a class of their own say (appliance/utils/traceback.py, pytorch/backend/ltc_backend.py).
NOT_COMPILED = ("owering failed", "MLIR Compile Lowering", "Cerebras constraints were violated")
# The cluster does not see our folders or our environment (appliance/appliance_manager.py: build_worker_image).
NOT_MOUNTED = re.compile(r"mount_dirs and python_paths|sidecar|mount|volume|no such file|does not exist", re.I)
NOT_PREPARED = re.compile(r"Auto-configuring mount_dirs|sidecar|[Ii]mage build|Failed to get volumes")
# A worker node runs our input function (appliance/appliance_client.py: `Error detected in WRK #…`).
WORKER = re.compile(r"\bWRK\b|input pipeline|DataLoader|deserialize")
NO_PACKAGE = re.compile(r"No module named|ModuleNotFoundError|ImportError|deserialize")
NO_FILE = re.compile(r"DataMissing|FileNotFoundError|No such file")
BAD_FILE = re.compile(r"DataCorrupt|UnidentifiedImageError|corrupt|truncated", re.I)
MEMORY = re.compile(r"memory|\bOOM", re.I)
LOST = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED")  # states of gRPC in which a second attempt may succeed


@contextlib.contextmanager
def errors_of_cluster() -> Iterator[None]:
    """Turn the errors of the package into CommandErrors, with their text. An error of ours stays what it is."""
    try:
        yield
    except CommandError:
        raise
    except Exception as error:
        one = first_of_group(error)
        verdict = verdict_on(one)
        if verdict is None:
            raise
        kind, sentence = verdict
        raise kind(with_message(f"{sentence}: {first_line(one)}", one)) from error


def first_of_group(error: BaseException) -> BaseException:
    """Return the first error of a group, as the package raises for several weights (pytorch/core/appliance.py)."""
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]  # type: ignore[attr-defined]
    return error


def verdict_on(error: BaseException) -> Optional[Verdict]:
    """Return the class and the beginning of the sentence for an error of the package; None: it is none of those."""
    errors = importlib.import_module("cerebras.appliance.errors")
    grpc = importlib.import_module("grpc")
    text = str(error)
    if isinstance(error, errors.ApplianceClientException):
        return on_class(error) or on_text(error, text)
    if isinstance(error, grpc.RpcError):
        return on_connection(error)
    if isinstance(error, RuntimeError):
        if any(sign in text for sign in NOT_COMPILED):
            return on_compiler(text)
        if NOT_PREPARED.search(text):
            return ImpossibleRequest, "the cluster cannot use this job's folders or environment"
        return on_class(error)
    if type(error) is Exception:
        # A plain Exception says that the cluster does not answer (appliance/cluster/client.py:
        # validate_connectivity). Any other class is an error of ours.
        return MachineFailed, "the cluster does not answer; ask its administrators"
    return None


def on_class(error: BaseException) -> Optional[Verdict]:
    for kind in type(error).__mro__:
        if kind.__name__ in VERDICTS:
            return VERDICTS[kind.__name__]
    return None


def on_text(error: BaseException, text: str) -> Verdict:
    """Judge an error of a class that has several causes."""
    name = type(error).__name__
    if name == "ApplianceCompilationError":
        return on_compiler(text)
    if name == "ApplianceResourceExhausted":
        if MEMORY.search(text):
            return DeviceOutOfMemory, "the cluster's memory does not hold this"
        return CommandError, "the cluster ran out of a resource (memory, threads, or the size of a message)"
    if WORKER.search(text):
        return on_worker(text)
    if name == "ApplianceRuntimeServerError":
        return MachineFailed, f"the job on the cluster failed ({name})"
    if name == "ClusterJobInitError" and NOT_MOUNTED.search(text):
        return ImpossibleRequest, "the cluster does not see a folder of this job"
    cause = error.__cause__ or error.__context__
    if "UNAVAILABLE" in text or (cause is not None and state_of(cause) in LOST):
        return MachineFailed, f"the connection to the cluster was lost ({name})"
    return CommandError, f"the job on the cluster failed ({name})"


def on_worker(text: str) -> Verdict:
    """Judge an error of a worker node, which runs our input function in the environment that the cluster made."""
    if NO_PACKAGE.search(text):
        return ImpossibleRequest, "a worker node cannot import what the input function needs"
    if NO_FILE.search(text):
        return DataMissing, "a worker node does not see the data set"
    if BAD_FILE.search(text):
        return DataCorrupt, "a worker node cannot read a file of the data set"
    return CommandError, "the input function failed on a worker node"


def on_compiler(text: str) -> Verdict:
    if any(sign in text for sign in OUT_OF_MEMORY):
        return DeviceOutOfMemory, "the compiled program does not fit"
    return CompileFailed, "Cerebras' compiler refused the program"


def on_connection(error: BaseException) -> Verdict:
    if state_of(error) in LOST:
        return MachineFailed, "the connection to the cluster was lost"
    return CommandError, "the cluster refused a request"


def state_of(error: BaseException) -> str:
    """Return the state of a gRPC error, as UNAVAILABLE; empty for any other error."""
    code = getattr(error, "code", None)
    return str(getattr(code(), "name", "")) if callable(code) else ""
