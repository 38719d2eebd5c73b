"""From nothing to the first result on a cluster that is reached by SSH, with the commands that a newcomer types."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.slurm import Cluster
from tests.clusters.sshd import Sshd

pytestmark = [pytest.mark.real_slurm, pytest.mark.real_ssh, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ("resnet50", "cosmoflow", "deepcam", "gpt")
NIGHTLY = pytest.mark.nightly("platforms", "harness/plugin.py", "models/benchmarks")
# four steps in place of fourteen: one of DeepCAM takes about a second
FEW_STEPS = "arguments: [--warmup-steps, '1', --steps-per-window, '1']"


@pytest.fixture
def login(slurm: Cluster, tmp_path: Path) -> Iterator[Sshd]:
    """A login node behind a gateway, where Slurm is found and nothing of ours is."""
    (tmp_path / "home").mkdir()
    gate = Sshd(tmp_path / "gate")
    login = Sshd(tmp_path / "login", setenv={**slurm.environ, "HOME": str(tmp_path / "home")}, gate=gate)
    yield login
    login.stop()
    gate.stop()


def type_in(*words: object, code: int = 0) -> str:
    """A command as it is typed in a clone, on a machine that knows nothing of Slurm; what it printed."""
    ours = ("SLURM", "PYTEST_")  # pytest-benchmark saves nothing in what it takes for a worker of pytest-xdist
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)], cwd=ROOT, env=environ, capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def edit(path: Path, old: str, new: str) -> None:
    """What a person does to one line."""
    text = path.read_text()
    assert len(re.findall(old, text, re.MULTILINE)) == 1, text
    path.write_text(re.sub(old, new, text, flags=re.MULTILINE))


@pytest.mark.parametrize(
    ("transport", "host", "launcher", "benchmarks"),
    [
        ("openssh", "login", "srun", ("cosmoflow",)),
        pytest.param("openssh", "login", "srun", BENCHMARKS, marks=NIGHTLY),
        pytest.param("paramiko", "inner", "torchrun", ("cosmoflow",), marks=NIGHTLY),
    ],
    ids=["openssh-srun", "openssh-srun-all", "paramiko-torchrun"],
)
def test_from_a_clone_to_results(
    login: Sshd, tmp_path: Path, transport: str, host: str, launcher: str, benchmarks: tuple[str, ...]
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    reach = ["--ssh", host, "--transport", transport, "--ssh-config", login.config]
    said = type_in("platforms", "init", "cluster", *reach, "--site", site, "--enable")
    assert "python -m platforms doctor cluster" in said
    file = site / "platforms" / "cluster.yaml"
    edit(file, r"^# modules: .*", f"python: {sys.executable}")
    # two sockets of two nodes; both launchers
    edit(file, r"default: \[1x4\]", f"default: [2x1]\nlauncher: {launcher}\n{FEW_STEPS}")
    words = (tmp_path / "home/hpc-ml-bench-work/data").as_posix()
    (site / "platforms" / "here.yaml").write_text(
        f"scheduler: local\nlayouts: {{default: [1x1]}}\nthreads_per_rank: 1\ndata_dir: {words}\n{FEW_STEPS}\n"
    )
    edit(site / "site.yaml", r"cluster\b", "cluster, here")

    said = type_in("platforms", "doctor", "cluster", "--node", f"--site={site}", code=1)  # the data is still missing
    assert re.search(r"^failed +data .*prepare cluster", said, re.MULTILINE)
    assert len(re.findall("^failed", said, re.MULTILINE)) == 1
    size = ["--size", "smoke", *(f"--benchmark={name}" for name in benchmarks)]
    type_in("platforms", "prepare", "cluster", *size, f"--site={site}", f"--runs-dir={tmp_path / 'runs'}")
    again = type_in("platforms", "prepare", "cluster", *size, f"--site={site}")
    assert again.count("is there") == len(benchmarks)

    wanted = " or ".join(f"test_{name}" for name in benchmarks)
    chosen = ["-k", f"gbs32 and ({wanted}) and (cluster or cosmoflow)", "--platform", "cluster", "--platform", "here"]
    more = ["--size", "smoke", f"--site={site}", f"--runs-dir={tmp_path / 'runs'}", "--run-id=first"]
    said = type_in("pytest", *chosen, *more, f"--benchmark-json={tmp_path / 'saved.json'}")
    assert f"{len(benchmarks) + 1} passed" in said

    saved = json.loads((tmp_path / "saved.json").read_text())["benchmarks"]
    ids = {f"test_{name}[cluster-2x1cpu-gbs32-smoke]" for name in benchmarks}
    assert {one["name"] for one in saved} == ids | {"test_cosmoflow[here-1x1cpu-gbs32-smoke]"}
    runs = {one["name"]: one for one in saved}
    there, here = (runs[f"test_cosmoflow[{where}-gbs32-smoke]"] for where in ("cluster-2x1cpu", "here-1x1cpu"))
    assert there["extra_info"].keys() == here["extra_info"].keys()
    for name in benchmarks:
        folder = tmp_path / "runs" / "first" / f"test_{name}-cluster-2x1cpu-gbs32-smoke"
        run = json.loads((folder / "run.json").read_text())
        assert run["start"]["world"]["size"] == 2
        assert run["start"]["world"]["launcher"] == {"srun": "slurm"}.get(launcher, launcher)
        assert len(run["nodes"]) == 2
        assert run["problems"] == []
        jobs = tmp_path / "home" / "hpc-ml-bench-work" / "jobs"
        assert (folder / "log").read_bytes() == (jobs / run["name"] / "log").read_bytes()
