"""Where the package kubernetes is not installed: other schedulers do not notice, and this one says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from platforms.job import RefusedError
from platforms.schedulers.kubernetes.api.connection import connect
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget, resolve
from tests.fake_kubernetes.api.kubeconfig import kubeconfig_text

ROOT = Path(__file__).resolve().parents[2]
# As in a Python that does not have it: import_module fails and find_spec finds nothing
WITHOUT = "import sys; sys.modules['kubernetes'] = None; import pytest; sys.exit(pytest.main(sys.argv[1:]))"
SAYS = "kubernetes is needed and not installed: pip install kubernetes"
TEST = """
import pytest

@pytest.mark.workload(command=["echo", "hello"])
def test_it(run): assert (run.folder / "log").read_text() == "hello\\n"
"""
THERE = """\
scheduler: kubernetes
device: cpu
layouts: {default: [1x1]}
data_dir: /data
kubernetes: {image: i, cpu: 1, memory: 1Gi}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tests of one's own, with a platform here and one there."""
    (tmp_path / "site" / "platforms").mkdir(parents=True)
    (tmp_path / "site/site.yaml").write_text("enabled: [here, there]\n")
    (tmp_path / "site/platforms/here.yaml").write_text("scheduler: local\ndevice: cpu\nlayouts: {default: [1x1]}\n")
    (tmp_path / "site/platforms/there.yaml").write_text(THERE)
    (tmp_path / "kubeconfig").write_text(kubeconfig_text("http://127.0.0.1:1", "fake", "token"))
    ini = (ROOT / "pytest.ini").read_text().replace("pythonpath = .", f"pythonpath = {ROOT}")
    (tmp_path / "pytest.ini").write_text(ini)
    (tmp_path / "test_mine.py").write_text(TEST)
    return tmp_path


def without(folder: Path, mark: str) -> subprocess.CompletedProcess[str]:
    """A session of pytest."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "HPC_ML_BENCH"))}
    environ |= {"PYTHONPATH": str(ROOT), "KUBECONFIG": str(folder / "kubeconfig")}
    environ |= {"HPC_ML_BENCH_LOCK": str(folder / "lock")}
    words = ["-m", mark, "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *words], cwd=folder, env=environ, capture_output=True, text=True, timeout=60
    )


def test_local_jobs_need_no_kubernetes_package(folder: Path) -> None:
    done = without(folder, "here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_a_kubernetes_job_without_the_package_names_what_to_install(folder: Path) -> None:
    done = without(folder, "there")
    assert done.returncode != 0
    assert SAYS in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_connection_without_the_package_names_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(RefusedError, match=SAYS):
        connect(resolve(ClusterTarget(str(folder / "kubeconfig"))), 0.0)
