"""Makes the loader of a rank: an endless stream of batches as they are in the files."""

from __future__ import annotations

from typing import Any, Iterable, List, Tuple

from models import fault_injection
from models.data.process_loader import ProcessLoader
from models.data.thread_loader import ThreadLoader
from models.request import Request
from models.training_setup import TrainingSetup, make_sampler


def make_loader(setup: TrainingSetup) -> Iterable[Any]:
    """Return an endless iterable of batches (samples, targets), each of `request.batch_of_rank` samples.

    It is endless so that no loader process starts again within a window. With --inject-stall-s its batches come late.
    """
    request = setup.request
    sampler = make_sampler(request, len(setup.data), setup.world.rank)
    local_batch, pinned = request.batch_of_rank, setup.accelerator.pinned
    batches = loader_of(setup.data, sampler, request, local_batch=local_batch, workers=request.workers, pinned=pinned)
    return fault_injection.stalled(batches, request, setup.world.rank)


def loader_of(
    data: Any,
    sampler: Iterable[List[Tuple[int, int]]],
    request: Request,
    *,
    local_batch: int,
    workers: int,
    pinned: bool,
) -> Iterable[Any]:
    """Return the loader of these samples: of threads or of processes, as the request has it."""
    if request.worker_start == "thread":
        return ThreadLoader(data, sampler, workers=workers, pinned=pinned)
    return ProcessLoader(
        data, sampler, local_batch=local_batch, workers=workers, start=request.worker_start, pinned=pinned
    )
