"""Cerebras CS systems: learning rates in a traced step, and what is refused without the package or a cluster."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from models.__main__ import main as models_main
from models.__main__ import parser
from models.accelerators import choose, csx, refuse
from models.accelerators.csx import Csx
from models.benchmarks import load
from models.errors import ImpossibleRequest
from models.steps.csx import folders_of, steps_between_losses
from models.steps.csx_input import TIMED_BATCHES, rate_alone
from models.steps.csx_rates import MOST_STRETCHES, stretches_of
from models.world import World
from tests.models.jobs import ENVIRON, PATIENCE_S, ROOT, Ended

NO_PACKAGE = (
    "needs cerebras.pytorch, which cannot be imported in .*python3.11 -m venv env-csx .*cerebras-pytorch==2.10.0"
)


def computed(rate: Callable[[int], float], steps: int) -> tuple[list[float], int]:
    """Every rate as the program computes it, and of how many stretches."""
    stretches = stretches_of(rate, steps)
    rates = []
    for step in range(steps):
        stretch = next(stretch for stretch in stretches if step < stretch.end)
        rates.append(stretch.rate(step))
    return rates, len(stretches)


@pytest.mark.parametrize(
    ("name", "steps", "steps_per_epoch", "batch", "stretches"),
    [
        ("resnet50", 14, 16, 4, 2),
        ("resnet50", 150_000, 5_004, 256, 2),  # a rise and a fall
        ("cosmoflow", 2_000, 16, 32, 7),  # four epochs of warm-up, three levels
        ("deepcam", 1_500, 10, 64, 3),
    ],
)
def test_each_benchmarks_rates_are_a_few_polynomials(
    name: str, steps: int, steps_per_epoch: int, batch: int, stretches: int
) -> None:
    schedule = load(name).Schedule(steps, steps_per_epoch, batch)
    rates, count = computed(schedule.rate, steps)
    largest = max(schedule.rate(step) for step in range(steps))
    assert rates == pytest.approx([schedule.rate(step) for step in range(steps)], rel=0, abs=2e-9 * largest)
    assert count <= stretches


def test_rates_that_are_no_polynomials_are_refused() -> None:
    def rate(step: int) -> float:
        return (step * 7919) % 1009 / 1009

    with pytest.raises(ImpossibleRequest, match=f"no {MOST_STRETCHES} polynomials"):
        stretches_of(rate, 1_000)


def test_without_the_package_it_says_where_it_comes_from() -> None:
    with pytest.raises(ImpossibleRequest, match=NO_PACKAGE):
        Csx({csx.BACKEND: "CPU"}).select(World())


def test_several_ranks_are_refused() -> None:
    with pytest.raises(ImpossibleRequest, match="2 ranks were started, and one process drives all CS systems"):
        Csx({}).select(World(rank=0, size=2, local_size=2, launcher="torchrun"))


def test_a_backend_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(csx.BACKEND, "GPU")
    with pytest.raises(ImpossibleRequest, match="HPC_ML_BENCH_CSX_BACKEND is CSX or CPU, not 'GPU'"):
        choose("csx")


# --- with the package: a small fake, and the real one where HPC_ML_BENCH_CSX_PYTHON names a Python that has it ------

FAKE = Path(__file__).parent / "fake_cerebras"
REAL = "HPC_ML_BENCH_CSX_PYTHON"
SMOKE = ("--device", "csx", "--configuration", "gbs32", "--size", "smoke", "--windows", "2", "--steps-per-window", "5")


class Package:
    """Runs `python -m models` where cerebras.pytorch can be imported."""

    def __init__(self, python: str, path: str, folder: Path) -> None:
        self.python = python
        self.path = path
        self.folder = folder
        self.jobs = 0

    def run(self, *arguments: object, **environ: str) -> Ended:
        self.jobs += 1
        folder = self.folder / f"job{self.jobs}"
        folder.mkdir()
        command = [self.python, "-m", "models", *map(str, arguments)]
        environ = {**ENVIRON, "PYTHONPATH": self.path, csx.BACKEND: "CPU", **environ}
        result = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE_S)
        return Ended(result.returncode, result.stdout, result.stderr, folder)

    def train(self, benchmark: str, data: Path, *arguments: object, **environ: str) -> Ended:
        return self.run("train", benchmark, "--data-dir", data, *arguments, "--trace-losses", "losses", **environ)


@pytest.fixture
def fake(tmp_path: Path) -> Package:
    return Package(sys.executable, f"{ROOT}{os.pathsep}{FAKE}", tmp_path)


@pytest.fixture
def real(tmp_path: Path) -> Package:
    if REAL not in os.environ:
        pytest.skip(
            f"{REAL} names no Python with cerebras-pytorch: python3.11 -m venv env-csx && env-csx/bin/pip install "
            f"-r environments/csx/requirements.txt, then export {REAL}=$PWD/env-csx/bin/python"
        )
    return Package(str(Path(os.environ[REAL]).absolute()), str(ROOT), tmp_path)


@pytest.fixture(params=["fake", "real"])
def package(request: pytest.FixtureRequest) -> Package:
    found: Package = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def cubes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "cosmoflow"
    command = ["data", "cosmoflow", "--size", "smoke", "--samples", "32", "--processes", "1", "--data-dir", str(folder)]
    assert models_main(command) == 0
    return folder


def test_the_cpu_backend_trains_as_the_plain_loop_does(package: Package, cubes: Path) -> None:
    theirs = package.train("cosmoflow", cubes, *SMOKE, "--measure-loader")
    assert theirs.code == 0, theirs.errors
    plain = package.train("cosmoflow", cubes, *("cpu" if word == "csx" else word for word in SMOKE))
    assert len(theirs.losses) == 12
    assert theirs.losses == pytest.approx(plain.losses, rel=0, abs=1e-4)

    start = theirs.value("hpcml_start")
    assert start["device"]["type"] == "csx"
    assert start["device"]["name"].startswith("cerebras.pytorch's CPU backend on ")
    assert start["world"]["replicas"] == 1
    assert start["versions"]["cerebras-pytorch"] == "2.10.0"
    summary = theirs.value("hpcml_summary")
    assert (summary["steps"], summary["samples"], summary["optimizer_steps"]) == (10, 20, 12)
    assert summary["compute_fraction"] is None
    assert summary["no_split"] == "the executor of cerebras.pytorch ends a step and reads the next batch in one call"
    assert summary["vendor_throughput"]["windows"] == pytest.approx(summary["effective_throughput"], rel=0.03)
    assert summary["loader_throughput"] > 0
    assert summary["compile_s"] is None
    assert any(text.startswith("no CS system: ") for text in summary["warnings"])
    assert not [text for text in summary["warnings"] if text.startswith("two rates: ")]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--mode", "blocking"], "--device csx does not take --mode blocking: samples are streamed"),
        (["--accumulation-steps", "2"], "not take --accumulation-steps 2: the CPU backend trains on a whole batch"),
        (["--replicas", "2"], "not take --replicas 2: the CPU backend has one"),
        (["--warmup-steps", "0"], "not take --warmup-steps 0: the first step compiles; use at least 1"),
        (["--inject-stall-s", "1"], "not take --inject-stall-s: other nodes read"),
        (["--devices-per-replica", "2"], "not take --devices-per-replica 2: each CS system holds a whole copy"),
    ],
)
def test_what_it_cannot_do_is_refused(fake: Package, cubes: Path, arguments: list[str], text: str) -> None:
    ended = fake.train("cosmoflow", cubes, *SMOKE, *arguments)
    assert ended.code == 78
    assert text in ended.errors


def test_without_a_cluster_the_real_backend_is_refused(package: Package, cubes: Path) -> None:
    ended = package.train(
        "cosmoflow", cubes, *SMOKE, "--configuration", "tuned", **{csx.BACKEND: "CSX", "CSCONFIG_PATH": f"{cubes}/none"}
    )
    assert ended.code == 78
    assert "is no user node of a Cerebras cluster; run there" in ended.errors
    assert f"type: export {csx.BACKEND}=CPU" in ended.errors


TUNED = ("--device", "csx", "--dtype", "bf16", "--size", "smoke", "--windows", "2", "--steps-per-window", "5")
ON_WAFER = {csx.BACKEND: "CSX", "CSCONFIG_PATH": __file__}  # any file that exists


def test_on_a_cluster_worker_nodes_read_and_stream(fake: Package, cubes: Path) -> None:
    wafer = fake.train("cosmoflow", cubes, *TUNED, "--replicas", "2", **ON_WAFER)
    assert wafer.code == 0, wafer.errors
    here = fake.train("cosmoflow", cubes, *TUNED, "--global-batch-size", "4")
    assert len(set(wafer.losses)) > 6, "the executor repeats its first batch, and the cluster does not"
    assert wafer.losses[0] == pytest.approx(here.losses[0], rel=0.5)

    summary = wafer.value("hpcml_summary")
    assert (summary["samples"], summary["compile_s"]) == (40, 12.5)
    assert (summary["queue_s"], summary["compile_hash"]) == (120.0, "cs_5d41")
    assert summary["input_throughput"] > 0
    assert any(text.startswith("this process fetched a loss every 1 step(s)") for text in summary["warnings"])
    assert wafer.value("hpcml_start")["device"]["name"] == "Cerebras CS-3"
    assert summary["no_split"].startswith("worker nodes stream the samples to the CS system")
    assert wafer.value("hpcml_start")["world"]["replicas"] == 2
    assert wafer.value("hpcml_start")["data"]["resident"] is None, "this node's memory is not the worker nodes'"
    cluster = json.loads((wafer.folder / "cluster.json").read_text())
    assert (cluster["num_csx"], cluster["micro"]) == (2, "auto")
    assert cluster["python_paths"] == [str(ROOT)]
    assert cluster["mount_dirs"] == sorted([str(cubes), str(ROOT.parent)])
    front_end = cluster["path"].split(os.pathsep)[0]  # of the compiler lies beside Python
    assert front_end == str(Path(sys.executable).parent)


def test_a_rate_of_the_package_that_is_not_ours_is_a_warning(fake: Package, cubes: Path) -> None:
    summary = fake.train("cosmoflow", cubes, *TUNED, **ON_WAFER, FAKE_CSX_SCALE="2").value("hpcml_summary")
    assert summary["vendor_throughput"]["windows"] > 1.5 * summary["effective_throughput"]
    (warning,) = [text for text in summary["warnings"] if text.startswith("two rates: ")]
    assert warning.endswith("one of them counts other samples or seconds")


@pytest.mark.parametrize(
    ("fails", "code", "gate", "text"),
    [
        ("compile", 4, "compile", "Cerebras' compiler refused the program: no kernel for cirh.Pool"),
        ("lowering", 4, "compile", "Cerebras' compiler refused the program: Lowering failed due to `unsupported op`"),
        ("memory", 5, "device_memory", "the compiled program does not fit: out of memory"),
        ("several", 5, "device_memory", "the cluster's memory does not hold this: out of memory"),
        ("exhausted", 1, "failed", "the cluster ran out of a resource (memory, threads, or the size of a message): "),
        ("lost", 69, "machine", "the job on the cluster failed (ApplianceRuntimeServerError): WGT server 3 was killed"),
        ("unreachable", 69, "machine", "the cluster does not answer; ask its administrators: Failed to ping"),
        ("version", 78, "request", "the cluster's software is of another release: server is 2.9.0"),
    ],
)
def test_errors_of_the_cluster(fake: Package, cubes: Path, fails: str, code: int, gate: str, text: str) -> None:
    ended = fake.train("cosmoflow", cubes, *TUNED, **ON_WAFER, FAKE_CSX_FAILS=fails)
    problem = ended.value("hpcml_problem")
    assert (ended.code, problem["gate"]) == (code, gate)
    assert problem["text"].startswith(text)
    if fails == "compile":
        assert problem["said"][-1] == "loc(models/benchmarks/cosmoflow.py:122)"


JUDGED = """
from cerebras.pytorch import FAILS
from models.errors import CommandError
from models.steps.csx_errors import errors_of_cluster
for name, error in FAILS.items():
    try:
        with errors_of_cluster():
            raise error
    except CommandError as judged:
        print(f"{name}: {judged.exit_code} {judged.gate}")
try:
    with errors_of_cluster():
        raise RuntimeError("of ours")
except CommandError:
    print("ours: judged")
except RuntimeError:
    print("ours: as it was")
"""
VERDICTS = {
    69: "lost interrupted deadlock health corruption room connection unknown unreachable",
    78: "mount venv no_package volumes volume config version",
    1: "exhausted init timeout csctl cancelled dropped threads input request unknown_to_us",
    3: "nan",
    4: "compile lowering",
    5: "memory several",
    65: "corrupt_file",
    66: "no_file",
}


def test_each_error_of_the_package_has_an_exit_code(fake: Package) -> None:
    environ = {**ENVIRON, "PYTHONPATH": fake.path}
    judged = subprocess.run([fake.python, "-c", JUDGED], env=environ, capture_output=True, text=True)
    *lines, ours = judged.stdout.splitlines()
    codes = {name.replace(" ", "_"): int(verdict.split()[0]) for name, verdict in (line.split(": ") for line in lines)}
    assert codes == {name: code for code, names in VERDICTS.items() for name in names.split()}, judged.stderr
    assert ours == "ours: as it was"


def test_between_the_edges_of_windows_the_client_runs_ahead(fake: Package, cubes: Path) -> None:
    words = ["train", "cosmoflow", "--data-dir", cubes, *TUNED, "--warmup-steps", "5", "--time-limit-s", "600"]
    ended = fake.run(*words, **ON_WAFER)
    assert ended.code == 0, ended.errors
    summary = ended.value("hpcml_summary")
    assert (summary["steps"], summary["optimizer_steps"]) == (10, 15)
    assert summary["step_s"] is None, "the times at which steps were started say nothing"
    assert summary["vendor_throughput"]["windows"] == pytest.approx(summary["effective_throughput"], rel=0.1)
    assert not [text for text in summary["warnings"] if "fetched a loss every" in text]
    assert any(text.startswith("bound by the user node: ") for text in summary["warnings"]), "the fake is in our loop"
    assert any(text.startswith("a window lasts ") for text in summary["warnings"]), "10 s would be long enough"
    assert summary["own_share"] > 0.5
    assert json.loads((ended.folder / "cluster.json").read_text())["job_time_sec"] == 600

    traced = fake.train("cosmoflow", cubes, *TUNED, "--warmup-steps", "5", **ON_WAFER)
    losses = [traced.losses[step - 1] for step in (5, 10, 15)]
    windows = [window["loss"] for window in ended.values("hpcml_window")]
    assert [summary["loss_first"], *windows] == pytest.approx(losses), "of the steps at the edges, and of no other"


def test_weights_that_do_not_come_back_lose_no_run(fake: Package, cubes: Path) -> None:
    ended = fake.train("cosmoflow", cubes, *TUNED, **ON_WAFER, FAKE_CSX_FAILS_AT_THE_END="1")
    assert ended.code == 0, ended.errors
    summary = ended.value("hpcml_summary")
    assert (summary["windows"], summary["steps"]) == (2, 10)
    assert any("cannot read them back" in text and "the weights are not there" in text for text in summary["warnings"])


def test_sigterm_ends_the_executor(fake: Package, cubes: Path) -> None:
    """So the package cancels the job on the cluster, which else would keep its systems."""
    folder = fake.folder / "ended"
    folder.mkdir()
    command = [fake.python, "-m", "models", "train", "cosmoflow", "--data-dir", str(cubes), *TUNED]
    environ = {**ENVIRON, "PYTHONPATH": fake.path, **ON_WAFER, "FAKE_CSX_SLEEPS": "3"}
    with subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.DEVNULL) as job:
        deadline = time.monotonic() + PATIENCE_S
        while not (folder / "asleep").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        job.terminate()
        assert job.wait(PATIENCE_S) == 143
    assert (folder / "executor-ended").read_text() == "KeyboardInterrupt"


def test_linked_samples_are_mounted_from_where_they_are(tmp_path: Path) -> None:
    there = tmp_path / "volume" / "samples"
    there.mkdir(parents=True)
    here = tmp_path / "data"
    here.mkdir()
    for name in ("1", "2"):
        (there / name).touch()
        (here / name).symlink_to(there / name)
    (here / "3").touch()
    names = ["1", "2", "3"]

    class Data:
        def __len__(self) -> int:
            return len(names)

        def path(self, index: int) -> str:
            return str(here / names[index])

    assert folders_of(str(here), Data()) == [str(here), str(there)]


def test_slowing_this_process_on_purpose_is_refused_where_a_cluster_makes_the_steps() -> None:
    """There it would change nothing, and the result would say that it was slowed."""
    line = "train resnet50 --data-dir x --device csx --configuration tuned --inject-slow 2"
    with pytest.raises(ImpossibleRequest, match="does not take --inject-slow: the cluster makes its steps by itself"):
        csx.refuse(parser().parse_args(line.split()), {})
    csx.refuse(parser().parse_args(line.split()), {csx.BACKEND: "CPU"})


@pytest.mark.parametrize("device", ["csx", "ipu"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--compile"], "--compile: that is torch.compile, and its own compiler always runs; leave it out"),
        (["--inject-copy-s", "1"], "--inject-copy-s: its own program copies the batches; leave it out"),
        (["--channels-last", "on"], "--channels-last on: its compiler chooses memory formats; leave it out"),
    ],
)
def test_what_no_device_with_a_compiler_takes_is_refused(device: str, words: list[str], said: str) -> None:
    options = parser().parse_args(["train", "resnet50", "--data-dir", "x", "--device", device, *words])
    with pytest.raises(ImpossibleRequest) as error:
        refuse(options)
    assert str(error.value) == f"--device {device} does not take {said}"


def test_the_loader_alone_is_measured_on_cs_systems_only() -> None:
    words = ["train", "resnet50", "--data-dir", "x", "--measure-loader"]
    with pytest.raises(ImpossibleRequest, match=r"--measure-loader is for csx; .*: leave it out"):
        refuse(parser().parse_args(words))


def test_losses_are_fetched_at_the_edges_of_windows() -> None:
    def every(warmup_steps: int, steps_per_window: int, *, window_s: float = 0.0, traced: bool = False) -> int:
        request = SimpleNamespace(warmup_steps=warmup_steps, steps_per_window=steps_per_window, window_s=window_s)
        return steps_between_losses(request, traced)  # type: ignore[arg-type]

    assert (every(100, 500), every(100, 5004), every(10, 50), every(7, 5)) == (20, 4, 10, 1)
    assert (every(100, 500, traced=True), every(100, 500, window_s=5.0)) == (1, 1)


def test_the_input_function_is_timed_after_its_workers_have_started() -> None:
    clock = itertools.count(step=2.0)
    assert rate_alone([(None, range(6))] * 20, now=lambda: next(clock)) == 6 * TIMED_BATCHES / 2.0
    assert rate_alone([(None, range(6))] * TIMED_BATCHES) is None


def test_another_optimiser_is_refused(fake: Package) -> None:
    program = (
        "import torch, cerebras.pytorch as package; from models.steps.csx import package_optimizer as make; "
        "from models.errors import ImpossibleRequest; weights = [torch.nn.Parameter(torch.ones(2))]; "
        "made = make(package, torch.optim.SGD(weights, lr=0.1, momentum=0.9)); assert made.defaults['momentum']\n"
        "for wrong in (torch.optim.Adam(weights), torch.optim.SGD(weights, lr=0.1, foreach=True)):\n"
        "    try: make(package, wrong)\n"
        "    except ImpossibleRequest as error: print(error)\n"
    )
    found = subprocess.run(
        [fake.python, "-c", program], env={**ENVIRON, "PYTHONPATH": fake.path}, capture_output=True, text=True
    )
    assert "has no torch.optim.adam.Adam, this benchmark's optimiser" in found.stdout, found.stderr
    assert "SGD knows no foreach" in found.stdout


COMPARED = """
import importlib.util, inspect, sys, cerebras.pytorch as real
from cerebras.pytorch.utils.benchmark import benchmark_dataloader
from cerebras.appliance import errors
spec = importlib.util.spec_from_file_location("fake", sys.argv[1] + "/cerebras/pytorch/__init__.py")
fake = importlib.util.module_from_spec(spec)
sys.modules["fake"] = fake
spec.loader.exec_module(fake)
pairs = {
    "DataLoader": (fake.DataLoader, real.utils.data.DataLoader),
    "DataExecutor": (fake.DataExecutor, real.utils.data.DataExecutor),
    "ClusterConfig": (fake.ClusterConfig, real.distributed.ClusterConfig),
    "SGD": (fake.SGD, real.optim.SGD),
    "LambdaLR": (fake.LambdaLR, real.optim.lr_scheduler.LambdaLR),
    "compile": (fake.compile, real.compile),
    "trace": (fake.trace, real.trace),
    "step_closure": (fake.step_closure, real.step_closure),
}
for name, (ours, theirs) in pairs.items():
    missing = set(inspect.signature(ours).parameters) - set(inspect.signature(theirs).parameters)
    assert not missing, (name, missing)
for name in ("set_value_lambda", "step"):
    assert hasattr(real.optim.lr_scheduler.LambdaLR, name)
for name in ("save", "load"):
    missing = set(inspect.signature(getattr(fake, name)).parameters)
    assert missing <= set(inspect.signature(getattr(real, name)).parameters), name
assert "effective_batch_size" in inspect.signature(real.distributed.get_streaming_batch_size).parameters
for name in ("is_streamer", "num_streamers", "get_streaming_rank"):
    assert not inspect.signature(getattr(real.distributed, name)).parameters
for name in ("set_half_dtype", "autocast"):
    assert callable(getattr(real.amp, name))
assert isinstance(real.utils.data.DataExecutor.on_final_iteration, property)
assert real.backends.csx.performance.micro_batch_size == "auto"
assert {"input_fn", "steps_per_epoch", "print_metrics"} <= set(inspect.signature(benchmark_dataloader).parameters)
assert {"artifact_dir", "cluster_config"} <= set(real.backend.__globals__["get_backend_args"]("CSX"))
for error in fake.FAILS.values():
    if isinstance(error, fake.errors.ApplianceClientException):
        assert issubclass(getattr(errors, type(error).__name__), errors.ApplianceClientException)
print("the same")
"""


def test_the_fake_has_the_interface_of_the_real_one(real: Package) -> None:
    command = [real.python, "-c", COMPARED, str(FAKE)]
    found = subprocess.run(command, env={**ENVIRON, "PYTHONPATH": ""}, capture_output=True, text=True)
    assert found.stdout.strip() == "the same", found.stderr


def test_the_real_backend_gets_as_far_as_the_cluster(real: Package, cubes: Path, tmp_path: Path) -> None:
    """It moves the model, traces and lowers the step, and then connects to a cluster that is not there."""
    namespace = {"name": "job-operator", "certificateAuthorityData": ""}
    cluster = {"name": "k", "server": "127.0.0.1:1", "authority": "a", "fabricType": "cs3", "namespaces": [namespace]}
    context = {"name": "c", "cluster": "k"}
    file = tmp_path / "config_v2"
    file.write_text(json.dumps({"currentContext": "c", "contexts": [context], "clusters": [cluster]}))
    ended = real.train("cosmoflow", cubes, *TUNED, **{**ON_WAFER, "CSCONFIG_PATH": str(file)})
    assert (ended.code, ended.value("hpcml_problem")["gate"]) == (69, "machine")
    assert ended.value("hpcml_start")["device"]["name"] == "Cerebras CS-3"
    assert list((ended.folder / "cerebras_logs" / "executors").glob("0*/cirh.mlir"))


ON_USER_NODE = """
import functools, sys
from cerebras.appliance.appliance_client import fw_user_serialize
from models.__main__ import parser
from models.steps.csx_input import read_batches
from models.training_setup import set_up
from models.world import World
words = ["train", "cosmoflow", "--device", "csx", "--size", "smoke", "--dtype", "fp32", "--data-dir", sys.argv[1]]
request = set_up(parser().parse_args(words), World(), 0.0).request
read = functools.partial(read_batches, "cosmoflow", sys.argv[1], request)
print(fw_user_serialize(read, name="DataLoader function", from_usr=True, recurse=True))
"""
ON_WORKER_NODE = """
import sys, dill, models
samples, targets = next(iter(dill.loads(bytes.fromhex(sys.stdin.read().strip()))()))
print(models.__file__, *samples.shape)
"""


def test_a_worker_node_reads_with_the_archive_alone(real: Package, cubes: Path, tmp_path: Path) -> None:
    """The input function travels as the package sends it (appliance/appliance_client.py)."""
    archive = shutil.make_archive(str(tmp_path / "models"), "zip", ROOT, "models")
    environ = {**ENVIRON, "PYTHONPATH": archive, csx.BACKEND: "CPU"}
    sent = subprocess.run(
        [real.python, "-c", ON_USER_NODE, str(cubes)], env=environ, cwd=tmp_path, capture_output=True, text=True
    )
    assert sent.returncode == 0, sent.stderr
    read = subprocess.run(
        [real.python, "-c", ON_WORKER_NODE],
        env=environ,
        cwd="/",
        input=sent.stdout,
        capture_output=True,
        text=True,
    )
    assert read.stdout.split() == [f"{archive}/models/__init__.py", "2", "4", "32", "32", "32"], read.stderr


def test_losses_and_lowering_with_the_real_one(real: Package) -> None:
    script = [sys.executable, str(ROOT / "benchmarks" / "csx_losses.py"), "--python", real.python]
    losses = subprocess.run(script, capture_output=True, text=True, timeout=PATIENCE_S)
    assert losses.returncode == 0, losses.stdout + losses.stderr
    assert losses.stdout.count("the largest difference is") == 2
    lowered = subprocess.run([*script, "--lower", "resnet50"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert re.fullmatch(r"resnet50: \d{3,} operations of 2.10.0's intermediate language\n", lowered.stdout)
