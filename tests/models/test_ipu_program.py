"""Programs for IPUs: what a request comes to, where a program is kept, and what PopTorch's errors mean."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from models import request as requests
from models.accelerators import ipu
from models.benchmarks import cosmoflow, resnet50
from models.command_line import parser
from models.data.sampling import StepSampler
from models.dtypes import FP16_LOSS_SCALE
from models.errors import ImpossibleRequest
from models.steps import ipu_program
from models.training_setup import make_sampler
from models.world import World
from tests.models.jobs import ENVIRON, PATIENCE_S, ROOT
from tests.models.vendors import POPLAR, importable

NETS = {"resnet50": resnet50, "cosmoflow": cosmoflow}


@pytest.fixture
def accelerator() -> Iterator[ipu.Ipu]:
    with importable(POPLAR):
        yield ipu.Ipu()


# --- the request


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_call_of_several_steps_trains_on_the_batches_of_those_steps(world_size: int) -> None:
    """PopTorch gives each replica one slab of a batch, so the samples of a step do not stand together there."""
    replicas, accumulation, steps = 2, 3, 5  # replicas of a rank
    request = SimpleNamespace(
        **{"local_batch_size": 1, "accumulation_steps": accumulation, "replicas": replicas * world_size},
        **{"world_size": world_size, "steps_per_batch": steps, "batches_per_step": 1, "seed": 7},
        batch_of_rank=accumulation * replicas * steps,
    )
    slabs = []  # [rank][replica][step] of the first call
    for rank in range(world_size):
        batch = iter(next(iter(make_sampler(request, 100, rank))))
        slabs += [[[next(batch) for _ in range(accumulation)] for _ in range(steps)] for _ in range(replicas)]
    plain = StepSampler(100, local_batch=1, rank=0, world=1, accumulation=accumulation * len(slabs), seed=7)
    in_order = iter(plain)
    for step in range(steps):
        of_step = [sample for slab in slabs for sample in slab[step]]
        assert of_step == [sample for _ in of_step for sample in next(in_order)]


@pytest.mark.parametrize("size", ["smoke", "quick", "subset"])
@pytest.mark.parametrize(("name", "dtype"), [("resnet50", "fp32"), ("cosmoflow", "fp16")])
def test_gbs32_on_eight_ipus_is_the_papers(accelerator: ipu.Ipu, name: str, dtype: str, size: str) -> None:
    line = f"train {name} --data-dir d --configuration gbs32 --size {size} --device ipu --expect-world-size 1"
    options = parser().parse_args([*line.split(), "--replicas", "4", "--devices-per-replica", "2"])
    request = requests.resolve(options, NETS[name], accelerator, World())
    assert (request.replicas, request.devices_per_replica) == (4, 2)
    assert (request.accumulation_steps, request.local_batch_size, request.global_batch_size) == (8, 1, 32)
    assert request.dtype == dtype
    assert request.steps_per_batch == (1 if size == "smoke" else 5)
    assert request.batch_of_rank == 32 * request.steps_per_batch
    options.replicas = 5
    with pytest.raises(ImpossibleRequest, match=r"by 5 replica\(s\) x 1 .*; use 1 or 2 or 4 or 8 or .* replicas"):
        requests.resolve(options, NETS[name], accelerator, World())


@pytest.mark.slow
def test_jobs_of_a_dry_run_are_the_papers(accelerator: ipu.Ipu, tmp_path: Path) -> None:
    """The command lines that the suite would submit, understood as the job understands them."""
    asked = ("-m", "graphcore", "--preset", "hpdc24", "--dry-run", f"--site={tmp_path}")
    command = [sys.executable, "-m", "pytest", *asked]
    shown = subprocess.run(command, cwd=ROOT, env=ENVIRON, capture_output=True, text=True, timeout=PATIENCE_S).stdout
    assert "poprun" not in shown  # one process drives all replicas
    lines = re.findall(r"^ *- (train\n(?: *- .*\n)+)", shown, re.MULTILINE)
    trained = {}
    for line in lines:
        options = parser().parse_args(re.sub(r"^ *- ", "", line, flags=re.MULTILINE).replace("'", "").split())
        if options.benchmark in NETS:
            request = requests.resolve(options, NETS[options.benchmark], accelerator, World())
            ipu_program.refuse_impossible(SimpleNamespace(name=options.benchmark, request=request))
            batch = (request.local_batch_size, request.accumulation_steps, request.replicas, request.global_batch_size)
            trained[options.benchmark] = (request.dtype, *batch)
    assert trained == {"resnet50": ("fp32", 1, 8, 4, 32), "cosmoflow": ("fp16", 1, 8, 4, 32)}


# --- what a program is made of, and where it is kept


def test_modules_of_all_cuts_exist() -> None:
    with torch.device("meta"):
        nets = {"resnet50": resnet50.build("v1.5", (64, 64)), "cosmoflow": cosmoflow.build("mlperf", (32, 32, 32))}
    for (name, ipus), cut in ipu.CUTS.items():
        assert len(cut) == ipus - 1
        for module in cut:
            nets[name].get_submodule(module)


def test_half_precision_has_partial_sums_of_its_own_and_a_scaled_loss(accelerator: ipu.Ipu) -> None:
    request: Any = SimpleNamespace(replicas=1, world_size=1, steps_per_batch=1, accumulation_steps=1, seed=1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    asked = {}
    for request.dtype in ("fp32", "fp16"):
        options = ipu_program.make_options(accelerator.poptorch, None, request)
        scale = ipu_program.make_optimizer(accelerator.poptorch, optimizer, request.dtype).loss_scaling
        asked[request.dtype] = (options.Precision.partials, scale)
    assert asked == {"fp32": ("float", 1.0), "fp16": ("half", FP16_LOSS_SCALE)}


def test_each_program_has_a_folder_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PopTorch asserts it itself, for several processes only. Root may write anywhere, so access is denied by hand."""
    numbers = dict.fromkeys(("local_batch_size", "accumulation_steps", "steps_per_batch", "replicas"), 1)
    request = SimpleNamespace(**numbers, devices_per_replica=1, variant="v1.5", dtype="fp32", shape=(64, 64))
    setup: Any = SimpleNamespace(name="resnet50", request=request)
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path))
    folder = ipu_program.cache_folder(setup)
    assert Path(folder).parent == tmp_path
    request.accumulation_steps = 2
    assert ipu_program.cache_folder(setup) != folder
    request.accumulation_steps = 1
    with monkeypatch.context() as sharded:
        sharded.setenv(ipu_program.EXECUTION, "sharded")
        assert ipu_program.cache_folder(setup) != folder
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ImpossibleRequest, match=r"cannot be kept in .*\(Permission denied\): set POPTORCH_CACHE_DIR"):
        ipu_program.cache_folder(setup)
    monkeypatch.setenv("POPTORCH_CACHE_DIR", "/dev/null/cache")
    with pytest.raises(ImpossibleRequest, match=r"cannot be kept in .*\(Not a directory\)"):
        ipu_program.cache_folder(setup)


# --- what PopTorch says


FAULTS = {
    "compile:tiles": (5, "popart_exception: Out of memory: Cannot fit all variable data onto one or more tiles."),
    "compile:stream": (5, "poplar_stream_memory_allocation_error: Out of memory. Single stream of length 149766584"),
    "compile:link": (4, "PopTorch cannot compile this (poplar_link_error: Linking failed. Output: -lfoo not found)"),
    "compile:busy": (
        69,
        "if IPUs are free, shorten the IPUJob's name: with more than 36 characters it gets none (poptorch_cpp_error: ",
    ),
    "run:broken": (69, "ask the machine's administrators to take it out of use"),
    "rate:reset": (69, "needs IPU_RESET; then start the job again (poplar_recoverable_runtime_error: an ECC error on"),
    "run:error": (1, "PopTorch failed in a step (poplar_application_runtime_error: [Host] stream callback failed)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_error_of_poptorch_has_an_exit_code_and_its_words(accelerator: ipu.Ipu, fault: str) -> None:
    code, text = FAULTS[fault]
    poptorch = accelerator.poptorch
    meant = ipu_program.not_compiled if fault.startswith("compile") else ipu_program.failed_step
    error = meant(poptorch, poptorch.FAULTS[fault])
    assert error.exit_code == code
    assert text in str(error)
