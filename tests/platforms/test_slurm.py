"""What Slurm says, without Slurm: its words as they were recorded (22.05.8), and what we make of them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.config import sbatch_options
from platforms.config.keys import ContainerKeys
from platforms.config.schema import Platform, load_platforms
from platforms.job import (
    AwayError,
    ConfigError,
    JobSpec,
    Layout,
    Outcome,
    RefusedError,
    Run,
    State,
    Submitted,
)
from platforms.runner import messages
from platforms.schedulers import FILE_KEYS
from platforms.schedulers.slurm import environment, error_messages, judge, policy, queries, render, submission
from platforms.schedulers.slurm.judge import ACCOUNT_S, LAG_S, LOST_S, NEVER_S, RUNAWAY_S, PolledJob
from platforms.schedulers.slurm.rows import (
    ExitFile,
    JobRow,
    NodeRow,
    expand_nodes,
    sacct_rows,
    scontrol_row,
    squeue_rows,
    unix_time,
)
from platforms.schedulers.slurm.scheduler import SlurmScheduler
from platforms.schedulers.slurm.states import STATES, can_never_start
from platforms.transports.local import LocalTransport

LAYOUT = Layout(2, 4, "gpu")
SPEC = JobSpec(
    "resnet50-2x4gpu-k2345abc", "test_resnet50.py::test_resnet50[x]", "cluster", LAYOUT,
    ("train", "resnet50"), benchmark="resnet50", launcher="srun", python="auto", archive=Path("models-0123.pyz"),
)  # fmt: skip


def cluster(**keys: object) -> Platform:
    fixed = {"scheduler": "slurm", "device": "gpu", "layouts": {"default": ("2x4",)}, "source": Path("cluster.yaml")}
    return Platform(**{"name": "cluster", "work_dir": "/work/me", **fixed, **keys})


# --- what Slurm prints -----------------------------------------------------------------------------------------------


def test_every_state_of_the_manual_means_something() -> None:
    manual = (
        "BOOT_FAIL CANCELLED COMPLETED CONFIGURING COMPLETING DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PENDING "
        "PREEMPTED RUNNING RESV_DEL_HOLD REQUEUE_FED REQUEUE_HOLD REQUEUED RESIZING REVOKED SIGNALING SPECIAL_EXIT "
        "STAGE_OUT STOPPED SUSPENDED TIMEOUT LAUNCH_FAILED RECONFIG_FAIL POWER_UP_NODE UPDATE_DB EXPEDITING"
    )
    assert set(manual.split()) <= STATES.keys()
    exits = {word for word, state in STATES.items() if state is None}
    assert exits == {"COMPLETED", "FAILED"}  # only of these does an exit code say more
    passing = [word for word, state in STATES.items() if state is not None and state.outcome is Outcome.PASSED]
    assert passing == []


@pytest.mark.parametrize(
    ("reason", "never"),
    [
        ("QOSMaxWallDurationPerJobLimit", True), ("PartitionNodeLimit", True), ("PartitionTimeLimit", True),
        ("PartitionConfig", True), ("DependencyNeverSatisfied", True), ("JobHeldUser", True), ("JobHeldAdmin", True),
        ("launch failed requeued held", True), ("AssocMaxNodePerJobLimit", True), ("QOSMaxNodePerJobLimit", True),
        ("Priority", False), ("Resources", False), ("BeginTime", False), ("None", False), ("PartitionDown", False),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", False),
        ("ReqNodeNotAvail, May be reserved for other job", False), ("QOSMaxJobsPerUserLimit", False),
        ("AssocGrpCpuLimit", False), ("QOSGrpNodeLimit", False),
    ],
)  # fmt: skip
def test_only_a_reason_that_waiting_does_not_change_can_never_start(reason: str, never: bool) -> None:
    assert can_never_start(reason) is never


def test_squeue_output_becomes_rows() -> None:
    text = (
        "71|RUNNING|2026-11-20T22:09:52|2026-11-20T22:09:53|cn[1-2]|cn1|None|/w/jobs/a-k1/work|/w/jobs/a-k1/job.sh\n"
        "72|PENDING|2026-11-20T22:09:52|2026-11-21T09:00:00|||Nodes required for job are DOWN, DRAINED | or so|/tmp"
        "|/a | b/jobs/b-k2/job.sh\n"
        "73|DEADLINE|2026-11-20T22:09:52|2026-11-20T22:10:00|||DeadLine|/home/me|(null)\n"
    )
    rows = squeue_rows(text)
    assert [(row.id, row.state, row.live) for row in rows.values()] == [
        ("71", "RUNNING", True),
        ("72", "PENDING", True),
        ("73", "DEADLINE", False),
    ]
    whose = {row.id: [name for name in ("a-k1", "b-k2", "c-k3", "k1") if row.lies_in(name)] for row in rows.values()}
    assert whose == {"71": ["a-k1"], "72": ["b-k2"], "73": []}
    assert rows["71"].started_s == unix_time("2026-11-20T22:09:53") == 1795212593
    assert rows["72"].reason == "Nodes required for job are DOWN, DRAINED | or so"
    assert (rows["72"].started_s, rows["73"].started_s) == (None, None)  # a forecast, and its end
    assert [row.expected_s for row in rows.values()] == [None, unix_time("2026-11-21T09:00:00"), None]


def test_the_expected_start_of_a_pending_job_is_not_its_start() -> None:
    waits = JobRow("7", "a", "PENDING", "Priority", submitted_s=10.0, expected_s=500.0)
    status = judge.judge(PolledJob(waits))
    assert (status.state, status.reason, status.started_s, status.expected_s) == (State.QUEUED, "Priority", None, 500.0)
    moved = judge.judge(PolledJob(replace(waits, expected_s=600.0)))
    assert (moved.state, moved.reason) == (status.state, status.reason)  # which is all that a session calls news
    held = judge.judge(PolledJob(replace(waits, reason="JobHeldUser"), unchanged_s=NEVER_S))
    assert (held.state, held.expected_s) == (State.NEVER_ADMISSIBLE, None)


@pytest.mark.parametrize("text", ["N/A", "Unknown", "None", ""])
def test_a_pending_job_without_a_forecast_has_no_expected_start(text: str) -> None:
    (found,) = squeue_rows(f"72|PENDING|2026-11-20T22:09:52|{text}|||Resources|/w|/w/a.sh\n").values()
    assert (found.started_s, found.expected_s) == (None, None)


def test_sacct_output_becomes_rows_of_job_and_steps() -> None:
    text = (
        "57|CANCELLED by 999|2026-11-20T22:00:00|2026-11-20T22:00:01|2026-11-20T22:00:09|0:0|cn1|0|5|/w|a | b\nc\n"
        "57.batch|CANCELLED|2026-11-20T22:00:01|2026-11-20T22:00:01|2026-11-20T22:00:09|0:15|cn1|0|5||batch\n"
        "57.0|FAILED|2026-11-20T22:00:01|2026-11-20T22:00:01|2026-11-20T22:00:09|3:0|cn1|0|5||sh\n"
        "58|DEADLINE|2026-11-20T22:00:00|2026-11-20T22:00:09|2026-11-20T22:00:09|1:0|None assigned|0|5|/w|b\n"
        "59|RUNNING|2026-11-20T22:00:00|2026-11-20T22:00:09|Unknown|0:0|cn1|0|5|/w|c\n"
    )
    rows = sacct_rows(text)
    assert [(row.id, row.name) for row in rows["57"][1:]] == [("57.batch", "batch"), ("57.0", "sh")]
    assert (rows["57"][0].state, rows["57"][0].reason) == ("CANCELLED", "CANCELLED by 999")
    assert [(row.exit_code, row.signal) for row in rows["57"]] == [(0, 0), (0, 15), (3, 0)]
    assert (rows["58"][0].nodes, rows["58"][0].started_s) == ("", None)
    assert (rows["59"][0].live, rows["59"][0].ended_s) == (True, None)


@pytest.mark.parametrize(
    ("text", "joules"), [("812345", 812345.0), ("0", None), ("", None), (str(2**64 - 2), None), ("812.34K", None)]
)
def test_no_energy_is_not_measured(text: str, joules: float | None) -> None:
    line = f"57|COMPLETED|2026-11-20T22:00:00|2026-11-20T22:00:01|2026-11-20T22:00:09|0:0|cn1|{text}||/w|a\n"
    assert sacct_rows(line)["57"][0].energy_j == joules


def test_scontrol_output_becomes_a_row() -> None:
    line = (
        "JobId=12 JobName=other UserId=me(1000) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) ExitCode=3:0 "
        "SubmitTime=2026-11-20T22:00:00 StartTime=2026-11-20T22:00:01 EndTime=2026-11-20T22:00:09 NodeList=cn1 "
        "Command=/a folder/jobs/a-k1/job.sh WorkDir=/a folder/jobs/a-k1/work StdErr=/dev/null"
    )
    row = scontrol_row(line)
    assert row is not None
    assert (row.lies_in("a-k1"), row.lies_in("other")) == (True, False)
    assert (row.state, row.exit_code, row.signal, row.nodes) == ("FAILED", 3, 0, "cn1")
    assert row.ended_s == unix_time("2026-11-20T22:00:09")
    assert scontrol_row("slurm_load_jobs error: Invalid job id specified") is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cn1", ["cn1"]), ("cn[1-3]", ["cn1", "cn2", "cn3"]), ("cn[1,3],gpu07", ["cn1", "cn3", "gpu07"]), ("", []),
        ("nid[000998-001001]", ["nid000998", "nid000999", "nid001000", "nid001001"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ],
)  # fmt: skip
def test_a_list_of_nodes_expands_to_names(text: str, names: list[str]) -> None:
    assert sorted(expand_nodes(text)) == names


# --- what became of a job --------------------------------------------------------------------------------------------

GOOD = ExitFile(0, 1000.0, 50)
NO_COMMAND = ("slurmstepd-cn1: error: execve(): x: No such file or directory",)
NO_MEMORY = ("slurmstepd-cn1: error: Exceeded job memory limit",)
TASK_FAILED = ("srun: error: cn1: tasks 0-1: Exited with exit code 7",)
TASK_KILLED = ("slurmstepd: error: *** STEP 7.0 ON cn1 CANCELLED AT x ***", "srun: error: cn1: task 0: Killed")
TASK_STOPPED = ("srun: error: cn1: task 0: Terminated",)
REFUSED_STEP = ("srun: error: Unable to create step for job 7: More processors requested than permitted",)
MUNGE = ("slurmstepd: error: Munge encode failed: Failed to access socket",)
DONE = {"exit_file": GOOD, "log_bytes": 50}


def row(state: str, **changes: object) -> JobRow:
    return replace(JobRow("7", "a", state, nodes="cn1", submitted_s=10.0, started_s=20.0), **changes)


def account(state: str, code: int = 0, number: int = 0, *steps: JobRow) -> tuple[JobRow, ...]:
    """As accounting has it: the job, its script's step, and those that srun started."""
    return (row(state, exit_code=code, signal=number, ended_s=30.0), row("COMPLETED", id="7.batch"), *steps)


def step(state: str, code: int = 0, number: int = 0) -> JobRow:
    return row(state, id="7.0", exit_code=code, signal=number)


STEP_OPEN = account("COMPLETED", 0, 0, step("RUNNING"))


def test_energy_is_that_of_the_largest_step_which_has_each_node_once() -> None:
    job, script = account("COMPLETED")
    # a real Slurm, of two nodes of 100 W each, 14 s of a script, and a step of 10 s in it
    rows = (
        replace(job, energy_j=2002.0),
        replace(script, energy_j=1414.0),
        replace(step("COMPLETED"), energy_j=2002.0),
    )
    assert judge.judge(PolledJob(row("COMPLETED"), rows, **DONE)).nodes_energy_j == 2002.0
    summed = (replace(job, energy_j=3416.0), *rows[1:])
    assert judge.judge(PolledJob(row("COMPLETED"), summed, **DONE)).nodes_energy_j == 2002.0
    assert judge.judge(PolledJob(row("COMPLETED"), account("COMPLETED"), **DONE)).nodes_energy_j is None


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (PolledJob(row("RUNNING")), State.RUNNING),
        (PolledJob(row("COMPLETING")), State.RUNNING),
        (PolledJob(row("PENDING", reason="Priority")), State.QUEUED),
        (PolledJob(row("CONFIGURING")), State.STARTING),
        (PolledJob(row("A_STATE_OF_TOMORROW")), State.UNKNOWN),
        # nothing is concluded before squeue, sacct and the script's own word are all there
        (PolledJob(row("COMPLETED"), **DONE), State.RUNNING),
        (PolledJob(row("COMPLETED"), accounting_rows=(row("RUNNING"),), **DONE), State.RUNNING),
        (PolledJob(row("COMPLETED"), account("COMPLETED"), exit_file=GOOD, log_bytes=49), State.RUNNING),
        (PolledJob(row("COMPLETED"), account("COMPLETED"), **DONE), State.SUCCEEDED),
        (PolledJob(row("COMPLETED"), account("COMPLETED"), exit_file=GOOD, log_bytes=49, unchanged_s=LAG_S),
         State.SUCCEEDED),
        (PolledJob(row("COMPLETED"), None, **DONE, unchanged_s=1), State.RUNNING),
        (PolledJob(row("COMPLETED"), None, **DONE, unchanged_s=ACCOUNT_S), State.SUCCEEDED),
        (PolledJob(row("COMPLETED"), (), accounting_enabled=False, **DONE), State.SUCCEEDED),
        (PolledJob(row("COMPLETED"), STEP_OPEN, **DONE), State.RUNNING),
        (PolledJob(row("COMPLETED"), STEP_OPEN, **DONE, unchanged_s=ACCOUNT_S), State.SUCCEEDED),
        # squeue forgets first, then the controller; an exit file outlives both
        (PolledJob(None, account("COMPLETED"), **DONE), State.SUCCEEDED),
        (PolledJob(None, account("FAILED", 3)), State.EXITED),
        (PolledJob(None, unchanged_s=1), State.UNKNOWN),
        (PolledJob(None, unchanged_s=LOST_S), State.LOST),
        # accounting hears of an end later than the controller forgets it, and is away sometimes
        (PolledJob(None, accounting_rows=(row("PENDING"),), unchanged_s=LOST_S), State.UNKNOWN),
        (PolledJob(None, accounting_rows=(row("RUNNING"), step("RUNNING")), unchanged_s=RUNAWAY_S - 1), State.UNKNOWN),
        (PolledJob(None, accounting_rows=(row("RUNNING"),), unchanged_s=RUNAWAY_S), State.LOST),
        (PolledJob(None, accounting_rows=(row("RUNNING"),), **DONE, unchanged_s=1), State.RUNNING),
        (PolledJob(None, accounting_rows=(row("RUNNING"),), **DONE, unchanged_s=ACCOUNT_S), State.SUCCEEDED),
        (PolledJob(None, accounting_rows=None, unchanged_s=10 * RUNAWAY_S), State.UNKNOWN),
        (PolledJob(None, accounting_rows=None, accounting_enabled=False, unchanged_s=1), State.UNKNOWN),
        (PolledJob(None, accounting_rows=None, accounting_enabled=False, unchanged_s=LOST_S), State.LOST),
        (PolledJob(None, **DONE, unchanged_s=ACCOUNT_S), State.SUCCEEDED),
        (PolledJob(None, exit_file=replace(GOOD, exit_code=4), log_bytes=50, unchanged_s=ACCOUNT_S), State.EXITED),
        # what a number in the log would have let pass
        (PolledJob(row("FAILED"), account("FAILED", 3)), State.EXITED),
        (PolledJob(row("FAILED"), account("FAILED", 0, 9)), State.SIGNALLED),
        (PolledJob(row("FAILED"), account("FAILED", 0, 53)), State.NOT_STARTABLE),
        (PolledJob(row("TIMEOUT"), account("TIMEOUT")), State.TIME_LIMIT),
        (PolledJob(row("CANCELLED"), account("CANCELLED"), **DONE), State.CANCELLED),
        # a job that Slurm had forgotten to have started, and starts again in vain
        (PolledJob(row("CANCELLED"), account("CANCELLED"), exit_file=ExitFile(0, 19.0, 50), log_bytes=50),
         State.SUCCEEDED),
        (PolledJob(row("CANCELLED"), account("CANCELLED"), exit_file=ExitFile(4, 19.0, 50), log_bytes=50),
         State.EXITED),
        (PolledJob(row("OUT_OF_MEMORY"), account("OUT_OF_MEMORY", 0, 125), **DONE), State.OUT_OF_MEMORY),
        (PolledJob(row("COMPLETED"), account("COMPLETED", 0, 0, step("OUT_OF_MEMORY")), **DONE), State.OUT_OF_MEMORY),
        (PolledJob(row("COMPLETED"), account("COMPLETED", 0, 0, step("FAILED", 3)), **DONE), State.EXITED),
        (PolledJob(row("COMPLETED"), account("COMPLETED", 0, 0, step("CANCELLED", 0, 15)), **DONE), State.SIGNALLED),
        (PolledJob(row("NODE_FAIL"), account("NODE_FAIL")), State.NODE_LOST),
        (PolledJob(row("PREEMPTED"), account("PREEMPTED"), **DONE), State.PREEMPTED),
        (PolledJob(row("PENDING", reason="BeginTime"), started=True), State.PREEMPTED),
        (PolledJob(row("PENDING", reason="None"), started=True, **DONE, unchanged_s=LOST_S - 1), State.UNKNOWN),
        (PolledJob(row("PENDING", reason="BeginTime"), started=True, **DONE, unchanged_s=LOST_S), State.PREEMPTED),
        (PolledJob(row("PENDING", reason="BeginTime"), started=True, exit_file=replace(GOOD, exit_code=143)),
         State.PREEMPTED),
        (PolledJob(row("PENDING", reason="JobHeldUser"), unchanged_s=1), State.QUEUED),
        (PolledJob(row("PENDING", reason="JobHeldUser"), unchanged_s=NEVER_S), State.NEVER_ADMISSIBLE),
        (PolledJob(row("DEADLINE"), account("DEADLINE", 1)), State.START_DEADLINE),
        (PolledJob(row("DEADLINE"), account("DEADLINE", 1), started=True), State.TIME_LIMIT),
        (PolledJob(row("FAILED"), account("FAILED", 78), exit_file=ExitFile(78, 1.0, 0, "late")), State.START_DEADLINE),
        (PolledJob(row("FAILED"), account("FAILED", 78), exit_file=ExitFile(78, 1.0, 0, "again")), State.PREEMPTED),
        (PolledJob(row("FAILED"), account("FAILED", 78), exit_file=ExitFile(78, 1.0, 0, "module")),
         State.REQUEST_REFUSED),
        # srun gives the code of those that it ended itself
        (PolledJob(row("FAILED"), account("FAILED", 15, 0, step("FAILED", 3)), exit_file=ExitFile(143, 1.0, 0)),
         State.EXITED),
        (PolledJob(row("FAILED"), account("FAILED", 2), log_lines=NO_COMMAND), State.NOT_STARTABLE),
        (PolledJob(row("FAILED"), account("FAILED", 0, 9), log_lines=NO_MEMORY), State.OUT_OF_MEMORY),
        # where no row of a step is, Slurm's own words in the log decide
        (PolledJob(row("COMPLETED"), (), accounting_enabled=False, log_lines=TASK_FAILED, **DONE), State.EXITED),
        (PolledJob(row("COMPLETED"), None, log_lines=TASK_FAILED, unchanged_s=ACCOUNT_S, **DONE), State.EXITED),
        (PolledJob(row("COMPLETED"), account("COMPLETED")[:1], log_lines=TASK_FAILED, **DONE), State.EXITED),
        (PolledJob(None, None, log_lines=TASK_FAILED, unchanged_s=ACCOUNT_S, **DONE), State.EXITED),
        (PolledJob(row("COMPLETED"), (), accounting_enabled=False, log_lines=TASK_KILLED, **DONE), State.SIGNALLED),
        (PolledJob(row("COMPLETED"), (), accounting_enabled=False, log_lines=TASK_STOPPED, **DONE), State.SIGNALLED),
        (PolledJob(row("COMPLETED"), (), accounting_enabled=False, log_lines=NO_MEMORY, **DONE), State.OUT_OF_MEMORY),
        (PolledJob(row("COMPLETED"), (), accounting_enabled=False, log_lines=MUNGE, **DONE), State.SUCCEEDED),
        (PolledJob(row("COMPLETED"), account("COMPLETED"), log_lines=REFUSED_STEP, **DONE), State.NOT_STARTABLE),
        # and where rows are, they do
        (PolledJob(row("COMPLETED"), account("COMPLETED"), log_lines=TASK_FAILED, **DONE), State.SUCCEEDED),
        # without accounting scontrol knows the code
        (PolledJob(row("FAILED"), (), accounting_enabled=False, scontrol_row=row("FAILED", exit_code=6, signal=0)),
         State.EXITED),
        (PolledJob(row("FAILED"), (), accounting_enabled=False, scontrol_row=row("FAILED", exit_code=0, signal=11)),
         State.SIGNALLED),
    ],
)  # fmt: skip
def test_rows_exit_file_and_log_decide_the_state(seen: PolledJob, state: State) -> None:
    status = judge.judge(seen)
    assert status.state is state, status
    if state is State.SUCCEEDED:
        assert status.exit_code == 0


def test_the_nodes_of_a_job_that_slurm_has_forgotten_are_in_its_exit_file() -> None:
    ended = {"exit_file": replace(GOOD, nodes="cn[1-2]"), "log_bytes": 50, "unchanged_s": ACCOUNT_S}
    others = judge.judge(
        PolledJob(None, None, log_lines=("srun: error: cn3: task 0: Exited with exit code 7",), **ended)
    )
    assert (others.state, others.nodes) == (State.SUCCEEDED, ("cn1", "cn2"))
    assert judge.judge(PolledJob(None, None, log_lines=TASK_FAILED, **ended)).state is State.EXITED


@pytest.mark.parametrize(
    ("state", "exit_file", "ended_s"),
    [
        ("COMPLETED", ExitFile(0, 25.0, 50), 25.0),  # Slurm says 30
        ("COMPLETED", ExitFile(0, 19.0, 50), 30.0),  # by another clock: before it started
        ("TIMEOUT", ExitFile(143, 25.0, 50), 30.0),  # it held its nodes until then
    ],
)
def test_the_scripts_end_counts_when_the_controller_hears_of_it_later(
    state: str, exit_file: ExitFile, ended_s: float
) -> None:
    status = judge.judge(PolledJob(row(state), account(state), exit_file=exit_file, log_bytes=50))
    assert (status.started_s, status.ended_s) == (20.0, ended_s)


@pytest.mark.parametrize(("code", "number"), [(139, 11), (137, 9), (192, 64), (255, None), (1, None)])
def test_an_exit_code_of_128_and_more_names_its_signal(code: int, number: int | None) -> None:
    status = judge.judge(
        PolledJob(row("FAILED"), account("FAILED", code), exit_file=ExitFile(code, 25.0, 50), log_bytes=50)
    )
    assert (status.exit_code, status.signal) == (code, number)
    assert (status.state is State.SIGNALLED) == (number is not None)


@pytest.mark.parametrize("code", [3, 15])  # of the task that failed, or of the one that srun ended then
def test_a_status_carries_exit_code_nodes_and_times(code: int) -> None:
    steps = account("FAILED", 15, 0, step("FAILED", code))
    steps = tuple(replace(each, nodes="cn[1-2]") for each in steps)
    lines = ("srun: error: cn1: task 0: Exited with exit code 3", "srun: error: cn2: task 1: Terminated")
    status = judge.judge(PolledJob(row("FAILED"), steps, exit_file=ExitFile(143, 31.0, 0), log_lines=lines))
    assert (status.exit_code, status.nodes) == (3, ("cn1", "cn2"))
    assert (status.submitted_s, status.started_s, status.ended_s) == (10.0, 20.0, 30.0)
    assert status.reason == "srun: error: cn1: task 0: Exited with exit code 3"


ONE_RANK_FAILED = (  # of 2 x 2 ranks, Slurm 22.05
    "srun: error: cn2: task 2: Exited with exit code 5",
    "slurmstepd-cn1: error: *** STEP 7.0 ON cn1 CANCELLED AT 2026-11-23T21:18:54 ***",
    "srun: error: cn2: task 3: Exited with exit code 143",
    "srun: error: cn1: tasks 0-1: Terminated",
)
LAUNCH_FAILED = (
    "srun: error: Task launch for StepId=7.0 failed on node cn2: Communication connection failure",
    "srun: error: Application launch failed: Communication connection failure",
)
PROLOG_OF_SRUN = (
    "srun: error: Task launch for StepId=7.0 failed on node cn2: Job prolog failed",
    "srun: error: Application launch failed: Job prolog failed",
    "slurmstepd-cn1: error: Prolog failure on node cn2",
    "slurmstepd-cn1: error: *** JOB 7 ON cn1 CANCELLED AT 2026-11-23T21:31:27 ***",
)


def on_two(*rows: JobRow) -> tuple[JobRow, ...]:
    return tuple(replace(each, nodes="cn[1-2]") for each in rows)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_rank_that_failed_is_named_and_not_those_that_srun_then_ended(enabled: bool) -> None:
    ended_by_srun = on_two(*account("FAILED", 15, 0, step("CANCELLED", 0, 15))) if enabled else ()
    left = {"exit_file": ExitFile(143, 31.0, 50, nodes="cn[1-2]"), "log_bytes": 50, "log_lines": ONE_RANK_FAILED}
    (root,) = on_two(row("FAILED"))
    status = judge.judge(PolledJob(root, ended_by_srun, accounting_enabled=enabled, **left))
    assert (status.state, status.exit_code, status.signal) == (State.EXITED, 5, None)
    assert status.reason == ONE_RANK_FAILED[0]


def test_a_rank_that_exits_because_its_step_is_cancelled_did_not_fail() -> None:
    lines = ("slurmstepd-cn1: error: *** STEP 7.0 ON cn1 CANCELLED AT x ***", TASK_FAILED[0])
    steps = account("FAILED", 15, 0, step("CANCELLED", 0, 15))
    status = judge.judge(PolledJob(row("FAILED"), steps, exit_file=ExitFile(143, 31.0, 0), log_lines=lines))
    assert (status.state, status.exit_code) == (State.SIGNALLED, 143)


@pytest.mark.parametrize(
    ("state", "code", "lines"), [("FAILED", 233, LAUNCH_FAILED), ("CANCELLED", 70, PROLOG_OF_SRUN)]
)
def test_a_node_that_does_not_start_its_ranks_is_lost(state: str, code: int, lines: tuple[str, ...]) -> None:
    steps = on_two(*account(state, code, 0, step("CANCELLED", 0, 105)))
    status = judge.judge(
        PolledJob(on_two(row(state))[0], steps, started=True, exit_file=ExitFile(code, 31.0, 0), log_lines=lines)
    )
    assert (status.state, status.failed_nodes, status.reason) == (State.NODE_LOST, ("cn2",), lines[0])
    assert status.nodes == ("cn1", "cn2")


def test_a_job_that_is_cancelled_as_a_prolog_fails_has_lost_its_node() -> None:
    rows = on_two(row("CANCELLED"), row("CANCELLED", id="7.batch"))
    nodes = {"cn1": NodeRow("cn1", "idle"), "cn2": NodeRow("cn2", "drained", reason="Prolog error")}
    status = judge.judge(PolledJob(rows[0], rows, log_bytes=None, nodes=nodes))
    assert (status.state, status.failed_nodes) == (State.NODE_LOST, ("cn2",))
    assert status.reason == "cn2 is drained: Prolog error"
    # its script began: somebody else cancelled it
    assert judge.judge(PolledJob(rows[0], rows, log_bytes=None, nodes=nodes, started=True)).state is State.CANCELLED


LAST_WORDS = "slurmstepd-cn1: error: *** JOB 7 ON cn1 CANCELLED AT 2026-11-23T21:32:50{} ***"


@pytest.mark.parametrize("left", ["an exit file", "nothing"])
@pytest.mark.parametrize(
    ("words", "state"),
    [
        ((LAST_WORDS.format(""),), State.CANCELLED),
        ((LAST_WORDS.format(" DUE TO TIME LIMIT"),), State.TIME_LIMIT),
        ((LAST_WORDS.format(" DUE TO PREEMPTION"),), State.PREEMPTED),
        ((LAST_WORDS.format(" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"),), State.NODE_LOST),
        ((NO_MEMORY[0], LAST_WORDS.format("")), State.OUT_OF_MEMORY),
        ((LAST_WORDS.format("").replace("JOB 7", "JOB 8"),), None),
    ],
)
def test_of_a_job_that_slurm_has_forgotten_its_last_words_count(
    words: tuple[str, ...], state: State | None, left: str
) -> None:
    exit_file = ExitFile(70, 31.0, 50, nodes="cn1") if left == "an exit file" else None
    known = {"job_id": "7", "exit_file": exit_file, "log_bytes": 50, "log_lines": words, "unchanged_s": LOST_S}
    status = judge.judge(PolledJob(None, (), accounting_enabled=False, **known))
    assert status.state is (state or (State.EXITED if exit_file else State.LOST))
    if state is not None:
        assert status.reason == words[0]


def test_a_success_without_rows_of_steps_has_a_warning() -> None:
    ended = {**DONE, "exit_file": replace(GOOD, steps_known=False)}
    none = judge.judge(PolledJob(row("COMPLETED"), (), accounting_enabled=False, **ended))
    away = judge.judge(PolledJob(row("COMPLETED"), None, unchanged_s=ACCOUNT_S, **ended))
    assert "steps not known: nothing says how the steps of the job ended, since Slurm keeps no" in none.warnings[0]
    assert f"since accounting said nothing about them for {ACCOUNT_S:g} s;" in away.warnings[0]
    ours = {**DONE, "exit_file": replace(GOOD, steps_known=True)}
    assert judge.judge(PolledJob(row("COMPLETED"), (), accounting_enabled=False, **ours)).warnings == ()
    assert judge.judge(PolledJob(row("COMPLETED"), account("COMPLETED"), **ended)).warnings == ()


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("srun: error: cn[1-2]: tasks 0-1: Exited with exit code 7", "task_failed"),
        ("loss 3.2 srun: error: cn1: task 0: Segmentation fault (core dumped)", "task_failed"),
        ("srun: error: cn1: task 0: Out Of Memory", "out_of_memory"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks were OOM Killed.",
         "out_of_memory"),
        ("[2026-11-22T09:54:51.470] error: Detected 1 oom_kill event in StepId=7.batch.", "out_of_memory"),
        ("slurmstepd-cn1: error: StepId=7.0 exceeded memory limit (200 > 100), being killed", "out_of_memory"),
        ("slurmstepd-cn1: error: *** STEP 7.0 ON cn1 CANCELLED AT 2026-11-22T15:39:42 ***", "stopped"),
        ("slurmstepd: error: execve(): x: No such file or directory", "no_command"),
        ("srun: error: Task launch for StepId=7.0 failed on node cn1: Invalid job credential", "step_refused"),
        # another job's, other nodes', a program's, and trouble with the controller
        ("srun: error: gpu9: task 0: Exited with exit code 7", None),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=8.0.", None),
        ("error: cn1: task 0: Exited with exit code 7", None),
        ("torch.OutOfMemoryError: out of memory", None),
        ("slurmstepd: error: Munge encode failed: Failed to access socket", None),
    ],
)  # fmt: skip
def test_errors_of_slurm_are_found_in_a_log(tmp_path: Path, line: str, cause: str | None) -> None:
    """As they are found on the login node, by grep, before more output than anybody reads."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "log").write_bytes(b"\xff\n" + line.encode() + b"\n" + b"x" * 80 * 100 + b"\n" + b"y\n" * 9999)
    job = Submitted("7", "a", 0.0)
    found = queries.ask_accounting(LocalTransport(cluster()), [job], str(tmp_path)).log_lines.get("a", [])
    said = error_messages.find_errors(found, "7", ("cn1", "cn2"))
    if cause is None:
        assert said.most_telling == ""
    else:
        assert said.most_telling == getattr(said, cause) == line.removeprefix("loss 3.2 ")


# --- the script ------------------------------------------------------------------------------------------------------


def options_of(text: str) -> dict[str, str]:
    found = re.findall(r"^#SBATCH (--[a-z-]+)=?(.*)$", text, re.MULTILINE)
    return {option: " ".join(shlex.split(value)) for option, value in found}


def checked(text: str) -> str:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return text


def test_the_same_job_gives_the_same_script() -> None:
    text = checked(SlurmScheduler(cluster()).render(SPEC))
    assert text == SlurmScheduler(cluster()).render(SPEC)
    options = options_of(text)
    assert options["--job-name"] == SPEC.name
    assert (options["--nodes"], options["--ntasks"], options["--ntasks-per-node"]) == ("2", "8", "4")
    assert (options["--gres"], options["--time"]) == ("gpu:4", "1:00:00")
    assert options["--output"] == f"/work/me/jobs/{SPEC.name}/log"
    assert {"--no-requeue", "--export"} <= options.keys()
    assert options["--deadline"] == f"now+{3600 + 3600 + render.DEADLINE_MARGIN_S}"


@pytest.mark.parametrize(
    ("slurm", "launcher", "wanted"),
    [
        ({"gres": "gpu:v100"}, "srun", {"--gres": "gpu:v100:4"}),
        ({"gpus": "gpus-per-node", "gres": "gpu:a100"}, "torchrun", {"--gpus-per-node": "a100:4"}),
        ({"gpus": "gpus"}, "torchrun", {"--gpus": "8"}),
        ({"gpus": "gpus-per-task"}, "srun", {"--gpus-per-task": "1"}),
        ({"gpus": "gpus-per-task"}, "torchrun", {"--gpus-per-task": "4"}),
        ({"cpus_per_rank": 6}, "srun", {"--cpus-per-task": "6", "--ntasks": "8"}),
        ({"cpus_per_rank": 6}, "torchrun", {"--cpus-per-task": "24", "--ntasks": "2"}),
        ({"account": "a b", "mem": "64G"}, "srun", {"--account": "a b", "--mem": "64G"}),
        ({"exclusive": True}, "srun", {"--exclusive": ""}),
        ({"directives": ("--switches=1",)}, "srun", {"--switches": "1"}),
    ],
)  # fmt: skip
def test_the_script_asks_slurm_for_what_the_platform_says(
    slurm: dict[str, object], launcher: str, wanted: dict[str, str]
) -> None:
    text = checked(render.render(replace(SPEC, launcher=launcher), cluster(slurm=slurm)))
    assert wanted.items() <= options_of(text).items()


OWN = replace(SPEC, archive=None, benchmark=None, arguments=("python3", "my.py"), layout=Layout(2, 2, "gpu"))


@pytest.mark.parametrize(
    ("changes", "words", "meets"),
    [
        ({"launcher": "torchrun"}, "python3 --no-python python3 my.py", True),
        ({"launcher": "torchrun", "python": "/opt/py"}, "/opt/py --no-python python3 my.py", True),
        ({"launcher": "srun"}, 'exec "$@"\' sh python3 my.py', True),
        ({"launcher": "none"}, "python3 my.py", False),
    ],
)
def test_a_program_that_is_not_ours_is_launched_as_it_is(changes: dict[str, object], words: str, meets: bool) -> None:
    text = checked(render.render(replace(OWN, **changes), cluster()))
    launched = " ".join(text.rpartition("\n\n")[2].replace("\\\n", "").split())
    assert launched.startswith(f"{words} ended=" if not meets else "srun --kill-on-bad-exit=1 --nodes=2")
    assert f"{words} ended=" in launched
    assert ("MASTER_PORT=" in text) == meets
    prepared = 'export PATH=/work/me/env-cluster/bin:"$PATH"'
    assert (prepared in text) == ("python" not in changes)


def test_tasks_stand_with_srun_only_when_the_platform_says_so() -> None:
    text = render.render(SPEC, cluster(slurm={"tasks": "srun"}))
    assert not {"--ntasks", "--ntasks-per-node", "--cpus-per-task"} & options_of(text).keys()
    assert "srun --kill-on-bad-exit=1 --nodes=2 --ntasks=8 --ntasks-per-node=4" in text


@pytest.mark.parametrize(
    ("box", "words"),
    [
        (ContainerKeys(runtime="apptainer", image="i", options=("--nv",)), "apptainer exec --bind=/work/me --nv i"),
        (ContainerKeys(runtime="podman-hpc", image="r/i:1"), "podman-hpc run --rm --env-host"),
        (ContainerKeys(runtime="pyxis", image="i", mounts=("/d:/e",)), "--container-mounts=/work/me:/work/me,/d:/e"),
        (ContainerKeys(runtime="edf", image="/e/t.toml"), "--environment=/e/t.toml"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("launcher", ["srun", "torchrun", "none"])
def test_each_container_runtime_gets_its_own_words(box: ContainerKeys, words: str, launcher: str) -> None:
    layout = Layout(1, 1, "gpu") if launcher == "none" else LAYOUT
    text = checked(render.render(replace(SPEC, launcher=launcher, layout=layout), cluster(container=box)))
    command = text[text.index("python=python3") :].replace("\\\n    ", "")
    assert words in command
    assert "python=python3" in text  # a venv of outside is of no use inside
    if box.runtime in ("pyxis", "edf"):
        assert "srun " in command


def programs(folder: Path, **bodies: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in bodies.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)


OLD_PYTHON = 'case $2 in (*version_info*) exit 1 ;; esac; echo "host python 3.6 ran $*" >&2; exit 99'


@pytest.mark.parametrize("launcher", ["srun", "torchrun", "none"])
@pytest.mark.parametrize("runtime", ["apptainer", "podman-hpc", "pyxis", "edf"])
def test_the_python_of_a_container_is_the_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str, launcher: str
) -> None:
    """The host's is a Python 3.6. What starts a container runs the words that follow where another python3 is."""
    host, image = tmp_path / "host", tmp_path / "image"
    run_inside = f'while [ "$1" != IMAGE ]; do shift; done; shift; PATH={image}:/usr/bin:/bin exec "$@"'
    run_step = "while case $1 in (-*) ;; (*) false ;; esac; do shift; done; "
    run_step += f'PATH={image}:/usr/bin:/bin exec "$@"' if runtime in ("pyxis", "edf") else 'exec "$@"'
    programs(host, **{"python3": OLD_PYTHON, "apptainer": run_inside, "podman-hpc": run_inside, "srun": run_step})
    programs(image, sh='exec /bin/sh "$@"', python3='echo "image python ran $*"')
    monkeypatch.setenv("PATH", f"{host}:{os.environ['PATH']}")
    layout = Layout(1, 1, "gpu") if launcher == "none" else LAYOUT
    box = ContainerKeys(runtime=runtime, image="IMAGE")

    code, said, word = run_script(tmp_path, replace(SPEC, launcher=launcher, layout=layout), container=box)

    assert (code, "image python ran" in said, "refused=\n" in word) == (0, True, True), said
    assert "host python" not in said


@pytest.mark.parametrize("nasty", ['it\'s a "b"', "$HOME `id` $(id) back\\slash", "#SBATCH --x", "a\nb"])
def test_no_value_breaks_out_of_its_quotes(nasty: str) -> None:
    plain = replace(SPEC, test="t", arguments=("train",), launcher="none", layout=Layout(1, 1, "gpu"))
    spec = replace(plain, test=f"t[{nasty}]", arguments=("train", nasty), env={"MINE": nasty})
    text = checked(render.render(spec, cluster()))
    assert options_of(text).keys() == options_of(render.render(plain, cluster())).keys()
    line = next(line for line in text.split("export MINE=")[1:])
    assert shlex.split(line.partition("\nexport HPC_ML")[0]) == [nasty]


def test_a_value_that_no_script_can_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot stand in"):
        render.render(replace(SPEC, arguments=("a\0b",)), cluster())
    with pytest.raises(ConfigError, match=r"--account: .* cannot stand in a #SBATCH line"):
        render.render(SPEC, cluster(slurm={"account": "a\n#SBATCH --x"}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"launcher": "poprun"}, "launcher poprun belongs to another scheduler"),
        ({"launcher": "none"}, "launcher none starts one rank, and 2x4gpu has 8"),
        ({"ranks_per_device": 2}, "8 tasks a node cannot share 4 devices"),
    ],
)
def test_ranks_that_slurm_cannot_start_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        render.render(replace(SPEC, **changes), cluster(slurm={"gpus": "gpus-per-task"}))


def run_script(tmp_path: Path, spec: JobSpec, **keys: object) -> tuple[int, str, str]:
    """Run a rendered script as Slurm would: exit code, what it printed, its exit file."""
    platform = cluster(work_dir=str(tmp_path), **keys)
    folder = Path(render.folder_of(platform, spec.name))
    (folder / "work").mkdir(parents=True)
    (folder / "not_after").write_text(f"{int(time.time()) + 100}\n")
    (folder / "log").write_text("")
    environ = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "43"}
    done = subprocess.run(["bash", "-c", render.render(spec, platform)], capture_output=True, text=True, env=environ)
    return done.returncode, done.stdout + done.stderr, (folder / "exit").read_text()


ALONE = replace(SPEC, archive=None, benchmark=None, launcher="none", layout=Layout(1, 1, "cpu"), arguments=("true",))


@pytest.mark.parametrize(
    ("spec", "keys", "code", "refused"),
    [
        (ALONE, {}, 0, ""),
        (replace(ALONE, arguments=("sh", "-c", "exit 3")), {}, 3, ""),
        (ALONE, {"setup": ("exit 0",)}, 70, ""),
        (ALONE, {"modules": ("nosuch/1",)}, 78, "module"),
        (replace(ALONE, archive=Path("a.pyz"), python="/no/python3"), {}, 78, "python"),
    ],
)
def test_the_script_writes_its_exit_file_last(
    tmp_path: Path, spec: JobSpec, keys: dict[str, object], code: int, refused: str
) -> None:
    got, said, word = run_script(tmp_path, spec, **keys)
    assert (got, f"exit_code={code} " in word, f"refused={refused}\n" in word) == (code, True, True), (said, word)


@pytest.mark.parametrize(
    ("what", "counted", "left"),
    [
        ("seq 1 9", 18, 18),
        ("seq 1 9; : > {log}", 18, 0),
        ("seq 1 9; truncate -s 4 {log}", 18, 4),
        ("seq 1 9; cp {log} {log}.new; mv {log}.new {log}; seq 1 5", 46, 18),
        ("seq 1 9; rm {log}", 18, None),
        ("printf '' > {log}; seq 1 9", 18, 18),
    ],
)
def test_the_script_counts_what_it_wrote_into_a_log_that_was_cut_or_replaced(
    tmp_path: Path, what: str, counted: int, left: int | None
) -> None:
    platform = cluster(work_dir=str(tmp_path))
    folder = Path(render.folder_of(platform, ALONE.name))
    (folder / "work").mkdir(parents=True)
    (folder / "not_after").write_text(f"{int(time.time()) + 100}\n")
    log = folder / "log"
    spec = replace(ALONE, arguments=("sh", "-c", what.format(log=shlex.quote(str(log)))))
    with log.open("ab") as out:  # as slurmstepd opens it
        subprocess.run(["bash", "-c", render.render(spec, platform)], stdout=out, stderr=out, check=True)
    assert f" log_bytes={counted} " in (folder / "exit").read_text()
    assert (log.stat().st_size if log.exists() else None) == left


def test_an_exit_file_is_reported_as_news_once(tmp_path: Path) -> None:
    scheduler = SlurmScheduler(cluster(work_dir=str(tmp_path)))
    jobs = [Submitted(str(number), f"job-{number}", 0.0, tmp_path) for number in range(3)]
    for job in jobs:
        (tmp_path / "jobs" / job.name).mkdir(parents=True)
    assert not scheduler.has_news(jobs)
    (tmp_path / "jobs" / "job-1" / "exit").write_text("exit_code=0")
    assert scheduler.has_news(jobs)
    assert not scheduler.has_news(jobs)
    (tmp_path / "jobs" / "job-2" / "exit").write_text("exit_code=0")
    assert scheduler.has_news(jobs)


def test_a_site_with_a_long_poll_s_is_never_polled_sooner() -> None:
    assert SlurmScheduler(cluster(poll_s=10.0)).first_look_s == 1.0
    assert SlurmScheduler(cluster(poll_s=60.0)).first_look_s == 60.0


def test_a_second_start_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jobs" / ALONE.name / "started").mkdir(parents=True)
    code, said, word = run_script(tmp_path, ALONE)
    assert (code, "refused=again" in word) == (78, True)
    assert "it has been started before" in said


@pytest.mark.parametrize(
    ("site", "avoid", "wanted"),
    [
        ((), (), None), ((), ("cn1",), "cn1"), (("--exclude=cn[2-3],gpu1",), (), None),
        (("--exclude=cn[2-3],gpu1",), ("cn1", "cn4"), "cn[2-3],gpu1,cn1,cn4"),
        (("--exclude cn2",), ("cn1",), "cn2,cn1"),
        (("-x cn2",), ("cn1",), "cn2,cn1"), (("-xcn2",), ("cn1",), "cn2,cn1"), (("--exclud=cn2",), ("cn1",), "cn2,cn1"),
        (("--hold -x 'cn2' # slow",), ("cn1",), "cn2,cn1"), (("-x cn2", "--exclude=cn3"), ("cn1",), "cn3,cn1"),
        (("--exclusive",), ("cn1",), "cn1"), (("--exclude=/etc/slow_nodes",), ("cn1",), None),
    ],
)  # fmt: skip
def test_nodes_of_the_site_and_of_earlier_attempts_are_excluded(
    site: tuple[str, ...], avoid: tuple[str, ...], wanted: str | None
) -> None:
    platform, alone = cluster(slurm={"directives": site}), replace(SPEC, layout=Layout(1, 4, "gpu"), avoid_nodes=avoid)
    lines = [line for line in render.render(alone, platform).splitlines() if line.startswith("#SBATCH ")]
    assert lines[: len(lines) - (wanted is not None)][-len(site) or len(lines) :] == [
        f"#SBATCH {words}" for words in site
    ]
    last = f"#SBATCH --exclude={shlex.quote(wanted or '')}"
    assert (lines[-1] == last) == (wanted is not None)
    one_of_two = render.directives(replace(SPEC, avoid_nodes=("cn2",)), cluster())
    assert "--exclude=cn2" in one_of_two  # it is known which
    all_nodes = avoid and ("cn8", "cn9")[: LAYOUT.nodes]  # of a wide job: one of them failed, it is unknown which
    wide = render.directives(replace(alone, layout=LAYOUT, avoid_nodes=all_nodes), platform)
    assert sbatch_options.last_value("--exclude", wide) == sbatch_options.last_value("--exclude", site)


def test_the_account_is_read_as_sbatch_reads_it() -> None:
    said = ["--nodes=1 -A one", "--acco two", "--acctg-freq=30", "--wait", "--comment='-- -A'", "--wckey=k"]
    found = [sbatch_options.last_value(name, said) for name in ("--account", "--wckey", "--exclude")]
    assert found == ["two", "k", None]
    assert sbatch_options.last_value("--account", ["--comment='"]) is None


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("--switches=1 --mem=4G", [("--switches", "1"), ("--mem", "4G")]),
        ("--mem 4G -n3 -N 2", [("--mem", "4G"), ("--ntasks", "3"), ("--nodes", "2")]),
        ("-Hn3 --exclusive --nice=5", [("--hold", None), ("--ntasks", "3"), ("--exclusive", None), ("--nice", "5")]),
        ("--partition=p --comment 'mem=1 ' # --time=1", [("--partition", "p"), ("--comment", "mem=1 ")]),
        ("--of-a-plugin=x", [("--of-a-plugin", "x")]),
    ],
)
def test_options_are_read_as_sbatch_reads_them(line: str, options: list[tuple[str, str | None]]) -> None:
    assert [(option.name, option.value) for option in sbatch_options.parse_options(line)] == options


def test_options_of_a_script_stand_at_its_head() -> None:
    text = "#!/bin/sh\n#SBATCH --nodes=1\n# more\n\n#SBATCH\t-n 3\n#SBATCHED --x\necho\n#SBATCH --mem=1\n"
    assert sbatch_options.directives_of_script(text) == {2: "--nodes=1", 5: "-n 3"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--nodes=9", r"--nodes cannot be set here: it follows from `layouts:`"),
        ("--switches=1 -N9", r"--nodes cannot be set here"),
        ("--ntasks-per-node 3", r"--ntasks-per-node cannot be set here"),
        ("-t 10", r"--time cannot be set here: it follows from `time_limit:`"),
        ("--error=/dev/null", r"--error cannot be set here: the suite writes it itself"),
        ("--hold\\n#SBATCH --mem=1", r"cannot stand in a #SBATCH line"),
    ],
)
def test_a_directive_that_another_key_sets_is_refused_with_its_line(tmp_path: Path, line: str, why: str) -> None:
    keys = "scheduler: slurm\ndevice: gpu\nlayouts: {default: [1x4]}\nwork_dir: /w\nslurm:\n  account: a\n"
    (tmp_path / "mine.yaml").write_text(f'{keys}  directives:\n  - --hold\n  - "{line}"\n')
    with pytest.raises(ConfigError, match=rf"mine\.yaml:9: slurm\.directives\[1\]: .*{why}"):
        load_platforms([tmp_path], schedulers=FILE_KEYS)


@pytest.mark.parametrize("line", ["--container-image=x", "--container-mounts=/x", "--environment=x"])
def test_an_option_of_a_plugin_may_stand_in_the_directives(line: str) -> None:
    assert sbatch_options.check_site_directive(line) == line


# --- the environment -------------------------------------------------------------------------------------------------

PERSONS = (
    "SBATCH_PARTITION", "SCANCEL_INTERACTIVE", "SQUEUE_STATES", "SACCT_FORMAT", "SLURM_TIME_FORMAT", "SCONTROL_ALL",
    "SINFO_STATE", "SLURM_EXIT_ERROR", "SBATCH_ACCOUNT", "SBATCH_WCKEY",
)  # fmt: skip
SHELLS = (["sh"], ["bash"], ["bash", "--posix"], ["dash"], ["busybox", "sh"], ["ksh"])
OURS = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "MY_SLURM_X", "HOME")


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize(
    ("script", "pays"),
    [
        ("#!/bin/sh\n#SBATCH --account=a\n#SBATCH --wckey=w\n", []),
        ("#!/bin/sh\n# a\n#SBATCH -A a\n\ncat <<EOF\n#SBATCH --wckey=w\nEOF\n", ["SBATCH_WCKEY"]),
        ("#!/bin/sh\n", ["SBATCH_ACCOUNT", "SBATCH_WCKEY"]),
        (None, []),
    ],
)
def test_only_who_pays_and_which_cluster_reach_slurm_from_the_environment(
    shell: list[str], script: str | None, pays: list[str]
) -> None:
    """Whatever stands in the values, and without a process: there is no PATH."""
    program = shutil.which(shell[0])
    if program is None:
        pytest.skip(f"{shell[0]} is not installed (apt-get install {shell[0]})")
    value = 'it\'s\nexport SLURM_CONF=x\nSLURM_B="$(false)" `false` \\'
    values = dict.fromkeys((*PERSONS, *OURS), value)
    lines = environment.UNSET_SLURM_VARIABLES if script is None else environment.submission_preamble(script)
    show = "".join(f'[ -z "${{{name}+set}}" ] || printf "%s=%s\\0" {name} "${name}"\n' for name in values)
    environ = {"PATH": "/nowhere", "BASH_FUNC_module%%": "() { echo; }", "odd-name": "x", **values}
    done = subprocess.run(
        [program, *shell[1:], "-s"], input=f"{lines}{show}", capture_output=True, text=True, env=environ
    )
    left = dict(each.split("=", 1) for each in done.stdout.split("\0")[:-1])
    assert (done.stderr, left) == ("", dict.fromkeys([*(name for name in PERSONS if name in pays), *OURS], value))


# --- the submission --------------------------------------------------------------------------------------------------


def submit(
    tmp_path: Path,
    sbatch: str,
    spec: JobSpec = ALONE,
    squeue: str = "exit 0",
    needs: str = "",
    sacct: str = "exit 1",
) -> submission.SubmissionResult:
    """Run the submission with a sbatch and a squeue of our own on PATH."""
    tools = tmp_path / "bin"
    programs(tools, sbatch=sbatch, squeue=squeue, sacct=sacct)
    platform = cluster(work_dir=str(tmp_path))
    command = submission.submission_script(
        spec, render.render(spec, platform), render.folder_of(platform, spec.name), needs
    )
    environ = {"PATH": f"{tools}:{os.environ['PATH']}", "SBATCH_PARTITION": "mine", "SLURM_JOB_ID": "1"}
    environ["SLURM_CONF"] = "/c"
    done = subprocess.run(["sh", "-s"], input=command, capture_output=True, env=environ)
    return submission.parse_result(done.stdout, done.stderr)


def test_a_second_submission_finds_the_first_ones_job(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    sbatch = f'echo "$SBATCH_PARTITION|$SLURM_JOB_ID|$SLURM_CONF|$*" >> {calls}; echo "42;cluster"'
    assert submit(tmp_path, sbatch) == submission.SubmissionResult("id", "42", "")
    assert submit(tmp_path, sbatch) == submission.SubmissionResult("id", "42", "")
    folder = tmp_path / "jobs" / ALONE.name
    assert calls.read_text() == f"||/c|--parsable {folder}/job.sh\n"
    assert (folder / "job.sh").read_text() == render.render(ALONE, cluster(work_dir=str(tmp_path)))
    assert time.time() < int((folder / "not_after").read_text()) < time.time() + ALONE.start_limit_s + 5


@pytest.mark.parametrize(
    ("words", "unsure"),
    [
        ("Batch job submission failed: Invalid qos specification", False),
        ("Batch job submission failed: Socket timed out on send/recv operation", True),
        ("Batch job submission failed: Unable to contact slurm controller (connect failure)", True),
        ("Munge encode failed: Failed to access \"/run/munge/munge.socket.2\": No such file or directory", True),
        ("Unable to open file job.sh", False),
    ],
)  # fmt: skip
def test_an_error_of_sbatch_is_a_refusal_or_leaves_it_open(tmp_path: Path, words: str, unsure: bool) -> None:
    answer = submit(tmp_path, f"echo {shlex.quote('sbatch: error: ' + words)} >&2; exit 1")
    assert (answer.outcome, answer.detail, answer.unsure) == ("refused", "1", unsure)
    assert words in answer.errors
    assert submit(tmp_path, "echo 7").outcome == "claimed"  # whoever comes next does not submit at once
    others = f"echo '41|/w/jobs/{ALONE.name}/work|/w/jobs/{ALONE.name}/job.sh'"  # of another work_dir
    assert submit(tmp_path, "echo 7", squeue=others).outcome == "claimed"
    through = f"{others}; echo '43|/tmp|{tmp_path}/jobs/{ALONE.name}/job.sh'"
    assert submit(tmp_path, "echo 7", squeue=through).detail == "43"  # and finds what did get through
    assert submit(tmp_path, "echo 7", squeue="exit 1").detail == "43"


CONNECT = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
MUNGE_AWAY = (
    'sbatch: error: Munge encode failed: Failed to access "/run/munge": No such file or directory (retrying ...)\n'
    "sbatch: error: Batch job submission failed: Protocol authentication error"
)
SUBMIT_LIMIT = (
    "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates "
    "accounting/QOS policy (job submit limit, user's size and/or time limits)"
)


@pytest.mark.parametrize(
    ("said", "not_sent", "no_room"),
    [
        (CONNECT, True, False),
        (MUNGE_AWAY, True, False),
        ("Unable to contact slurm controller (send failure)", False, False),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", False, False),
        ("Munge decode failed: Expired\nsbatch: error: Munge encode failed", False, False),
        (SUBMIT_LIMIT, False, True),
        ("sbatch: error: AssocGrpSubmitJobsLimit", False, True),
        ("sbatch: error: QOSMaxWallDurationPerJobLimit", False, False),
    ],
)
def test_an_error_of_sbatch_says_whether_the_job_was_sent_and_there_is_room(
    said: str, not_sent: bool, no_room: bool
) -> None:
    assert (error_messages.was_not_sent(said), error_messages.is_no_room(said)) == (not_sent, no_room)


@pytest.mark.parametrize(
    "words", ["Zero Bytes were transmitted or received", "submission failed: Resource temporarily unavailable"]
)
def test_a_trial_that_the_controller_does_not_answer_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    programs(tmp_path, sbatch=f"echo 'sbatch: error: {words}' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(AwayError, match=words):
        SlurmScheduler(cluster()).check(ALONE, "#!/bin/sh\n")


def test_a_time_limit_that_was_lowered_is_told_as_slurm_has_it() -> None:
    seen = PolledJob(accounting_rows=(replace(account("TIMEOUT")[0], limit_s=60.0),), unchanged_s=999, job_id="57")
    status = replace(judge.judge(seen), started_s=100.0, ended_s=172.0)
    assert (status.state, status.reason) == (State.TIME_LIMIT, "Slurm says TIMEOUT (its limit was 60 s)")
    text = messages.job_failed(replace(ALONE, time_limit_s=300.0), Run(status=status), source=Path("cluster.yaml"))
    assert "who has lowered its time limit" in text
    assert "more time" not in text


def test_a_slurm_without_the_folder_of_its_jobs_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may know their ends. Their logs are elsewhere, or on a file system that is away."""
    programs(tmp_path / "bin", squeue="echo '7|COMPLETED|a|||cn1||None'")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    scheduler = SlurmScheduler(cluster(work_dir=str(tmp_path / "away")))
    with pytest.raises(AwayError, match=r"away/jobs is not there: .*`work_dir:`"):
        scheduler.status([Submitted("7", "a", 0.0)])


def test_a_claim_whose_owner_was_killed_at_once_grows_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs" / ALONE.name / "claim").mkdir(parents=True)
    assert submit(tmp_path, "echo 7").outcome == "claimed"
    monkeypatch.setattr(submission, "CLAIM_S", 0)
    assert submit(tmp_path, "echo 7").outcome == "claimed"  # the first time that Slurm knows of no job
    monkeypatch.setattr(submission, "TWICE_S", 0)
    assert submit(tmp_path, "echo 7").detail == "7"


def test_missing_code_and_data_are_reported_before_sbatch(tmp_path: Path) -> None:
    archive, data = tmp_path / "archives" / "a.pyz", tmp_path / "data" / "x"
    needs = submission.requirements(str(archive), str(data), str(tmp_path))
    assert submit(tmp_path, "echo 1", needs=needs) == submission.SubmissionResult("missing", "archive", "")
    assert not (tmp_path / "jobs").exists()  # nothing is left behind
    archive.parent.mkdir()
    archive.touch()
    assert submit(tmp_path, "echo 1", needs=needs).detail == "data"
    elsewhere = submission.requirements(None, "/nowhere/that/a/login/node/sees", str(tmp_path))
    assert submit(tmp_path, "echo 1", needs=elsewhere).outcome == "id"  # the job itself will say so


@pytest.mark.parametrize(
    ("path", "is_below"),
    [("/w/a/data", True), ("/w/a/./data", True), ("/w/ab", False), ("/w/a/../data", False)],
)
def test_a_path_with_two_dots_may_lie_anywhere(path: str, is_below: bool) -> None:
    assert submission.is_below(path, "/w/a") == is_below
    container = ContainerKeys(runtime="apptainer", image="i")
    text = render.render(replace(SPEC, data_dir=path), cluster(work_dir="/w/a", container=container))
    assert (f"--bind={path}" in text.split()) != is_below  # else the container sees the data already


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs").write_text("a file")
    programs(tmp_path / "bin", sbatch="echo 1", squeue="exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    scheduler = SlurmScheduler(cluster(work_dir=str(tmp_path)))
    with pytest.raises(RefusedError, match=r"cannot be written: .*/jobs.*`work_dir:` in cluster.yaml"):
        scheduler.submit(ALONE, scheduler.render(ALONE), tmp_path)


def test_an_empty_answer_leaves_it_open_whether_there_is_a_job(tmp_path: Path) -> None:
    assert submission.parse_result(b"", b"sh: killed").unsure
    assert submission.parse_result(b"Welcome!\n", b"").unsure
    assert not submission.parse_result(b"Welcome!\nid 7\n", b"").unsure
    submit(tmp_path, "exit 1")
    assert submit(tmp_path, "echo 7", squeue="exit 1").outcome == "away"  # its controller says nothing about a claim


def test_a_machine_without_slurm_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "env", "sed", "date", "mkdir", "cat", "rm", "timeout", "mv", "printf"):
        (tools / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tools))
    scheduler = SlurmScheduler(cluster(work_dir=str(tmp_path)))
    with pytest.raises(RefusedError, match="there is no sbatch"):
        scheduler.submit(ALONE, scheduler.render(ALONE), tmp_path)
    assert not (tmp_path / "jobs" / ALONE.name).exists()


def test_secrets_come_on_standard_input() -> None:
    spec = replace(ALONE, env={"HF_TOKEN": "s3cr3t", "MINE": "1"})
    text = render.render(spec, cluster())
    command = submission.submission_script(spec, text, "/f").decode()
    assert "s3cr3t" not in text
    assert "export HF_TOKEN=s3cr3t\n" in command
    assert "--export=HF_TOKEN " in command


def test_one_poll_reads_the_folders_of_many_jobs() -> None:
    files = (
        "job torn started=yes exit_code= ended=100 log_bytes=7\n"
        "job a started=yes exit_code=3 ended=100 log_bytes=7 nodes=cn[1-2] steps_known=yes refused=\n"
        "job b started= exit_code=78 ended=1 log_bytes=0 refused=late\n"
        "log 7 a/log\nlog 12 c/log\n"
    )
    exits, started, sizes = queries._parse_folders(files)
    assert exits == {"a": ExitFile(3, 100.0, 7, "", True, "cn[1-2]"), "b": ExitFile(78, 1.0, 0, "late")}
    assert (started, sizes) == ({"a", "torn"}, {"a": 7, "c": 12})


# --- whose job it is -------------------------------------------------------------------------------------------------

WHEN, LATER, NEVER = "2026-11-20T22:00:00", "2026-11-20T23:00:00", "Unknown"
OURS_LIES = "/work/jobs/ours-k1/work"


def ours(folder: Path) -> Submitted:
    return Submitted("7", "ours-k1", time.time(), folder)


def queued(state: str, lies: str, submitted: str = WHEN, script: str = "/tmp/x.sh") -> str:
    nodes = "" if state == "PENDING" else "cn1"
    return f"7|{state}|{submitted}|{submitted}|{nodes}||None|{lies}|{script}"


def accounted(state: str, lies: str, submitted: str = WHEN) -> str:
    """A life of a job in accounting, with one step."""
    rest = f"{submitted}|{submitted}|{submitted}|3:0|cn1|0|5"
    return f"7|{state}|{rest}|{lies}|ours-k1\n7.0|{state}|{rest}||sh"


def slurm_that_says(folder: Path, monkeypatch: pytest.MonkeyPatch, **answers: str) -> None:
    """Commands of Slurm on PATH with these answers; scancel writes its ids down."""
    bodies = {name: f"printf '%s\\n' {shlex.quote(text)}" for name, text in answers.items()}
    silent = {"squeue": "exit 0", "sacct": "exit 0", "scancel": f'echo "$@" >> {folder}/cancelled'}
    (folder / "jobs").mkdir(exist_ok=True)
    programs(folder / "bin", **{**silent, **bodies})
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")


ANOTHERS = "/work/jobs/ours-k12/work"


@pytest.mark.parametrize(
    ("row", "state", "cancelled"),
    [
        (queued("PENDING", OURS_LIES), State.QUEUED, True),
        (queued("RUNNING", OURS_LIES), State.RUNNING, True),
        (queued("RUNNING", "/tmp", script="/mnt/work/jobs/ours-k1/job.sh"), State.RUNNING, True),
        (queued("RUNNING", ANOTHERS, LATER), State.UNKNOWN, False),
        (queued("RUNNING", "/home/you", LATER), State.UNKNOWN, False),
    ],
)
def test_a_job_is_ours_by_its_id_and_folder_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, state: State, cancelled: bool
) -> None:
    slurm_that_says(tmp_path, monkeypatch, squeue=row)
    scheduler = SlurmScheduler(cluster(work_dir=str(tmp_path)))
    assert scheduler.status([ours(tmp_path)])["7"].state is state
    queries.cancel(LocalTransport(cluster()), [ours(tmp_path)])
    assert (tmp_path / "cancelled").exists() is cancelled


@pytest.mark.parametrize(
    ("queue", "lives", "exit_code"),
    [
        ("", [accounted("FAILED", OURS_LIES)], 3),
        # an older and a newer job with our id
        ("", [accounted("TIMEOUT", ANOTHERS, WHEN), accounted("FAILED", OURS_LIES, LATER)], 3),
        ("", [accounted("FAILED", OURS_LIES), accounted("TIMEOUT", ANOTHERS, LATER)], 3),
        ("", [accounted("TIMEOUT", ANOTHERS)], None),
        # somebody has moved the job to another folder while it waited: its script shows whose it is
        (queued("FAILED", "/tmp", script="/w/jobs/ours-k1/job.sh"), [accounted("FAILED", "/tmp")], 3),
        (queued("FAILED", "/tmp", script="/w/jobs/ours-k1/job.sh"), [accounted("TIMEOUT", "/tmp", LATER)], None),
        # accounting may hear of the end of a short job before it hears of the job, as 22.05.8 has shown
        (queued("FAILED", OURS_LIES), [accounted("FAILED", "").replace("ours-k1", "allocation")], None),
    ],
)
def test_of_several_jobs_with_one_id_accounting_tells_of_the_one_in_our_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue: str, lives: list[str], exit_code: int | None
) -> None:
    slurm_that_says(tmp_path, monkeypatch, squeue=queue, sacct="\n".join(lives))
    status = SlurmScheduler(cluster(work_dir=str(tmp_path))).status([ours(tmp_path)])["7"]
    assert (status.state is State.EXITED, status.exit_code) == (exit_code is not None, exit_code)


def test_a_job_that_was_queued_again_ended_with_its_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = [accounted("REQUEUED", OURS_LIES), accounted("CANCELLED", OURS_LIES, LATER)]
    slurm_that_says(tmp_path, monkeypatch, sacct="\n".join(lives))
    assert SlurmScheduler(cluster(work_dir=str(tmp_path))).status([ours(tmp_path)])["7"].state is State.PREEMPTED


@pytest.mark.parametrize(("lies", "known"), [(OURS_LIES, True), (ANOTHERS, False)])
def test_without_accounting_scontrol_tells_of_the_job_in_our_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lies: str, known: bool
) -> None:
    shown = f"JobId=7 JobName=ours-k1 JobState=FAILED ExitCode=3:0 Command=/tmp/x.sh WorkDir={lies} Power="
    slurm_that_says(tmp_path, monkeypatch, scontrol=shown)
    assert (queries.show_job(LocalTransport(cluster()), ours(tmp_path)) is not None) is known


def test_a_job_that_accounting_alone_knows_is_not_submitted_twice(tmp_path: Path) -> None:
    """Its submitter died before it wrote the id down, ten days ago; somebody has renamed it."""
    assert submit(tmp_path, "exit 1").outcome == "refused"
    folder = tmp_path / "jobs" / ALONE.name
    (folder / "claim/since").write_text(f"{int(time.time()) - 10 * 86400}\n")
    sacct = f'case $* in *=now-12days*) echo "43|{folder}/work" ;; esac'
    assert submit(tmp_path, "echo 7", sacct=sacct).detail == "43"


def test_a_job_that_starts_writes_its_id_down(tmp_path: Path) -> None:
    """Nobody may know it any more when the next submission asks, as where Slurm keeps no accounts."""
    folder = tmp_path / "jobs" / ALONE.name
    (folder / "claim").mkdir(parents=True)
    run_script(tmp_path, ALONE)
    assert submit(tmp_path, "echo 7").detail == "43"


# --- the rules -------------------------------------------------------------------------------------------------------


def test_a_broken_rule_is_named_with_the_line_of_the_script() -> None:
    rules = {"forbidden": {"--mem": "whole nodes", "--reservation": "none here"}}
    rules |= {"required": {"--account": "jobs are charged", "--nodes": "say how many"}}
    rules |= {"max_nodes": 1, "max_time": 60, "max_running": 2}
    platform = cluster(policy=rules, slurm={"directives": ("--switches=1 --mem=4G",)}, max_running=4)
    text = render.render(SPEC, platform)
    findings = policy.lint(SPEC, text, platform)
    lines = text.splitlines()
    numbers = [int(finding.split()[1].rstrip(":")) for finding in findings]
    assert [finding.partition(": ")[2].partition(" (")[0] for finding in findings] == [
        "--mem is forbidden here: whole nodes",
        "--account is missing: jobs are charged",
        "2 nodes are more than 1",
        "3600 s are more than 60 s",
        "max_running: 4 are more jobs at a time than 2",
    ]
    assert lines[numbers[0] - 1] == "#SBATCH --switches=1 --mem=4G"
    assert lines[numbers[2] - 1].startswith("#SBATCH --nodes")
    assert all("cluster.yaml: policy" in finding for finding in findings)
    assert policy.lint(SPEC, text, cluster()) == ()
