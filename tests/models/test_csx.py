"""Training on Cerebras CS systems: jobs of `models train --device csx`, on a fake cerebras.pytorch (fake_cerebras).

What needs no job: test_csx_program.py and test_csx_errors.py. With the real package: test_csx_real.py.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from models.accelerators import csx
from models.data import synthetic_cosmoflow
from models.data.synthetic import write_set
from tests.models.jobs import ROOT, Ended, Nursery
from tests.models.vendors import CEREBRAS

pytestmark = pytest.mark.slow

TRIAL = ("--configuration", "gbs32", "--windows", "2", "--steps-per-window", "2", "--measure-loader")
ON_WAFER = ("--dtype", "bf16", "--replicas", "2", "--warmup-steps", "5", "--windows", "1", "--steps-per-window", "5")


@pytest.fixture(scope="module")
def cubes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "cosmoflow"
    write_set(str(folder), synthetic_cosmoflow.recipe("smoke", 20, 0), processes=1)
    return folder


class Machine:
    """Runs jobs of two samples a step where cerebras.pytorch can be imported."""

    def __init__(self, nursery: Nursery, cubes: Path) -> None:
        self.nursery = nursery
        self.words = ("train", "cosmoflow", "--data-dir", cubes, "--size", "smoke", "--global-batch-size", "2")

    def run(self, *more: str, **environ: str) -> Ended:
        """A trial on this processor, unless the environment names another backend."""
        every = {"PYTHONPATH": str(CEREBRAS), csx.BACKEND: "CPU", **environ}
        return self.nursery.run(*self.words, "--device", "csx", *more, **every)

    def on_wafer(self, *more: str, **environ: str) -> Ended:
        """On a user node of a cluster: any file that exists is its description."""
        return self.run(*ON_WAFER, *more, **{csx.BACKEND: "CSX", "CSCONFIG_PATH": __file__, **environ})


@pytest.fixture(scope="module")
def machine(nursery: Nursery, cubes: Path) -> Machine:
    return Machine(nursery, cubes)


@pytest.fixture(scope="module")
def plain(nursery: Nursery, machine: Machine) -> Ended:
    """The loop of CPUs on the samples of the trial."""
    words = [word for word in TRIAL if word != "--measure-loader"]
    return nursery.run(*machine.words, "--device", "cpu", *words, "--trace-losses", "losses")


@pytest.fixture(scope="module")
def traced(machine: Machine) -> Ended:
    """A run on two CS systems of which the loss of each step is fetched."""
    job = machine.on_wafer("--trace-losses", "losses")
    assert job.code == 0, job.errors
    return job


def starting_with(job: Ended, beginning: str) -> list[str]:
    return [text for text in job.value("hpcml_summary")["warnings"] if text.startswith(beginning)]


def test_the_cpu_backend_trains_as_the_plain_loop_does(machine: Machine, plain: Ended) -> None:
    theirs = machine.run(*TRIAL, "--trace-losses", "losses")
    assert theirs.code == 0, theirs.errors
    assert len(theirs.losses) == 6
    assert theirs.losses == pytest.approx(plain.losses, rel=0, abs=1e-4)

    start = theirs.value("hpcml_start")
    assert start["device"]["type"] == "csx"
    assert start["device"]["name"].startswith("cerebras.pytorch's CPU backend on ")
    assert start["world"]["replicas"] == 1
    assert start["versions"]["cerebras-pytorch"] == "2.10.0"
    summary = theirs.value("hpcml_summary")
    assert (summary["steps"], summary["samples"], summary["optimizer_steps"]) == (4, 8, 6)
    assert summary["compute_fraction"] is None
    assert summary["no_split"] == "the executor of cerebras.pytorch ends a step and reads the next batch in one call"
    assert summary["vendor_throughput"]["windows"] == 2.0, "two samples a second, however long it compiled"
    assert summary["loader_throughput"] > 0
    assert summary["compile_s"] is None
    assert starting_with(theirs, "no CS system: ")


def test_on_a_cluster_worker_nodes_read_and_stream(traced: Ended, plain: Ended) -> None:
    assert len(set(traced.losses)) == 10, "the executor repeats its first batch, and the cluster does not"
    assert traced.losses[0] == pytest.approx(plain.losses[0], rel=0.5)
    start, summary = traced.value("hpcml_start"), traced.value("hpcml_summary")
    assert (summary["samples"], summary["compile_s"]) == (10, 12.5)
    assert (summary["queue_s"], summary["compile_hash"]) == (120.0, "cs_5d41")
    assert summary["input_throughput"] > 0
    assert starting_with(traced, "this process fetched a loss every 1 step(s)")
    assert summary["no_split"].startswith("worker nodes stream the samples to the CS system")
    assert start["device"]["name"] == "Cerebras CS-3"
    assert start["world"]["replicas"] == 2
    assert start["data"]["resident"] is None, "this node's memory is not the worker nodes'"


def test_the_cluster_is_told_what_to_mount_and_where_the_code_is(traced: Ended, cubes: Path) -> None:
    cluster = json.loads((traced.folder / "cluster.json").read_text())
    assert (cluster["num_csx"], cluster["micro"]) == (2, "auto")
    assert cluster["python_paths"] == [str(ROOT)]
    assert cluster["mount_dirs"] == sorted([str(cubes), str(ROOT.parent)])
    front_end = cluster["path"].split(os.pathsep)[0]  # of the compiler lies beside Python
    assert front_end == str(Path(sys.executable).parent)


# --- without --trace-losses


@pytest.fixture(scope="module")
def ahead(machine: Machine) -> Ended:
    """The client runs ahead of a cluster that is faster than this machine can be, and gets no weights back."""
    job = machine.on_wafer("--time-limit-s", "600", FAKE_CSX_STEP_S="1e-6", FAKE_CSX_FAILS_AT_THE_END="1")
    assert job.code == 0, job.errors
    return job


def test_between_the_edges_of_windows_the_client_runs_ahead(ahead: Ended, traced: Ended) -> None:
    summary = ahead.value("hpcml_summary")
    assert (summary["steps"], summary["optimizer_steps"]) == (5, 10)
    assert summary["step_s"] is None, "the times at which steps were started say nothing"
    assert not starting_with(ahead, "this process fetched a loss every")
    assert [summary["loss_first"], ahead.value("hpcml_window")["loss"]] == pytest.approx(
        [traced.losses[4], traced.losses[9]]
    ), "of the steps at the edges, and of no other"
    assert json.loads((ahead.folder / "cluster.json").read_text())["job_time_sec"] == 600


def test_a_rate_that_may_be_that_of_something_else_is_a_warning(ahead: Ended, traced: Ended) -> None:
    summary = ahead.value("hpcml_summary")
    assert summary["vendor_throughput"]["windows"] == pytest.approx(2e6), "without the steps of the warm-up"
    assert summary["own_share"] > 0.5
    for beginning in ("bound by the user node: ", "bound by the input function: ", "a window lasts ", "two rates: "):
        assert len(starting_with(ahead, beginning)) == 1
    assert not starting_with(traced, "bound by the input function: "), "it has a second for each batch"


def test_weights_that_do_not_come_back_lose_no_run(ahead: Ended) -> None:
    assert ahead.value("hpcml_summary")["parameters_identical"] is None
    (said,) = starting_with(ahead, "the parameters were not checked, rank 0 cannot read them back: ")
    assert said.endswith("the weights are not there")


# --- what ends a job


def test_an_error_of_the_cluster_is_in_the_log_with_all_that_it_said(machine: Machine) -> None:
    """What each error means: test_csx_errors.py."""
    ended = machine.on_wafer(FAKE_CSX_FAILS="no kernel for cirh.Pool\nloc(models/benchmarks/cosmoflow.py:122)")
    problem = ended.value("hpcml_problem")
    assert (ended.code, problem["gate"]) == (4, "compile")
    assert problem["said"][-1] == "loc(models/benchmarks/cosmoflow.py:122)"


def test_sigterm_ends_the_executor(machine: Machine) -> None:
    """So the package cancels the job on the cluster, which else would keep its systems."""
    ended = machine.on_wafer(FAKE_CSX_TERMINATED="3")
    assert ended.code == 143
    assert (ended.folder / "executor-ended").read_text() == "KeyboardInterrupt"


def test_without_a_cluster_the_real_backend_is_refused(machine: Machine) -> None:
    ended = machine.on_wafer(CSCONFIG_PATH="/nowhere")
    assert ended.code == 78
    assert (
        "there is no /nowhere on this machine, so it is no user node of a Cerebras cluster; run there" in ended.errors
    )
    assert f"type: export {csx.BACKEND}=CPU" in ended.errors
