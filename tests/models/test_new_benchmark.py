"""A benchmark is known as soon as its files are there: a copy of the checkout with one more, and no other edit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from models.data.synthetic import generator_of
from models.errors import ImpossibleRequest
from tests.models.jobs import ENVIRON, PATIENCE_S, ROOT

BENCHMARK = '''
"""Fits a line to points."""
import os
from dataclasses import dataclass
import numpy as np
import torch
from models.data.manifest import read_manifest
from models.settings import Configuration, Size

WORKLOAD_VERSION = 1
MLPERF_NAME = "line"
MLPERF_RULES = ("training", "4.0.0")
VARIANTS = {"straight": "a straight line"}
CONFIGURATIONS = {
    "gbs32": Configuration(global_batch=32, dtype="fp32", channels_last=False),
    "tuned": Configuration(global_batch=None, dtype="fp32", channels_last=False),
}
SIZES = {"smoke": {"cpu": Size((8,), 1, 2, 2, local_batch=2)}}
TUNED_BATCH = {"cpu": 2}
AUGMENTS = False
LOADER = "process"
CHANNELS_LAST = torch.contiguous_format

class Points(torch.utils.data.Dataset):
    kind, format, decoder, transforms, warnings = "synthetic", "npy", None, None, ()
    blank = (((8, 1), torch.float32), ((1,), torch.float32))
    def __init__(self, folder):
        self.folder, self.manifest = folder, read_manifest(folder, "line")
        self.bytes = self.manifest.bytes
    def __len__(self):
        return self.manifest.samples
    def path(self, index):
        return os.path.join(self.folder, "train", f"{index}.npy")
    def __getitem__(self, key):
        point = torch.from_numpy(np.load(self.path(key[1])))
        return point[:8].view(8, 1), point[8:]

@dataclass(frozen=True)
class Schedule:
    steps: int
    steps_per_epoch: int
    global_batch: int
    def rate(self, step):
        return 0.1
    def mlperf(self):
        return {"opt_name": "sgd"}

class Prepare:
    def __init__(self, data, device, dtype, channels_last):
        self.dtype = dtype
    def __call__(self, points):
        return points.flatten(1).to(self.dtype)

def sample_bytes(dtype, variant, shape):
    return 64
def open_data(folder, *, shape, augment, seed):
    return Points(folder)
def build(variant, shape):
    return torch.nn.Linear(shape[0], 1)
def flop_per_sample(variant, shape):
    return 16.0, 48.0
def criterion(outputs, targets):
    return torch.nn.functional.mse_loss(outputs.float(), targets)
def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)
'''
GENERATOR = '''
"""Writes points on a line."""
import os
import numpy as np
from models.data.synthetic import Recipe

SAMPLES = {"smoke": 16}
FORMATS = ("npy",)

def recipe(size, samples, seed, file_format):
    return Recipe(
        benchmark="line", version=1, format=file_format, shape=(8,), classes=None, samples=samples or SAMPLES[size],
        seed=seed, bytes_per_sample=1000, files_per_process=64, name=name, write=write,
    )

def name(index):
    return f"train/{index}.npy"

def write(part, index):
    path = os.path.join(part, name(index))
    point = np.random.default_rng(index).standard_normal(8).astype(np.float32)
    np.save(path, np.append(point, point.sum()))
    return os.path.getsize(path)
'''
NOT_CODE = (".*", "tests", "docs", "data", "runs", "site")  # at the top of the checkout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout with the benchmark `line`."""
    copy = tmp_path_factory.mktemp("checkout") / "suite"
    for path in ROOT.iterdir():
        if any(path.match(pattern) for pattern in NOT_CODE):
            continue
        if path.is_dir():
            shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            copy.mkdir(exist_ok=True)
            shutil.copy(path, copy)
    (copy / "models/benchmarks/line.py").write_text(BENCHMARK)
    (copy / "models/data/synthetic_line.py").write_text(GENERATOR)
    test = (ROOT / "test_cosmoflow.py").read_text()
    (copy / "test_line.py").write_text(test.replace("cosmoflow", "line"))
    return copy


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    environ = {**ENVIRON, "PYTHONPATH": str(checkout)}
    return subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.mark.slow
def test_a_benchmark_that_is_two_files_writes_its_data_and_trains(checkout: Path) -> None:
    made = run(checkout, "-m", "models", "data", "line", "--size", "smoke", "--data-dir", "line-smoke")
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[-1].startswith("line-smoke: 16 samples of 8, npy")
    options = ("--data-dir", "line-smoke", "--size", "smoke", "--device", "cpu", "--workers", "0")
    trained = run(checkout, "-m", "models", "train", "line", *options)
    assert trained.returncode == 0, trained.stderr + trained.stdout
    last = json.loads(trained.stdout.splitlines()[-1].removeprefix(":::MLLOG "))
    assert (last["key"], last["value"]["exit_code"]) == ("hpcml_end", 0)


@pytest.mark.slow
def test_the_commands_that_submit_know_a_benchmark_by_its_file(checkout: Path) -> None:
    shown = run(checkout, "-m", "pytest", "test_line.py", "-m", "local", "--size", "smoke", "--dry-run")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert " train line --configuration gbs32 --size smoke " in " ".join(shown.stdout.replace("\\\n", "").split())
    helped = run(checkout, "-m", "platforms", "prepare", "local", "--help")
    assert ",line," in helped.stdout.replace(" ", "").replace("\n", "")
    examined = run(checkout, "-m", "platforms", "doctor", "local", "--size", "smoke")
    assert f"line smoke ({checkout}/data/line-smoke)" in examined.stdout


def test_a_benchmark_without_a_generator_is_refused_in_one_sentence() -> None:
    with pytest.raises(ImpossibleRequest) as refused:
        generator_of("bare")
    assert str(refused.value) == (
        "bare has no synthetic data, because there is no models/data/synthetic_bare.py; give the folder of its "
        "real data to `train` as --data-dir"
    )
