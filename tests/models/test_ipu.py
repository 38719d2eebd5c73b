"""Training on IPUs: whole processes of `models train --device ipu`, on a fake PopTorch that trains on the processor.

tests/models/poplar_sdk is the fake, with the source of each of its refusals.
"""

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
from models.__main__ import parser
from models.accelerators import ipu
from models.benchmarks import cosmoflow, resnet50
from models.data import synthetic_cosmoflow, synthetic_resnet50
from models.data.sampling import StepSampler
from models.data.synthetic import write_set
from models.errors import ImpossibleRequest
from models.steps import ipu_program
from models.training_setup import make_sampler
from models.world import World
from tests.models.jobs import ENVIRON, PATIENCE_S, ROOT, Ended, Nursery, free_port, ranks_of

SDK = Path(__file__).parent / "poplar_sdk"


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Jobs of a machine with the Poplar SDK."""
    nursery = Nursery(tmp_path_factory.mktemp("jobs"), SDK)
    yield nursery
    nursery.process.communicate(timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "resnet50"
    write_set(str(folder), synthetic_resnet50.recipe_of(12, 3, 0), processes=1)
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


def words(data: Path | str, *more: object, benchmark: str = "resnet50", **options: object) -> list[object]:
    """A run of ten optimiser steps of six samples, in two replicas of two IPUs each."""
    every: dict[str, object] = {
        **{"size": "smoke", "configuration": "gbs32", "workers": 0, "trace-losses": "losses", "device": "ipu"},
        **{"warmup-steps": 1, "windows": 3, "steps-per-window": 3, "local-batch-size": 1},
        **{"accumulation-steps": 3, "replicas": 2, "devices-per-replica": 2},
        **{name.replace("_", "-"): value for name, value in options.items()},
    }
    flags = [word for name, value in every.items() if value is not None for word in (f"--{name}", value)]
    augments = ["--no-augment"] if benchmark == "resnet50" else []
    return ["train", benchmark, "--data-dir", data, *augments, *flags, *more]


SHORT = {"windows": 1, "steps_per_window": 1}


@pytest.fixture(scope="module")
def trained(sdk: Nursery, pictures: Path, cache: str) -> Ended:
    return sdk.run(*words(pictures), POPTORCH_CACHE_DIR=cache)


# --- what is trained, and how it is counted


def test_ten_steps_have_the_losses_of_the_plain_loop(trained: Ended, nursery: Nursery, pictures: Path) -> None:
    """Two replicas with three micro-batches each are the plain loop with six."""
    plain = words(pictures, device="cpu", accumulation_steps=6, replicas=None, devices_per_replica=None)
    on_cpu = nursery.run(*plain)
    assert (trained.code, on_cpu.code) == (0, 0), trained.errors + on_cpu.errors
    assert len(trained.losses) == 10
    assert trained.losses == pytest.approx(on_cpu.losses, rel=1e-4)
    assert trained.losses[-1] != pytest.approx(trained.losses[0], rel=0.1)


def test_samples_and_devices_are_counted(trained: Ended) -> None:
    start, summary = trained.value("hpcml_start"), trained.value("hpcml_summary")
    asked = {"replicas": 2, "devices_per_replica": 2, "steps_per_batch": 1, "accumulation_steps": 3}
    assert start["request"] == {**start["request"], **asked, "global_batch_size": 6, "channels_last": False}
    assert (start["world"]["replicas"], start["world"]["devices_per_replica"]) == (2, 2)
    assert (start["device"]["type"], start["device"]["count"], start["versions"]["poptorch"]) == ("ipu", 8, "3.3.0")
    assert trained.values("accelerators_per_node") == [4]
    assert [window["samples"] for window in trained.values("hpcml_window")] == [18, 18, 18]
    assert summary["samples"] == 54


def test_time_is_split_by_the_moment_at_which_samples_were_there(trained: Ended) -> None:
    summary = trained.value("hpcml_summary")
    assert "no_split" not in summary
    assert 0.5 < summary["compute_fraction"] <= 1
    assert set(summary["device_latency_s"]) == {"host_to_device", "compute", "device_to_host", "round_trip"}
    latency = summary["device_latency_s"]["round_trip"]
    assert 0 < latency["min"] <= latency["mean"] <= latency["max"] <= summary["wall_s"]


def test_a_program_is_compiled_once(trained: Ended, sdk: Nursery, pictures: Path, cache: str) -> None:
    """The second run has the same program, though not as many steps; another micro-batch is another program."""
    again = sdk.run(*words(pictures, **SHORT), POPTORCH_CACHE_DIR=cache)
    other = sdk.run(*words(pictures, **SHORT, accumulation_steps=4), POPTORCH_CACHE_DIR=cache)
    summaries = [job.value("hpcml_summary") for job in (trained, again, other)]
    assert [summary["compile_cache"] for summary in summaries] == ["miss", "hit", "miss"]
    assert all(summary["compile_s"] > 0 for summary in summaries)
    assert len(list(Path(cache).glob("*/*.popef"))) == 2


def test_a_call_of_several_steps_counts_all_of_them(sdk: Nursery, pictures: Path, cache: str) -> None:
    """Warm-up and window are whole calls of five steps, so two calls are made."""
    one = {"replicas": 1, "devices_per_replica": 1, "accumulation_steps": 1}
    steps = {"warmup_steps": 5, "windows": 1, "steps_per_window": 5, "time_limit_s": 1000}
    job = sdk.run(*words(pictures, **one, **steps), POPTORCH_CACHE_DIR=cache)
    assert job.code == 0, job.errors
    summary = job.value("hpcml_summary")
    (unchecked,) = [text for text in summary["warnings"] if text.startswith("--time-limit-s was not checked: ")]
    assert unchecked.endswith("a warm-up of 5 step(s) does not say how long a step takes; use --warmup-steps 10")
    assert job.value("hpcml_start")["request"]["steps_per_batch"] == 5
    assert (summary["steps"], summary["samples"], summary["optimizer_steps"]) == (5, 5, 10)
    assert len(job.losses) == 2
    assert len(job.seconds("busy")) == 10


def test_a_call_of_several_steps_has_the_rate_of_its_middle_step(
    sdk: Nursery, pictures: Path, cache: str, tmp_path: Path
) -> None:
    one = {"replicas": 1, "devices_per_replica": 1, "accumulation_steps": 1}
    steps = {"warmup_steps": 5, "windows": 3, "steps_per_window": 5}
    rates = tmp_path / "rates"
    job = sdk.run(*words(pictures, **one, **steps), POPTORCH_CACHE_DIR=cache, FAKE_IPU_RATES=str(rates))
    assert job.code == 0, job.errors
    schedule = resnet50.Schedule(20, 12, 1)
    assert [float(rate) for rate in rates.read_text().split()] == [schedule.rate(step) for step in (2, 7, 12, 17)]


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


def test_cosmoflow_trains_in_half_precision_and_says_so(sdk: Nursery, tmp_path: Path, cache: str) -> None:
    folder = tmp_path / "cosmoflow"
    write_set(str(folder), synthetic_cosmoflow.recipe("smoke", 6, 0), processes=1)
    arguments = words(folder, benchmark="cosmoflow", **SHORT, warmup_steps=0, replicas=1, workers=1)
    job = sdk.run(*arguments, POPTORCH_CACHE_DIR=cache)
    assert job.code == 0, job.errors
    assert job.value("hpcml_start")["request"]["dtype"] == "fp16"
    assert "fp16 on ipu, not the fp32 of gbs32 (docs/accelerators.md)" in job.value("hpcml_summary")["warnings"]


def poprun(instances: int, replicas: int, ipus: int) -> list[dict[str, str]]:
    """What poprun, which is an mpirun, leaves in the environment of each instance on one machine."""
    world = {"OMPI_COMM_WORLD_SIZE": str(instances), "OMPI_COMM_WORLD_LOCAL_SIZE": str(instances)}
    local = replicas // instances
    numbers = {"TOTAL_REPLICAS": replicas, "LOCAL_REPLICAS": local, "IPUS_PER_REPLICA": ipus}
    return [
        {
            **world,
            **{f"POPDIST_NUM_{name}": str(number) for name, number in numbers.items()},
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
            "POPDIST_REPLICA_INDEX_OFFSET": str(rank * local),
            "POPDIST_LOCAL_INSTANCE_INDEX": str(rank),
        }
        for rank in range(instances)
    ]


def test_several_instances_of_poprun_train_together(sdk: Nursery, pictures: Path, cache: str) -> None:
    """Two instances with one replica each are two ranks of processors."""
    every = {"POPTORCH_CACHE_DIR": cache, "MASTER_PORT": free_port()}
    first, second = sdk.together(*((words(pictures, windows=1), {**environ, **every}) for environ in poprun(2, 2, 2)))
    plain = words(pictures, windows=1, device="cpu", replicas=None, devices_per_replica=None)
    on_cpu, _ = sdk.together(*((plain, environ) for environ in ranks_of("openmpi")))
    assert (first.code, second.code, on_cpu.code) == (0, 0, 0), first.errors + second.errors + on_cpu.errors
    world = first.value("hpcml_start")["world"]
    assert (world["size"], world["local_size"], world["nodes"], world["launcher"]) == (2, 2, 1, "openmpi")
    assert (world["replicas"], world["devices_per_replica"]) == (2, 2)
    assert first.value("hpcml_summary")["parameters_identical"] is True
    assert first.value("hpcml_window")["samples"] == 18
    assert first.losses == pytest.approx(on_cpu.losses, rel=1e-4)


def test_stages_one_after_the_other_are_a_wish_that_the_result_names(
    sdk: Nursery, pictures: Path, tmp_path: Path
) -> None:
    """They need no micro-batches in flight, and are another program with the same losses."""
    line, every = words(pictures, **SHORT), {"POPTORCH_CACHE_DIR": str(tmp_path)}
    pipeline = sdk.run(*line, **every)
    sharded = sdk.run(*line, **every, HPC_ML_BENCH_IPU_EXECUTION="sharded")
    assert sharded.code == 0, sharded.errors
    assert sharded.value("hpcml_summary")["compile_cache"] == "miss"
    assert sharded.losses == pipeline.losses
    said = "one after the other (HPC_ML_BENCH_IPU_EXECUTION=sharded)"
    of_runs = [" ".join(job.value("hpcml_summary")["warnings"]) for job in (pipeline, sharded)]
    assert [said in warnings for warnings in of_runs] == [False, True]


def test_a_lock_that_a_killed_job_left_lets_one_instance_compile_first(
    sdk: Nursery, pictures: Path, tmp_path: Path
) -> None:
    every = {"POPTORCH_CACHE_DIR": str(tmp_path), "MASTER_PORT": free_port()}
    folder = tmp_path / "resnet50-v1.5-fp32-64x64-1-3-1-2-2"
    folder.mkdir()
    (folder / "0123456789abcdef.lock").write_text("0")
    jobs = sdk.together(*((words(pictures, **SHORT), {**environ, **every}) for environ in poprun(2, 2, 2)))
    assert [job.code for job in jobs] == [0, 0], jobs[0].errors
    assert sorted(path.suffix for path in folder.iterdir()) == [".popef"]
    assert jobs[0].value("hpcml_summary")["compile_cache"] == "miss"


def test_a_stray_variable_is_no_poprun(sdk: Nursery, pictures: Path, cache: str) -> None:
    job = sdk.run(*words(pictures, **SHORT), POPTORCH_CACHE_DIR=cache, POPDIST_LOG_LEVEL="INFO")
    assert job.code == 0, job.errors


def test_a_partition_that_offers_one_size_only_is_used(sdk: Nursery, pictures: Path, cache: str) -> None:
    """Two replicas of two IPUs are one device of four."""
    job = sdk.run(*words(pictures, **SHORT), POPTORCH_CACHE_DIR=cache, FAKE_IPU_SIZES="4")
    assert job.code == 0, job.errors
    device = job.value("hpcml_start")["device"]
    assert (device["name"], device["count"]) == ("Graphcore IPU, version 2", 4)
    assert device["memory_bytes"] == 1472 * 624 * 1024


# --- what is nice to have loses no result


def test_latencies_that_poptorch_cannot_compute_lose_no_result(sdk: Nursery, pictures: Path, cache: str) -> None:
    """Its functions assert that inputs and outputs have matching stamps."""
    job = sdk.run(*words(pictures, **SHORT), POPTORCH_CACHE_DIR=cache, FAKE_IPU_FAULT="stamps")
    assert job.code == 0, job.errors
    summary = job.value("hpcml_summary")
    latency = summary["device_latency_s"]
    assert [name for name, value in latency.items() if value is None] == ["host_to_device", "compute", "round_trip"]
    assert latency["device_to_host"]["max"] >= 0
    said = [text.split(" (")[0] for text in summary["warnings"] if "latency" in text]
    assert said == [
        "no latency from getHostIpuLatency: IndexError",
        "no latency from getComputeLatency: IndexError",
        "no latency from getLatency: AssertionError",
    ]


def test_weights_that_cannot_be_read_back_lose_no_result(sdk: Nursery, pictures: Path, cache: str) -> None:
    job = sdk.run(*words(pictures, **SHORT), POPTORCH_CACHE_DIR=cache, FAKE_IPU_FAULT="destroy")
    assert job.code == 0, job.errors
    summary = job.value("hpcml_summary")
    assert summary["effective_throughput"] > 0
    (said,) = [text for text in summary["warnings"] if "parameters" in text]
    assert "were not checked" in said
    assert "the weights cannot be copied" in said


def summary_with_fault_of_one(sdk: Nursery, pictures: Path, cache: str, fault: str) -> dict[str, Any]:
    """The summary of a job of two instances, of which the second one has a fault that does not end it."""
    first, second = poprun(2, 2, 2)
    every = {"POPTORCH_CACHE_DIR": cache, "MASTER_PORT": free_port()}
    environs = ({**first, **every}, {**second, **every, "FAKE_IPU_FAULT": fault})
    jobs = sdk.together(*((words(pictures, **SHORT), environ) for environ in environs))
    assert [job.code for job in jobs] == [0, 0], jobs[0].errors
    return jobs[0].value("hpcml_summary")


def test_weights_that_one_rank_cannot_read_back_are_checked_on_none(sdk: Nursery, pictures: Path, cache: str) -> None:
    summary = summary_with_fault_of_one(sdk, pictures, cache, "destroy")
    assert summary["parameters_identical"] is None
    (said,) = [text for text in summary["warnings"] if "parameters" in text]
    assert "rank 1 cannot read them back" in said


# --- what is refused


def test_without_the_package_nothing_is_read(nursery: Nursery) -> None:
    job = nursery.run(*words("/nowhere"))
    assert job.code == 78
    assert "the package poptorch, which cannot be imported: it is in Graphcore's Poplar SDK 3.x" in job.errors
    assert "graphcore/pytorch:3.3.0" in job.errors
    assert "needs a machine with IPUs" in job.errors
    assert job.value("hpcml_end")["exit_code"] == 78


REFUSED = {
    "no IPU": ({"FAKE_IPUS": "0"}, {}, "PopTorch sees no IPU: run `gc-info -l`"),
    "too few IPUs": (
        {"FAKE_IPUS": "2"},
        {},
        "2 replica(s) of 2 IPU(s) need a device of 4 IPUs, and PopTorch finds none",
    ),
    "too short a pipeline": (
        {},
        {"accumulation_steps": 2},
        "a pipeline of 2 IPUs has 3 stages, and a step has 2 micro-batch(es): use --accumulation-steps 3 or more",
    ),
    "strategy": (
        {"HPC_ML_BENCH_IPU_EXECUTION": "shard"},
        {},
        "HPC_ML_BENCH_IPU_EXECUTION=shard is neither pipelined nor sharded",
    ),
    "no cut": ({}, {"devices_per_replica": 4}, "or add a cut to CUTS in models/accelerators/ipu.py"),
    "memory format": (
        {},
        {"channels_last": "on"},
        "does not take --channels-last on: its compiler chooses memory formats; leave it out",
    ),
    "other replicas": (poprun(1, 4, 2)[0], {}, "poprun was started with 4 replicas of 2 IPU(s), and 2 of 2 were asked"),
    "no cache": ({"POPTORCH_CACHE_DIR": "/dev/null/cache"}, {}, "set POPTORCH_CACHE_DIR to a folder that stays"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_refused_before_it_is_compiled(
    case: str, sdk: Nursery, pictures: Path, cache: str
) -> None:
    environ, options, text = REFUSED[case]
    job = sdk.run(*words(pictures, **options), **{"POPTORCH_CACHE_DIR": cache, **environ})
    assert job.code == 78, job.errors
    assert text in job.errors
    assert job.values("hpcml_start") == []


FAULTS = {
    "compile:tiles": (5, "popart_exception: Out of memory: Cannot fit all variable data onto one or more tiles."),
    "compile:stream": (5, "poplar_stream_memory_allocation_error: Out of memory. Single stream of length 149766584"),
    "compile:link": (4, "PopTorch cannot compile this (poplar_link_error: Linking failed. Output: -lfoo not found)"),
    "compile:busy": (
        69,
        "if IPUs are free, shorten the IPUJob's name: with more than 36 characters it gets none (poptorch_cpp_error: ",
    ),
    "run:reset": (69, "needs IPU_RESET; then start the job again (poplar_recoverable_runtime_error: an ECC error on"),
    "run:broken": (69, "ask the machine's administrators to take it out of use"),
    "rate:reset": (69, "needs IPU_RESET; then start the job again (poplar_recoverable_runtime_error: an ECC error on"),
    "run:error": (1, "PopTorch failed in a step (poplar_application_runtime_error: [Host] stream callback failed)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_fails_on_the_device_ends_with_the_words_of_its_software(
    fault: str, sdk: Nursery, pictures: Path, cache: str
) -> None:
    code, text = FAULTS[fault]
    job = sdk.run(*words(pictures, **SHORT), POPTORCH_CACHE_DIR=cache, FAKE_IPU_FAULT=fault)
    assert job.code == code, job.errors
    problem = job.value("hpcml_problem")
    assert text in problem["text"]
    assert ("Profile saved to: ." in problem.get("said", [])) is (fault == "compile:tiles")  # its second line
    assert "Traceback" not in job.errors


def test_without_counters_there_is_no_split(sdk: Nursery, pictures: Path, cache: str) -> None:
    job = sdk.run(*words(pictures, **SHORT), POPTORCH_CACHE_DIR=cache, FAKE_IPU_FAULT="counters")
    assert job.code == 0, job.errors
    summary = job.value("hpcml_summary")
    assert "do not say when the first samples" in summary["no_split"]
    assert summary["compute_fraction"] is None
    assert summary["effective_throughput"] > 0


def test_without_counters_of_one_instance_the_job_has_no_split(sdk: Nursery, pictures: Path, cache: str) -> None:
    summary = summary_with_fault_of_one(sdk, pictures, cache, "counters")
    assert "do not say when the first samples" in summary["no_split"]
    assert (summary["compute_fraction"], summary["stall_s"]) == (None, None)


def test_a_stall_on_purpose_is_one_of_each_step_of_a_call(sdk: Nursery, pictures: Path, cache: str) -> None:
    one = {"replicas": 1, "devices_per_replica": 1, "accumulation_steps": 1, "inject_stall_s": 0.05}
    steps = {"warmup_steps": 5, "windows": 1, "steps_per_window": 5}
    job = sdk.run(*words(pictures, **one, **steps), POPTORCH_CACHE_DIR=cache)
    assert job.value("hpcml_start")["request"]["steps_per_batch"] == 5
    assert job.value("hpcml_summary")["stall_s"] > 5 * 0.05


# --- the request, without a job


def test_a_cache_that_cannot_be_written_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PopTorch asserts it itself, for several processes only. Root may write anywhere, so access is denied by hand."""
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path))
    numbers = dict.fromkeys(("local_batch_size", "accumulation_steps", "steps_per_batch", "replicas"), 1)
    request = SimpleNamespace(**numbers, devices_per_replica=1, variant="v1.5", dtype="fp32", shape=(64, 64))
    setup = SimpleNamespace(name="resnet50", request=request)
    folder = ipu_program.cache_folder(setup)  # type: ignore[arg-type]
    assert Path(folder).parent == tmp_path
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ImpossibleRequest, match=r"cannot be kept in .*\(Permission denied\): set POPTORCH_CACHE_DIR"):
        ipu_program.cache_folder(setup)  # type: ignore[arg-type]


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Iterator[ipu.Ipu]:
    monkeypatch.syspath_prepend(str(SDK))
    yield ipu.Ipu()
    for name in [name for name in sys.modules if name.partition(".")[0] in ("poptorch", "popdist")]:
        del sys.modules[name]


@pytest.mark.parametrize("size", ["smoke", "quick", "subset"])
@pytest.mark.parametrize(("trained_net", "dtype"), [(resnet50, "fp32"), (cosmoflow, "fp16")])
def test_gbs32_on_eight_ipus_is_the_papers(accelerator: ipu.Ipu, trained_net: Any, dtype: str, size: str) -> None:
    name = trained_net.__name__.rpartition(".")[2]
    line = f"train {name} --data-dir d --configuration gbs32 --size {size} --device ipu --expect-world-size 1"
    options = parser().parse_args([*line.split(), "--replicas", "4", "--devices-per-replica", "2"])
    request = requests.resolve(options, trained_net, accelerator, World())
    assert (request.replicas, request.devices_per_replica) == (4, 2)
    assert (request.accumulation_steps, request.local_batch_size, request.global_batch_size) == (8, 1, 32)
    assert request.dtype == dtype
    assert request.steps_per_batch == (1 if size == "smoke" else 5)
    assert request.batch_of_rank == 32 * request.steps_per_batch
    options.replicas = 5
    with pytest.raises(
        ImpossibleRequest, match=r"by 5 replica\(s\) x 1 .*; use 1 or 2 or 4 or 8 or .* replicas \(--rep"
    ):
        requests.resolve(options, trained_net, accelerator, World())


@pytest.mark.parametrize("more", [(), ("--preset", "hpdc24"), ("--size", "smoke")])
def test_jobs_of_a_dry_run_are_the_papers(accelerator: ipu.Ipu, tmp_path: Path, more: tuple[str, ...]) -> None:
    """The command lines that the suite would submit, understood as the job understands them."""
    command = [sys.executable, "-m", "pytest", "-m", "graphcore", "--dry-run", f"--site={tmp_path}", *more]
    shown = subprocess.run(command, cwd=ROOT, env=ENVIRON, capture_output=True, text=True, timeout=PATIENCE_S).stdout
    assert "poprun" not in shown  # one process drives all replicas
    nets = {"resnet50": resnet50, "cosmoflow": cosmoflow}
    lines = re.findall(r"^ *- (train\n(?: *- .*\n)+)", shown, re.MULTILINE)
    trained = {}
    for line in lines:
        options = parser().parse_args(re.sub(r"^ *- ", "", line, flags=re.MULTILINE).replace("'", "").split())
        if options.benchmark in nets:
            request = requests.resolve(options, nets[options.benchmark], accelerator, World())
            ipu_program.refuse_impossible(SimpleNamespace(name=options.benchmark, request=request))
            batch = (request.local_batch_size, request.accumulation_steps, request.replicas, request.global_batch_size)
            trained[options.benchmark] = (request.dtype, *batch)
    assert trained == {"resnet50": ("fp32", 1, 8, 4, 32), "cosmoflow": ("fp16", 1, 8, 4, 32)}


def test_modules_of_all_cuts_exist() -> None:
    with torch.device("meta"):
        nets = {"resnet50": resnet50.build("v1.5", (64, 64)), "cosmoflow": cosmoflow.build("mlperf", (32, 32, 32))}
    for (name, ipus), cut in ipu.CUTS.items():
        assert len(cut) == ipus - 1
        for module in cut:
            nets[name].get_submodule(module)


def test_the_fake_refuses_what_poptorch_refuses(accelerator: ipu.Ipu) -> None:
    """Else the tests above would show nothing."""
    poptorch = accelerator.poptorch
    options = poptorch.Options()
    with pytest.raises(AttributeError):
        options.gradientAccumulation(2)
    with pytest.raises(AssertionError, match="Unexpected type"):
        options.deviceIterations(2.0)
    options.Training.gradientAccumulation(3)
    model = torch.nn.Linear(2, 1)
    program = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(AttributeError, match="frozen"):
        options.deviceIterations(2)
    with pytest.raises(AssertionError, match="Invalid batch dimension"):
        program.compile(torch.zeros(4, 2))
