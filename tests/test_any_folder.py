"""With an editable install, own tests run from any folder; other projects notice nothing of it."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.conftest import PROGRAM, TEST

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "my site"
    (folder / "platforms").mkdir(parents=True)
    (folder / "platforms/mine.yaml").write_text("scheduler: local\ndevice: cpu\nlayouts: {default: [1x1]}\n")
    (folder / "site.yaml").write_text("enabled: [mine]\n")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "test_x.py").write_text(TEST % ([],))
    return folder


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment in which the suite is installed as `pip install -e .` does it: its folder, and its entry point."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    installed = tmp_path / "installed/hpc_ml_bench-0.1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: hpc-ml-bench\nVersion: 0.1.0\n")
    (installed / "entry_points.txt").write_text(f"[pytest11]{setup['options.entry_points']['pytest11']}\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "HPC_ML_BENCH", "CI"))}
    return {
        **clean,
        "PYTHONPATH": f"{installed.parent}:{ROOT}",
        "HPC_ML_BENCH_LOCK": str(tmp_path / "lock"),
        "CUDA_VISIBLE_DEVICES": "",
    }


def run(folder: Path, environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=200, check=False)


def test_own_tests_run_from_any_folder_and_leave_it_as_it_was(
    tmp_path: Path, site: Path, environ: dict[str, str]
) -> None:
    (tmp_path / "here").mkdir()
    test = str(site / "test_x.py")
    for words in ([test, "-m", "mine"], [f"--site={site}", test, "--collect-only"]):
        done = run(tmp_path / "here", environ, "-m", "pytest", *words)
        assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(site.glob("runs/2*"))) == 1
    assert list((tmp_path / "here").iterdir()) == []


def test_in_the_sites_folder_its_tests_are_meant(site: Path, environ: dict[str, str]) -> None:
    for words in ([], ["."], ["-m", "mine"], [str(site)]):
        done = run(site, environ, "-m", "pytest", "--collect-only", "-q", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "site/test_x.py::test_it[" in done.stdout
        assert "test_resnet50" not in done.stdout
    done = run(site, environ, "-m", "pytest", "--resume")
    assert f"no run in {site / 'runs'} is unfinished" in done.stderr


def test_another_projects_tests_are_not_run_as_ours_from_a_sites_folder(
    tmp_path: Path, site: Path, environ: dict[str, str]
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/test_theirs.py").write_text("import sys\ndef test_it(): assert 'harness' not in sys.modules\n")
    for name in ("theirs", "theirs/test_theirs.py"):
        done = run(site, environ, "-m", "pytest", str(tmp_path / name))
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_folder_after_a_blank_is_not_taken_for_the_root(tmp_path: Path, environ: dict[str, str]) -> None:
    done = run(ROOT, environ, "-m", "pytest", "--collect-only", "-q", "-m", "local", "--history", str(tmp_path))
    assert "test_resnet50.py::test_resnet50[local-" in done.stdout, done.stderr


def test_the_commands_run_in_a_sites_folder_which_has_a_folder_platforms(site: Path, environ: dict[str, str]) -> None:
    assert run(site, environ, "-m", "platforms", "--help").returncode == 0


def test_another_project_notices_nothing(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "conftest.py").write_text("def pytest_addoption(parser):\n    parser.addoption('--size')\n")
    (tmp_path / "test_other.py").write_text(
        "import sys\ndef test_it(request):\n    assert request.config.getoption('size') == '3'\n"
        "    assert not {'harness', 'platforms', 'reporting'} & set(sys.modules)\n"
    )
    done = run(tmp_path, environ, "-m", "pytest", "test_other.py", "--size=3")
    assert done.returncode == 0, done.stdout + done.stderr
