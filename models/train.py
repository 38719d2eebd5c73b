"""The training loop of every benchmark, the same code on every platform, from one process to many.

    python -m models train resnet50 --data-dir data/resnet50 --size smoke
    torchrun --nproc-per-node 4 models-<hash>.pyz train resnet50 --data-dir /data/imagenet --configuration tuned
    srun python models-<hash>.pyz train resnet50 --data-dir /data/imagenet --size subset --mode blocking

It reads top to bottom: `main` meets the other ranks and refuses what cannot be done, `train` builds everything, `loop`
is the loop. Times are taken by models/meter.py; nothing in here reads a clock for a result.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import inspect
import json
import os
import platform
import time
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional

import torch

from models import contention
from models import request as requests
from models.accelerators import Accelerator
from models.data.manifest import how_to_make
from models.data.processes import ProcessLoader
from models.data.threads import ThreadLoader
from models.ending import attempt, end_elsewhere, end_here, out_of_memory, refuse
from models.errors import CompileFailed, Impossible, JobError
from models.inputs import FirstInputs
from models.job import Job, backend, injection, make_meter, make_sampler, make_schedule, mlperf, prepare, stolen
from models.meter import Meter, Solo, Wire
from models.provenance import start_value
from models.ranks import Failure, Ranks
from models.world import detect

TORCH_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def main(options: argparse.Namespace) -> int:
    """Train; returns the exit code (docs/wire.md). Everything that goes wrong ends here, in one sentence."""
    started_s = time.perf_counter()
    meter, ranks = Meter(samples=1), None
    try:
        world = detect(os.environ)
        meter = Meter(samples=1, wire=Wire(world.rank), group=Solo(world.rank), folder=None)
        announce(meter)
        job, problem = attempt(functools.partial(prepare, options, world, started_s))
        ranks = Ranks(world)
        failure = ranks.agree(problem)
        if failure or job is None:
            return refuse(failure or Failure.of(0, JobError("nothing to train")), meter)
        meter = make_meter(job, ranks, meter.wire)
        ranks.connect(backend(job), job.accelerator.device, functools.partial(end_elsewhere, meter))
        exit_code = train(job, ranks, meter)
        ranks.part()
        return exit_code
    except Exception as error:
        return end_here(error, meter, ranks)


def announce(meter: Meter) -> None:
    if meter.group.rank == 0:
        meter.wire.emit("init_start", None)
        meter.wire.emit("hpcml_progress", {"phase": "setup"})


# --- training ---------------------------------------------------------------------------------------------------------


def train(job: Job, ranks: Ranks, meter: Meter) -> int:
    """Build the model and the loader on this rank, run the loop, hand over what was measured. Returns the exit code."""
    request, accelerator, benchmark = job.request, job.accelerator, job.benchmark
    check_devices_differ(ranks, accelerator)
    attainable_before = attainable_flops(ranks, job)
    torch.manual_seed(request.seed)
    model = benchmark.build(request.variant, request.shape).to(accelerator.device)
    if request.channels_last:
        model = model.to(memory_format=benchmark.CHANNELS_LAST)
    optimizer = benchmark.make_optimizer(model)
    parallel = distribute(model, job)
    if ranks.size > 1:
        mark_exchange(model, meter)
    forward, compile_s = compiled(parallel, job) if request.compile else (parallel, None)
    batches = injected(make_loader(job), job)
    if request.mode == "overlap":
        batches = accelerator.ahead(batches)

    meter.start(start_value(job, ranks.backend), mlperf(job))
    before = accelerator.health()
    inputs = FirstInputs()
    losses = loop(job, ranks, meter, batches, forward, parallel, optimizer, inputs)
    after = accelerator.health()
    attainable_after = attainable_flops(ranks, job)
    check_finite(model, meter)
    check_inputs(inputs, job, meter)
    job.warnings.extend(stolen(before, after))
    others = contention.join(
        ranks.gather(meter.watch.seen(torch.get_num_threads(), of_node=job.world.local_rank == 0)),
        on_cpu=accelerator.family == "cpu",
    )
    job.warnings.extend(others.warnings)
    write_losses(losses, job, ranks)
    if request.skip_corrupt and job.data.skipped:
        job.warnings.append(f"{job.data.skipped} corrupt samples were passed over")
    return meter.finish(
        parameters_identical=identical(model, ranks),
        peak_memory_bytes=accelerator.peak_memory_bytes(),
        health={"before": before, "after": after, "throttled": throttled(ranks, after)},
        contention=others.value,
        attainable_flops=max(attainable_before, attainable_after) or None,
        compile_s=compile_s,
        warnings=job.warnings,
        input_std=inputs.deviations(),
    )


def loop(
    job: Job,
    ranks: Ranks,
    meter: Meter,
    batches: Iterable[Any],
    forward: Any,
    parallel: Any,
    optimizer: Any,
    inputs: FirstInputs,
) -> List[torch.Tensor]:
    """The loop. Returns the loss of every micro-batch, for --trace-losses; on the device, so that nothing waits."""
    request, accelerator, benchmark = job.request, job.accelerator, job.benchmark
    to_inputs = prepare_inputs(job)
    schedule = make_schedule(job)
    parts, scale = request.accumulation_steps, accelerator.loss_scale(request.dtype)
    time_limit = TimeLimit(job, ranks)
    losses: List[torch.Tensor] = []

    for batch_number, batch in enumerate(meter.steps(batches)):
        step, part = divmod(batch_number, parts)
        last = part == parts - 1
        with meter.h2d():
            read, targets = accelerator.to_device(batch)
        begin_s = time.perf_counter()
        if batch_number == 0:
            inputs.look(read)
        accelerator.seed(noise(job, step, part))

        with contextlib.nullcontext() if last or ranks.size == 1 else parallel.no_sync():
            with accelerator.autocast(request.dtype):
                loss = benchmark.criterion(forward(to_inputs(read)), targets)
            (loss * (scale / parts)).backward()
        if last and ranks.size > 1:
            meter.exchange_ends()
        meter.loss(loss)
        if job.options.trace_losses:
            losses.append(loss.detach())

        if last:
            for group in optimizer.param_groups:
                group["lr"] = schedule.rate(step)
            if scale != 1:
                torch._foreach_mul_([p.grad for p in parallel.parameters() if p.grad is not None], 1 / scale)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            time_limit.after(step)
        slow_down(job, begin_s)
    return losses


class TimeLimit:
    """Refuses, at the end of the warm-up, a run that --time-limit-s will cut. The slowest rank decides for all."""

    def __init__(self, job: Job, ranks: Ranks) -> None:
        self._job, self._ranks, self._first_s = job, ranks, 0.0

    def after(self, step: int) -> None:
        """Optimiser step `step` is done. The first one is not typical: it sets up and searches for algorithms."""
        limit_s, last = self._job.options.time_limit_s, self._job.request.warmup_steps - 1
        if limit_s is None or step > last or 0 < step < last:
            return
        self._job.accelerator.synchronize()
        now_s = time.perf_counter()
        if step == 0:
            self._first_s = now_s
            return
        spent = self._ranks.gather((now_s - self._job.started_s, (now_s - self._first_s) / step))
        elapsed_s, step_s = (max(values) for values in zip(*spent))
        requests.check_time(self._job.request, elapsed_s, step_s, limit_s)


# --- what the loop is made of -----------------------------------------------------------------------------------------


def distribute(model: Any, job: Job) -> Any:
    """DDP where there are several ranks. Running statistics stay each rank's own: nothing reads them in training."""
    if job.world.size == 1:
        return model
    devices = [job.accelerator.device] if job.accelerator.family == "cuda" else None
    parallel = torch.nn.parallel.DistributedDataParallel
    sync = "forward_sync_buffers"  # the name since torch 2.13
    if sync not in inspect.signature(parallel).parameters:
        sync = "broadcast_buffers"
    return parallel(model, device_ids=devices, gradient_as_bucket_view=True, **{sync: False})


def mark_exchange(model: Any, meter: Meter) -> None:
    """Let the meter know when this rank's own backward is done: the gradient of the first layer comes last."""
    next(model.parameters()).register_hook(lambda gradient: meter.exchange_begins())


def compiled(model: Any, job: Job) -> Any:
    """The compiled model and the seconds it took, tried on the first sample; the model itself is left as it was."""
    request, accelerator = job.request, job.accelerator
    kept = [buffer.clone() for buffer in model.buffers()]
    begin_s = time.perf_counter()
    try:
        forward = torch.compile(model)
        batch = torch.utils.data.default_collate([job.data[(0, 0)]] * request.local_batch_size)
        read, targets = accelerator.to_device(batch)
        with accelerator.autocast(request.dtype):
            loss = job.benchmark.criterion(forward(prepare_inputs(job)(read)), targets)
        loss.backward()
        accelerator.synchronize()
    except Exception as error:
        if out_of_memory(error):
            raise
        text = (str(error).strip() or "no text").splitlines()[0]
        raise CompileFailed(
            f"torch.compile failed ({type(error).__name__}: {text}); train without --compile"
        ) from error
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        for buffer, value in zip(model.buffers(), kept):
            buffer.copy_(value)
    return forward, time.perf_counter() - begin_s


def make_loader(job: Job) -> Iterable[Any]:
    """Batches of (inputs, targets) as they were read, without end, so that no worker starts again inside a window."""
    request, sampler = job.request, make_sampler(job.request, len(job.data), job.world.rank)
    workers, pinned = request.workers, job.accelerator.pinned
    if request.worker_start == "thread":
        return ThreadLoader(job.data, sampler, workers=workers, pinned=pinned)
    batch, start = request.local_batch_size, request.worker_start
    return ProcessLoader(job.data, sampler, local_batch=batch, workers=workers, start=start, pinned=pinned)


def prepare_inputs(job: Job) -> Any:
    """What makes the model's inputs of a batch, on the device."""
    request, device = job.request, job.accelerator.device
    return job.benchmark.Prepare(job.data, device, TORCH_DTYPES[request.dtype], request.channels_last)


def noise(job: Job, step: int, part: int) -> int:
    """The seed of a micro-batch's dropout: the same on however many ranks it is computed, and another one for each."""
    request = job.request
    micro_batch = (step * request.world_size + job.world.rank) * request.accumulation_steps + part
    return (request.seed * 1_000_003 + micro_batch) % 2**63


def injected(batches: Iterable[Any], job: Job) -> Iterable[Any]:
    """The batches, the first of each step late by --inject-stall-s: to see that the meter sees it."""
    stall_s = injection(job, "stall_s")
    return late(batches, stall_s, job.request.accumulation_steps) if stall_s else batches


def late(batches: Iterable[Any], stall_s: float, every: int) -> Iterator[Any]:
    for number, batch in enumerate(batches):
        if number % every == 0:
            time.sleep(stall_s)
        yield batch


def slow_down(job: Job, begin_s: float) -> None:
    """Stretch what was computed since `begin_s` by --inject-slow."""
    factor = injection(job, "slow")
    if factor:
        job.accelerator.synchronize()
        time.sleep((factor - 1) * (time.perf_counter() - begin_s))


def check_devices_differ(ranks: Ranks, accelerator: Accelerator) -> None:
    """Ranks that may each see one device only: do two of them see the same?"""
    all_ranks = ranks.gather((platform.node(), accelerator.identity()))
    taken = [place for place in all_ranks if place[1] is not None]
    twice = next((place for place in taken if taken.count(place) > 1), None)
    if twice:
        raise Impossible(
            f"two ranks on {twice[0]} use the same accelerator; give each its own (srun --gpus-per-task=1), or let "
            "every rank see all of them"
        )


def check_finite(model: Any, meter: Meter) -> None:
    """The gate parameters_finite, at the end: the last step's gradients are in no loss."""
    names, parameters = zip(*model.named_parameters())
    finite = torch.stack([torch.isfinite(parameter.detach()).all() for parameter in parameters]).tolist()
    wrong = [name for name, good in zip(names, finite) if not good]
    if wrong:
        text = f"{wrong[0]} is not finite after the last step, as {len(wrong)} of {len(names)} parameter tensors"
        meter.wire.problem("parameters_finite", f"{text}: the training went wrong, and so its rate says nothing")


def attainable_flops(ranks: Ranks, job: Job) -> float:
    """What all ranks reach in plain kernels, all at the same time, in FLOP/s; 0 where it is not measured.

    It is measured before and after the windows, since a neighbour or a low clock at one of them must not make it a
    wrong bound.
    """
    ranks.barrier()
    rates = ranks.gather(job.accelerator.attainable_flops(job.request.dtype))
    return sum(rate or 0.0 for rate in rates)


def check_inputs(inputs: FirstInputs, job: Job, meter: Meter) -> None:
    """The gates data_bytes and input_varies."""
    folder = job.options.data_dir
    make = how_to_make(job.name, folder.rstrip("/") + "-synthetic")
    for gate, text in inputs.problems(job.bytes_per_sample, folder, make):
        meter.wire.problem(gate, text)


def identical(model: Any, ranks: Ranks) -> Optional[bool]:
    """Whether the parameters are the same, bit by bit, on all ranks; None for one process."""
    if ranks.size == 1:
        return None
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return len(set(ranks.gather(digest.hexdigest()))) == 1


def throttled(ranks: Ranks, health: Optional[Mapping[str, object]]) -> Optional[Dict[str, object]]:
    """Which ranks' devices are slowed down at the end, and why: one of them is enough to slow all. None: not known."""
    reasons = ranks.gather((health or {}).get("throttled"))
    if all(reason is None for reason in reasons):
        return None
    return {f"rank {rank}": reason for rank, reason in enumerate(reasons) if reason}


def write_losses(losses: List[torch.Tensor], job: Job, ranks: Ranks) -> None:
    """--trace-losses: one JSON line a step, its loss being the mean over micro-batches and ranks."""
    if job.options.trace_losses is None:
        return
    all_ranks = ranks.gather([float(loss) for loss in losses])
    if ranks.rank == 0:
        parts = job.request.accumulation_steps
        with open(job.options.trace_losses, "w", encoding="utf-8") as file:
            for step in range(len(losses) // parts):
                values = [loss for own in all_ranks for loss in own[step * parts : (step + 1) * parts]]
                file.write(json.dumps({"step": step, "loss": sum(values) / len(values)}) + "\n")
