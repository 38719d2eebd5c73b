"""What jobs under a supervisor are started with, before any starts: their script, what is refused, locks, memory."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.config.keys import PolicyKeys
from platforms.config.schema import Platform
from platforms.job import BenchError, ConfigError, JobSpec, Layout, RefusedError
from platforms.schedulers import SCHEDULERS, Scheduler, connect, script, supervisor
from platforms.schedulers.local import LocalScheduler
from tests.platforms.supervised import SPEC, at, start


@pytest.fixture
def scheduler() -> LocalScheduler:
    return LocalScheduler(Platform(name="local"))


@pytest.fixture(params=["local", "ssh"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def either(kind: str, tmp_path: Path) -> Scheduler:
    return at(kind, tmp_path)


@pytest.mark.parametrize(
    ("cgroup", "name", "text"),
    [
        ("0::/user/job\n", "user/job/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n"),
        ("0::/not/visible\n", "memory.events", "oom_kill 2\n"),
        ("4:cpu,cpuacct:/\n3:memory:/job\n0::/\n", "memory/job/memory.oom_control", "oom_kill_disable 0\noom_kill 2\n"),
        ("3:memory:/not/visible\n", "memory/memory.oom_control", "under_oom 0\noom_kill 2\n"),
    ],
)
def test_memory_kills_are_counted(tmp_path: Path, cgroup: str, name: str, text: str) -> None:
    places = [tmp_path / "proc" / "self" / "cgroup", tmp_path / "cgroups" / name]
    for path, content in zip(places, [cgroup, text], strict=True):
        path.parent.mkdir(parents=True)
        path.write_text(content)

    assert supervisor.oom_kills(str(tmp_path / "proc"), str(tmp_path / "cgroups")) == 2
    assert supervisor.oom_kills(str(tmp_path / "proc"), str(tmp_path / "elsewhere")) == 0


def test_a_deleted_lock_still_lets_one_job_run(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    mine = supervisor.Lock(str(lock), "", {"name": "mine"})
    lock.unlink()
    other = supervisor.Lock(str(lock), "", {"name": "other"})

    assert other.take()
    assert not mine.take()
    assert "held by" not in mine.held_by()
    other.release()
    assert mine.take()
    mine.release()


def test_render() -> None:
    spec = JobSpec(
        name="resnet50-1x2gpu-k2345abc",
        test="test_resnet50.py::test_resnet50[local-1x2gpu-tuned]\nrm -rf /",
        platform="local",
        layout=Layout(1, 2, "gpu"),
        arguments=("train", "resnet50", "--data-dir", "/data/it's here"),
        benchmark="resnet50",
        launcher="torchrun",
        threads_per_rank=4,
        python="/opt/python",
        archive=Path("/runs/models-0123456789ab.pyz"),
        env={"NCCL_DEBUG": "WARN"},
        time_limit_s=5400,
        start_limit_s=60,
    )

    text = LocalScheduler(Platform(name="local", env={"NCCL_DEBUG": "INFO", "A": "1"})).render(spec)

    head, body = text.split("\nunset ")
    assert head == (
        "#!/bin/sh\n"
        "# test_resnet50.py::test_resnet50[local-1x2gpu-tuned]?rm -rf / on local, 1x2gpu\n"
        "#JOB name=resnet50-1x2gpu-k2345abc\n"
        "#JOB time_limit_s=5400\n"
        "#JOB start_limit_s=60\n"
    )
    assert body.partition("\nexport ")[2] == (
        "OMP_NUM_THREADS=4\n"
        "export PYTHONUNBUFFERED=1\n"
        "export NCCL_DEBUG=WARN\n"
        "export A=1\n"
        "export HPC_ML_BENCH_JOB=resnet50-1x2gpu-k2345abc\n"
        "\n"
        "exec /opt/python -m torch.distributed.run --standalone --nnodes=1 --local-addr=127.0.0.1 \\\n"
        "    --nproc-per-node=2 /runs/models-0123456789ab.pyz train resnet50 "
        "--data-dir '/data/it'\"'\"'s here'\n"
    )
    assert subprocess.run(["sh", "-n"], input=text, text=True).returncode == 0


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({}, "exec true"),
        ({"launcher": "auto"}, "exec true"),
        ({"launcher": "torchrun"}, "--nproc-per-node=1 --no-python true"),
        ({"launcher": "auto", "ranks_per_device": 2}, "--nproc-per-node=2 --no-python true"),
        ({"benchmark": "resnet50", "archive": Path("/m.pyz"), "python": "auto"}, f"exec {sys.executable} /m.pyz true"),
    ],
)
def test_commands(scheduler: LocalScheduler, changes: dict[str, object], command: str) -> None:
    assert " ".join(scheduler.render(replace(SPEC, **changes)).replace("\\\n", "").split()).endswith(command)


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"layout": Layout(2, 1, "cpu")}, RefusedError, r"layout 2x1cpu asks for 2 nodes: write 1x2 under `layouts:`"),
        ({"launcher": "srun"}, RefusedError, r"launcher srun belongs .* `launcher=` in the test's mark"),
        ({"env": {"NO WAY": "1"}}, ConfigError, "'NO WAY' is no name"),
        ({"env": {"X": "a\0b"}}, ConfigError, "X: a NUL"),
    ],
)
def test_refusals(scheduler: LocalScheduler, changes: dict[str, object], error: type[BenchError], match: str) -> None:
    with pytest.raises(error, match=match):
        scheduler.render(replace(SPEC, **changes))


def test_policy(kind: str, either: Scheduler, tmp_path: Path) -> None:
    strict = at(kind, tmp_path, policy=PolicyKeys(max_time="0:01:00", max_running=1), max_running=2)
    short, long = (replace(SPEC, time_limit_s=limit_s) for limit_s in (60, 61))

    assert either.lint(long, either.render(long)) == ()
    assert strict.lint(short, strict.render(short)) == (
        "line 1: max_running: 2 are more jobs at a time than 1 (.: policy: max_running)",
    )
    assert strict.lint(long, strict.render(long))[0] == "line 4: 61 s are more than 60 s (.: policy: max_time)"
    assert strict.render(long).splitlines()[3] == "#JOB time_limit_s=61"


def test_connect() -> None:
    assert isinstance(connect(Platform(name="local")), LocalScheduler)
    with pytest.raises(ConfigError, match="there is no 'pbs'; there are: kubernetes, local"):
        connect(Platform(name="local", scheduler="pbs"))
    assert set(SCHEDULERS) >= {"local"}


def test_threads_are_shared_among_the_ranks() -> None:
    cores = len(os.sched_getaffinity(0))

    texts = [script.render(replace(SPEC, ranks_per_device=ranks), Platform(name="local")) for ranks in (1, 2, 1000)]

    for text, threads in zip(texts, (cores, max(1, cores // 2), 1), strict=True):
        assert f"export OMP_NUM_THREADS={threads}\n" in text


def test_a_machine_refuses_jobs_that_ask_for_another_one(either: Scheduler, tmp_path: Path) -> None:
    own = os.uname().nodename
    with pytest.raises(RefusedError, match=f"local is one machine, {own}, and the job asks for n07: leave the nodes"):
        start(either, replace(SPEC, nodes=("n07",)), tmp_path / "jobs" / SPEC.name)
    assert list((tmp_path / "jobs" / SPEC.name).iterdir()) == []
    with pytest.raises(RefusedError, match="asks for the reservation r, and one machine has no reservations"):
        either.render(replace(SPEC, reservation="r"))
    with pytest.raises(RefusedError, match="layout 1x1cpu has 1 node, and the job asks for 2 nodes"):
        either.render(replace(SPEC, nodes=("n1", "n2")))


def test_the_short_form_of_a_full_host_name_is_the_machine() -> None:
    for name in ("n07", "n07.hpc.example"):
        script.check_machine(replace(SPEC, nodes=(name,)), "n07.hpc.example")
    with pytest.raises(RefusedError, match="asks for n0:"):
        script.check_machine(replace(SPEC, nodes=("n0",)), "n07.hpc.example")
