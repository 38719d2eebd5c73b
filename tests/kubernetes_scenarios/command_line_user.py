"""A user who types commands, with a kubeconfig for a stage's cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kubernetes_scenarios.stage import Stage

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 3600  # a cluster that trains three benchmarks beside others takes long


class CommandLineUser:
    """At `place`: a clone of the suite, or a folder with tests of their own. `site` and `runs` are in `folder`."""

    def __init__(self, stage: Stage, folder: Path, place: Path = ROOT) -> None:
        self.stage, self.folder, self.place = stage, folder, place
        self.site, self.runs = folder / "site", folder / "runs"
        (self.site / "platforms").mkdir(parents=True)

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command, check its exit code and return its output."""
        with self.start(*words) as process:
            said = process.communicate(timeout=PATIENCE_S)[0]
        assert process.returncode == code, said
        return said

    @contextmanager
    def start(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Start a command, with its output in one pipe. It is killed at the end if it still runs."""
        ours = ("PYTEST_", "KUBE", "HPC_ML_BENCH")  # pytest-benchmark saves nothing in what it takes for a worker
        environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        environ["PYTHONPATH"] = str(ROOT)
        environ |= {"KUBECONFIG": str(self.stage.front.kubeconfig), "HPC_ML_BENCH_LOCK": str(self.folder / "lock")}
        command = [sys.executable, "-m", *words, f"--site={self.site}"]
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(command, cwd=self.place, env=environ, **pipe) as process:
            try:
                yield process
            finally:
                process.kill()

    def write_site_file(self, name: str, text: str) -> None:
        """Write a file of the site."""
        (self.site / name).write_text(text)

    def find_objects(self, plural: str, platform: str = "") -> list[dict[str, Any]]:
        """Return our objects on the cluster."""
        whose = f",hpc-ml-bench/platform={platform}" if platform else ""
        return self.stage.admin.list(plural, f"app.kubernetes.io/managed-by=hpc-ml-bench{whose}")

    def wait_until(self, true: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
        """AssertionError with what the process has said, when it ends first."""
        end = time.monotonic() + PATIENCE_S
        while not true():
            assert process is None or process.poll() is None, process.communicate()[0]
            assert time.monotonic() < end
            time.sleep(0.1)
