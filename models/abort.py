"""How a training job ends when it fails: one sentence on stderr and in the log, an exit code, no rank left waiting."""

from __future__ import annotations

import sys
import threading
import traceback
from typing import Callable, Optional, Tuple, TypeVar

import torch

from models.errors import CommandError, DeviceOutOfMemory, first_line, not_importable, with_message
from models.meter import Meter
from models.ranks import Failure, Ranks

Result = TypeVar("Result")
_aborting = threading.Lock()  # never released: only the first thread that gives a reason may end the process

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "CUDNN_STATUS_ALLOC_FAILED", "not enough memory")
LOST_CONNECTION = ("gloo", "Connection reset", "NCCL")


def attempt(work: Callable[[], Result]) -> Tuple[Optional[Result], Optional[CommandError]]:
    """Return (result, None), or (None, error) if the work fails, of which the other ranks must hear first."""
    try:
        return work(), None
    except Exception as error:
        return None, as_command_error(error)


def abort_all_ranks(failure: Failure, meter: Meter) -> int:
    """Report a failure that every rank knows of; rank 0 reports it for all. Return the exit code."""
    text = failure.text if failure.rank == 0 else f"rank {failure.rank}: {failure.text}"
    if meter.group.rank == 0:
        print(f"error: {text}", file=sys.stderr, flush=True)
        meter.abort(failure.exit_code, failure.gate, text)
    return failure.exit_code


def abort_for_other_rank(meter: Meter, failure: Failure) -> None:
    """Report the failure of another rank, for which this rank's main thread may be waiting.

    Called in the thread that watches the other ranks; it then ends this process.
    """
    _aborting.acquire()
    abort_all_ranks(failure, meter)


def abort_this_rank(error: Exception, meter: Meter, ranks: Optional[Ranks]) -> int:
    """Report an error of this rank and tell the others. Return the exit code.

    If there are other ranks, this function ends the process itself, without waiting in a collective.
    """
    _aborting.acquire()
    cause = as_command_error(error)
    failure = ranks.fail(cause) if ranks else Failure.of(meter.group.rank, cause)
    if failure.rank == meter.group.rank:
        print(f"error: {failure.text}", file=sys.stderr, flush=True)
        meter.abort(failure.exit_code, failure.gate, failure.text)
    else:  # another rank failed first, and this rank's error is a consequence
        abort_all_ranks(failure, meter)
    if ranks:
        ranks.abandon(failure)
    return failure.exit_code


def as_command_error(error: Exception) -> CommandError:
    """Turn any error into one sentence with an exit code; print the traceback of one that was not expected."""
    if isinstance(error, CommandError):
        return error
    if isinstance(error, ImportError):
        return not_importable(error)
    if is_out_of_memory(error):
        sentence = (
            f"the device's memory does not hold this batch ({first_line(error)}); ask for a smaller --local-batch-size"
        )
        return DeviceOutOfMemory(with_message(sentence, error))
    if isinstance(error, RuntimeError) and any(sign in str(error) for sign in LOST_CONNECTION):
        return CommandError(
            "the ranks lost each other: one was killed, or the network between them broke; see dmesg "
            f"({first_line(error)})"
        )
    traceback.print_exception(type(error), error, error.__traceback__)
    return CommandError(f"{type(error).__name__}: {str(error).strip() or 'no text'}")


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether a device, or the host for a processor, ran out of memory. Each allocator has its own wording."""
    if isinstance(error, MemoryError):
        return True
    cuda_error = getattr(torch.cuda, "OutOfMemoryError", None)
    if cuda_error is not None and isinstance(error, cuda_error):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in OUT_OF_MEMORY)
