"""`--each-node` and `--check`: the plans with made results, and real sessions on this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import user_check
from harness.plans import TrialRequest, TrialResult
from harness.plans.check import Check
from harness.plans.each_node import EachNode
from platforms.config.schema import Platform
from platforms.job import ONLY, JobSpec, Layout, MachineError, Role, State, Status, Trial
from platforms.runner.live_job import Job
from reporting.__main__ import main
from reporting.fleet.node_runs import node_jobs
from reporting.history import reader
from reporting.history.envelope import Envelope
from reporting.history.nights import NOON
from reporting.history.writer import HistoryWriter
from tests.clusters.slurm import Cluster
from tests.clusters.slurm_conf import NODE_NAMES, RESERVED_NODE
from tests.harness.conftest import Project
from tests.reporting.fleet_history import NODES, fleet_nights, visit

SPEC = JobSpec("j", "t", "p", Layout(1, 4, "gpu"), ())


def plan(nodes: Sequence[str] = NODES, **changes: Any) -> EachNode:
    values: dict[str, Any] = {
        "past": node_jobs(fleet_nights(3)),
        "night_ends": NOON,
        "drain_command": lambda node, reason: f"drain {node}: {reason}",
    }
    return EachNode(nodes, **{**values, **changes})


def measured(request: TrialRequest, value: float) -> TrialResult:
    """The result of a request that measured a value in the fourth night."""
    job = Job(SPEC, Platform(name="p"), Path(), done=True)
    node = str(request.trial.node)
    place = int(node.removeprefix("n"))
    hour = 22 + (place + 100 * (request.trial.repeat or 0)) / 600
    return TrialResult(request, job, visit(4, node, value, hour=hour, trial=request.trial))


def failed(request: TrialRequest, state: State, reason: str = "the node is down") -> TrialResult:
    status = Status(state, reason)
    failure = MachineError(reason, status=status)
    return TrialResult(request, Job(SPEC, Platform(name="p"), Path(), done=True, failure=failure, status=status))


def live(request: TrialRequest) -> TrialResult:
    return TrialResult(request, Job(SPEC, Platform(name="p"), Path()))


# --- the plan --------------------------------------------------------------------------------------------------------


def test_each_node_is_visited_once_by_a_job_that_must_run_there():
    first = plan().first()
    assert [request.nodes for request in first] == [(node,) for node in NODES]
    assert first[6].trial.key == "visit-n07"
    assert plan().most == 24


def test_a_slow_visit_gets_a_second_one_and_a_node_that_is_slow_twice_fails_the_test():
    visits = plan()
    results = [measured(request, 92.0 if request.nodes == ("n07",) else 100.0) for request in visits.first()]
    (second,) = visits.more(results)
    assert (second.trial.key, second.nodes) == ("visit-n07-2", ("n07",))
    assert visits.more([*results, live(second)]) == []
    said = visits.conclusion([*results, measured(second, 91.0)])
    assert said.fails
    assert said.short == "11 of 12 nodes fit; n07 -8.5 %"
    assert said.text.splitlines()[-1] == "  drain n07: -8.5 % beside other nodes"
    good = visits.conclusion([*results, measured(second, 100.0)])
    assert (good.text, good.fails) == ("12 of 12 nodes fit", False)


def test_second_visits_wait_until_five_other_nodes_were_measured():
    visits = plan()
    first = visits.first()
    slow = measured(first[0], 92.0)
    some = [measured(request, 100.0) for request in first[1:5]]
    waiting = [live(request) for request in first[5:]]
    assert visits.more([slow, *some, *waiting]) == []
    assert len(visits.more([slow, *some, measured(first[5], 100.0), *waiting[1:]])) == 1


def test_the_slowest_nodes_are_visited_again_first():
    visits = plan()
    values = {"n03": 94.0, "n07": 90.0, "n09": 92.0}
    results = [measured(request, values.get(request.nodes[0], 100.0)) for request in visits.first()]
    assert [request.nodes[0] for request in visits.more(results)] == ["n07", "n09", "n03"]
    said = plan().conclusion(results)
    assert said.short == "9 of 12 nodes fit; n03 -6.0 % (suspect), n07 -10.0 % (suspect), n09 -8.0 % (suspect)"


def test_a_node_on_which_the_job_did_not_start_does_not_fit_and_is_named_with_the_jobs_reason():
    visits = plan()
    first = visits.first()
    results = [failed(first[0], State.NODE_LOST), TrialResult(first[1], None)]
    results += [measured(request, 100.0) for request in first[2:]]
    said = visits.conclusion(results)
    assert said.fails
    assert said.text.splitlines() == [
        "10 of 11 nodes fit; n01 did not start: node lost: the node is down",
        "Not measured: n02 was not visited: max_device_hours.",
        "To take them out of service, an administrator types:",
        "  drain n01: did not start: node lost: the node is down",
    ]


def test_a_node_that_does_not_exist_is_no_unfit_node_and_gets_no_drain_command():
    visits = plan(("n01", "n99"))
    good, unknown = visits.first()
    said = visits.conclusion([measured(good, 100.0), failed(unknown, State.SUBMIT_REFUSED, "Invalid node name\n…")])
    assert (said.short, said.fails) == ("1 of 1 nodes fit; not measured: n99", True)
    assert said.text.splitlines() == [
        "1 of 1 nodes fit",
        "Not measured: n99 did not start: submission refused: Invalid node name.",
    ]


def test_a_check_tells_the_user_in_a_sentence():
    check = Check(("n07",), node_jobs(fleet_nights(3)), NOON)
    (first,) = check.first()
    assert first.trial == Trial(Role.CHECK, node="n07")
    good = check.conclusion([measured(first, 100.5)])
    assert (good.text, good.fails) == (
        "n07 is as fast as the fleet: resnet50 +0.5 % (limit 3.0 %)",
        False,
    )
    (second,) = check.more([measured(first, 92.0)])
    slow = check.conclusion([measured(first, 92.0), measured(second, 92.0)])
    assert slow.fails
    assert slow.text.endswith("tell your centre")
    lost = check.conclusion([failed(first, State.START_DEADLINE)])
    assert lost.text == "n07 did not start: start deadline passed: the node is down"


# --- sessions on this machine ----------------------------------------------------------------------------------------

HERE = socket.gethostname()


def entries(history: Path) -> list[Envelope]:
    return reader.read(history)


@pytest.mark.slow
def test_a_session_visits_this_machine_and_says_go(project: Project) -> None:
    project.job_test()
    result = project.pytest("--each-node=idle")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*1 of 1 nodes fit", f"The speed of {HERE} is not judged yet: this needs comparable runs of 3 other nodes*"]
    )
    (written,) = entries(project.path / "site/history")
    assert (written.trial, written.sane) == (Trial(Role.VISIT, node=HERE), True)
    assert written.verdicts == {}
    (journal,) = project.path.glob("runs/2*/sessions/*")
    assert f'"each_node": "{HERE}"' in journal.read_text()  # a resumed session visits the same nodes


@pytest.mark.slow
def test_a_job_that_fails_on_its_only_node_is_the_tests_failure(project: Project) -> None:
    project.job_test("exit=3")
    result = project.pytest(f"--each-node={HERE}")
    result.assert_outcomes(failed=1)


@pytest.mark.slow
def test_tests_on_several_nodes_are_left_out_with_a_line(project: Project) -> None:
    project.job_test()
    project.platform("mine")
    text = "scheduler: slurm\nwork_dir: /tmp\ndevice: gpu\nlayouts: {default: [1x2, 2x2]}\n"
    project.write("site/platforms/mine.yaml", text)
    result = project.pytest("--each-node=n01", "--platform=mine", "--collect-only")
    result.stdout.fnmatch_lines(["left out: 1 test on several nodes: they say nothing of one node", "*mine-1x2gpu*"])
    result.stdout.no_fnmatch_line("*mine-2x2gpu*")


def test_the_nodes_of_two_platforms_are_two_sessions(project: Project) -> None:
    project.job_test()
    project.platform("mine")
    project.platform("yours")
    project.write("site/site.yaml", "enabled: [mine, yours]\n")
    project.refuses("--each-node=n01", "-m", "mine or yours", says="*--each-node visits the nodes of one platform*")


def test_a_check_beside_a_history_that_does_not_exist_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project.path))
    project.job_test()
    said = "ERROR: --history: there is no folder *nowhere: *"
    project.refuses("--check=local", f"--nodes={HERE}", "--history=nowhere", says=said)


def test_a_check_of_a_platform_that_does_not_exist_is_refused(project: Project) -> None:
    project.job_test()
    project.refuses("--check=locl", "--nodes=n01", says="ERROR: --check: there is no platform 'locl'*")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("stale:0", "*'0' is no number of nodes: write stale:20"),
        ("n01..", "--each-node: *(or write idle, or stale:20)"),
        ("n20..n01", "--each-node: *"),
        ("", "--each-node: *"),
    ],
)
def test_a_word_that_names_no_nodes_is_refused(project: Project, word: str, message: str) -> None:
    project.job_test()
    project.refuses(f"--each-node={word}", says=f"ERROR: {message}")


@pytest.mark.slow
def test_a_check_writes_into_the_users_home_and_nowhere_else(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.job_test()
    home = project.path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    before = sorted(path.name for path in project.path.iterdir())
    result = project.pytest("--check=local", f"--nodes={HERE}")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"*{HERE} ran it, and the centre has too few runs to compare it with: *"])
    assert sorted(path.name for path in project.path.iterdir() if path.name not in ("__pycache__", "lock")) == before
    (written,) = entries(home / "hpc-ml-bench-check/history")
    assert written.trial == Trial(Role.CHECK, node=HERE)
    assert list((home / "hpc-ml-bench-check/runs").glob("2*/*/run.json"))


@pytest.mark.slow
def test_a_check_runs_the_test_that_is_nearest_to_three_minutes(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project.path))
    project.job_test(name="test_a.py")
    project.job_test(name="test_b.py")
    (test_b,) = [line for line in project.pytest("--collect-only", "-q").outlines if line.startswith("test_b.py::")]
    writer = HistoryWriter(project.path / "site/history")
    for number in range(8):
        writer.write(visit(number, HERE, 100.0, test=test_b, platform="local", trial=ONLY, ended_s=1.8e9), None)
    result = project.pytest("--check=local", f"--nodes={HERE}", "--collect-only", "-q")
    assert [line for line in result.outlines if "::" in line] == [test_b]


def test_a_folder_of_the_centre_is_replaced_for_jobs_and_read_for_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr(os, "access", lambda path, mode: "centre" not in str(path))
    given = Platform(name="a100", work_dir="/centre/work", data_dir="data")
    found = user_check.own_platform(given)
    assert (found.work_dir, found.data_dir) == ("/home/ada/hpc-ml-bench-check/work", "/centre/work/data")
    assert found.data_folder("resnet50", "quick", tmp_path) == "/centre/work/data/resnet50-quick"
    mine = Platform(name="a100", work_dir="/scratch/ada")
    assert user_check.own_platform(mine) is mine


# --- a real Slurm ----------------------------------------------------------------------------------------------------

RATE_OF_NODE = """
import pytest
from platforms.results import numbers

PROGRAM = '''
import os, pathlib, sys
node = os.environ["SLURMD_NODENAME"]
slow = pathlib.Path(sys.argv[1]) / node
number = len(list(pathlib.Path(sys.argv[1]).glob("run-*")))
(pathlib.Path(sys.argv[1]) / f"run-{os.getpid()}").touch()
print("rate:", (100 + number % 3) * (float(slow.read_text()) if slow.exists() else 1.0))
'''

@pytest.mark.workload(command=["{python}", "-c", PROGRAM, "{root}/state"])
def test_rate(run, record):
    rate, = numbers(run.log, r"rate: (.+)")
    record(run, metrics={"rate": (rate, "GB/s", "higher")})
"""


@pytest.fixture
def partition(slurm: Cluster) -> Iterator[str]:
    """A partition with all nodes of the cluster but those that are reserved."""
    nodes = ",".join(name for name in NODE_NAMES if name != RESERVED_NODE)
    slurm.ask("scontrol", "create", "PartitionName=fleet", f"Nodes={nodes}", "DefaultTime=10", "State=UP")
    yield "fleet"
    slurm.ask("scontrol", "delete", "PartitionName=fleet")


@pytest.mark.real_slurm
def test_a_slow_node_of_a_cluster_is_named_in_its_first_two_visits(
    project: Project,
    slurm: Cluster,
    partition: str,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project.on_slurm(tmp_path_factory.mktemp("work"), partition=partition)
    project.write("test_rate.py", RATE_OF_NODE)
    project.write("state/here", "")
    result = project.pytest("--platform=mine", "--each-node=stale")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*: 7 of 7 nodes fit"])

    project.write("state/cn2", "0.9")
    slurm.ask("scontrol", "update", "NodeName=cs2n1", "State=DRAIN", "Reason=bad fan")
    result = project.pytest("--platform=mine", "--each-node=stale")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "not in service, not visited: cs2n1 ('bad fan', *",
            "5 of 6 nodes fit; cn2 -* % in 2 runs (limit *",
            "  scontrol update nodename=cn2 state=drain reason='-* beside other nodes'",
        ]
    )
    own = [run.trial.key for run in entries(project.path / "site/history") if run.trial.node == "cn2"]
    assert own == ["visit-cn2", "visit-cn2", "visit-cn2-2"]

    capsys.readouterr()
    site = f"--site={project.path / 'site'}"
    job = slurm.jobs()[-1].job_id
    assert main(["nodes", "mine", site, f"--job={job}"]) == 1
    assert capsys.readouterr().out.startswith("It may be the machine: cn2 -")
