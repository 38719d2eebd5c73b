"""Jobs through a real Slurm: every way to end, outages of every daemon, nothing lost, nothing twice, nothing left."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.config.schema import Platform
from platforms.job import AwayError, JobSpec, Layout, MachineError, Outcome, State, Submitted, job_name
from platforms.runner import Job, Runner
from platforms.schedulers.slurm import judge, submission
from platforms.schedulers.slurm.scheduler import SlurmScheduler
from tests.clusters.slurm import Cluster

pytestmark = pytest.mark.real_slurm
PATIENCE_S = 300.0
PYTHON = sys.executable


@pytest.fixture(autouse=True)
def client(slurm: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What every command of ours finds in its environment, as on a login node."""
    monkeypatch.setenv("SLURM_CONF", slurm.environ["SLURM_CONF"])
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


def cluster(work: Path, name: str = "cluster", **keys: object) -> Platform:
    slurm, keys = {"account": "z19", **keys.pop("slurm", {})}, {"retries": 0, **keys}
    fixed = {"scheduler": "slurm", "device": "cpu", "layouts": {"default": ("1x1",)}, "source": Path("cluster.yaml")}
    return Platform(name=name, work_dir=str(work), poll_s=0.5, max_running=50, slurm=slurm, **fixed, **keys)


def shell(name: str, command: str, nodes: int = 1, launcher: str = "none", **changes: object) -> JobSpec:
    """A job of somebody's own: `sh -c command`, in one process or, by srun, one a node."""
    layout, test = Layout(nodes, 1, "cpu"), f"test_x.py::test_x[{name}]"
    spec = JobSpec(
        job_name(name, layout, "r1", test), test, "cluster", layout, ("sh", "-c", command), launcher=launcher
    )
    return replace(spec, time_limit_s=600, start_limit_s=600, **changes)


def finish(runner: Runner) -> list[Job]:
    for job in runner.jobs:
        runner.wait(job, deadline=time.monotonic() + PATIENCE_S)
    return runner.jobs


def until(true: Callable[[], object], what: str, runner: Runner | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        if runner:
            runner.pump()
        time.sleep(0.2)


def started(runner: Runner, job: Job) -> None:
    until(lambda: job.status.state is State.RUNNING, "it runs", runner)


def begun(runner: Runner, job: Job, work: Path) -> None:
    """Also on its node: Slurm calls it running before it tells the node."""
    started(runner, job)
    until((work / "jobs" / job.spec.name / "started").is_dir, "its script has begun")


def gated(gate: Path, command: str) -> str:
    """It runs until somebody makes the file."""
    return f"until [ -e {gate} ]; do sleep 0.2; done; {command}"


def log_of(job: Job) -> str:
    return (job.folder / "log").read_text()


# --- every way to end ------------------------------------------------------------------------------------------------

HUNGRY = f"{PYTHON} -S -c 'import time; held = bytearray(1500 << 20); time.sleep(60)'"
METRIC = "echo throughput: 123.4; "  # as the peers look for it: a number in the log is no reason to pass

ENDINGS: dict[str, tuple[JobSpec, dict[str, object], State, str]] = {
    "good": (shell("good", METRIC + "exit 0"), {}, State.SUCCEEDED, ""),
    "exit3": (shell("exit3", METRIC + "exit 3"), {}, State.EXITED, ""),
    "no-command": (shell("no-command", "nosuchcommand"), {}, State.NOT_STARTABLE, ""),
    "crash": (shell("crash", METRIC + "kill -SEGV $$"), {}, State.SIGNALLED, ""),
    "tasks": (shell("tasks", METRIC, 2, "srun"), {}, State.SUCCEEDED, ""),
    "task-exit3": (
        shell("task-exit3", "[ $SLURM_PROCID = 0 ] && exit 3; sleep 300", 2, "srun"),
        {},
        State.EXITED,
        r"task 0: Exited with exit code 3",
    ),
    "task-crash": (
        shell("task-crash", "[ $SLURM_PROCID = 1 ] && kill -SEGV $$; sleep 300", 2, "srun"),
        {},
        State.SIGNALLED,
        "task 1: Segmentation fault",
    ),
    "task-no-command": (
        replace(shell("task-no-command", "", 2, "srun"), arguments=("nosuchcommand",)),
        {},
        State.NOT_STARTABLE,
        "Exited with exit code 127",
    ),
    "memory": (shell("memory", METRIC + HUNGRY), {"slurm": {"mem": "300M"}}, State.OUT_OF_MEMORY, "exceeded|Exceeded"),
    "task-memory": (
        shell("task-memory", METRIC + HUNGRY, 2, "srun"),
        {"slurm": {"mem": "300M"}},
        State.OUT_OF_MEMORY,
        "exceeded|Exceeded",
    ),
    "memory-survived": (
        shell("memory-survived", METRIC + "exit 0"),
        {"slurm": {"mem": "300M"}, "setup": (f"srun --ntasks=1 {HUNGRY} || true",)},
        State.OUT_OF_MEMORY,
        "exceeded|Exceeded",
    ),
    "step-failed": (
        shell("step-failed", METRIC + "exit 0"),
        {"setup": ("srun --ntasks=1 sh -c 'exit 4'",)},
        State.EXITED,
        "exit code 4",
    ),
    "held": (shell("held", METRIC), {"slurm": {"directives": ("--hold",)}}, State.NEVER_ADMISSIBLE, "JobHeldUser"),
    "never": (
        replace(shell("never", METRIC), time_limit_s=7200),
        {"slurm": {"qos": "short"}},
        State.NEVER_ADMISSIBLE,
        "QOSMaxWallDurationPerJobLimit",
    ),
    "module": (shell("module", METRIC), {"modules": ("nosuch/1.0",)}, State.REQUEST_REFUSED, ""),
    "setup": (shell("setup", METRIC), {"setup": ("exit 9",)}, State.EXITED, ""),
    "setup-ends": (shell("setup-ends", METRIC), {"setup": ("exit 0",)}, State.EXITED, ""),
    "script-crash": (shell("script-crash", METRIC), {"setup": ("kill -SEGV $$",)}, State.SIGNALLED, ""),
    "script-killed": (shell("script-killed", METRIC), {"setup": ("kill -KILL $$",)}, State.SIGNALLED, ""),
    "no-partition": (
        shell("no-partition", METRIC),
        {"slurm": {"partition": "nosuch"}},
        State.SUBMIT_REFUSED,
        "invalid partition specified: nosuch",
    ),
    "no-account": (
        shell("no-account", METRIC),
        {"slurm": {"account": "nosuch"}},
        State.SUBMIT_REFUSED,
        "Invalid account or account/partition",
    ),
    "too-many": (shell("too-many", METRIC, 99, "srun"), {}, State.NEVER_ADMISSIBLE, "Node count|More processors"),
    "no-qos": (shell("no-qos", METRIC), {"slurm": {"qos": "nosuch"}}, State.SUBMIT_REFUSED, "Invalid qos"),
}
# Slurm looks at time limits every 30 s and knows nothing below a minute: it ends last, beside the others.
ENDINGS["time-limit"] = (
    replace(shell("time-limit", METRIC + "trap '' TERM; sleep 400"), time_limit_s=60),
    {},
    State.TIME_LIMIT,
    "Slurm says TIMEOUT",
)


def test_every_way_to_end(runner: Runner, work: Path, slurm: Cluster) -> None:
    jobs = {}
    for name, (spec, keys, _state, _reason) in ENDINGS.items():
        platform = cluster(work, f"cluster_{name.replace('-', '_')}", **keys)
        jobs[name] = runner.add(replace(spec, platform=platform.name), platform)
    finish(runner)
    for name, (_spec, _keys, state, reason) in ENDINGS.items():
        job = jobs[name]
        assert (name, job.status.state, job.status.reason) == (name, state, job.status.reason)
        assert re.search(reason, job.status.reason), (name, job.status)
        assert (job.error is None) == (state.outcome is Outcome.PASSED)
    assert log_of(jobs["tasks"]).count("throughput: 123.4") == 2
    assert (jobs["exit3"].status.exit_code, jobs["task-exit3"].status.exit_code) == (3, 3)
    assert len(jobs["tasks"].status.nodes) == 2
    for name in ("no-partition", "no-account", "too-many", "no-qos"):
        assert "script: " in str(jobs[name].error)
        assert not (work / "jobs" / jobs[name].spec.name).exists()  # nothing is left behind
    assert slurm.ask("squeue", "-h", "-t", "PENDING,RUNNING,COMPLETING", "-o", "%i %j") == ""


def test_what_the_job_finds(runner: Runner, work: Path, slurm: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment is what its script says and not the submitter's; a secret is in no file."""
    monkeypatch.setenv("LEAKED", "from the login node")
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "7")  # of an allocation around pytest
    command = 'echo "<$LEAKED|$MINE|$HF_TOKEN|$SLURM_NTASKS|$PWD|$HPC_ML_BENCH_JOB>"'
    env = {"MINE": "a 'b' $c \"d\"", "HF_TOKEN": "s3cr3t value"}
    job = runner.add(shell("env", command, 2, "srun", env=env), cluster(work))
    finish(runner)
    folder = work / "jobs" / job.spec.name
    line = f"<|a 'b' $c \"d\"|s3cr3t value|2|{folder}/work|{job.spec.name}>\n"
    assert log_of(job) == line * 2
    hidden = [path for path in [*folder.rglob("*"), *job.folder.rglob("*")] if path.is_file()]
    assert hidden
    assert not [path for path in hidden if path.name != "log" and b"s3cr3t" in path.read_bytes()]


def test_devices_are_asked_for(runner: Runner, work: Path) -> None:
    spec = replace(shell("gpus", 'echo "$CUDA_VISIBLE_DEVICES" "$SLURM_NODEID"', 2, "srun"), layout=Layout(2, 2, "gpu"))
    keys = {"partition": "gpu", "gres": "gpu:v100"}
    job = runner.add(replace(spec, ranks_per_device=1), cluster(work, slurm=keys))
    finish(runner)
    assert sorted(log_of(job).split("\n")) == ["", "0,1 0", "0,1 0", "0,1 1", "0,1 1"]


# --- somebody else's hand --------------------------------------------------------------------------------------------


def test_a_job_that_a_person_cancels_is_cancelled(runner: Runner, work: Path, slurm: Cluster) -> None:
    job = runner.add(shell("cancelled", METRIC + "trap 'exit 0' TERM; sleep 300 & wait"), cluster(work))
    started(runner, job)
    slurm.ask("scancel", str(job.job_id))
    finish(runner)
    assert job.status.state is State.CANCELLED
    assert "CANCELLED by" in job.status.reason
    with pytest.raises(MachineError, match="sacct --jobs=") as raised:
        job.result()
    assert "scancel" not in str(raised.value)  # it has ended


def test_a_job_that_an_operator_requeues_is_preempted(runner: Runner, work: Path, slurm: Cluster) -> None:
    job = runner.add(shell("requeued", METRIC + "sleep 300"), cluster(work))
    begun(runner, job, work)
    slurm.ask("scontrol", "update", f"JobId={job.job_id}", "Requeue=1")
    slurm.ask("scontrol", "requeue", str(job.job_id))
    finish(runner)
    assert job.status.state is State.PREEMPTED
    assert job.status.state.outcome is Outcome.ERROR
    assert slurm.ask("squeue", "-h", "-j", str(job.job_id), "-t", "PENDING,RUNNING", "-o", "%T") == ""


def test_a_preempted_job_is_preempted(runner: Runner, work: Path, slurm: Cluster) -> None:
    low = cluster(work, slurm={"qos": "low", "exclusive": True})
    job = runner.add(shell("low", METRIC + "sleep 300", 3, "srun"), low)
    started(runner, job)
    other = cluster(work, "other", slurm={"qos": "high", "exclusive": True})
    high = runner.add(replace(shell("high", "true", 3, "srun"), platform="other"), other)
    finish(runner)
    assert (job.status.state, high.status.state) == (State.PREEMPTED, State.SUCCEEDED)


def test_a_pending_job_is_expected_to_start_when_others_must_have_ended(
    runner: Runner, work: Path, slurm: Cluster
) -> None:
    """As the backfill scheduler has it. That is no start yet, and the command which asks is the same one."""
    all_nodes = cluster(work, slurm={"exclusive": True})
    first = runner.add(shell("holds", "sleep 300", 3, "srun"), all_nodes)
    started(runner, first)
    second = runner.add(shell("waits", "true", 3, "srun"), all_nodes)
    until(lambda: second.status.expected_s is not None, "somebody knows when it starts", runner)
    status = second.status
    assert status.state is State.QUEUED
    assert status.started_s is None
    assert first.status.started_s is not None
    assert status.expected_s is not None
    assert 0 <= status.expected_s - first.status.started_s - first.spec.time_limit_s <= 120
    assert re.match(r"queued, expected to start (\S+ )?\d\d:\d\d: ", status.told(time.time()))
    for job in (second, first):
        slurm.ask("scancel", str(job.job_id))
    finish(runner)
    recorded = json.loads((second.folder / "run.json").read_text())
    assert recorded["started_s"] != status.expected_s
    assert not {"expected_s", "position"} & recorded.keys()


@pytest.mark.parametrize("how", ["dies", "is taken down"])
def test_a_job_whose_node_dies_is_node_lost(runner: Runner, work: Path, slurm: Cluster, how: str) -> None:
    job = runner.add(shell("lost", METRIC + "sleep 60"), cluster(work))
    started(runner, job)
    (node,) = job.status.nodes
    if how == "dies":
        slurm.kill(f"slurmd@{node}")
    slurm.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    finish(runner)
    assert job.status.state is State.NODE_LOST
    assert "NODE_FAIL" in job.status.reason


@pytest.mark.parametrize("others", ["there are others", "there are none"])
def test_a_job_begins_again_after_its_node_was_lost(runner: Runner, work: Path, slurm: Cluster, others: str) -> None:
    """On another node; where its partition has none, or the site says which, on the same."""
    first = work.parent / "first"
    script = f"if [ -e {first} ]; then exit 0; fi; touch {first}; sleep 300"
    only = {"directives": ["--nodelist=cn2"]} if others == "there are none" else {}
    job = runner.add(shell("again", script), cluster(work, retries=1, slurm=only))
    started(runner, job)
    until(first.exists, "it has begun", runner)
    (node,) = job.status.nodes
    slurm.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    until(lambda: job.done, "its end", runner)
    slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")  # unless it is well again by itself

    last = runner.wait(job, deadline=time.monotonic() + PATIENCE_S)

    assert last.result().warnings == (f"attempt 1 ended as node lost on {node}",)
    assert (f"#SBATCH --exclude={node}\n" in last.text) == (not only)
    assert (last.status.nodes == (node,)) == bool(only)
    assert last.folder.name == ("test_x-again.3" if only else "test_x-again.2")


# --- outages ---------------------------------------------------------------------------------------------------------


def test_a_job_ends_although_accounting_is_away_for_a_while(
    runner: Runner, work: Path, slurm: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is concluded too early or waits for ever: what controller and script say is enough in the end."""
    monkeypatch.setattr(judge, "ACCOUNT_S", 3.0)
    slurm.stop("slurmdbd")
    good, bad = (runner.add(shell(name, f"sleep 1; exit {code}"), cluster(work)) for name, code in (("a", 0), ("b", 3)))
    crash = runner.add(shell("c", "true"), cluster(work, "crash", setup=("kill -KILL $$",)))
    finish(runner)
    assert [job.status.state for job in (good, bad, crash)] == [State.SUCCEEDED, State.EXITED, State.SIGNALLED]
    assert bad.status.exit_code == 3


def test_jobs_are_followed_across_a_restart_of_the_controller(
    runner: Runner, work: Path, slurm: Cluster, tmp_path: Path
) -> None:
    job = runner.add(shell("through", gated(tmp_path / "gate", "exit 5")), cluster(work))
    begun(runner, job, work)
    slurm.stop("slurmctld")
    slurm.start("slurmctld")
    (tmp_path / "gate").touch()
    finish(runner)
    assert (job.status.state, job.status.exit_code) == (State.EXITED, 5)


def test_jobs_are_unknown_while_the_controller_is_away(
    runner: Runner, work: Path, slurm: Cluster, tmp_path: Path
) -> None:
    """Its jobs are unknown meanwhile, in Slurm's own words, and go on, and end, without it."""
    job = runner.add(shell("waits", gated(tmp_path / "gate", "true")), cluster(work))
    begun(runner, job, work)
    slurm.stop("slurmctld")  # killed, it might not have saved yet that the job runs
    (tmp_path / "gate").touch()
    until((work / "jobs" / job.spec.name / "exit").exists, "it ends")
    until(lambda: job.status.state is State.UNKNOWN, "it is unknown", runner)
    assert "slurm" in job.status.reason.lower()
    slurm.start("slurmctld")
    finish(runner)
    assert job.status.state is State.SUCCEEDED


def test_jobs_are_unknown_while_munge_is_away(runner: Runner, work: Path, slurm: Cluster, tmp_path: Path) -> None:
    """Nobody can say who he is: unknown, in munge's own words, and nothing is concluded."""
    job = runner.add(shell("through-munge", gated(tmp_path / "gate", "true")), cluster(work))
    begun(runner, job, work)
    slurm.stop("munged")
    until(lambda: job.status.state is State.UNKNOWN, "it is unknown", runner)
    assert re.search("munge|authentication", job.status.reason, re.IGNORECASE)
    slurm.start("munged")
    (tmp_path / "gate").touch()
    finish(runner)
    assert job.status.state is State.SUCCEEDED


def test_a_submission_without_an_answer_finds_its_job(
    work: Path, slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sbatch gives up on a controller that hangs, and the job appears when it wakes: found by its name, never twice."""
    scheduler = SlurmScheduler(cluster(work))
    spec = shell("once", "sleep 1")
    text = scheduler.render(spec)
    slurm.pause("slurmctld")
    with pytest.raises(AwayError, match="not known yet whether Slurm took"):
        scheduler.submit(spec, text, tmp_path)
    slurm.resume("slurmctld")
    found: list[str] = []

    def again() -> bool:
        try:
            found.append(scheduler.submit(spec, text, tmp_path))
        except AwayError:
            return False
        return True

    until(again, "it is found")
    assert scheduler.submit(spec, text, tmp_path) == found[0]
    until(lambda: not scheduler.status([Submitted(found[0], spec.name, time.time())])[found[0]].state.live, "it ends")
    assert [row.job_id for row in slurm.jobs() if row.name == spec.name] == found


@pytest.mark.parametrize("daemon", ["munged", "slurmctld"])
def test_a_submission_that_was_not_sent_is_tried_again_at_once(
    work: Path, slurm: Cluster, tmp_path: Path, daemon: str
) -> None:
    scheduler = SlurmScheduler(cluster(work))
    spec = shell("unsent", "true")
    text = scheduler.render(spec)
    slurm.stop(daemon)
    with pytest.raises(AwayError, match="is not submitted"):
        scheduler.submit(spec, text, tmp_path)
    assert not (work / "jobs" / spec.name / "claim").exists()
    slurm.start(daemon)
    assert scheduler.submit(spec, text, tmp_path).isdigit()  # and not after submission.CLAIM_S


def test_a_job_waits_while_the_users_own_queue_is_full(
    work: Path, slurm: Cluster, runner: Runner, tmp_path: Path
) -> None:
    """QOSMaxSubmitJobPerUserLimit: a place becomes free when a job ends."""
    slurm.ask("sacctmgr", "-i", "modify", "qos", "short", "set", "MaxSubmitJobsPerUser=1")
    try:
        platform = cluster(work, slurm={"qos": "short"})
        first = runner.add(shell("first", gated(tmp_path / "gate", "true")), platform)
        second = runner.add(shell("second", "true"), platform)
        started(runner, first)
        until(lambda: "takes no more jobs for now" in second.status.reason, "it waits for a place", runner)
        assert (second.status.state, second.job_id) == (State.QUEUED, None)
        assert "QOSMaxSubmitJobPerUserLimit" in second.status.reason
        (tmp_path / "gate").touch()
        finish(runner)
        assert [job.status.state for job in (first, second)] == [State.SUCCEEDED] * 2
    finally:
        slurm.ask("sacctmgr", "-i", "modify", "qos", "short", "set", "MaxSubmitJobsPerUser=-1")


def test_a_submission_that_never_arrived_is_repeated(
    work: Path, slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submitter that was killed before sbatch: the next takes its claim over, when Slurm twice knows of no job."""
    monkeypatch.setattr(submission, "CLAIM_S", 1)
    monkeypatch.setattr(submission, "TWICE_S", 1)
    spec = shell("claimed", "true")
    claim = work / "jobs" / spec.name / "claim"
    claim.mkdir(parents=True)
    (claim / "since").write_text(f"{int(time.time()) - 5}\n")
    scheduler = SlurmScheduler(cluster(work))
    text = scheduler.render(spec)
    with pytest.raises(AwayError):  # the first no
        scheduler.submit(spec, text, tmp_path)
    time.sleep(1.2)
    job_id = scheduler.submit(spec, text, tmp_path)
    assert [row.job_id for row in slurm.jobs() if row.name == spec.name] in ([job_id], [])  # accounting may lag


def test_many_submitters_at_once_make_one_job(work: Path, slurm: Cluster, tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; sys.path.insert(0, '.')\n"
        "from tests.platforms.test_slurm_real import *\n"
        "scheduler, spec = SlurmScheduler(cluster(Path(sys.argv[1]))), shell('race', 'true')\n"
        "while True:\n"
        "    try: print(scheduler.submit(spec, scheduler.render(spec), Path(sys.argv[1]))); break\n"
        "    except AwayError: time.sleep(0.3)\n"
    )
    racers = [
        subprocess.Popen([PYTHON, "-c", code, str(work)], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        for _ in range(5)
    ]
    ids = {racer.communicate(timeout=PATIENCE_S)[0].strip() for racer in racers}
    assert len(ids) == 1
    assert ids.pop().isdigit()


def test_the_id_of_another_job_is_not_taken_for_ours(work: Path, slurm: Cluster, tmp_path: Path) -> None:
    """After a crash Slurm gives an id again: the job that has it now is not ours, and is left alone."""
    scheduler = SlurmScheduler(cluster(work))
    other = shell("other", "sleep 30")
    job_id = scheduler.submit(other, scheduler.render(other), tmp_path)
    ours = Submitted(job_id, "ours-k7654321", time.time())
    assert scheduler.status([ours])[job_id].state is State.UNKNOWN
    until(lambda: scheduler.status([ours])[job_id].state is State.LOST, "it is lost")
    assert "neither squeue nor sacct" in scheduler.status([ours])[job_id].reason
    assert scheduler.cancel([Submitted(job_id, other.name, time.time())]) == {}


def test_a_job_that_starts_too_late_refuses(work: Path, slurm: Cluster, runner: Runner) -> None:
    """NOT_AFTER: devices that come when nobody waits any more go to somebody else."""
    job = runner.add(shell("late", METRIC), cluster(work, slurm={"directives": ("--begin=now+500",)}))
    runner.pump()
    until(lambda: job.job_id, "it is submitted", runner)
    (work / "jobs" / job.spec.name / "not_after").write_text("1\n")
    slurm.ask("scontrol", "update", f"JobId={job.job_id}", "StartTime=now")
    finish(runner)
    assert job.status.state is State.START_DEADLINE
    assert "throughput" not in log_of(job)


def test_another_session_finds_the_job(work: Path, slurm: Cluster, tmp_path: Path) -> None:
    first = Runner(tmp_path / "runs", "r1")
    job = first.add(shell("found", f"echo before; {gated(tmp_path / 'gate', 'echo after')}"), cluster(work))
    started(first, job)
    second = Runner(tmp_path / "runs", "r1")
    again = second.add(job.spec, cluster(work))
    second.pump()
    (tmp_path / "gate").touch()
    finish(second)
    assert (again.job_id, again.status.state) == (job.job_id, State.SUCCEEDED)
    assert log_of(again) == "before\nafter\n"


def test_cancel_is_verified(work: Path, slurm: Cluster, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "NEVER_S", 600.0)  # else the one that is held may end by itself
    jobs = [runner.add(shell(f"c{n}", "trap '' TERM; sleep 300"), cluster(work)) for n in range(3)]
    jobs.append(runner.add(shell("pending", "true"), cluster(work, "held", slurm={"directives": ("--hold",)})))
    started(runner, jobs[0])
    assert runner.cancel() == []
    assert [job.status.state for job in jobs] == [State.CANCELLED] * 4
    assert slurm.ask("squeue", "-h", "-t", "PENDING,RUNNING,COMPLETING", "-o", "%i %j") == ""


def test_a_poll_is_one_squeue(
    work: Path, slurm: Cluster, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many jobs; accounting is asked for all that ended since."""
    counted = tmp_path / "counted"
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("squeue", "sacct", "scontrol", "sbatch", "scancel", "sinfo"):
        real = subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()
        (tools / name).write_text(f'#!/bin/sh\necho {name} >> {counted}\nexec {real} "$@"\n')
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    for number in range(12):
        runner.add(shell(f"n{number}", "sleep 2"), cluster(work))
    began = time.monotonic()
    finish(runner)
    polls = (time.monotonic() - began) / 0.5
    count = Counter(counted.read_text().split())
    assert (count["sbatch"], count["scontrol"], count["scancel"], count["sinfo"]) == (12, 0, 0, 0)
    assert count["squeue"] <= polls + 2
    assert count["sacct"] <= count["squeue"]
    assert all(job.status.state is State.SUCCEEDED for job in runner.jobs)


def test_a_machine_without_slurm_is_reported(work: Path, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/bin-of-nobody:/bin" if not Path("/bin/sbatch").exists() else str(work.parent / "bin"))
    tools = work.parent / "bin"
    tools.mkdir()
    for name in ("sh", "env", "sed", "date", "mkdir", "cat", "rm", "timeout", "mv", "printf"):
        real = next(Path(folder, name) for folder in ("/usr/bin", "/bin") if Path(folder, name).exists())
        (tools / name).symlink_to(real)
    monkeypatch.setenv("PATH", str(tools))
    job = runner.add(shell("nowhere", "true"), cluster(work))
    finish(runner)
    assert job.status.state is State.SUBMIT_REFUSED
    assert "there is no sbatch" in str(job.error)
    assert not (work / "jobs" / job.spec.name).exists()
