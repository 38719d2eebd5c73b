"""What a real Slurm answers, whatever the environment hides, the controller has forgotten, or Slurm denies."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.job import AwayError, Layout, State
from platforms.schedulers import connect
from platforms.schedulers.slurm import judge, queries, submission
from platforms.schedulers.slurm import scheduler as scheduler_module
from platforms.schedulers.slurm.scheduler import SlurmScheduler
from platforms.schedulers.work_dir import WorkDir
from tests.clusters.slurm import Cluster
from tests.clusters.slurm_slots import slot
from tests.platforms.slurm_jobs import cluster, ended, gated, hasty, runs, shell, state, submitted
from tests.waiting import until

pytestmark = pytest.mark.real_slurm
NIGHTLY = pytest.mark.nightly("platforms/schedulers/slurm", "slurm_templates", "tests/clusters")

# Of somebody who looks at other jobs than ours; each hides ours from Slurm's commands, or changes what they print.
HOSTILE = (
    "SQUEUE_USERS=nobody", "SQUEUE_PARTITION=gpu", "SQUEUE_NAMES=mine", "SQUEUE_ACCOUNT=other", "SQUEUE_QOS=high",
    "SQUEUE_LICENSES=matlab", "SQUEUE_STATES=PENDING", "SQUEUE_FORMAT=%i", "SQUEUE_FORMAT2=jobid", "SQUEUE_SORT=-i",
    "SLURM_CLUSTERS=elsewhere", "SLURM_TIME_FORMAT=relative", "SLURM_BITSTR_LEN=1", "SACCT_FORMAT=JobID",
    "SACCT_FEDERATION=1", "SCONTROL_FUTURE=1",
)  # fmt: skip
# What would keep scancel from our jobs. (SCANCEL_INTERACTIVE=true asks for ever.)
SPARING = tuple(
    f"SCANCEL_{each}" for each in ("STATE=PENDING", "NAME=mine", "USER=nobody", "PARTITION=gpu", "QOS=high")
)


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "LOST_S", 3.0)


@contextlib.contextmanager
def another(**settings: object) -> Iterator[Cluster]:
    """A cluster beside the session's."""
    with slot() as (folder, port):
        there = Cluster(folder, port, **settings)  # type: ignore[arg-type]
        try:
            there.up()
            yield there
        finally:
            there.down()


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """One whose controller may forget everything, which forgets jobs soon after their end."""
    with another(settings={"MinJobAge": "2"}) as there:
        yield there


@pytest.fixture(scope="module")
def bare_cluster() -> Iterator[Cluster]:
    """One without accounting."""
    with another(accounting=False) as there:
        yield there


def enter(there: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    there.heal()
    for name in os.environ:
        if name.startswith(("SLURM", "SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_")):
            monkeypatch.delenv(name)
    for name, value in there.environ.items():
        monkeypatch.setenv(name, value)
    return there


@pytest.fixture
def own(own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return enter(own_cluster, monkeypatch)


@pytest.fixture
def bare(bare_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return enter(bare_cluster, monkeypatch)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "a folder's work%j"


def wrapped(monkeypatch: pytest.MonkeyPatch, tools: Path, name: str, body: str) -> None:
    """A command of Slurm's, first on PATH; `$real` is the true one."""
    real = shutil.which(name)
    tools.mkdir(exist_ok=True)
    (tools / name).write_text(f"#!/bin/sh\nreal={real}\n{body}\n")
    (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")


# --- the environment -------------------------------------------------------------------------------------------------


def test_jobs_are_seen_although_the_environment_filters_squeue(
    slurm: Cluster, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = SlurmScheduler(cluster(work))
    job = submitted(scheduler, shell("seen", "sleep 500"), tmp_path)
    runs(scheduler, job)
    plain = scheduler.status([job])[job.job_id]
    assert plain.submitted_s is not None
    for variable in HOSTILE:
        name, _, value = variable.partition("=")
        with monkeypatch.context() as person:
            person.setenv(name, value)
            assert (variable, scheduler.status([job])[job.job_id]) == (variable, plain)
    for variable in HOSTILE:
        monkeypatch.setenv(*variable.split("=", 1))
    assert scheduler.cancel([job]) == {}
    ended(scheduler, job)
    last = scheduler.status([job])[job.job_id]
    assert (last.state, last.submitted_s, last.started_s) == (State.CANCELLED, plain.submitted_s, plain.started_s)


def test_jobs_are_cancelled_although_the_environment_filters_scancel(
    slurm: Cluster, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = SlurmScheduler(cluster(work))
    jobs = {variable: submitted(scheduler, shell(variable, "sleep 300"), tmp_path) for variable in SPARING}
    runs(scheduler, *jobs.values())
    for variable, job in jobs.items():
        with monkeypatch.context() as person:
            person.setenv(*variable.split("=", 1))
            assert (variable, scheduler.cancel([job])) == (variable, {})


@pytest.mark.parametrize("variable", ["SQUEUE_USERS=nobody", pytest.param("SQUEUE_PARTITION=gpu", marks=NIGHTLY)])
def test_a_job_that_the_environment_hides_is_not_submitted_twice(
    bare: Cluster, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """A submitter was killed between sbatch and writing the id down, and squeue is all there is to ask.

    Since then somebody has renamed the job.
    """
    monkeypatch.setattr(submission, "CLAIM_S", 1)
    monkeypatch.setattr(submission, "TWICE_S", 1)
    scheduler = SlurmScheduler(cluster(work, slurm={"directives": ("--hold",)}))
    spec = shell(f"once {variable}", "sleep 60")
    first = submitted(scheduler, spec, tmp_path)
    (work / "jobs" / spec.name / "id").unlink()
    bare.ask("scontrol", "update", f"JobId={first.job_id}", "Name=other")
    monkeypatch.setenv(*variable.split("=", 1))
    found: list[str] = []

    def again() -> bool:
        with contextlib.suppress(AwayError):
            found.append(submitted(scheduler, spec, tmp_path).job_id)
        return bool(found)

    until(again, "it is found", longest_s=0.2)
    monkeypatch.delenv(variable.partition("=")[0])
    assert found == [first.job_id]
    assert bare.ask("squeue", "-h", "-o", "%i") == first.job_id


def test_who_pays_may_stand_in_the_environment_and_nothing_else(
    bare: Cluster, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = ("ACCOUNT=one", "PARTITION=gpu", "QOS=high", "TIMELIMIT=1", "EXCLUSIVE=user", "JOB_NAME=x", "HINT=x")
    for variable in variables:
        monkeypatch.setenv(*f"SBATCH_{variable}".split("=", 1))
    for keys, pays in (({}, "one"), ({"account": "two"}, "two"), ({"directives": ("-Athree",)}, "three")):
        scheduler = SlurmScheduler(cluster(work, slurm={"account": None, **keys}))
        spec = shell(f"paid by {pays}", "sleep 300")
        assert scheduler.check(spec, scheduler.render(spec)) == ()
        job = submitted(scheduler, spec, tmp_path)
        assert bare.ask("squeue", "-h", "-j", job.job_id, "-o", "%a|%P|%l|%j") == f"{pays}|standard|10:00|{spec.name}"


# --- what others change ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("account", ["there is one", "there is none"])
def test_jobs_that_others_rename_and_move_are_followed_to_their_ends(
    account: str, request: pytest.FixtureRequest, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While they wait and while they run, for longer than we would wait for a job that Slurm does not know."""
    where: Cluster = request.getfixturevalue({"there is one": "own", "there is none": "bare"}[account])
    monkeypatch.setattr(judge, "LOST_S", 1.0)
    there = cluster(work)
    scheduler, held = SlurmScheduler(there), SlurmScheduler(cluster(work, slurm={"directives": ("--hold",)}))
    waits = submitted(held, shell("waits", gated(tmp_path / "gate", "exit 3")), tmp_path)
    killed, cancelled, ended_well = (
        submitted(scheduler, shell(name, gated(tmp_path / "gate", command)), tmp_path)
        for name, command in (("killed", "kill -9 $PPID"), ("cancelled", "true"), ("well", "exit 0"))
    )
    jobs = (waits, killed, cancelled, ended_well)
    runs(scheduler, killed, cancelled, ended_well)
    for job in jobs:
        where.ask("scontrol", "update", f"JobId={job.job_id}", "Name=other | name\nof two lines")
    where.ask("scontrol", "update", f"JobId={waits.job_id}", "Partition=gpu", f"WorkDir={tmp_path}")
    with WorkDir(there, queries.LIVE_JOBS) as work_dir:
        assert {found.name: found.stays for found in work_dir.find()} == {
            job.name: f"the job is {'PENDING' if job is waits else 'RUNNING'}" for job in jobs
        }
    where.ask("scontrol", "release", waits.job_id)
    runs(scheduler, *jobs)
    until_s = time.monotonic() + judge.LOST_S + 1
    while time.monotonic() < until_s:
        assert {each.state for each in scheduler.status(jobs).values()} == {State.RUNNING}
        time.sleep(0.3)
    assert scheduler.cancel([cancelled]) == {}
    (tmp_path / "gate").touch()
    ended(scheduler, *jobs)
    statuses = scheduler.status(jobs)
    assert [(statuses[job.job_id].state, statuses[job.job_id].exit_code) for job in jobs] == [
        (State.EXITED, 3),
        (State.SIGNALLED, 137),
        (State.CANCELLED, None),
        (State.SUCCEEDED, 0),
    ]
    assert statuses[waits.job_id].nodes[0].startswith("v100n")


# --- what nobody knows -----------------------------------------------------------------------------------------------


@NIGHTLY
def test_a_job_that_the_controller_has_purged_waits_for_accounting(
    own: Cluster, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that was killed outright, so that its script says nothing, while the accounting is away."""
    scheduler = SlurmScheduler(cluster(work, setup=("kill -KILL $$",)))
    spec = shell("purged", "true")
    own.stop("slurmdbd")
    job = submitted(scheduler, spec, tmp_path)
    until(lambda: "Invalid job id" in own.run("squeue", "-h", "-t", "all", "-j", job.job_id).stderr, "it is purged")
    until_s = time.monotonic() + judge.LOST_S + 2
    while time.monotonic() < until_s:
        seen = scheduler.status([job])[job.job_id]
        assert (seen.state, "sacct does not answer" in seen.reason) == (State.UNKNOWN, True), seen
        time.sleep(0.5)
    monkeypatch.setattr(judge, "LOST_S", 90.0)  # the controller takes its time to find the accounting again
    own.start("slurmdbd")
    ended(scheduler, job)
    assert state(scheduler, job) is State.SIGNALLED


# --- how steps ended, where accounting does not say it ---------------------------------------------------------------

HUNGRY = f"{sys.executable} -S -c 'import time; held = bytearray(1500 << 20); time.sleep(60)'"
CHATTER = "seq 30000"  # more than the end of a log that anybody would read for Slurm's words
OTHERS = (
    "srun: error: other7: task 0: Exited with exit code 3\\n"
    "slurmstepd: error: Detected 1 oom-kill event in StepId=99999.0\\n"
)

STEPS: dict[str, tuple[str, State, int | None, str]] = {
    "a rank fails": (
        f"srun -n2 --overcommit sh -c 'exit $SLURM_PROCID'; {CHATTER}",
        State.EXITED,
        1,
        "task 1: Exited with exit code 1",
    ),
    "a rank is killed": (f"srun sh -c 'kill -9 $$'; {CHATTER}", State.SIGNALLED, 137, "task 0: Killed"),
    "a rank takes too much memory": (f"srun {HUNGRY}; {CHATTER}", State.OUT_OF_MEMORY, 0, "[Ee]xceeded"),
    "in a line that a program has begun": ("printf 50%%; srun sh -c 'exit 4'", State.EXITED, 4, "^srun: error: cn"),
    "the step is refused": (f"srun -n9 true; {CHATTER}", State.NOT_STARTABLE, 0, "Unable to create step"),
    "the step is too wide": (f"srun -N3 -n3 true; {CHATTER}", State.NOT_STARTABLE, 0, "Only allocated 1 nodes"),
    "all is well": (f"srun -n2 --overcommit true; {CHATTER}", State.SUCCEEDED, 0, ""),
    "a program prints others' words": (f"srun true; printf '{OTHERS}'", State.SUCCEEDED, 0, ""),
}


@pytest.mark.parametrize("account", ["there is none", pytest.param("it is dead", marks=NIGHTLY)])
def test_without_accounting_the_log_tells_how_steps_ended(
    account: str, request: pytest.FixtureRequest, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their script goes on and ends well. Slurm's own words in the log decide; what is not known is said."""
    monkeypatch.setattr(judge, "ACCOUNT_S", 3.0)
    where: Cluster = request.getfixturevalue({"there is none": "bare", "it is dead": "own"}[account])
    scheduler = SlurmScheduler(cluster(work, slurm={"mem": "300M"}))
    if account == "it is dead":
        where.kill("slurmdbd")
    jobs = {
        name: submitted(scheduler, shell(name, f"{command}; exit 0"), tmp_path) for name, (command, *_) in STEPS.items()
    }

    ended(scheduler, *jobs.values())
    statuses = scheduler.status(list(jobs.values()))
    for name, (_, state_, code, reason) in STEPS.items():
        status = statuses[jobs[name].job_id]
        assert (name, status.state, status.exit_code) == (name, state_, code), status
        if state_ is State.SUCCEEDED:
            (warning,) = status.warnings
            assert warning.startswith("steps not known: nothing says how the steps of the job ended, since "), warning
        else:
            assert re.search(reason, status.reason), status
            assert status.warnings == ()


def test_after_a_launch_by_srun_its_exit_code_and_words_tell_how_steps_ended(
    bare: Cluster, work: Path, tmp_path: Path
) -> None:
    """The exit code is that of the rank that failed, and not of those that srun ended."""
    scheduler = SlurmScheduler(cluster(work))
    fails = "test $SLURM_PROCID = 2 && sleep 1 && exit 5; sleep 300"
    good = submitted(scheduler, shell("known", launcher="srun"), tmp_path)
    of_four = replace(shell("one of four", fails, launcher="srun"), layout=Layout(2, 2, "cpu"))
    bad = submitted(scheduler, of_four, tmp_path)
    ended(scheduler, good, bad)
    statuses = scheduler.status([good, bad])
    assert (statuses[good.job_id].state, statuses[good.job_id].warnings) == (State.SUCCEEDED, ())
    status = statuses[bad.job_id]
    assert (status.state, status.exit_code) == (State.EXITED, 5)
    assert "task 2: Exited with exit code 5" in status.reason
    assert any(hint.startswith("scontrol show job ") for hint in scheduler.hints(bad))


# --- cancelling ------------------------------------------------------------------------------------------------------


def test_a_poll_with_only_looks_ends_nothing(
    slurm: Cluster, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "NEVER_S", 0.0)
    session = SlurmScheduler(cluster(work, slurm={"directives": ("--hold",)}))
    job = submitted(session, shell("held", "true"), tmp_path)
    looks = connect(cluster(work), only_looks=True)
    for _ in range(2):
        assert looks.status([job])[job.job_id].state is State.NEVER_ADMISSIBLE
        assert slurm.ask("squeue", "-h", "-j", job.job_id, "-o", "%T") == "PENDING"
    assert state(session, job) is State.NEVER_ADMISSIBLE
    assert slurm.ask("squeue", "-h", "-t", "all", "-j", job.job_id, "-o", "%T") == "CANCELLED"


def test_a_cancel_that_found_no_job_is_repeated(slurm: Cluster, work: Path, tmp_path: Path) -> None:
    """The first squeue does not know the job, as where it asks another controller, and the second one does."""
    scheduler = SlurmScheduler(cluster(work))
    job = submitted(scheduler, shell("missed", "sleep 300"), tmp_path)
    other = replace(job, name="another")
    order = queries.cancel(scheduler._transport, [other])
    assert (order.no_jobs, order.away, order.refused) == (True, "", {})
    runs(scheduler, job)
    order = queries.cancel(scheduler._transport, [job])
    assert not order.no_jobs
    ended(scheduler, job)


def test_one_squeue_and_one_scancel_for_many(
    slurm: Cluster, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = SlurmScheduler(cluster(work, slurm={"directives": ("--hold",)}))
    jobs = [submitted(scheduler, shell(f"many{number}", "true"), tmp_path) for number in range(8)]
    counted = tmp_path / "counted"
    for name in ("squeue", "scancel"):
        wrapped(monkeypatch, tmp_path / "bin", name, f'echo {name} >> {counted}; exec "$real" "$@"')
    assert scheduler.cancel(jobs) == {}
    calls = counted.read_text().split()
    assert calls[:2] == ["squeue", "scancel"]
    assert calls.count("scancel") == 1
    assert calls.count("squeue") <= 4  # and looks until all are gone


def test_a_refused_cancel_is_reported(
    slurm: Cluster, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a colleague goes on with a run: Slurm denies access, and nobody waits for what will not come."""
    other = "setpriv --reuid=65534 --regid=65534 --clear-groups"
    other += " --inh-caps=+dac_override,+dac_read_search --ambient-caps=+dac_override,+dac_read_search"
    if os.geteuid() != 0 or subprocess.run([*other.split(), "true"], capture_output=True).returncode:
        pytest.skip("only root can be somebody else")
    scheduler, called = SlurmScheduler(cluster(work)), tmp_path / "called"
    jobs = [submitted(scheduler, shell(name, "sleep 100"), tmp_path) for name in ("denied", "too")]
    runs(scheduler, *jobs)
    with monkeypatch.context() as colleague:
        wrapped(colleague, tmp_path / "bin", "scancel", f'echo called >> {called}; exec {other} "$real" "$@"')
        left = scheduler.cancel(jobs)
    assert called.read_text() == "called\n"
    ids = " ".join(sorted(job.job_id for job in jobs))
    assert left == {
        job.job_id: f"job {job.job_id} may still run (Slurm says RUNNING; scancel: error: Kill job error on job id "
        f"{job.job_id}: Access/permission denied): scancel {ids}"
        for job in jobs
    }
    held = SlurmScheduler(cluster(work, slurm={"directives": ("--hold",)}))
    monkeypatch.setattr(judge, "NEVER_S", 0.0)
    with monkeypatch.context() as colleague:
        wrapped(colleague, tmp_path / "bin", "scancel", f'exec {other} "$real" "$@"')
        never = submitted(held, shell("never", "true"), tmp_path)
        seen = held.status([never])[never.job_id]
    assert seen.state is State.NEVER_ADMISSIBLE
    assert "it could not be stopped" in seen.reason
    assert "Access/permission denied" in seen.reason


def test_a_cancel_that_does_not_get_through_is_repeated(
    slurm: Cluster, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first scancel finds no controller where it looks for it."""
    scheduler = SlurmScheduler(cluster(work))
    job = submitted(scheduler, shell("again", "sleep 300"), tmp_path)
    runs(scheduler, job)
    with monkeypatch.context() as away:
        hasty(slurm, tmp_path, away)
        text = Path(os.environ["SLURM_CONF"]).read_text()
    elsewhere = text.replace(f"SlurmctldPort={slurm.port}\n", f"SlurmctldPort={slurm.port + 19}\n")
    (tmp_path / "slurm.conf").write_text(elsewhere)
    first = f'mkdir {tmp_path}/first 2>/dev/null && export SLURM_CONF={tmp_path}/slurm.conf\nexec "$real" "$@"'
    wrapped(monkeypatch, tmp_path / "bin", "scancel", first)
    assert scheduler.cancel([job]) == {}
    assert (tmp_path / "first").is_dir()
    assert state(scheduler, job) is not State.RUNNING or not slurm.ask("squeue", "-h", "-j", job.job_id)


def test_a_cancel_while_the_controller_is_away_is_reported(
    slurm: Cluster, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = SlurmScheduler(cluster(work))
    job = submitted(scheduler, shell("away", "sleep 300"), tmp_path)
    runs(scheduler, job)
    slurm.stop("slurmctld")
    monkeypatch.setattr(scheduler_module, "CANCEL_LIMIT_S", 5.0)
    with monkeypatch.context() as away:
        hasty(slurm, tmp_path, away)
        (why,) = scheduler.cancel([job]).values()
    assert "slurm" in why.lower()
    assert why.endswith(f"scancel {job.job_id}")
    back = threading.Timer(2.0, slurm.start, ["slurmctld"])
    back.start()
    monkeypatch.setattr(scheduler_module, "CANCEL_LIMIT_S", 120.0)
    try:
        assert scheduler.cancel([job]) == {}
    finally:
        back.join()


# --- nodes that are left out -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "site", ["--exclud=cn2", *(pytest.param(each, marks=NIGHTLY) for each in ("-x cn2", "-xcn2", "--exclude='cn[2]'"))]
)
def test_nodes_of_the_site_and_of_earlier_attempts(slurm: Cluster, work: Path, tmp_path: Path, site: str) -> None:
    scheduler = SlurmScheduler(cluster(work, slurm={"directives": (site, "--hold")}))
    for name, avoid, wanted in (("first", (), "cn2"), ("second", ("cn1",), "cn[1-2]")):
        job = submitted(scheduler, shell(name, "true", avoid_nodes=avoid), tmp_path)
        said = slurm.ask("scontrol", "-o", "show", "job", job.job_id)
        assert f" ExcNodeList={wanted} " in said
