"""Vetting on a real Slurm: a prolog that drains by a signed limit alone, and a job that begins again without a node."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.vet_trials import Etc, drained
from platforms.job import Outcome, State
from platforms.rundir import code_archive
from platforms.runner import Runner
from platforms.schedulers.slurm.rows import VET_STEP
from tests.clusters.slurm import Cluster
from tests.clusters.slurm_slots import slot
from tests.platforms.slurm_jobs import cluster, finish, shell

ROOT = Path(__file__).resolve().parents[2]
NODES = ("cn1", "cn2", "cn3")
pytestmark = [
    pytest.mark.real_slurm,
    pytest.mark.nightly("models/vet.py", "models/vet_job.py", "slurm_templates", "tests/clusters"),
]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return code_archive.build(ROOT / "models", tmp_path).path


@pytest.fixture
def vetted(tmp_path: Path, archive: Path) -> Iterator[tuple[Cluster, Etc]]:
    """A cluster whose prolog vets its nodes."""
    etc = Etc(tmp_path / "etc", archive)
    with slot() as (folder, port):
        there = Cluster(folder, port, accounting=False, settings={"Prolog": str(etc.folder / "prolog.sh")})
        try:
            there.up()
            yield there, etc
        finally:
            there.down()


def test_only_a_signed_limit_drains_a_node(vetted: tuple[Cluster, Etc]) -> None:
    there, etc = vetted
    limits = etc.folder / "limits.json"
    assert drained(there, NODES) == []  # there are no limits
    etc.sign()
    assert drained(there, NODES) == []
    etc.sign(**{"memory GiB": 1e6})
    assert drained(there, NODES) == list(NODES)
    limits.chmod(0o666)
    assert drained(there, NODES) == []
    limits.unlink()
    os.mkfifo(limits, 0o644)
    assert drained(there, NODES) == []  # it hangs, until the script's own alarm


PYTHON = f"""#!/bin/sh
case "$SLURM_JOB_NODELIST $*" in
"cn[1-2] "*" vet job "*)
    for word; do [ "${{last:-}}" != --unfit ] || printf cn1:memory_8_GiB > "$word"; last=$word; done ;;
*) exec {sys.executable} "$@" ;;
esac
"""


def test_a_job_with_an_unfit_node_begins_again_without_it(slurm: Cluster, tmp_path: Path, archive: Path) -> None:
    """On cn1 and cn2, where a stand-in says that cn1 is unfit; then on cn2 and cn3, which are really compared."""
    python = tmp_path / "python3"
    python.write_text(PYTHON)
    python.chmod(0o755)
    platform = cluster(tmp_path / "work", slurm={"vet": True}, retries=1)
    spec = replace(shell("vetted", "echo trained", nodes=2, launcher="srun"), node_facts=archive, python=str(python))
    runner = Runner(tmp_path / "runs", "r1")
    job = runner.add(spec, platform)
    *_, last = finish(runner)
    assert (job.status.state, job.status.state.outcome) == (State.NODE_LOST, Outcome.ERROR)
    assert "scontrol update nodename=cn1 state=drain reason='unfit: memory 8 GiB'" in job.status.reason
    assert "trained" not in (job.folder / "log").read_text()
    assert (last.status.state, last.status.nodes) == (State.SUCCEEDED, ("cn2", "cn3"))
    log = (last.folder / "log").read_text()
    assert "vet: 2 of 2 nodes fit, after " in log
    assert log.count("trained") == 2
    assert slurm.ask("sacct", "-n", "-P", "-o", "JobName").count(VET_STEP) == 2
