"""The input function of CS systems. Worker nodes of the cluster call it; this process calls it for the first batch.

A worker node asks for a batch on one thread, at the moment at which a system wants it, and nothing is read ahead there
(pytorch/utils/data/streamer/cs_streamer_app.py of cerebras-pytorch 2.10.0). So the loader's workers prepare each sample
as soon as they have read it, and a thread fetches the next batch while one is streamed.
"""

from __future__ import annotations

import importlib
import math
import os
import time
from dataclasses import replace
from typing import Any, Callable, Iterable, Iterator, Optional, Tuple

import torch

from models.benchmarks import load
from models.cgroups import cpu_quota
from models.data.sampling import StepSampler
from models.dtypes import TORCH_DTYPES
from models.host import own_cores
from models.loaders import loader_of
from models.prefetch import prefetch_one
from models.request import Request

MOST_WORKERS = 16
UNTIMED_BATCHES = 3  # in them the loader's workers start
TIMED_BATCHES = 8


class PreparedData:
    """A data set whose samples are ready for the model: prepared, and with labels of 32 bits, as the package's own.

    data: one of models/benchmarks; it is read by the loaders of models/data, as this one is. prepare: turns a batch of
    its samples into what the model takes.
    """

    def __init__(self, data: Any, prepare: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.data = data
        self.prepare = prepare
        (shape, dtype), (label_shape, label_dtype) = data.blank
        ready = prepare(torch.zeros((1, *shape), dtype=dtype))
        labels = torch.int32 if label_dtype == torch.int64 else label_dtype
        self.blank = ((tuple(ready.shape[1:]), ready.dtype), (label_shape, labels))

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, key: Tuple[int, int]) -> Tuple[torch.Tensor, Any]:
        sample, label = self.data[key]
        return self.prepare(sample.unsqueeze(0))[0], label

    def fill(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None:
        sample, label = (torch.empty(shape, dtype=dtype) for shape, dtype in self.data.blank)
        self.data.fill(index, sample, label)
        x.copy_(self.prepare(sample.unsqueeze(0))[0])
        y.copy_(label)


def read_batches(name: str, data_dir: str, request: Request, timed: bool = False) -> Iterable[Any]:
    """Return batches (samples, labels), ready for the model. The package calls this from the archive `python_paths`.

    On a worker node they are the batches of its CS system, so that all nodes together read what one process reads
    elsewhere. On the user node one batch is read, unless the input function is timed there.
    """
    cstorch = importlib.import_module("cerebras.pytorch")
    batch = request.global_batch_size
    shares, share = 1, 0
    if cstorch.distributed.is_streamer():  # pytorch/distributed/__init__.py
        batch = cstorch.distributed.get_streaming_batch_size(batch)
        shares, share = cstorch.distributed.num_streamers(), cstorch.distributed.get_streaming_rank()
        request = on_worker_node(request)
    elif cstorch.use_cs() and not timed:
        request = replace(request, workers=0)
    benchmark = load(name)
    folder = os.path.realpath(data_dir)
    data = benchmark.open_data(
        folder, variant=request.variant, shape=request.shape, augment=request.augment, seed=request.seed
    )
    # The compiler chooses the layout on a CS system, so channels lie as the operations have them.
    prepare = benchmark.Prepare(data, torch.device("cpu"), TORCH_DTYPES[request.dtype], channels_last=False)
    ready = PreparedData(data, prepare)
    sampler = StepSampler(len(data), local_batch=batch, rank=share, world=shares, accumulation=1, seed=request.seed)
    loader = loader_of(ready, sampler, request, local_batch=batch, workers=request.workers, pinned=False)
    return FetchedAhead(loader) if request.workers else loader


class FetchedAhead:
    """The batches of a loader; a thread fetches the next one while the consumer has one."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return prefetch_one(iter(self._loader))


def on_worker_node(request: Request) -> Request:
    """Return the request with the workers of this machine, which may have fewer cores than the user node.

    Processes are forked, as torch's own loader does there: they share their batches without /dev/shm, which may have
    64 MB in a pod. Each worker prepares its samples on one thread.
    """
    torch.set_num_threads(1)
    quota = cpu_quota() or math.inf
    cores = min(own_cores(), quota)
    workers = max(1, min(MOST_WORKERS, math.ceil(cores) - 1))
    start = "thread" if request.worker_start == "thread" else "fork"
    return replace(request, workers=workers, worker_start=start)


def rate_alone(batches: Iterable[Any], now: Callable[[], float] = time.perf_counter) -> Optional[float]:
    """Return samples/s at which these batches come while nothing else is done; None: they were too few."""
    stream = iter(batches)
    samples, began_s = 0, 0.0
    try:
        for number, (_, labels) in enumerate(stream):
            if number > UNTIMED_BATCHES:
                samples += len(labels)
            elif number == UNTIMED_BATCHES:
                began_s = now()
            if number == UNTIMED_BATCHES + TIMED_BATCHES:
                return samples / (now() - began_s)
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()
    return None


def rate_by_package(read: Callable[[], Iterable[Any]], steps: int) -> Optional[float]:
    """Return samples/s of the input function on this machine, by the package's benchmark of loaders."""
    tool = importlib.import_module("cerebras.pytorch.utils.benchmark")
    rate = tool.benchmark_dataloader(read, steps_per_epoch=steps, print_metrics=False).global_sample_rate
    return None if rate is None else float(rate)
