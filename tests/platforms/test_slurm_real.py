"""Jobs through a real Slurm: every way to end, outages of every daemon, nothing lost, nothing twice, nothing left."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.config.schema import Platform
from platforms.job import AwayError, JobSpec, Layout, MachineError, Outcome, State, Submitted
from platforms.runner import Job, Runner
from platforms.schedulers.slurm import judge
from platforms.schedulers.slurm.scheduler import SlurmScheduler
from tests.clusters.slurm import Cluster
from tests.platforms.slurm_jobs import begun, cluster, ended, finish, gated, hasty, pumped, shell, state, submitted
from tests.waiting import until

pytestmark = pytest.mark.real_slurm
PYTHON = sys.executable
NIGHTLY = pytest.mark.nightly("platforms/schedulers/slurm", "platforms/runner", "slurm_templates", "tests/clusters")


@pytest.fixture(autouse=True)
def client(slurm: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What every command of ours finds in its environment, as on a login node."""
    monkeypatch.setenv("SBATCH_ACCOUNT", "of-an-interactive-session")  # must not reach our jobs
    monkeypatch.setattr(judge, "NEVER_S", 3.0)
    monkeypatch.setattr(judge, "LOST_S", 8.0)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "a folder's work%j"  # blanks, quotes and Slurm's own patterns are nothing special


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    runner = Runner(tmp_path / "runs", "r1")
    yield runner
    assert runner.cancel() == []


def log_of(job: Job) -> str:
    return (job.folder / "log").read_text()


def left_over(slurm: Cluster) -> str:
    """The jobs that wait, run or end."""
    return slurm.ask("squeue", "-h", "-t", "PENDING,RUNNING,COMPLETING", "-o", "%i %j")


# --- every way to end ------------------------------------------------------------------------------------------------

HUNGRY = f"{PYTHON} -S -c 'import time; held = bytearray(600 << 20); time.sleep(60)'"
METRIC = "echo throughput: 123.4; "  # as the peers look for it: a number in the log is no reason to pass
LITTLE = {"slurm": {"mem": "300M"}}


def wide(name: str, command: str) -> JobSpec:
    """By srun on two nodes."""
    return shell(name, command, nodes=2, launcher="srun")


ENDINGS: dict[str, tuple[JobSpec, dict[str, object], State, str]] = {
    # a minute is the shortest limit; the test lets it pass at once, and Slurm looks at limits every 30 s
    "time-limit": (replace(shell("time-limit", METRIC + "trap '' TERM; sleep 400"), time_limit_s=60), {},
     State.TIME_LIMIT, "Slurm says TIMEOUT"),
    "good": (shell("good", METRIC + "exit 0"), {}, State.SUCCEEDED, ""),
    "exit3": (shell("exit3", METRIC + "exit 3"), {}, State.EXITED, ""),
    "no-command": (shell("no-command", "nosuchcommand"), {}, State.NOT_STARTABLE, ""),
    "crash": (shell("crash", METRIC + "kill -SEGV $$"), {}, State.SIGNALLED, ""),
    "tasks": (wide("tasks", METRIC), {}, State.SUCCEEDED, ""),
    "task-exit3": (wide("task-exit3", "[ $SLURM_PROCID = 0 ] && exit 3; sleep 300"), {}, State.EXITED,
     r"task 0: Exited with exit code 3"),
    "task-crash": (wide("task-crash", "[ $SLURM_PROCID = 1 ] && kill -SEGV $$; sleep 300"), {}, State.SIGNALLED,
     "task 1: Segmentation fault"),
    "task-no-command": (replace(wide("task-no-command", ""), arguments=("nosuchcommand",)), {}, State.NOT_STARTABLE,
     "Exited with exit code 127"),
    "memory": (shell("memory", METRIC + HUNGRY), LITTLE, State.OUT_OF_MEMORY, "exceeded|Exceeded"),
    "task-memory": (wide("task-memory", METRIC + HUNGRY), LITTLE, State.OUT_OF_MEMORY, "exceeded|Exceeded"),
    "memory-survived": (shell("memory-survived", METRIC + "exit 0"),
     {**LITTLE, "setup": (f"srun --ntasks=1 {HUNGRY} || true",)}, State.OUT_OF_MEMORY, "exceeded|Exceeded"),
    "step-failed": (shell("step-failed", METRIC + "exit 0"), {"setup": ("srun --ntasks=1 sh -c 'exit 4'",)},
     State.EXITED, "exit code 4"),
    "held": (shell("held", METRIC), {"slurm": {"directives": ("--hold",)}}, State.NEVER_ADMISSIBLE, "JobHeldUser"),
    "never": (replace(shell("never", METRIC), time_limit_s=7200), {"slurm": {"qos": "short"}}, State.NEVER_ADMISSIBLE,
     "QOSMaxWallDurationPerJobLimit"),
    "module": (shell("module", METRIC), {"modules": ("nosuch/1.0",)}, State.REQUEST_REFUSED, ""),
    "setup": (shell("setup", METRIC), {"setup": ("exit 9",)}, State.EXITED, ""),
    "setup-ends": (shell("setup-ends", METRIC), {"setup": ("exit 0",)}, State.EXITED, ""),
    "script-crash": (shell("script-crash", METRIC), {"setup": ("kill -SEGV $$",)}, State.SIGNALLED, ""),
    "script-killed": (shell("script-killed", METRIC), {"setup": ("kill -KILL $$",)}, State.SIGNALLED, ""),
    "no-partition": (shell("no-partition", METRIC), {"slurm": {"partition": "nosuch"}}, State.SUBMIT_REFUSED,
     "invalid partition specified: nosuch"),
    "no-account": (shell("no-account", METRIC), {"slurm": {"account": "nosuch"}}, State.SUBMIT_REFUSED,
     "Invalid account or account/partition"),
    "too-many": (shell("too-many", METRIC, nodes=99, launcher="srun"), {}, State.NEVER_ADMISSIBLE,
     "Node count|More processors"),
    "no-qos": (shell("no-qos", METRIC), {"slurm": {"qos": "nosuch"}}, State.SUBMIT_REFUSED, "Invalid qos"),
}  # fmt: skip


def test_every_way_to_end(runner: Runner, work: Path, slurm: Cluster) -> None:
    platforms: dict[str, Platform] = {}  # one for all jobs with the same keys, so that one poll asks for these
    jobs: dict[str, Job] = {}
    for name, (spec, keys, _state, _reason) in ENDINGS.items():
        platform = platforms.setdefault(str(keys), cluster(work, f"cluster_{len(platforms)}", **keys))
        jobs[name] = runner.add(replace(spec, platform=platform.name), platform)
    late = jobs["time-limit"]
    pumped(runner, lambda: late.status.state is State.RUNNING, "it runs")
    slurm.ask("scontrol", "update", f"JobId={late.job_id}", "EndTime=now+1")
    finish(runner)
    for name, (_spec, _keys, expected, reason) in ENDINGS.items():
        job = jobs[name]
        assert job.status.state is expected, (name, job.status)
        assert re.search(reason, job.status.reason), (name, job.status)
        assert (job.error is None) == (expected.outcome is Outcome.PASSED)
    assert log_of(jobs["tasks"]).count("throughput: 123.4") == 2
    assert (jobs["exit3"].status.exit_code, jobs["task-exit3"].status.exit_code) == (3, 3)
    assert len(jobs["tasks"].status.nodes) == 2
    for name in ("no-partition", "no-account", "too-many", "no-qos"):
        assert "script: " in str(jobs[name].error)
        assert not (work / "jobs" / jobs[name].spec.name).exists()  # nothing is left behind
    assert left_over(slurm) == ""


def test_what_the_job_finds(runner: Runner, work: Path, slurm: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment is what its script says and not the submitter's; a secret is in no file."""
    monkeypatch.setenv("LEAKED", "from the login node")
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "7")  # of an allocation around pytest
    command = 'echo "<$LEAKED|$MINE|$HF_TOKEN|$SLURM_NTASKS|$PWD|$HPC_ML_BENCH_JOB>"'
    env = {"MINE": "a 'b' $c \"d\"", "HF_TOKEN": "s3cr3t value"}
    job = runner.add(replace(wide("env", command), env=env), cluster(work))
    finish(runner)
    folder = work / "jobs" / job.spec.name
    line = f"<|a 'b' $c \"d\"|s3cr3t value|2|{folder}/work|{job.spec.name}>\n"
    assert log_of(job) == line * 2
    hidden = [path for path in [*folder.rglob("*"), *job.folder.rglob("*")] if path.is_file()]
    assert hidden
    assert not [path for path in hidden if path.name != "log" and b"s3cr3t" in path.read_bytes()]


def test_devices_are_asked_for(runner: Runner, work: Path) -> None:
    spec = replace(wide("gpus", 'echo "$CUDA_VISIBLE_DEVICES" "$SLURM_NODEID"'), layout=Layout(2, 2, "gpu"))
    keys = {"partition": "gpu", "gres": "gpu:v100"}
    job = runner.add(replace(spec, ranks_per_device=1), cluster(work, slurm=keys))
    finish(runner)
    assert sorted(log_of(job).split("\n")) == ["", "0,1 0", "0,1 0", "0,1 1", "0,1 1"]


# --- somebody else's hand --------------------------------------------------------------------------------------------


def test_what_others_do_to_jobs(runner: Runner, work: Path, slurm: Cluster) -> None:
    """A person cancels one, an operator requeues one, one is preempted, and three lose their nodes.

    Of these, one is begun again on another node, and one where its site says, on the same.
    """
    waits = gated(work.parent / "never", "true")

    def on(name: str, command: str, where: str, retries: int = 0) -> Job:
        partition, _, node = where.partition(" ")
        keys = {"partition": partition, "directives": ([f"--nodelist={node}"] if node else [])}
        platform = cluster(work, name, slurm=keys, retries=retries)
        return runner.add(replace(shell(name, METRIC + command), platform=name), platform)

    def once(mark: str) -> str:
        return f"if [ -e {work.parent}/{mark} ]; then exit 0; fi; touch {work.parent}/{mark}; sleep 300"

    cancelled = on("cancelled", "trap 'exit 0' TERM; sleep 300 & wait", "standard cn1")
    requeued = on("requeued", waits, "standard cn1")
    lost = on("lost", waits, "standard cn2")
    same = on("same", once("same"), "standard cn3", retries=1)
    elsewhere = on("elsewhere", once("elsewhere"), "gpu", retries=1)
    low = cluster(work, "low", slurm={"qos": "low", "exclusive": True, "partition": "gpu-mi210"})
    preempted = runner.add(replace(shell("preempted", waits), platform="low"), low)
    begun(runner, work, cancelled, requeued, lost, same, elsewhere, preempted)
    until(lambda: all((work.parent / mark).exists() for mark in ("same", "elsewhere")), "they have begun")

    slurm.ask("scancel", str(cancelled.job_id))
    slurm.ask("scontrol", "update", f"JobId={requeued.job_id}", "Requeue=1", "Name=other")
    slurm.ask("scontrol", "requeue", str(requeued.job_id))
    (gone,) = elsewhere.status.nodes
    slurm.kill("slurmd@cn2")
    slurm.ask("scontrol", "update", f"NodeName=cn2,cn3,{gone}", "State=DOWN", "Reason=test")
    other = cluster(work, "high", slurm={"qos": "high", "exclusive": True, "partition": "gpu-mi210"})
    high = runner.add(replace(shell("high"), platform="high"), other)
    pumped(runner, lambda: same.done and elsewhere.done, "the nodes are lost")
    slurm.run("scontrol", "update", f"NodeName=cn3,{gone}", "State=RESUME")  # unless they are well again by themselves
    finish(runner)

    assert (cancelled.status.state, "CANCELLED by" in cancelled.status.reason) == (State.CANCELLED, True)
    with pytest.raises(MachineError, match="sacct --jobs=") as raised:
        cancelled.result()
    assert "scancel" not in str(raised.value)  # it has ended
    assert (requeued.status.state, requeued.status.state.outcome) == (State.PREEMPTED, Outcome.ERROR)
    assert slurm.ask("squeue", "-h", "-j", str(requeued.job_id), "-t", "PENDING,RUNNING", "-o", "%T") == ""
    assert (preempted.status.state, high.status.state) == (State.PREEMPTED, State.SUCCEEDED)
    assert (lost.status.state, "NODE_FAIL" in lost.status.reason) == (State.NODE_LOST, True)
    for job, node, folder in ((same, "cn3", "test_x-same.3"), (elsewhere, gone, "test_x-elsewhere.2")):
        last = runner.wait(job)
        assert last.result().warnings == (f"attempt 1 ended as node lost on {node}",)
        assert (last.status.nodes == (node,)) == (job is same)
        assert (f"#SBATCH --exclude={node}\n" in last.text) == (job is elsewhere)
        assert last.folder.name == folder


@NIGHTLY
def test_a_job_that_is_suspended_says_so(runner: Runner, work: Path, slurm: Cluster, tmp_path: Path) -> None:
    """Slurm stops and continues each process, and the clock on the wall goes on."""
    measured = f'{PYTHON} -m models node sh -c "touch {tmp_path}/begun; {gated(tmp_path / "gate", "true")}"'
    job = runner.add(shell("suspended", f"cd {Path(__file__).parents[2]}; {measured}"), cluster(work))
    pumped(runner, lambda: (tmp_path / "begun").exists(), "it is measured")
    slurm.ask("scontrol", "suspend", str(job.job_id))
    pumped(runner, lambda: "suspended" in job.status.reason, "it is suspended")
    slurm.ask("scontrol", "resume", str(job.job_id))
    (tmp_path / "gate").touch()
    finish(runner)
    assert job.status.state is State.SUCCEEDED
    assert "suspended: rank 0 on " in log_of(job)


def test_a_pending_job_is_expected_to_start_when_others_must_have_ended(
    runner: Runner, work: Path, slurm: Cluster
) -> None:
    """As the backfill scheduler has it. That is no start yet, and the command which asks is the same one."""
    whole = cluster(work, slurm={"exclusive": True, "partition": "gpu-mi210"})
    first = runner.add(shell("holds", "sleep 300"), whole)
    pumped(runner, lambda: first.status.state is State.RUNNING, "it runs")
    second = runner.add(shell("waits"), whole)
    pumped(runner, lambda: second.status.expected_s is not None, "somebody knows when it starts")
    status = second.status
    assert status.state is State.QUEUED
    assert status.started_s is None
    assert first.status.started_s is not None
    assert status.expected_s is not None
    later_s = status.expected_s - first.status.started_s - first.spec.time_limit_s
    assert 0 <= later_s <= 120  # not measured: Slurm's plan
    assert re.match(r"queued, expected to start (\S+ )?\d\d:\d\d: ", status.told(time.time()))
    slurm.ask("scancel", str(second.job_id), str(first.job_id))
    finish(runner)
    recorded = json.loads((second.folder / "run.json").read_text())
    assert recorded["started_s"] != status.expected_s
    assert not {"expected_s", "position"} & recorded.keys()


# --- outages ---------------------------------------------------------------------------------------------------------


def test_jobs_end_although_accounting_is_away_for_a_while(
    runner: Runner, work: Path, slurm: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is concluded too early or waits for ever: what controller and script say is enough in the end."""
    monkeypatch.setattr(judge, "ACCOUNT_S", 3.0)
    slurm.stop("slurmdbd")
    good, bad = (runner.add(shell(name, f"exit {code}"), cluster(work)) for name, code in (("a", 0), ("b", 3)))
    crash = runner.add(replace(shell("c"), platform="crash"), cluster(work, "crash", setup=("kill -KILL $$",)))
    finish(runner)
    assert [job.status.state for job in (good, bad, crash)] == [State.SUCCEEDED, State.EXITED, State.SIGNALLED]
    assert bad.status.exit_code == 3


@pytest.mark.parametrize(("daemon", "words"), [("slurmctld", "slurm"), ("munged", "munge|authentication")])
def test_jobs_are_unknown_while_a_daemon_is_away_and_end_without_it(
    runner: Runner, work: Path, slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon: str, words: str
) -> None:
    """In the daemon's own words. What was to be submitted meanwhile was not sent, and is tried again at once."""
    one, two = (runner.add(shell(name, gated(tmp_path / name, "exit 5")), cluster(work)) for name in ("one", "two"))
    begun(runner, work, one, two)
    slurm.stop(daemon)  # killed, the controller might not have saved yet that the jobs run
    (tmp_path / "one").touch()
    until((work / "jobs" / one.spec.name / "exit").exists, "it ends")
    with monkeypatch.context() as away:
        hasty(slurm, tmp_path, away)
        pumped(runner, lambda: one.status.state is two.status.state is State.UNKNOWN, "they are unknown")
        assert re.search(words, one.status.reason, re.IGNORECASE)
        scheduler, unsent = SlurmScheduler(cluster(work)), shell("unsent")
        with pytest.raises(AwayError, match="is not submitted"):
            submitted(scheduler, unsent, tmp_path)
        assert not (work / "jobs" / unsent.name / "claim").exists()
    slurm.start(daemon)
    assert submitted(scheduler, unsent, tmp_path).job_id.isdigit()  # and not after submission.CLAIM_S
    (tmp_path / "two").touch()
    finish(runner)
    assert [(job.status.state, job.status.exit_code) for job in (one, two)] == [(State.EXITED, 5)] * 2


def test_a_submission_without_an_answer_finds_its_job(
    work: Path, slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sbatch gives up on a controller that hangs, and the job appears later: found by its folder, and never twice."""
    scheduler = SlurmScheduler(cluster(work))
    spec = shell("once")
    slurm.pause("slurmctld")
    with monkeypatch.context() as away:
        hasty(slurm, tmp_path, away)
        with pytest.raises(AwayError, match="not known yet whether Slurm took"):
            submitted(scheduler, spec, tmp_path)
    slurm.resume("slurmctld")
    found: list[Submitted] = []

    def again() -> bool:
        with contextlib.suppress(AwayError):
            found.append(submitted(scheduler, spec, tmp_path))
        return bool(found)

    until(again, "it is found", longest_s=0.2)
    assert submitted(scheduler, spec, tmp_path).job_id == found[0].job_id
    ended(scheduler, *found)
    # of so short a job accounting may have the end before it has name and folder
    until(lambda: any(row.name == spec.name for row in slurm.jobs()), "accounting knows its name", longest_s=0.2)
    assert [row.job_id for row in slurm.jobs() if row.name == spec.name] == [found[0].job_id]


# --- whose job it is -------------------------------------------------------------------------------------------------


def test_many_submitters_at_once_make_one_job(work: Path, slurm: Cluster, tmp_path: Path) -> None:
    """What they run on the login node races; that they are threads here is nothing to it."""

    def submit(_number: int) -> str:
        scheduler = SlurmScheduler(cluster(work))
        while True:
            try:
                return submitted(scheduler, shell("race"), tmp_path).job_id
            except AwayError:
                time.sleep(0.3)

    with ThreadPoolExecutor(5) as pool:
        ids = set(pool.map(submit, range(5)))
    assert len(ids) == 1
    assert ids.pop().isdigit()


def test_the_id_of_another_job_is_not_taken_for_ours(
    work: Path, slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash Slurm gives an id again: the job that has it now is not ours, and is left alone."""
    monkeypatch.setattr(judge, "LOST_S", 1.0)
    scheduler = SlurmScheduler(cluster(work))
    other = submitted(scheduler, shell("other", "sleep 300"), tmp_path)
    ours = replace(other, name="ours-k7654321")
    assert scheduler.status([ours])[ours.job_id].state is State.UNKNOWN
    ended(scheduler, ours)
    status = scheduler.status([ours])[ours.job_id]
    assert (status.state, "neither squeue nor sacct" in status.reason) == (State.LOST, True)
    assert scheduler.cancel([ours]) == {}
    assert state(scheduler, other).live
    assert scheduler.cancel([other]) == {}


def test_a_job_that_starts_too_late_refuses(work: Path, slurm: Cluster, runner: Runner) -> None:
    """NOT_AFTER: devices that come when nobody waits any more go to somebody else."""
    job = runner.add(shell("late", METRIC), cluster(work, slurm={"directives": ("--begin=now+500",)}))
    pumped(runner, lambda: job.job_id, "it is submitted")
    (work / "jobs" / job.spec.name / "not_after").write_text("1\n")
    slurm.ask("scontrol", "update", f"JobId={job.job_id}", "StartTime=now")
    finish(runner)
    assert job.status.state is State.START_DEADLINE
    assert "throughput" not in log_of(job)


def test_cancel_is_verified(work: Path, slurm: Cluster, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "NEVER_S", 600.0)  # else the one that is held may end by itself
    jobs = [runner.add(shell(f"c{n}", "trap '' TERM; sleep 300"), cluster(work)) for n in range(3)]
    held = cluster(work, "held", slurm={"directives": ("--hold",)})
    jobs.append(runner.add(replace(shell("pending"), platform="held"), held))
    pumped(runner, lambda: jobs[0].status.state is State.RUNNING, "it runs")
    assert runner.cancel() == []
    assert [job.status.state for job in jobs] == [State.CANCELLED] * 4
    assert left_over(slurm) == ""


def test_a_poll_is_one_squeue(
    work: Path, slurm: Cluster, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many jobs; accounting is asked for all that ended since."""
    counted = tmp_path / "counted"
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("squeue", "sacct", "scontrol", "sbatch", "scancel", "sinfo"):
        (tools / name).write_text(f'#!/bin/sh\necho {name} >> {counted}\nexec {shutil.which(name)} "$@"\n')
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    for number in range(8):
        runner.add(shell(f"n{number}", "sleep 2"), cluster(work))
    began = time.monotonic()
    finish(runner)
    polls = (time.monotonic() - began) / 0.5
    count = Counter(counted.read_text().split())
    assert (count["sbatch"], count["scontrol"], count["scancel"], count["sinfo"]) == (8, 0, 0, 0)
    assert count["squeue"] <= polls + 2
    assert count["sacct"] <= count["squeue"]
    assert all(job.status.state is State.SUCCEEDED for job in runner.jobs)
    assert {job.status.nodes_energy_j for job in runner.jobs} == {None}  # no plugin counts, and sacct says 0
