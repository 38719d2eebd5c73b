"""The training step where PyTorch drives the device operation by operation: on CPUs and GPUs, also with torch.compile.

Read `EagerStep` from top to bottom: what is built before the loop, where the batches come from, and what happens with
one of them.
"""

from __future__ import annotations

import contextlib
import inspect
import time
from typing import Any, ContextManager, Iterable, Optional, Tuple

import torch

from models import fault_injection
from models.abort import is_out_of_memory
from models.accelerators import EagerAccelerator
from models.benchmarks import large_model
from models.checks import FirstInputs
from models.dtypes import TORCH_DTYPES
from models.errors import CompileFailed, first_line, with_message
from models.loaders import make_loader
from models.meter import Meter
from models.sharding import build_sharded
from models.training_setup import TrainingSetup, dropout_seed, make_schedule


class EagerStep:
    """Model, optimiser and loader of one rank; a call trains on one micro-batch (models.steps.TrainingStep)."""

    replicas: Optional[Tuple[int, int]] = None
    compile_cache: Optional[str] = None

    def __init__(self, accelerator: EagerAccelerator, setup: TrainingSetup, meter: Meter, inputs: FirstInputs) -> None:
        request = setup.request
        benchmark = setup.benchmark
        self.accelerator = accelerator
        self.setup = setup
        self.meter = meter
        self.inputs = inputs
        self.is_alone = setup.world.size == 1

        # The model. Every rank draws the same weights, and keeps a share of them where the model is split.
        torch.manual_seed(request.seed)
        self.model = build_model(accelerator, setup)
        self.optimizer = benchmark.make_optimizer(self.model)
        self.parallel = self.model if request.sharded else distribute(self.model, setup)
        if not (self.is_alone or request.sharded):
            mark_exchange(self.model, meter)
        self.forward = self.parallel
        self.compile_s: Optional[float] = None
        if request.compile:
            self.forward, self.compile_s = compile_model(self.parallel, accelerator, setup)

        self.criterion = benchmark.criterion
        self.to_inputs = prepare_inputs(accelerator, setup)
        self.schedule = make_schedule(setup)
        self.micro_batches = request.accumulation_steps
        self.loss_scale = accelerator.loss_scale(request.dtype)
        self.exchanges = True  # whether the ranks exchange their gradients; --decompose also trains without
        self.copy_delay_s = fault_injection.copy_delay_s(request, setup.world.rank)

    def batches(self) -> Iterable[Any]:
        """In overlap mode the next batch is copied to the device while this one is computed."""
        batches = make_loader(self.setup)
        if self.setup.request.mode == "overlap":
            batches = self.accelerator.ahead(batches)
        return batches

    def __call__(self, number: int, batch: Any) -> torch.Tensor:
        request = self.setup.request
        accelerator = self.accelerator
        step, micro_batch = divmod(number, self.micro_batches)
        is_last = micro_batch == self.micro_batches - 1  # of this optimiser step

        # Copy the batch to the device. In overlap mode it is there already.
        with self.meter.h2d(host_waits=self.copy_delay_s > 0):
            if self.copy_delay_s and micro_batch == 0:
                fault_injection.delay_copy(self.copy_delay_s, accelerator)
            samples, targets = accelerator.to_device(batch)
        if number == 0:
            self.inputs.take(samples)

        # Dropout draws the same numbers for a micro-batch on whichever rank it is computed.
        accelerator.seed(dropout_seed(self.setup, step, micro_batch))

        # Forward and backward. The ranks exchange their gradients once per optimiser step, in its last backward pass.
        with self.exchange(is_last):
            with accelerator.autocast(request.dtype):
                loss = self.criterion(self.forward(self.to_inputs(samples)), targets)
            (loss * (self.loss_scale / self.micro_batches)).backward()
        if is_last and not (self.is_alone or request.sharded):
            self.meter.exchange_ends()

        # The optimiser step: set the learning rate, undo the scale that keeps fp16 gradients from vanishing, update.
        if is_last:
            for group in self.optimizer.param_groups:
                group["lr"] = self.schedule.rate(step)
            if self.loss_scale != 1:
                gradients = [parameter.grad for parameter in self.parallel.parameters() if parameter.grad is not None]
                torch._foreach_mul_(gradients, 1 / self.loss_scale)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def exchange(self, is_last: bool) -> ContextManager[None]:
        """Exchange gradients only in the last backward pass of an optimiser step.

        A split model exchanges them in each: between two passes each rank would hold the gradients of all weights.
        """
        if (is_last and self.exchanges) or self.is_alone or self.setup.request.sharded:
            return contextlib.nullcontext()
        without: ContextManager[None] = self.parallel.no_sync()
        return without

    def trained(self) -> Any:
        return self.model


def build_model(accelerator: EagerAccelerator, setup: TrainingSetup) -> Any:
    """Return the model on this rank's device, with its first weights: whole, or this rank's share of it."""
    request = setup.request
    large = large_model(setup.benchmark)
    if large is not None and request.sharded:
        model = large.build_without_weights(request.variant, request.shape)
        model = build_sharded(model, accelerator.device, request.dtype)
    else:
        model = setup.benchmark.build(request.variant, request.shape).to(accelerator.device)
    if request.channels_last:
        model = model.to(memory_format=setup.benchmark.CHANNELS_LAST)
    if request.recompute:
        model.recompute = True
    return model


def distribute(model: Any, setup: TrainingSetup) -> Any:
    """Wrap the model in DistributedDataParallel if there are several ranks.

    BatchNorm's running statistics stay each rank's own, because nothing reads them in training.
    """
    if setup.world.size == 1:
        return model
    parallel = torch.nn.parallel.DistributedDataParallel
    device_ids = [setup.accelerator.device] if setup.accelerator.family == "cuda" else None
    sync_buffers = "forward_sync_buffers"  # its name since torch 2.13
    if sync_buffers not in inspect.signature(parallel).parameters:
        sync_buffers = "broadcast_buffers"
    return parallel(model, device_ids=device_ids, gradient_as_bucket_view=True, **{sync_buffers: False})


def mark_exchange(model: Any, meter: Meter) -> None:
    """Tell the meter when this rank's own backward pass is done: the gradient of the first layer comes last."""
    next(model.parameters()).register_hook(lambda gradient: meter.exchange_begins())


def compile_model(model: Any, accelerator: EagerAccelerator, setup: TrainingSetup) -> Tuple[Any, float]:
    """Compile the model by a training step on its first sample; return the compiled model and the seconds it took.

    The weights and the buffers are left as they were. Raises CompileFailed.
    """
    request = setup.request
    buffers = [buffer.clone() for buffer in model.buffers()]
    begin_s = time.perf_counter()
    try:
        forward = torch.compile(model)
        batch = torch.utils.data.default_collate([setup.data[(0, 0)]] * request.local_batch_size)
        samples, targets = accelerator.to_device(batch)
        with accelerator.autocast(request.dtype):
            loss = setup.benchmark.criterion(forward(prepare_inputs(accelerator, setup)(samples)), targets)
        loss.backward()
        accelerator.synchronize()
    except Exception as error:
        if is_out_of_memory(error):
            raise
        sentence = f"torch.compile failed ({type(error).__name__}: {first_line(error)}); train without --compile"
        raise CompileFailed(with_message(sentence, error)) from error
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        for buffer, value in zip(model.buffers(), buffers):
            buffer.copy_(value)
    return forward, time.perf_counter() - begin_s


def prepare_inputs(accelerator: EagerAccelerator, setup: TrainingSetup) -> Any:
    """Return what turns a batch into the model's inputs, on the device."""
    request = setup.request
    dtype = TORCH_DTYPES[request.dtype]
    return setup.benchmark.Prepare(setup.data, accelerator.device, dtype, request.channels_last)
