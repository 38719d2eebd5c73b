"""The training step of each device family: what the loop calls once for each batch."""

from __future__ import annotations

from typing import Any, Iterable, Optional, Protocol, Tuple

from models.accelerators import EagerAccelerator
from models.accelerators.csx import Csx
from models.accelerators.ipu import Ipu
from models.checks import FirstInputs
from models.meter import Meter
from models.steps.csx import CsxStep
from models.steps.eager import EagerStep
from models.steps.ipu import IpuStep
from models.training_setup import TrainingSetup


class TrainingStep(Protocol):
    """Model, optimiser and loader of one rank, ready to train: what a family makes of a benchmark.

    A batch is what one call trains on: a micro-batch where the host starts each pass (CPUs, GPUs), one or several whole
    optimiser steps where the device's program repeats and accumulates by itself (`Request.batches_per_step`,
    `Request.steps_per_batch`). Its second part has one entry per sample, so that the meter can count.
    """

    replicas: Optional[Tuple[int, int]]
    """Copies of the model in the whole job, and devices of each, as the device's software was set up; None: one copy on
    the one device of each rank."""
    compile_s: Optional[float]
    """Seconds in which the program was compiled, before the first window; None: nothing is compiled."""
    compile_cache: Optional[str]
    """`hit` if a compiled program was found and used, `miss` if it had to be made; None: unknown, or not compiled."""

    def batches(self) -> Iterable[Any]:
        """Return an endless iterable of batches."""
        ...

    def __call__(self, number: int, batch: Any) -> Any:
        """Train on batch `number`, counted from 0. Return its mean loss, a number or a tensor of one.

        None: the device runs ahead, and only the losses of other batches are fetched (CS systems).

        Raises CompileFailed or DeviceOutOfMemory with the compiler's message.
        """
        ...

    def trained(self) -> Any:
        """Return the model with its trained parameters, after the loop."""
        ...


def make_step(setup: TrainingSetup, meter: Meter, inputs: FirstInputs) -> TrainingStep:
    """Build model, optimiser and loader, and compile what the family compiles. Raises CommandError.

    inputs: is given the first samples as they are in the files, when the step has them.
    """
    accelerator = setup.accelerator
    if isinstance(accelerator, Csx):
        return CsxStep(accelerator, setup, meter, inputs)
    if isinstance(accelerator, Ipu):
        return IpuStep(accelerator, setup, meter, inputs)
    if isinstance(accelerator, EagerAccelerator):
        return EagerStep(accelerator, setup, meter, inputs)
    raise TypeError(f"models/steps/ has no training step for {accelerator.family}")
