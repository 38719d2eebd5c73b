"""`make bench` keeps off login nodes and says what to type instead."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.programs import require

ROOT = Path(__file__).resolve().parents[1]


def make(tmp_path: Path, *words: str, command: str | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run make with a PATH that has a `command` of our own first and none of the machine's schedulers."""
    require("make", install="apt-get install make")
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    for tool in ("sh", "echo", "make", "sed", "test", "rm", "mkdir"):
        if (found := shutil.which(tool)) and not (tools / tool).exists():
            (tools / tool).symlink_to(found)
    if command:
        (tools / command).write_text("#!/bin/sh\n")
        (tools / command).chmod(0o755)
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("SLURM_JOB_ID", "PBS_JOBID", "MAKEFLAGS", "MAKELEVEL", "FORCE")
    }
    return subprocess.run(
        ["make", *words], cwd=ROOT, env={**clean, "PATH": str(tools), **environ}, capture_output=True, text=True
    )


@pytest.mark.parametrize(("command", "line"), [("sbatch", "srun --nodes=1"), ("qsub", "qsub -I")])
def test_a_login_node_is_refused_with_the_line_to_type(tmp_path, command, line):
    refused = make(tmp_path, "check-host", command=command)
    assert refused.returncode == 2
    assert "looks like a login node; nothing was run" in refused.stdout
    assert line in refused.stdout
    assert "make bench FORCE=1" in refused.stdout


def test_the_line_to_type_has_the_variables_that_were_typed(tmp_path):
    for command in ("sbatch", "qsub"):
        refused = make(tmp_path, "check-host", "SIZE=smoke", "ARGS=-k tuned", command=command)
        for typed in ("SIZE=smoke", r"ARGS=-k\ tuned"):
            assert refused.stdout.count(typed) == 2
        (tmp_path / "bin" / command).unlink()


def test_an_allocation_and_force_and_other_machines_pass(tmp_path):
    assert make(tmp_path, "check-host").returncode == 0
    assert make(tmp_path, "check-host", command="sbatch", SLURM_JOB_ID="7").returncode == 0
    assert make(tmp_path, "check-host", command="qsub", PBS_JOBID="7.pbs").returncode == 0
    assert make(tmp_path, "check-host", "FORCE=1", command="sbatch").returncode == 0


def test_help_lists_the_commands(tmp_path):
    shown = make(tmp_path, "help").stdout
    assert "make demo" in shown
    assert "make bench" in shown
    assert "make test" in shown


def test_the_demo_installs_the_suite_alone_and_runs_on_a_login_node(tmp_path):
    planned = make(tmp_path, "-n", "demo", "VENV=an-environment-that-is-not-there", command="sbatch").stdout
    assert "-m tests.reporting.demo" in planned
    assert "--editable .\n" in planned
    assert "[local" not in planned
    assert "login node" not in planned


def python_of(tmp_path: Path, text: str) -> str:
    """A stand-in for PYTHON."""
    path = tmp_path / "python3.7"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return f"PYTHON={path}"


@pytest.mark.parametrize(
    ("text", "said"), [("test $1 = -c && exit 1; echo Python 3.7.1", "is Python 3.7.1,"), (None, "is not here,")]
)
def test_a_python_that_is_too_old_or_not_there_is_said(tmp_path, text, said):
    python = python_of(tmp_path, text) if text else "PYTHON=python3.99"
    refused = make(tmp_path, "demo", python, f"VENV={tmp_path / 'none'}")
    assert refused.returncode == 2
    assert said in refused.stdout
    assert "make demo PYTHON=" in refused.stdout


def test_an_environment_that_could_not_be_made_is_made_again_the_next_time(tmp_path):
    """Debian's python3 without python3-venv leaves a python without pip."""
    made = tmp_path / "none" / "bin"
    python = python_of(tmp_path, f"test $1 = -c && exit 0; mkdir -p {made}; echo > {made}/python; exit 1")
    assert make(tmp_path, "demo", python, f"VENV={made.parent}").returncode == 2
    assert made.is_dir()
    assert not (made / "python").exists()


def test_an_environment_of_the_demo_sees_the_torch_of_the_system_later(tmp_path):
    there = tmp_path / "environment"
    (there / "bin").mkdir(parents=True)
    (there / "bin" / "python").touch()
    words = ("-n", "bench", "SYSTEM_TORCH=1", "FORCE=1", f"VENV={there}")
    planned = make(tmp_path, *words).stdout
    assert f"-m venv --system-site-packages {there}" in planned
    assert "-m venv" not in make(tmp_path, *(word for word in words if "TORCH" not in word)).stdout
