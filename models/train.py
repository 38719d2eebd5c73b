"""The training loop of every benchmark: the same code on every platform, for one process or many.

    python -m models train resnet50 --data-dir data/resnet50 --size smoke
    torchrun --nproc-per-node 4 models-<hash>.pyz train resnet50 --data-dir /data/imagenet --configuration tuned
    srun python models-<hash>.pyz train resnet50 --data-dir /data/imagenet --size subset --mode blocking

Read it from top to bottom: `main` meets the other ranks and refuses what cannot be done, `train` builds everything and
hands over the result, `loop` is the loop. models/meter.py measures: it times the steps by yielding the batches. This
file reads the clock for two other things only: when the process started, for --time-limit-s, and how long torch.compile
took, which stands in the summary beside the rates.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import inspect
import json
import os
import time
from typing import Any, Iterable, List, Tuple

import torch

from models import checks, contention, fault_injection
from models.abort import abort_all_ranks, abort_for_other_rank, abort_this_rank, attempt, is_out_of_memory
from models.data.process_loader import ProcessLoader
from models.data.thread_loader import ThreadLoader
from models.errors import CommandError, CompileFailed
from models.meter import Meter, Solo, Wire
from models.provenance import start_value
from models.ranks import Failure, Ranks
from models.time_limit import TimeLimit
from models.training_setup import TrainingSetup, backend, make_meter, make_sampler, make_schedule, mlperf_keys, set_up
from models.world import detect

TORCH_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def main(options: argparse.Namespace) -> int:
    """Train; return the exit code (docs/wire.md). Every error ends here, as one sentence."""
    started_s = time.perf_counter()
    meter = Meter(samples=1)
    ranks = None
    try:
        # Which rank is this? Only rank 0 writes the wire.
        world = detect(os.environ)
        meter = Meter(samples=1, wire=Wire(world.rank), group=Solo(world.rank), folder=None)
        announce(meter)

        # Each rank sets itself up, and then tells the others whether it succeeded: if one cannot train, all end with
        # its sentence, and none waits for it in a collective.
        setup, error = attempt(functools.partial(set_up, options, world, started_s))
        ranks = Ranks(world)
        failure = ranks.agree(error)
        if failure or setup is None:
            return abort_all_ranks(failure or Failure.of(0, CommandError("nothing to train")), meter)

        meter = make_meter(setup, ranks, meter.wire)
        ranks.connect(backend(setup), setup.accelerator.device, functools.partial(abort_for_other_rank, meter))
        exit_code = train(setup, ranks, meter)
        ranks.part()
        return exit_code
    except Exception as error:
        return abort_this_rank(error, meter, ranks)


def announce(meter: Meter) -> None:
    if meter.group.rank == 0:
        meter.wire.emit("init_start", None)
        meter.wire.emit("hpcml_progress", {"phase": "setup"})


def train(setup: TrainingSetup, ranks: Ranks, meter: Meter) -> int:
    """Build the model and the loader, run the loop, check and hand over the result. Return the exit code."""
    request = setup.request
    accelerator = setup.accelerator
    benchmark = setup.benchmark

    # Before: is each rank on a device of its own, and what do all devices reach at the same time?
    checks.check_devices_differ(ranks, accelerator)
    attainable_before = checks.attainable_flops(ranks, accelerator, request.dtype)

    # The model. Every rank draws the same weights.
    torch.manual_seed(request.seed)
    model = benchmark.build(request.variant, request.shape).to(accelerator.device)
    if request.channels_last:
        model = model.to(memory_format=benchmark.CHANNELS_LAST)
    optimizer = benchmark.make_optimizer(model)
    parallel = distribute(model, setup)
    if ranks.size > 1:
        mark_exchange(model, meter)
    forward = parallel
    compile_s = None
    if request.compile:
        forward, compile_s = compile_model(parallel, setup)

    # The data. In overlap mode the next batch is copied to the device while this one is computed.
    batches = fault_injection.stalled(make_loader(setup), request, setup.world.rank)
    if request.mode == "overlap":
        batches = accelerator.ahead(batches)

    # The loop. hpcml_start stands in the log before its first step.
    meter.start(start_value(setup, ranks.backend), mlperf_keys(setup))
    health_before = accelerator.health()
    inputs = checks.FirstInputs()
    losses = loop(setup, ranks, meter, batches, forward, parallel, optimizer, inputs)
    health_after = accelerator.health()

    # After: are the numbers those of this benchmark on an undisturbed machine? A failed check is a gate in the log,
    # a doubt is a warning.
    attainable_after = checks.attainable_flops(ranks, accelerator, request.dtype)
    checks.check_parameters_finite(model, meter)
    checks.check_inputs(inputs, setup, meter)
    setup.warnings.extend(checks.stolen_time(health_before, health_after))
    counted = meter.watch.counted(torch.get_num_threads(), of_node=setup.world.local_rank == 0)
    others = contention.join(ranks.gather(counted), on_cpu=accelerator.family == "cpu")
    setup.warnings.extend(others.warnings)
    write_losses(losses, setup, ranks)
    if request.skip_corrupt and setup.data.skipped:
        setup.warnings.append(f"{setup.data.skipped} corrupt samples were skipped")
    return meter.finish(
        parameters_identical=checks.are_parameters_identical(model, ranks),
        peak_memory_bytes=accelerator.peak_memory_bytes(),
        health={
            "before": health_before,
            "after": health_after,
            "throttled": checks.throttled_ranks(ranks, health_after),
        },
        contention=others.value,
        attainable_flops=max(attainable_before, attainable_after) or None,
        compile_s=compile_s,
        warnings=setup.warnings,
        input_std=inputs.deviations(),
    )


def loop(
    setup: TrainingSetup,
    ranks: Ranks,
    meter: Meter,
    batches: Iterable[Any],
    forward: Any,
    parallel: Any,
    optimizer: Any,
    inputs: checks.FirstInputs,
) -> List[torch.Tensor]:
    """Train until the meter ends the batches. Return the loss of every micro-batch if --trace-losses wants them.

    The losses are tensors on the device: reading one would make the host wait for the device.
    """
    request = setup.request
    accelerator = setup.accelerator
    criterion = setup.benchmark.criterion
    to_inputs = prepare_inputs(setup)
    schedule = make_schedule(setup)
    time_limit = TimeLimit(setup, ranks)
    micro_batches = request.accumulation_steps
    loss_scale = accelerator.loss_scale(request.dtype)
    losses: List[torch.Tensor] = []
    copy_delay_s = fault_injection.copy_delay_s(request, setup.world.rank)

    # The meter takes the time between handing out a batch and being asked for the next one as compute, and the rest as
    # waiting for data.
    measured = fault_injection.slowed(meter.steps(batches), request, setup.world.rank, accelerator)
    for batch_number, batch in enumerate(measured):
        step, micro_batch = divmod(batch_number, micro_batches)
        is_last = micro_batch == micro_batches - 1  # of this optimiser step

        # Copy the batch to the device. In overlap mode it is there already.
        with meter.h2d(host_waits=copy_delay_s > 0):
            if copy_delay_s and micro_batch == 0:
                fault_injection.delay_copy(copy_delay_s, accelerator)
            samples, targets = accelerator.to_device(batch)
        if batch_number == 0:
            inputs.take(samples)

        # Dropout draws the same numbers for a micro-batch on whichever rank it is computed.
        accelerator.seed(dropout_seed(setup, step, micro_batch))

        # Forward and backward. The ranks exchange their gradients once per optimiser step, in its last backward pass.
        with contextlib.nullcontext() if is_last or ranks.size == 1 else parallel.no_sync():
            with accelerator.autocast(request.dtype):
                loss = criterion(forward(to_inputs(samples)), targets)
            (loss * (loss_scale / micro_batches)).backward()
        if is_last and ranks.size > 1:
            meter.exchange_ends()

        # Keep the loss; the meter reads it at the end of the window.
        meter.loss(loss)
        if setup.options.trace_losses:
            losses.append(loss.detach())

        # The optimiser step: set the learning rate, undo the scale that keeps fp16 gradients from vanishing, update.
        if is_last:
            for group in optimizer.param_groups:
                group["lr"] = schedule.rate(step)
            if loss_scale != 1:
                gradients = [parameter.grad for parameter in parallel.parameters() if parameter.grad is not None]
                torch._foreach_mul_(gradients, 1 / loss_scale)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            time_limit.after(step)
    return losses


# --- what the loop is made of -----------------------------------------------------------------------------------------


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


def compile_model(model: Any, setup: TrainingSetup) -> Tuple[Any, float]:
    """Compile the model by a training step on its first sample; return the compiled model and the seconds it took.

    The weights and the buffers are left as they were. Raises CompileFailed.
    """
    request = setup.request
    accelerator = setup.accelerator
    buffers = [buffer.clone() for buffer in model.buffers()]
    begin_s = time.perf_counter()
    try:
        forward = torch.compile(model)
        batch = torch.utils.data.default_collate([setup.data[(0, 0)]] * request.local_batch_size)
        samples, targets = accelerator.to_device(batch)
        with accelerator.autocast(request.dtype):
            loss = setup.benchmark.criterion(forward(prepare_inputs(setup)(samples)), targets)
        loss.backward()
        accelerator.synchronize()
    except Exception as error:
        if is_out_of_memory(error):
            raise
        first_line = (str(error).strip() or "no text").splitlines()[0]
        raise CompileFailed(
            f"torch.compile failed ({type(error).__name__}: {first_line}); train without --compile"
        ) from error
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        for buffer, value in zip(model.buffers(), buffers):
            buffer.copy_(value)
    return forward, time.perf_counter() - begin_s


def make_loader(setup: TrainingSetup) -> Iterable[Any]:
    """Return an endless iterable of batches (samples, targets) as they are in the files.

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
        local_batch=request.local_batch_size,
        workers=request.workers,
        start=request.worker_start,
        pinned=pinned,
    )


def prepare_inputs(setup: TrainingSetup) -> Any:
    """Return what turns a batch into the model's inputs, on the device."""
    request = setup.request
    dtype = TORCH_DTYPES[request.dtype]
    return setup.benchmark.Prepare(setup.data, setup.accelerator.device, dtype, request.channels_last)


def dropout_seed(setup: TrainingSetup, step: int, micro_batch: int) -> int:
    """Return the seed of a micro-batch's dropout.

    It depends on the micro-batch's number in the global batch and not on the number of ranks that share the batch.
    """
    request = setup.request
    number = (step * request.world_size + setup.world.rank) * request.accumulation_steps + micro_batch
    return (request.seed * 1_000_003 + number) % 2**63


def write_losses(losses: List[torch.Tensor], setup: TrainingSetup, ranks: Ranks) -> None:
    """Write the file of --trace-losses: one JSON line a step, with the mean loss over micro-batches and ranks."""
    if setup.options.trace_losses is None:
        return
    losses_of_ranks = ranks.gather([float(loss) for loss in losses])
    if ranks.rank != 0:
        return
    micro_batches = setup.request.accumulation_steps
    with open(setup.options.trace_losses, "w", encoding="utf-8") as file:
        for step in range(len(losses) // micro_batches):
            first = step * micro_batches
            of_step = [loss for rank in losses_of_ranks for loss in rank[first : first + micro_batches]]
            file.write(json.dumps({"step": step, "loss": sum(of_step) / len(of_step)}) + "\n")
