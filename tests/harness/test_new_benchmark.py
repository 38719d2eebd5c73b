"""A benchmark is known as soon as its file exists: here in a copy of the checkout, with one more benchmark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("harness", "platforms", "models", "reporting", "slurm_templates", "k8s_templates")
FILES = ("conftest.py", "pytest.ini", "pyproject.toml")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the suite in which CosmoFlow stands once more, as the benchmark `another`."""
    for part in PARTS:
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "models/benchmarks/another.py").write_text((ROOT / "models/benchmarks/cosmoflow.py").read_text())
    recipe = (ROOT / "models/data/synthetic_cosmoflow.py").read_text()
    (tmp_path / "models/data/synthetic_another.py").write_text(recipe)
    (tmp_path / "test_another.py").write_text((ROOT / "test_cosmoflow.py").read_text().replace("cosmoflow", "another"))
    return tmp_path


def types(clone: Path, *words: str) -> tuple[int, str]:
    """The exit code of a command in the clone, and what it printed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("HPC_ML_BENCH_", "PYTEST_"))}
    environ |= {"COLUMNS": "400", "CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
    environ["HPC_ML_BENCH_LOCK"] = str(clone / "lock")
    done = subprocess.run([sys.executable, "-m", *words], cwd=clone, env=environ, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_prepare_doctor_and_pytest_know_it(clone: Path) -> None:
    code, printed = types(clone, "platforms", "prepare", "--help")
    assert code == 0, printed
    assert "{another,cosmoflow,deepcam,resnet50}" in printed

    code, printed = types(clone, "platforms", "doctor", "local", "--size", "smoke")
    assert code == 1, printed
    assert f"no data set of another smoke ({clone}/data/another-smoke), cosmoflow smoke" in printed

    code, printed = types(clone, "pytest", "test_another.py", "--platform", "local", "--size", "smoke", "--dry-run")
    assert code == 0, printed
    assert "train another --configuration" in printed
    assert f"--data-dir {clone}/data/another-smoke" in printed.replace("\\\n", "").replace("    ", "")
