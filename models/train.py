"""The training loop of every benchmark: the same code on every platform, for one process or many.

    python -m models train resnet50 --data-dir data/resnet50 --size smoke
    torchrun --nproc-per-node 4 models-<hash>.pyz train resnet50 --data-dir /data/imagenet --configuration tuned
    srun python models-<hash>.pyz train resnet50 --data-dir /data/imagenet --size subset --mode blocking

Read it from top to bottom: `main` meets the other ranks and refuses what cannot be done, `train` builds everything and
hands over the result, `loop` is the loop. models/meter.py measures: it times the steps by yielding the batches. This
file reads the clock for one other thing only: when the process started, for --time-limit-s.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import time
from typing import Any, Dict, List

import torch

from models import checks, contention, decompose, energy, fault_injection, node
from models.abort import abort_all_ranks, abort_for_other_rank, abort_this_rank, attempt
from models.errors import CommandError
from models.meter import Meter, Solo, Wire
from models.provenance import start_value
from models.ranks import Failure, Ranks
from models.steps import TrainingStep, make_step
from models.time_limit import TimeLimit
from models.training_setup import TrainingSetup, backend, make_meter, mlperf_keys, set_up
from models.world import detect


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
    """Build the training step, run the loop, check and hand over the result. Return the exit code."""
    request = setup.request
    accelerator = setup.accelerator

    # Before: is each rank on a device of its own, and what do all devices reach at the same time?
    checks.check_devices_differ(ranks, accelerator)
    attainable_before = checks.attainable_flops(ranks, accelerator, request.dtype)
    products_before = checks.product_flops(ranks, accelerator, request.dtype)
    setup.warnings.extend(checks.multiplied_in(ranks, setup))

    # Model, optimiser and loader: forward, backward and update belong together, because some devices compile them to
    # one program. CPUs and GPUs: models/steps/eager.py.
    inputs = checks.FirstInputs()
    step = make_step(setup, meter, inputs)

    # The loop. hpcml_start stands in the log before its first step.
    if setup.world.local_rank == 0:
        node.write_facts(meter.wire, setup.options.data_dir)
    meter.start(start_value(setup, ranks.backend, step.replicas), mlperf_keys(setup))
    health_before = accelerator.health()
    losses = loop(setup, ranks, meter, step)
    health_after = accelerator.health()

    # After: are the numbers those of this benchmark on an undisturbed machine? A failed check is a gate in the log,
    # a doubt is a warning.
    attainable_after = checks.attainable_flops(ranks, accelerator, request.dtype)
    products_after = checks.product_flops(ranks, accelerator, request.dtype)
    model = trained_model(step, setup, ranks)
    parameters_identical = None
    if model is not None:
        checks.check_parameters_finite(model, meter)
        parameters_identical = checks.are_parameters_identical(model, ranks)
    checks.check_inputs(inputs, setup, meter)
    peak_memory_bytes = accelerator.peak_memory_bytes()
    also = checks.measured_checkpoint(step, setup, ranks, meter)
    setup.warnings.extend(checks.shared_devices(ranks, meter.place, health_before, health_after))
    counted = meter.watch.node.counted(torch.get_num_threads(), of_node=setup.world.local_rank == 0)
    meter.watch.node.write_network(meter.wire)
    others = contention.join(ranks.gather(counted), on_cpu=accelerator.family == "cpu")
    setup.warnings.extend(others.warnings)
    also.update(energy.join(ranks.gather(meter.watch.energy.counted())))
    also.update(write_losses(losses, setup, ranks, meter))
    setup.warnings.extend(checks.skipped_samples(ranks, setup))
    if setup.options.decompose:
        # Last, since the phases train the model into what nothing can check.
        decompose.write(step, setup, ranks, meter, counted, others.value)
    return meter.finish(
        parameters_identical=parameters_identical,
        peak_memory_bytes=peak_memory_bytes,
        health={
            "before": health_before,
            "after": health_after,
            "throttled": checks.throttled_ranks(ranks, health_after),
        },
        contention=others.value,
        attainable_flops=max(attainable_before, attainable_after) or None,
        product_flops=max(products_before, products_after) or None,
        compile_s=step.compile_s,
        compile_cache=step.compile_cache,
        warnings=setup.warnings,
        input_std=inputs.deviations(),
        also=also,
    )


def loop(setup: TrainingSetup, ranks: Ranks, meter: Meter, step: TrainingStep) -> List[Any]:
    """Train until the meter ends the batches. Return the loss of every batch if --trace-losses wants them.

    The losses may be tensors on the device: reading one would make the host wait for the device.
    """
    request = setup.request
    time_limit = TimeLimit(setup, ranks)
    losses: List[Any] = []

    # The meter takes the time between handing out a batch and being asked for the next one as compute, and the rest as
    # waiting for data.
    measured = fault_injection.slowed(meter.steps(step.batches()), request, setup.world.rank, setup.accelerator)
    for number, batch in enumerate(measured):
        # Copy the batch to the device, forward, backward, and, if it ends an optimiser step, update the parameters.
        loss = step(number, batch)

        # Keep the loss; the meter reads it at the end of the window. A CS system gives it for some steps only.
        if loss is not None:
            meter.loss(loss)
            if setup.options.trace_losses:
                losses.append(loss)

        # Once the warm-up is over: would the run take longer than it may?
        steps, batches_left_over = divmod(number + 1, request.batches_per_step)
        if not batches_left_over:
            time_limit.after(steps * request.steps_per_batch)
    return losses


def trained_model(step: TrainingStep, setup: TrainingSetup, ranks: Ranks) -> Any:
    """Return the model with its trained parameters; None, with a warning, if a rank cannot read its own back.

    The windows are measured by then: what only checks them must not lose them.
    """
    model, error = attempt(step.trained)
    for rank, text in enumerate(ranks.gather(error and str(error).splitlines()[0])):
        if text is not None:
            setup.warnings.append(f"the parameters were not checked, rank {rank} cannot read them back: {text}")
            return None
    return model


def write_losses(
    losses: List[torch.Tensor], setup: TrainingSetup, ranks: Ranks, meter: Meter
) -> Dict[str, Dict[str, float]]:
    """Write the file of --trace-losses: one JSON line a step, with the mean loss over micro-batches and ranks.

    Where a batch holds several steps, there is one line for each batch. Return what the summary says of the losses.
    """
    if setup.options.trace_losses is None:
        return {}
    losses_of_ranks = ranks.gather([float(loss) for loss in losses])
    if ranks.rank != 0:
        return {}
    batches = setup.request.batches_per_step
    means = []
    lines = []
    for number in range(len(losses) // batches):
        first = number * batches
        of_step = [loss for rank in losses_of_ranks for loss in rank[first : first + batches]]
        step = number * setup.request.steps_per_batch  # the first one that the mean covers
        means.append(sum(of_step) / len(of_step))
        lines.append(json.dumps({"step": step, "loss": means[-1]}) + "\n")
    try:
        with open(setup.options.trace_losses, "w", encoding="utf-8") as file:
            file.writelines(lines)
    except OSError as error:  # the windows are measured
        setup.warnings.append(f"--trace-losses: {setup.options.trace_losses} is not whole: {error.strerror}")
    return checks.compared_losses(means, setup, meter)
