"""Jobs on the test cluster: a platform there, jobs that run a line of shell, and how tests submit and follow them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, State, Submitted, job_name
from platforms.runner import Job, Runner
from platforms.schedulers.slurm.scheduler import SlurmScheduler
from tests.clusters.slurm import Cluster
from tests.waiting import until


def cluster(work: Path, name: str = "cluster", **keys: object) -> Platform:
    slurm = {"account": "z19", **keys.pop("slurm", {})}  # type: ignore[dict-item]
    fixed = {"scheduler": "slurm", "device": "cpu", "layouts": {"default": ("1x1",)}, "source": Path("cluster.yaml")}
    ours: dict[str, object] = {"poll_s": 0.5, "max_running": 50, "retries": 0}
    if os.geteuid() != 0:  # only a slurmd of root gives jobs the environment that their user has
        ours["env"] = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    return Platform(**{"name": name, "work_dir": str(work), "slurm": slurm, **fixed, **ours, **keys})


def shell(name: str, command: str = "true", *, nodes: int = 1, launcher: str = "none", **changes: object) -> JobSpec:
    """A job of somebody's own: `sh -c command`, in one process or, by srun, one a node."""
    layout, test = Layout(nodes, 1, "cpu"), f"test_x.py::test_x[{name}]"
    spec = JobSpec(
        job_name(name, layout, "r1", test), test, "cluster", layout, ("sh", "-c", command), launcher=launcher
    )
    return replace(spec, time_limit_s=600, start_limit_s=600, **changes)


def gated(gate: Path, command: str) -> str:
    """It runs until somebody makes the file."""
    return f"until [ -e {gate} ]; do sleep 0.1; done; {command}"


def submitted(scheduler: SlurmScheduler, spec: JobSpec, folder: Path) -> Submitted:
    return Submitted(scheduler.submit(spec, scheduler.render(spec), folder), spec.name, time.time())


def state(scheduler: SlurmScheduler, job: Submitted) -> State:
    return scheduler.status([job])[job.job_id].state


def runs(scheduler: SlurmScheduler, *jobs: Submitted) -> None:
    """Returns once all of them run."""
    until(
        lambda: {each.state for each in scheduler.status(jobs).values()} == {State.RUNNING}, "they run", longest_s=0.2
    )


def ended(scheduler: SlurmScheduler, *jobs: Submitted) -> None:
    """Returns once none of them is live."""
    until(lambda: not any(each.state.live for each in scheduler.status(jobs).values()), "they end", longest_s=0.2)


def pumped(runner: Runner, true: Callable[[], object], what: str) -> None:
    """Let the runner work until it is true."""

    def turn() -> object:
        runner.pump()
        return true()

    until(turn, what, longest_s=0.1)


def begun(runner: Runner, work: Path, *jobs: Job) -> None:
    """Returns once the scripts of the jobs have begun on their nodes: Slurm calls a job running before that."""
    marks = [work / "jobs" / job.spec.name / "started" for job in jobs]
    pumped(runner, lambda: all(job.status.state is State.RUNNING for job in jobs), "they run")
    until(lambda: all(mark.is_dir() for mark in marks), "their scripts begin")


def finish(runner: Runner) -> list[Job]:
    """The last attempts of all jobs, once these have ended."""
    return [runner.wait(job) for job in runner.jobs if job.successor is None]


def hasty(slurm: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients here wait a second for the controller, and not ten: for tests in which it is away."""
    path = folder / "hasty.conf"
    path.write_text(re.sub("MessageTimeout=.*", "MessageTimeout=1", (slurm.folder / "slurm.conf").read_text()))
    monkeypatch.setenv("SLURM_CONF", str(path))
