"""The benchmarks: each module of this package is one, and a module's name is the benchmark's name.

There is no other list. To add a benchmark, add two files:

    models/benchmarks/NAME.py         the model and its training; has everything that `Benchmark` lists
    models/data/synthetic_NAME.py     writes synthetic data; has everything that `models.data.synthetic.Generator` lists

Modules whose names begin with an underscore are no benchmarks. This file imports neither torch nor a benchmark, so the
names are cheap to find.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Dict, List, Mapping, Optional, Protocol, Tuple, cast

from models.settings import Configuration, Shape, Size


def names() -> Tuple[str, ...]:
    """The names of all benchmarks, sorted. Works in a folder and in an archive; imports no benchmark."""
    modules = pkgutil.iter_modules(__path__)
    return tuple(sorted(module.name for module in modules if not module.name.startswith("_")))


def load(name: str) -> Benchmark:
    """Import a benchmark, and torch with it. `name` must be one of `names()`."""
    return cast(Benchmark, importlib.import_module(f"{__name__}.{name}"))


class LearningRates(Protocol):
    """The learning rate of each optimiser step of one run."""

    def rate(self, step: int) -> float:
        """Return the learning rate of optimiser step `step`, counted from 0."""
        ...

    def mlperf(self) -> Dict[str, object]:
        """Return the optimiser's hyperparameters under MLPerf's names."""
        ...


class Benchmark(Protocol):
    """What a module of this package has."""

    WORKLOAD_VERSION: int
    """Stands in hpcml_start. Raise it with each change of what is computed, read or timed."""
    MLPERF_NAME: str
    """MLPerf's name of the benchmark."""
    MLPERF_RULES: Tuple[str, str]
    """MLPerf's ruleset and its version, by which its log checker reads the log."""
    VARIANTS: Mapping[str, str]
    """Forms of the model, each with a description; the first is the default."""
    CONFIGURATIONS: Mapping[str, Configuration]
    """By the words of --configuration."""
    SIZES: Mapping[str, Mapping[str, Size]]
    """By the words of --size, then by device family."""
    TUNED_BATCH: Mapping[str, int]
    """The local batch size of the tuned configuration, by device family, where the memory holds it."""
    AUGMENTS: bool
    """Whether samples are augmented."""
    LOADER: str
    """`thread` where reading a sample leaves Python's lock free, else `process`."""
    CHANNELS_LAST: Any
    """torch's channels-last memory format for this model's inputs."""
    UNSUPPORTED: Mapping[str, str]
    """Device families on which it cannot be trained, with the reason."""

    def sample_bytes(self, dtype: str, variant: str, shape: Shape) -> int:
        """Estimate the device memory that one more sample of the batch needs in training, in bytes."""
        ...

    def open_data(self, folder: str, *, variant: str, shape: Shape, augment: bool, seed: int) -> Any:
        """Open the data set. Raises DataMissing, DataCorrupt or ImpossibleRequest.

        A data set is indexed by (epoch, index) and has len(); path(index), where a sample lies; blank, the shape and
        dtype of a sample's input and of its target; kind, format, bytes, decoder, transforms and warnings, which stand
        in hpcml_start. Where LOADER is `thread` it also has fill(index, input, target). Where a file holds many
        samples it has bytes_per_sample, and where samples are sequences tokens_per_sample.
        """
        ...

    def build(self, variant: str, shape: Shape) -> Any:
        """Return the model, a torch.nn.Module with new weights."""
        ...

    def flop_per_sample(self, variant: str, shape: Shape) -> Tuple[float, float]:
        """Return the FLOP of one sample: forward, and forward + backward."""
        ...

    def Prepare(self, data: Any, device: Any, dtype: Any, channels_last: bool) -> Any:
        """Return a callable that turns a batch, as it was read, into the model's inputs, on the device."""
        ...

    def criterion(self, outputs: Any, targets: Any) -> Any:
        """Return the loss, the mean over the batch."""
        ...

    def make_optimizer(self, model: Any) -> Any:
        """Return the torch.optim.Optimizer of the reference."""
        ...

    def Schedule(self, steps: int, steps_per_epoch: int, global_batch: int) -> LearningRates:
        """Return the learning rates of a run of `steps` optimiser steps."""
        ...


class LargeModel(Protocol):
    """What a module of this package also has if its model is a large part of a device's memory."""

    def shape_of(self, variant: str) -> Shape:
        """Return the shape of a sample of this variant."""
        ...

    def state_bytes(self, dtype: str, variant: str) -> int:
        """Return the bytes of weights, gradients and the optimiser's state of one copy of the model."""
        ...

    def gathered_bytes(self, dtype: str, variant: str) -> int:
        """Return the bytes of what each rank holds whole for a while where the model is split over the ranks."""
        ...

    def recomputed_bytes(self, dtype: str, variant: str, shape: Shape) -> int:
        """Return what `sample_bytes` is where the backward pass computes each block again."""
        ...

    def loss_curve(self, request: Any, data: Any) -> Optional[Tuple[List[float], float]]:
        """Return the losses of all steps that a run with these settings must have, and by how much each may differ.

        None where they are not known.
        """
        ...

    def build_without_weights(self, variant: str, shape: Shape) -> Any:
        """Return the model on torch's meta device.

        It has `blocks`, the modules that are split and computed again one by one; `recompute`; and `draw(name,
        parameter)`, which gives a parameter its first values.
        """
        ...


def large_model(benchmark: Benchmark) -> Optional[LargeModel]:
    return cast(LargeModel, benchmark) if hasattr(benchmark, "state_bytes") else None
