"""What we know of cerebras.pytorch, asked of the real package: HPC_ML_BENCH_CSX_PYTHON names a Python that has it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from models.accelerators import csx
from models.data import synthetic_cosmoflow
from models.data.synthetic import write_set
from tests.models.jobs import ENVIRON, PATIENCE_S, ROOT, Ended
from tests.models.vendors import CEREBRAS

pytestmark = pytest.mark.slow

REAL = "HPC_ML_BENCH_CSX_PYTHON"


@pytest.fixture(scope="module")
def real() -> str:
    """A Python that has the package."""
    if REAL not in os.environ:
        pytest.skip(
            f"{REAL} names no Python with cerebras-pytorch: python3.11 -m venv env-csx && env-csx/bin/pip install "
            f"-r environments/csx/requirements.txt, then export {REAL}=$PWD/env-csx/bin/python"
        )
    return str(Path(os.environ[REAL]).absolute())


def run(*command: str, cwd: str | Path = ROOT, given: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    every = {**ENVIRON, csx.BACKEND: "CPU", **environ}
    return subprocess.run(command, cwd=cwd, env=every, input=given, capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def cubes(real: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a test that is not skipped."""
    folder = tmp_path_factory.mktemp("data") / "cosmoflow"
    write_set(str(folder), synthetic_cosmoflow.recipe("smoke", 32, 0), processes=1)
    return folder


COMPARED = """
import functools, importlib.util, inspect, sys, cerebras.pytorch as real
from cerebras.appliance import errors
from cerebras.pytorch.utils.benchmark import benchmark_dataloader

def load(file):
    spec = importlib.util.spec_from_file_location("fake", sys.argv[1] + file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["fake"] = module
    spec.loader.exec_module(module)
    return module

NAMES = [
    "compile", "trace", "step_closure", "save", "load", "optim.SGD", "optim.lr_scheduler.LambdaLR",
    "optim.lr_scheduler.LambdaLR.set_value_lambda", "optim.lr_scheduler.LambdaLR.step",
    "utils.data.DataLoader", "utils.data.DataExecutor", "distributed.ClusterConfig", "distributed.is_streamer",
    "distributed.num_streamers", "distributed.get_streaming_rank", "distributed.get_streaming_batch_size",
]
theirs = {name: functools.reduce(getattr, name.split("."), real) for name in NAMES}
assert isinstance(real.utils.data.DataExecutor.on_final_iteration, property)
assert callable(real.amp.set_half_dtype) and callable(real.amp.autocast)
assert real.backends.csx.performance.micro_batch_size == "auto"
assert {"input_fn", "steps_per_epoch", "print_metrics"} <= set(inspect.signature(benchmark_dataloader).parameters)
assert {"artifact_dir", "cluster_config"} <= set(real.backend.__globals__["get_backend_args"]("CSX"))
for name, error in vars(load("/cerebras/appliance/errors.py")).items():
    if inspect.isclass(error):
        assert issubclass(getattr(errors, name), errors.ApplianceClientException), name
fake = load("/cerebras/pytorch/__init__.py")  # last, because it puts parts of its own into the real package
for name in NAMES:
    ours = functools.reduce(getattr, name.split("."), fake)
    missing = set(inspect.signature(ours).parameters) - set(inspect.signature(theirs[name]).parameters)
    assert not missing, (name, missing)
print("the same")
"""


def test_the_fake_has_the_interface_of_the_real_one(real: str) -> None:
    found = run(real, "-c", COMPARED, str(CEREBRAS), PYTHONPATH="")
    assert found.stdout.strip() == "the same", found.stderr


def train(real: str, folder: Path, data: Path, *words: str, **environ: str) -> Ended:
    job = ("-m", "models", "train", "cosmoflow", "--data-dir", str(data), "--device", "csx", "--size", "smoke")
    result = run(real, *job, *words, "--windows", "2", "--steps-per-window", "5", cwd=folder, **environ)
    return Ended(result.returncode, result.stdout, result.stderr, folder)


def test_a_job_on_the_cpu_backend_runs_to_its_end(real: str, cubes: Path, tmp_path: Path) -> None:
    """Its losses: test_losses_and_lowering_with_the_real_one."""
    ended = train(real, tmp_path, cubes, "--configuration", "gbs32", "--measure-loader")
    assert ended.code == 0, ended.errors
    assert ended.value("hpcml_start")["versions"]["cerebras-pytorch"] == "2.10.0"
    assert ended.value("hpcml_summary")["loader_throughput"] > 0


def test_the_real_backend_gets_as_far_as_the_cluster(real: str, cubes: Path, tmp_path: Path) -> None:
    """It moves the model, traces and lowers the step, and then connects to a cluster that is not there."""
    namespace = {"name": "job-operator", "certificateAuthorityData": ""}
    cluster = {"name": "k", "server": "127.0.0.1:1", "authority": "a", "fabricType": "cs3", "namespaces": [namespace]}
    context = {"name": "c", "cluster": "k"}
    file = tmp_path / "config_v2"
    file.write_text(json.dumps({"currentContext": "c", "contexts": [context], "clusters": [cluster]}))
    environ = {csx.BACKEND: "CSX", "CSCONFIG_PATH": str(file)}
    ended = train(real, tmp_path, cubes, "--dtype", "bf16", **environ)
    assert (ended.code, ended.value("hpcml_problem")["gate"]) == (69, "machine")
    assert ended.value("hpcml_start")["device"]["name"] == "Cerebras CS-3"
    assert list((tmp_path / "cerebras_logs" / "executors").glob("0*/cirh.mlir"))


ON_USER_NODE = """
import functools, sys
from cerebras.appliance.appliance_client import fw_user_serialize
from models.command_line import parser
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


def test_a_worker_node_reads_with_the_archive_alone(real: str, cubes: Path, tmp_path: Path) -> None:
    """The input function travels as the package sends it (appliance/appliance_client.py)."""
    archive = shutil.make_archive(str(tmp_path / "models"), "zip", ROOT, "models")
    sent = run(real, "-c", ON_USER_NODE, str(cubes), cwd=tmp_path, PYTHONPATH=archive)
    assert sent.returncode == 0, sent.stderr
    read = run(real, "-c", ON_WORKER_NODE, cwd="/", given=sent.stdout, PYTHONPATH=archive)
    assert read.stdout.split() == [f"{archive}/models/__init__.py", "2", "4", "32", "32", "32"], read.stderr


def test_losses_and_lowering_with_the_real_one(real: str) -> None:
    script = [sys.executable, str(ROOT / "benchmarks" / "csx_losses.py"), "--python", real]
    losses = run(*script)
    assert losses.returncode == 0, losses.stdout + losses.stderr
    assert losses.stdout.count("the largest difference is") == 2
    lowered = run(*script, "--lower", "resnet50")
    assert re.fullmatch(r"resnet50: \d{3,} operations of 2.10.0's intermediate language\n", lowered.stdout)
