"""cerebras-pytorch 2.10.0: pytorch/utils/benchmark/utils/dataloader.py."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any


def benchmark_dataloader(
    input_fn: Callable[[], Iterable[Any]], steps_per_epoch: int | None = None, print_metrics: bool = True
) -> Any:
    begin_s = time.perf_counter()
    samples = sum(len(batch[0]) for batch in itertools.islice(input_fn(), steps_per_epoch))
    return SimpleNamespace(global_sample_rate=samples / (time.perf_counter() - begin_s))
