"""How a job ends when it ends badly: one sentence on stderr and in the log, an exit code, no rank left waiting."""

from __future__ import annotations

import sys
import threading
import traceback
from typing import Callable, Optional, Tuple, TypeVar

import torch

from models.errors import DeviceOutOfMemory, JobError, not_importable
from models.meter import Meter
from models.ranks import Failure, Ranks

Done = TypeVar("Done")
_ending = threading.Lock()  # taken once and kept: the first to say why the run ends is the only one


def attempt(work: Callable[[], Done]) -> Tuple[Optional[Done], Optional[JobError]]:
    """(what was done, None) or (None, why not): an error that the other ranks must hear of before anybody leaves."""
    try:
        return work(), None
    except Exception as error:
        return None, explain(error)


def refuse(failure: Failure, meter: Meter) -> int:
    """All ranks know it and end alike; rank 0 says it for all of them."""
    text = failure.text if failure.rank == 0 else f"rank {failure.rank}: {failure.text}"
    if meter.group.rank == 0:
        print(f"error: {text}", file=sys.stderr, flush=True)
        meter.abort(failure.exit_code, failure.gate, text)
    return failure.exit_code


def end_elsewhere(meter: Meter, failure: Failure) -> None:
    """Another rank failed, and this one may be waiting for it: the thread that noticed says so and then ends it."""
    _ending.acquire()
    refuse(failure, meter)


def end_here(error: Exception, meter: Meter, ranks: Optional[Ranks]) -> int:
    """This rank failed: say so, tell the others, and, when there are others, leave without waiting in a collective."""
    _ending.acquire()
    known = explain(error)
    failure = ranks.fail(known) if ranks else Failure.of(meter.group.rank, known)
    if failure.rank == meter.group.rank:
        print(f"error: {failure.text}", file=sys.stderr, flush=True)
        meter.abort(failure.exit_code, failure.gate, failure.text)
    else:  # the consequence of another rank's end
        refuse(failure, meter)
    if ranks:
        ranks.abandon(failure)
    return failure.exit_code


def explain(error: Exception) -> JobError:
    """The error as one sentence with an exit code; what nobody foresaw keeps its traceback, on stderr."""
    if isinstance(error, JobError):
        return error
    if isinstance(error, ImportError):
        return not_importable(error)
    if out_of_memory(error):
        text = str(error).strip().splitlines()[0]
        return DeviceOutOfMemory(
            f"the device's memory does not hold this batch ({text}); ask for a smaller --local-batch-size"
        )
    if isinstance(error, RuntimeError) and any(word in str(error) for word in ("gloo", "Connection reset", "NCCL")):
        text = str(error).strip().splitlines()[0]
        return JobError(
            f"the ranks lost each other: one was killed, or the network between them broke; see dmesg ({text})"
        )
    traceback.print_exception(type(error), error, error.__traceback__)
    return JobError(f"{type(error).__name__}: {str(error).strip() or 'no text'}")


def out_of_memory(error: BaseException) -> bool:
    """Whether a device, or for a processor the host, had no memory left; each allocator says it in its own words."""
    kinds = tuple(kind for kind in (getattr(torch.cuda, "OutOfMemoryError", None), MemoryError) if kind)
    words = ("out of memory", "can't allocate memory", "CUDNN_STATUS_ALLOC_FAILED", "not enough memory")
    return isinstance(error, kinds) or (isinstance(error, RuntimeError) and any(word in str(error) for word in words))
