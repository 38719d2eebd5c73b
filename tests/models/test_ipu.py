"""Training on IPUs: jobs of `models train --device ipu`, on a fake PopTorch that trains on the processor.

tests/models/poplar_sdk is the fake, with the source of each of its refusals. What needs no job: test_ipu_program.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from models.benchmarks import cosmoflow
from models.data import synthetic_cosmoflow, synthetic_resnet50
from models.data.synthetic import write_set
from tests.models.jobs import Ended, Nursery, free_port
from tests.models.vendors import POPLAR

pytestmark = pytest.mark.slow


class Machine:
    """Runs jobs where the Poplar SDK is installed."""

    def __init__(self, nursery: Nursery, cache: Path) -> None:
        self.nursery = nursery
        self.environ = {"PYTHONPATH": str(POPLAR), "POPTORCH_CACHE_DIR": str(cache)}

    def run(self, words: Sequence[object], **environ: str) -> Ended:
        return self.nursery.run(*words, **{**self.environ, **environ})

    def instances(self, words: Sequence[object], environs: Sequence[Mapping[str, str]]) -> list[Ended]:
        """Run as many instances of poprun, each with its own environment."""
        every = {**self.environ, "MASTER_PORT": free_port()}
        return self.nursery.together(*((words, {**every, **environ}) for environ in environs))


@pytest.fixture(scope="module")
def machine(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(nursery, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "resnet50"
    write_set(str(folder), synthetic_resnet50.recipe_of(12, 3, 0), processes=1)
    return folder


@pytest.fixture(scope="module")
def cubes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two samples, so that two steps of one sample are an epoch."""
    folder = tmp_path_factory.mktemp("data") / "cosmoflow"
    write_set(str(folder), synthetic_cosmoflow.recipe("smoke", 2, 0), processes=1)
    return folder


def words(data: Path | str, benchmark: str, **options: object) -> list[object]:
    """A run of two steps of one sample, one of them as the warm-up, unless the options say otherwise."""
    every: dict[str, object] = {
        **{"size": "smoke", "configuration": "gbs32", "workers": 0, "trace-losses": "losses", "device": "ipu"},
        **{"warmup-steps": 1, "windows": 1, "steps-per-window": 1, "local-batch-size": 1},
        **{"accumulation-steps": 1, "replicas": 1, "devices-per-replica": 1},
        **{name.replace("_", "-"): value for name, value in options.items()},
    }
    flags = [word for name, value in every.items() if value is not None for word in (f"--{name}", value)]
    return ["train", benchmark, "--data-dir", data, *flags]


def on_pictures(pictures: Path, **options: object) -> list[object]:
    """ResNet-50 in two replicas of two IPUs each; a step has three micro-batches. Nothing in it is random."""
    many = {"accumulation_steps": 3, "replicas": 2, "devices_per_replica": 2}
    return [*words(pictures, "resnet50", **{**many, **options}), "--no-augment"]


def on_cubes(cubes: Path, **options: object) -> list[object]:
    """CosmoFlow, which trains in a tenth of the time; half precision is slow on processors."""
    return words(cubes, "cosmoflow", **{"dtype": "fp32", **options})


def warnings_of(job: Ended) -> list[str]:
    assert job.code == 0, job.errors
    found: list[str] = job.value("hpcml_summary")["warnings"]
    return found


@pytest.fixture(scope="module")
def trained(machine: Machine, pictures: Path) -> Ended:
    return machine.run(on_pictures(pictures))


# --- what is trained, and how it is counted


def test_steps_have_the_losses_of_the_plain_loop(trained: Ended, nursery: Nursery, pictures: Path) -> None:
    """Two replicas with three micro-batches each are the plain loop with six."""
    plain = {"device": "cpu", "accumulation_steps": 6, "replicas": None, "devices_per_replica": None}
    on_cpu = nursery.run(*on_pictures(pictures, **plain))
    assert (trained.code, on_cpu.code) == (0, 0), trained.errors + on_cpu.errors
    assert len(trained.losses) == 2
    assert trained.losses == pytest.approx(on_cpu.losses, rel=1e-4)
    assert trained.losses[-1] != pytest.approx(trained.losses[0], rel=0.1)


def test_samples_and_devices_are_counted(trained: Ended) -> None:
    start, summary = trained.value("hpcml_start"), trained.value("hpcml_summary")
    asked = {"replicas": 2, "devices_per_replica": 2, "steps_per_batch": 1, "accumulation_steps": 3}
    assert start["request"] == {**start["request"], **asked, "global_batch_size": 6, "channels_last": False}
    assert (start["world"]["replicas"], start["world"]["devices_per_replica"]) == (2, 2)
    assert (start["device"]["type"], start["device"]["count"], start["versions"]["poptorch"]) == ("ipu", 8, "3.3.0")
    assert trained.values("accelerators_per_node") == [4]
    assert [window["samples"] for window in trained.values("hpcml_window")] == [6]
    assert summary["samples"] == 6


def test_time_is_split_by_the_moment_at_which_samples_were_there(trained: Ended) -> None:
    summary = trained.value("hpcml_summary")
    assert "no_split" not in summary
    assert 0 < summary["compute_fraction"] <= 1
    assert set(summary["device_latency_s"]) == {"host_to_device", "compute", "device_to_host", "round_trip"}
    latency = summary["device_latency_s"]["round_trip"]
    assert 0 < latency["min"] <= latency["mean"] <= latency["max"] <= summary["wall_s"]


def test_a_program_is_compiled_once(machine: Machine, cubes: Path, tmp_path: Path) -> None:
    """The second run has the same program, though not as many steps."""
    jobs = [machine.run(on_cubes(cubes, windows=windows), POPTORCH_CACHE_DIR=str(tmp_path)) for windows in (1, 2)]
    summaries = [job.value("hpcml_summary") for job in jobs]
    assert [summary["compile_cache"] for summary in summaries] == ["miss", "hit"]
    assert all(summary["compile_s"] > 0 for summary in summaries)
    assert len(list(tmp_path.glob("*/*.popef"))) == 1


@pytest.mark.nightly(
    "models/accelerators/ipu.py", "models/steps/ipu.py", "models/steps/ipu_program.py", "models/benchmarks/cosmoflow.py"
)
def test_cosmoflow_trains_in_half_precision_and_says_so(machine: Machine, cubes: Path) -> None:
    job = machine.run(on_cubes(cubes, dtype="auto", warmup_steps=0, workers=1))
    assert "fp16 on ipu, not the fp32 of gbs32 (docs/accelerators.md)" in warnings_of(job)
    assert job.value("hpcml_start")["request"]["dtype"] == "fp16"


def test_stages_one_after_the_other_are_a_wish_that_the_result_names(machine: Machine, cubes: Path) -> None:
    """They need no micro-batches in flight."""
    job = machine.run(on_cubes(cubes, devices_per_replica=2), HPC_ML_BENCH_IPU_EXECUTION="sharded")
    assert "the stages of a replica run one after the other (HPC_ML_BENCH_IPU_EXECUTION=sharded)" in warnings_of(job)


# --- a call of several steps


@pytest.fixture(scope="module")
def calls(machine: Machine, cubes: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Warm-up and window are whole calls of five steps, so two calls are made."""
    asked = {"warmup_steps": 5, "steps_per_window": 5, "time_limit_s": 1000, "inject_stall_s": 0.05}
    job = machine.run(on_cubes(cubes, **asked), FAKE_IPU_RATES="rates")
    assert job.code == 0, job.errors
    return job


def test_a_call_of_several_steps_counts_all_of_them(calls: Ended) -> None:
    summary = calls.value("hpcml_summary")
    assert calls.value("hpcml_start")["request"]["steps_per_batch"] == 5
    assert (summary["steps"], summary["samples"], summary["optimizer_steps"]) == (5, 5, 10)
    assert len(calls.losses) == 2
    assert len(calls.seconds("busy")) == 10


def test_a_call_of_several_steps_has_the_rate_of_its_middle_step(calls: Ended) -> None:
    schedule = cosmoflow.Schedule(10, 2, 1)
    rates = [float(rate) for rate in (calls.folder / "rates").read_text().split()]
    assert rates == [schedule.rate(2), schedule.rate(7)]
    assert schedule.rate(0) > schedule.rate(2) > schedule.rate(4) > schedule.rate(7) > schedule.rate(9)


def test_a_stall_on_purpose_is_one_of_each_step_of_a_call(calls: Ended) -> None:
    assert calls.value("hpcml_summary")["stall_s"] > 5 * 0.05


def test_a_warm_up_of_one_call_does_not_say_how_long_a_step_takes(calls: Ended) -> None:
    (unchecked,) = [text for text in warnings_of(calls) if text.startswith("--time-limit-s was not checked: ")]
    assert unchecked.endswith("; use --warmup-steps 10")


# --- poprun


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


@pytest.mark.nightly(
    "models/steps/ipu.py", "models/steps/ipu_program.py", "models/training_setup.py", "models/ranks.py"
)
def test_two_instances_with_a_replica_each_have_the_losses_of_one_with_two(
    machine: Machine, pictures: Path, trained: Ended
) -> None:
    first, second = machine.instances(on_pictures(pictures), poprun(2, 2, 2))
    assert (first.code, second.code) == (0, 0), first.errors + second.errors
    assert first.losses == pytest.approx(trained.losses, rel=1e-4)


def test_several_instances_of_poprun_train_together(machine: Machine, cubes: Path, tmp_path: Path) -> None:
    """A lock that a killed job left lets one of them compile first."""
    folder = tmp_path / "cosmoflow-mlperf-fp32-32x32x32-1-1-1-2-1"
    folder.mkdir()
    (folder / "0123456789abcdef.lock").write_text("0")
    environs = [{**environ, "POPTORCH_CACHE_DIR": str(tmp_path)} for environ in poprun(2, 2, 1)]
    first, second = machine.instances(on_cubes(cubes, replicas=2), environs)
    assert (first.code, second.code) == (0, 0), first.errors + second.errors
    world, summary = first.value("hpcml_start")["world"], first.value("hpcml_summary")
    assert (world["size"], world["local_size"], world["nodes"], world["launcher"]) == (2, 2, 1, "openmpi")
    assert (world["replicas"], world["devices_per_replica"]) == (2, 1)
    assert (summary["parameters_identical"], summary["compile_cache"]) == (True, "miss")
    assert first.value("hpcml_window")["samples"] == 2
    assert [path.suffix for path in folder.iterdir()] == [".popef"]


def test_what_one_instance_cannot_tell_is_not_told_of_the_job(machine: Machine, cubes: Path) -> None:
    """Neither whether the weights are identical nor how the time is split."""
    first, second = poprun(2, 2, 1)
    jobs = machine.instances(on_cubes(cubes, replicas=2), [first, {**second, "FAKE_IPU_FAULT": "destroy counters"}])
    assert [job.code for job in jobs] == [0, 0], jobs[0].errors + jobs[1].errors
    summary = jobs[0].value("hpcml_summary")
    assert summary["parameters_identical"] is None
    (said,) = [text for text in summary["warnings"] if "parameters" in text]
    assert "rank 1 cannot read them back" in said
    assert "do not say when the first samples" in summary["no_split"]
    assert (summary["compute_fraction"], summary["stall_s"]) == (None, None)


# --- what is nice to have loses no result


@pytest.fixture(scope="module")
def plagued(machine: Machine, cubes: Path) -> Ended:
    """The SDK tells little, a partition offers devices of four IPUs only, and a stray variable looks like poprun's."""
    environ = {"FAKE_IPU_FAULT": "stamps destroy counters", "FAKE_IPU_SIZES": "4", "POPDIST_LOG_LEVEL": "INFO"}
    job = machine.run(on_cubes(cubes, replicas=4), **environ)
    assert job.code == 0, job.errors
    assert job.value("hpcml_summary")["effective_throughput"] > 0
    return job


def test_a_partition_that_offers_one_size_only_is_used(plagued: Ended) -> None:
    device = plagued.value("hpcml_start")["device"]
    assert (device["name"], device["count"]) == ("Graphcore IPU, version 2", 4)
    assert device["memory_bytes"] == 1472 * 624 * 1024


def test_latencies_that_poptorch_cannot_compute_are_named(plagued: Ended) -> None:
    """Its functions assert that inputs and outputs have matching stamps."""
    latency = plagued.value("hpcml_summary")["device_latency_s"]
    assert [name for name, value in latency.items() if value is None] == ["host_to_device", "compute", "round_trip"]
    assert latency["device_to_host"]["max"] >= 0
    said = [text.split(" (")[0] for text in warnings_of(plagued) if "latency" in text]
    assert said == [
        "no latency from getHostIpuLatency: IndexError",
        "no latency from getComputeLatency: IndexError",
        "no latency from getLatency: AssertionError",
    ]


def test_weights_that_cannot_be_read_back_are_not_checked(plagued: Ended) -> None:
    (said,) = [text for text in warnings_of(plagued) if "parameters" in text]
    assert "were not checked" in said
    assert "the weights cannot be copied" in said


def test_without_counters_there_is_no_split(plagued: Ended) -> None:
    summary = plagued.value("hpcml_summary")
    assert "do not say when the first samples" in summary["no_split"]
    assert summary["compute_fraction"] is None


# --- what is refused


def test_without_the_package_nothing_is_read(nursery: Nursery) -> None:
    job = nursery.run(*words("/nowhere", "resnet50"))
    assert job.code == 78
    assert "the package poptorch, which cannot be imported: it is in Graphcore's Poplar SDK 3.x" in job.errors
    assert "graphcore/pytorch:3.3.0" in job.errors
    assert "needs a machine with IPUs" in job.errors
    assert job.value("hpcml_end")["exit_code"] == 78


REFUSED = {
    "no IPU": ({"FAKE_IPUS": "0"}, {}, "PopTorch sees no IPU: run `gc-info -l`"),
    "too few IPUs": ({"FAKE_IPUS": "2"}, {}, "2 replica(s) of 2 IPU(s) need a device of 4 IPUs, and PopTorch finds"),
    "too many IPUs": ({}, {"replicas": 64}, "a process drives 64 IPUs at most, not 128: start more processes"),
    "too short a pipeline": ({}, {"accumulation_steps": 2}, "3 stages, and a step has 2 micro-batch(es): use --accum"),
    "strategy": ({"HPC_ML_BENCH_IPU_EXECUTION": "shard"}, {}, "EXECUTION=shard is neither pipelined nor sharded"),
    "no cut": ({}, {"devices_per_replica": 4}, "or add a cut to CUTS in models/accelerators/ipu.py"),
    "other replicas": (poprun(1, 4, 2)[0], {}, "poprun was started with 4 replicas of 2 IPU(s), and 2 of 2 were asked"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_refused_before_it_is_compiled(case: str, machine: Machine, pictures: Path) -> None:
    environ, options, text = REFUSED[case]
    job = machine.run(on_pictures(pictures, **options), **environ)
    assert job.code == 78, job.errors
    assert text in job.errors
    assert job.values("hpcml_start") == []


@pytest.mark.parametrize(("fault", "code"), [("compile:tiles", 5), ("run:error", 1), ("rate:reset", 69)])
def test_what_fails_on_the_device_ends_with_the_words_of_its_software(
    fault: str, code: int, machine: Machine, cubes: Path
) -> None:
    """While a program is compiled, in a call of it, and where a new rate is copied to the IPUs."""
    job = machine.run(on_cubes(cubes, warmup_steps=5, steps_per_window=5), FAKE_IPU_FAULT=fault)
    assert job.code == code, job.errors
    said = job.value("hpcml_problem").get("said", [])
    assert ("Profile saved to: ." in said) is (fault == "compile:tiles")  # its second line
    assert "Traceback" not in job.errors
