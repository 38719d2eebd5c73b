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

RECIPE = (  # the files that CONTRIBUTING.md says to copy
    "test_cosmoflow.py",
    "models/benchmarks/cosmoflow.py",
    "models/data/cosmoflow.py",
    "models/data/synthetic_cosmoflow.py",
)
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
    for name in RECIPE:
        copied = (ROOT / name).read_text().replace("cosmoflow", "line")
        (copy / name.replace("cosmoflow", "line")).write_text(copied)
    return copy


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    environ = {**ENVIRON, "PYTHONPATH": str(checkout)}
    return subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.mark.slow
def test_a_benchmark_that_is_three_files_writes_its_data_and_trains(checkout: Path) -> None:
    folder = ("--size", "smoke", "--data-dir", "line-smoke")
    made = run(checkout, "-m", "models", "data", "line", *folder, "--samples", "4")
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[-1].startswith("line-smoke: 4 samples of 32x32x32, tfrecord")
    options = ("--device", "cpu", "--workers", "0", "--windows", "1", "--steps-per-window", "1")
    trained = run(checkout, "-m", "models", "train", "line", *folder, *options)
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
