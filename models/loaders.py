"""Makes the loader of a rank: an endless stream of batches as they are in the files."""

from __future__ import annotations

from typing import Any, Iterable

from models.data.process_loader import ProcessLoader
from models.data.thread_loader import ThreadLoader
from models.training_setup import TrainingSetup, make_sampler


def make_loader(setup: TrainingSetup) -> Iterable[Any]:
    """Return an endless iterable of batches (samples, targets), each of `request.batch_of_rank` samples.

    It is endless so that no loader process starts again within a window.
    """
    request = setup.request
    sampler = make_sampler(request, len(setup.data), setup.world.rank)
    pinned = setup.accelerator.pinned
    if request.worker_start == "thread":
        return ThreadLoader(setup.data, sampler, workers=request.workers, pinned=pinned)
    return ProcessLoader(
        setup.data,
        sampler,
        local_batch=request.batch_of_rank,
        workers=request.workers,
        start=request.worker_start,
        pinned=pinned,
    )
