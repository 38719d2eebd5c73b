"""The test cluster itself: that it is a Slurm, that it heals, and that it leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clusters.slurm import Cluster, Row
from tests.clusters.slurm_daemons import listening_ports, stat_of, wait_for
from tests.clusters.slurm_jobs import job_processes
from tests.clusters.slurm_slots import slot

pytestmark = pytest.mark.real_slurm

DAEMONS = ("munged", "mariadbd", "slurmdbd", "slurmctld")


@pytest.fixture
def second(slurm_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster beside the session's, not started yet and without accounting, which starts in a second."""
    with slot() as (folder, port):
        cluster = Cluster(folder, port, accounting=False)
        yield cluster
        cluster.down()


def submit(cluster: Cluster, text: str, *options: str) -> str:
    done = cluster.run("sbatch", "--parsable", "--output=/dev/null", *options, text=f"#!/bin/sh\n{text}\n")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def queue(cluster: Cluster, job_id: str) -> tuple[str, str]:
    """State and reason."""
    state, _, reason = cluster.ask("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T|%r").partition("|")
    return state, reason


def wait_state(cluster: Cluster, job_id: str, *states: str) -> None:
    wait_for(f"job {job_id} is {states}", lambda: queue(cluster, job_id)[0] in states, step_s=0.1)


def pids(cluster: Cluster) -> dict[str, int]:
    found = {name: daemon.process() for name, daemon in cluster.daemons.items()}
    return {name: process[0] for name, process in found.items() if process}


def traces(cluster: Cluster) -> list[str]:
    """Command lines of the processes that name or sit in the cluster's folder."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and stat_of(int(path.name)):
            try:
                words = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
                if str(cluster.folder).encode() in words or (path / "cwd").readlink().is_relative_to(cluster.folder):
                    found.append(words.replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
    return found


@pytest.mark.parametrize("break_it", [Cluster.kill, Cluster.pause], ids=["kill", "pause"])
def test_heal_restarts_broken_daemons(slurm: Cluster, break_it: Callable[[Cluster, str], None]) -> None:
    before = pids(slurm)
    for name in ("slurmd@cn1", "slurmctld", "slurmdbd", "mariadbd", "munged"):
        break_it(slurm, name)
        assert not slurm.healthy()
    slurm.heal()
    assert slurm.healthy()
    anew = {each for each, pid in pids(slurm).items() if pid != before[each]}
    assert anew == (set() if break_it is Cluster.pause else {*DAEMONS, "slurmd@cn1"})
    job_id = submit(slurm, "srun false || exit 4", "--nodelist=cn1", "--job-name=four")
    wait_state(slurm, job_id, "FAILED")
    wait_for("it is recorded", lambda: Row(job_id, "four", "FAILED", "4:0") in slurm.jobs(), step_s=0.2)


def test_heal_undoes_what_a_test_changed(slurm: Cluster) -> None:
    slurm.ask("scontrol", "update", "PartitionName=gpu", "State=DOWN")
    slurm.ask("scontrol", "update", "NodeName=cn3", "State=DRAIN", "Reason=test")
    held = submit(slurm, "true", "--hold")
    running = submit(slurm, "trap '' TERM; setsid sleep 100 & sleep 100")
    wait_state(slurm, running, "RUNNING")
    slurm.heal()
    assert [queue(slurm, each)[0] for each in (held, running)] == ["CANCELLED", "CANCELLED"]
    assert slurm.healthy()
    assert not job_processes(slurm.folder)


def test_down_leaves_nothing(second: Cluster) -> None:
    second.up()
    text = "cd /; env -i setsid sleep 1000 & trap '' TERM; sleep 1000; sleep 1000"
    jobs = [submit(second, text, f"--nodelist={node}") for node in ("cn1", "cn2")]
    wait_state(second, jobs[1], "RUNNING")
    wait_for("both are there", lambda: len(job_processes(second.folder)) >= 8, step_s=0.1)
    inside = job_processes(second.folder)
    second.pause("slurmctld")
    second.pause("slurmd@cn2")
    second.down()
    assert traces(second) == []
    assert not [pid for pid in inside if stat_of(pid)]
    assert listening_ports().isdisjoint(range(second.port, second.port + 20))


def test_up_takes_over_a_cluster_that_another_process_left(second: Cluster) -> None:
    """What it started is found by the records in its folder: taken over, or ended where it is configured otherwise."""
    second.up()
    before = pids(second)
    Cluster(second.folder, second.port, accounting=False).up()
    assert pids(second) == before
    other = Cluster(second.folder, second.port, accounting=False, settings={"EnforcePartLimits": "NO"})
    other.up()
    assert not set(pids(other).values()) & set(before.values())
    waiting = submit(other, "true", "--partition=brief", "--time=3")
    wait_for("refused by no one", lambda: queue(other, waiting) == ("PENDING", "PartitionTimeLimit"), step_s=0.1)
