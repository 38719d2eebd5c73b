"""What a program for IPUs is made of: its stages, PopTorch's options, the optimiser, kept programs, errors.

ipu.py compiles it and calls it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any, FrozenSet, List, Optional, Tuple

import torch

from models.accelerators.ipu import cut_of, imported
from models.dtypes import FP16_LOSS_SCALE
from models.errors import (
    CommandError,
    CompileFailed,
    DeviceOutOfMemory,
    ImpossibleRequest,
    MachineFailed,
    first_line,
    with_message,
)
from models.request import Request
from models.settings import shape_text
from models.training_setup import TrainingSetup

EXECUTION = "HPC_ML_BENCH_IPU_EXECUTION"  # how the stages run: pipelined, or sharded as in the paper's code
MOST_IPUS = 64  # of one process (popart_compiler/source/CompilerImpl.cpp, assertSingleInstanceMaxNumIPUs)


def is_sharded() -> bool:
    """Tell whether the stages run one after the other, and not as a pipeline. Raises ImpossibleRequest."""
    wish = os.environ.get(EXECUTION, "pipelined")
    if wish not in ("pipelined", "sharded"):
        raise ImpossibleRequest(f"{EXECUTION}={wish} is neither pipelined nor sharded: write one of them")
    return wish == "sharded"


def refuse_impossible(setup: TrainingSetup) -> None:
    """Raise ImpossibleRequest for what PopTorch or PopART would refuse later."""
    request = setup.request
    # A stage for each IPU's forward pass, and one for each IPU but the last for its backward pass
    # (popart_compiler/source/CompilerImpl.cpp, numPipelineStages; Compiler.cpp refuses less).
    stages = 2 * len(cut_of(setup.name, request.devices_per_replica)) + 1
    if request.accumulation_steps < stages and not is_sharded():
        raise ImpossibleRequest(
            f"a pipeline of {request.devices_per_replica} IPUs has {stages} stages, and a step has "
            f"{request.accumulation_steps} micro-batch(es): use --accumulation-steps {stages} or more"
        )
    ipus = request.replicas // request.world_size * request.devices_per_replica
    if ipus > MOST_IPUS:
        raise ImpossibleRequest(
            f"a process drives {MOST_IPUS} IPUs at most, not {ipus}: start more processes with poprun --num-instances"
        )


def start_popdist() -> Any:
    """Return the module popdist, which has begun MPI, where poprun started this process; else None.

    With MPI an instance that fails ends the others.
    """
    if not any(name.startswith("POPDIST_") for name in os.environ):
        return None
    popdist = imported("popdist")
    if not popdist.isPopdistEnvSet():  # a site's module may set variables with such names, too
        return None
    popdist.init()
    return popdist


def replicas_of(poptorch: Any, popdist: Any, request: Request) -> Tuple[int, int]:
    """Return the replicas of the whole job and the IPUs of each: poprun's own numbers, else those asked for.

    Raises ImpossibleRequest where poprun was started with others, or where no device has so many IPUs.
    """
    asked = (request.replicas, request.devices_per_replica)
    if popdist is not None:
        started = (int(popdist.getNumTotalReplicas()), int(popdist.getNumIpusPerReplica()))
        if started != asked:
            raise ImpossibleRequest(
                f"poprun was started with {started[0]} replicas of {started[1]} IPU(s), and {asked[0]} of "
                f"{asked[1]} were asked for: let --num-replicas and --ipus-per-replica of poprun agree with --replicas "
                "and --devices-per-replica"
            )
        return started
    replicas = request.replicas // request.world_size  # of this process
    ipus = replicas * request.devices_per_replica
    if not poptorch.ipuHardwareIsAvailable(ipus):
        raise ImpossibleRequest(
            f"{replicas} replica(s) of {request.devices_per_replica} IPU(s) need a device of {ipus} IPUs, and "
            "PopTorch finds none: see `gc-info -l`, or give another --replicas"
        )
    return asked


def make_options(poptorch: Any, popdist: Any, request: Request) -> Any:
    """Return PopTorch's options. Under poprun its popdist sets the replicas of each process."""
    if popdist is not None:
        options = imported("popdist.poptorch").Options(ipus_per_replica=request.devices_per_replica)
    else:
        options = poptorch.Options()
        options.replicationFactor(request.replicas // request.world_size)
    options.deviceIterations(request.steps_per_batch)
    options.Training.gradientAccumulation(request.accumulation_steps)
    options.setExecutionStrategy(poptorch.ShardedExecution() if is_sharded() else poptorch.PipelinedExecution())
    options.outputMode(poptorch.OutputMode.Sum)  # the loss of every micro-batch counts
    options.randomSeed(request.seed)
    options.showCompilationProgressBar(False)
    if request.dtype == "fp16":
        options.Precision.setPartialsType(torch.half)
    return options


def make_optimizer(poptorch: Any, optimizer: Any, dtype: str) -> Any:
    """Return PopTorch's counterpart of a benchmark's optimiser, with a scaled loss in fp16."""
    if not isinstance(optimizer, torch.optim.SGD):
        raise ImpossibleRequest(
            f"only the optimiser SGD is known on IPUs, and this benchmark has {type(optimizer).__name__}: see "
            "make_optimizer in models/steps/ipu_program.py, or choose another benchmark"
        )
    groups = [
        {key: group[key] for key in ("params", "lr", "momentum", "weight_decay")} for group in optimizer.param_groups
    ]
    return poptorch.optim.SGD(
        groups,
        lr=groups[0]["lr"],
        momentum=groups[0]["momentum"],
        weight_decay=groups[0]["weight_decay"],
        loss_scaling=FP16_LOSS_SCALE if dtype == "fp16" else 1.0,
    )


def blank_batch(setup: TrainingSetup) -> List[torch.Tensor]:
    """Return zeros in the form of a batch: a program depends on shapes and dtypes only."""
    return [torch.zeros((setup.request.batch_of_rank, *shape), dtype=dtype) for shape, dtype in setup.data.blank]


# --- the cache of compiled programs -----------------------------------------------------------------------------------


def cache_folder(setup: TrainingSetup) -> str:
    """Make and return the folder of this program in POPTORCH_CACHE_DIR, or in the user's own cache."""
    request = setup.request
    own = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "hpc-ml-bench", "poptorch")
    steps = (request.local_batch_size, request.accumulation_steps, request.steps_per_batch)
    devices = (request.replicas, request.devices_per_replica)
    words = [setup.name, request.variant, request.dtype, shape_text(request.shape), *steps, *devices]
    if is_sharded():
        words.append("sharded")
    folder = os.path.join(os.environ.get("POPTORCH_CACHE_DIR") or own, "-".join(map(str, words)))
    try:
        os.makedirs(folder, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ImpossibleRequest(
            f"compiled programs cannot be kept in {folder} ({error.strerror}): set POPTORCH_CACHE_DIR to a folder that "
            "stays between jobs"
        ) from error
    return folder


def remove_locks(folder: str) -> None:
    """Remove PopTorch's locks that a killed job left: with one, each process of the next job waits for another one.

    python/_impl.py, distributedCacheLock, counts in it how many processes of a job have come.
    """
    for name in os.listdir(folder):
        if name.endswith(".lock"):
            with contextlib.suppress(FileNotFoundError):  # another node may share the folder
                os.remove(os.path.join(folder, name))


def executables(folder: str) -> FrozenSet[Tuple[str, int]]:
    """Return the name and the time of each compiled program in a folder."""
    with os.scandir(folder) as entries:
        return frozenset((entry.name, entry.stat().st_mtime_ns) for entry in entries if entry.name.endswith(".popef"))


# --- what PopTorch says -----------------------------------------------------------------------------------------------


def not_compiled(poptorch: Any, error: Any) -> CommandError:
    """Turn an error of PopTorch while it compiles into one of ours, with its type and its message."""
    sentence = f"PopTorch cannot compile this ({error.type}: {first_line(error.message)})"
    return _of_known_cause(poptorch, error) or CompileFailed(with_message(sentence, error))


def failed_step(poptorch: Any, error: Any) -> CommandError:
    """Turn an error of PopTorch in a call of the program into one of ours, with its type and its message."""
    sentence = f"PopTorch failed in a step ({error.type}: {first_line(error.message)})"
    return _of_known_cause(poptorch, error) or CommandError(with_message(sentence, error))


def _of_known_cause(poptorch: Any, error: Any) -> Optional[CommandError]:
    line = first_line(error.message)
    said = f"({error.type}: {line})"
    if isinstance(error, poptorch.RecoverableError):
        return MachineFailed(f"an IPU failed and needs {error.recovery_action}; then start the job again {said}")
    if isinstance(error, poptorch.UnrecoverableError):
        return MachineFailed(f"an IPU failed for good; ask the machine's administrators to take it out of use {said}")
    if "Failed to acquire" in line:  # popart_compiler/source/CompilerImpl.cpp
        advice = (
            "see `gc-monitor`, and start the job again later; if IPUs are free, shorten the IPUJob's name: with more "
            "than 36 characters it gets none"
        )
        return MachineFailed(f"the IPUs are not free; {advice} {said}")
    # Poplar's types end in memory_allocation_error. PopART's error of this kind has the type of all its errors.
    if error.type.endswith("memory_allocation_error") or "out of memory" in line.lower():
        advice = f"--devices-per-replica 2, --dtype fp16, a smaller --local-batch-size or {EXECUTION}=sharded"
        return DeviceOutOfMemory(with_message(f"an IPU's memory does not hold this; use {advice} {said}", error))
    return None
