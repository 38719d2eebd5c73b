"""Jobs of Slurm that name their nodes or a reservation, and what Slurm says of its nodes."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.job import JobSpec, MachineError, RefusedError, State, Status, Submitted
from platforms.schedulers import backend_of
from platforms.schedulers.slurm import judge, node_states
from platforms.schedulers.slurm.judge import PolledJob
from platforms.schedulers.slurm.rows import JobRow, NodeRow, sinfo_rows, unix_time
from platforms.schedulers.slurm.scheduler import SlurmScheduler
from platforms.schedulers.slurm.states import node_state
from tests.clusters.slurm import Cluster
from tests.platforms.slurm_jobs import cluster, ended, shell, submitted
from tests.waiting import until

# As Slurm 22.05 prints it.
SINFO = """\
cn1|standard*|mixed|rome|(null)|Unknown|Unknown|none
cn1|brief|mixed|rome|(null)|Unknown|Unknown|none
cn2|standard*|drained|rome,big|(null)|2026-11-23T01:32:19|root|bad DIMM | slot 3
cn3|standard*|idle|rome|(null)|Unknown|Unknown|none
v100n1|gpu|idle|v100,nvlink|gpu:v100:4(S:0-1)|Unknown|Unknown|none
v100n2|gpu|down*|v100|gpu:v100:4|2026-11-23T01:00:00|slurm|Not responding
a100n1|gpu|allocated|a100,nvlink|gpu:a100:4,shard:8|Unknown|Unknown|none
login1|gpu|idle|v100|(null)|Unknown|Unknown|none
"""


def directives(spec: JobSpec, **slurm: object) -> list[str]:
    text = SlurmScheduler(cluster(Path("/w"), slurm=slurm)).render(spec)
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]


# --- what is asked ---------------------------------------------------------------------------------------------------


def test_nodes_and_reservation_become_options_behind_the_sites_own() -> None:
    spec = replace(shell("x", nodes=2), nodes=("n07", "n09"), reservation="upgrade")
    site = ["--reservation=course", "--nodelist=n01", "--exclude=n02"]
    lines = directives(spec, directives=site, reservation="old")
    assert lines[-2:] == ["--nodelist=n07,n09", "--reservation=upgrade"]
    assert "--reservation=old" not in lines
    assert "--reservation=old" in directives(shell("x"), reservation="old")


def test_a_job_that_names_its_nodes_avoids_none() -> None:
    pinned = replace(shell("x"), nodes=("n07",), avoid_nodes=("n07", "n08"))
    assert not [line for line in directives(pinned) if "exclude" in line]


@pytest.mark.parametrize("nodes", [("n1",), ("n1", "n2", "n3"), ("n1", "n1")])
def test_as_many_nodes_as_the_layout_has(nodes: tuple[str, ...]) -> None:
    asked = len(set(nodes))
    with pytest.raises(RefusedError, match=rf"layout 2x1cpu has 2 nodes, and the job asks for {asked} node"):
        directives(replace(shell("x", nodes=2), nodes=nodes))


def test_a_node_that_the_site_excludes_is_refused_with_the_key_that_does() -> None:
    with pytest.raises(RefusedError, match=r"asks for n07, and .*--exclude.* in cluster.yaml excludes it"):
        directives(replace(shell("x"), nodes=("n07",)), directives=["-x n[05-09]"])


def test_the_sites_policy_may_forbid_both() -> None:
    rules = {"forbidden": {"--nodelist": "the queue chooses", "--reservation": "for courses"}}
    scheduler = SlurmScheduler(cluster(Path("/w"), policy=rules))
    spec = replace(shell("x"), nodes=("n07",), reservation="r")
    found = scheduler.lint(spec, scheduler.render(spec))
    assert ["--nodelist is forbidden here: the queue chooses" in found[0], "--reservation" in found[1]] == [True, True]


# --- what Slurm says of nodes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("idle", "idle"), ("idle~", "idle"), ("idle$", "idle"), ("idle#", "booting"), ("idle*", "booting"),
        ("allocated", "busy"), ("mixed-", "busy"), ("planned", "busy"), ("completing", "busy"), ("mixed*", "booting"),
        ("reserved", "reserved"), ("maint", "reserved"), ("maint*", "reserved"),
        ("drained", "drained"), ("draining", "drained"), ("drained*", "drained"), ("drained$", "drained"),
        ("fail", "drained"), ("failing", "drained"), ("drained@", "booting"), ("draining^", "booting"),
        ("down", "down"), ("down*", "down"), ("down$", "down"), ("down^", "booting"), ("inval", "down"),
        ("rebooting", "booting"), ("unknown", "booting"), ("unk*", "booting"), ("powering_up", "booting"),
    ],
)  # fmt: skip
def test_states_of_nodes(text: str, state: str) -> None:
    assert node_state(text) == state


def test_sinfo_output_becomes_a_row_for_each_node() -> None:
    rows = sinfo_rows(SINFO + "no line of a node\n")
    assert list(rows) == ["cn1", "cn2", "cn3", "v100n1", "v100n2", "a100n1", "login1"]
    assert (rows["cn1"].partitions, rows["cn1"].default) == ({"standard", "brief"}, True)
    assert rows["cn2"] == NodeRow(
        "cn2", "drained", frozenset({"standard"}), True, frozenset({"rome", "big"}), ("",), "bad DIMM | slot 3", "root",
        unix_time("2026-11-23T01:32:19"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("device", "slurm", "names"),
    [
        ("cpu", {}, ["cn1", "cn2", "cn3"]),
        ("cpu", {"partition": "brief"}, ["cn1"]),
        ("cpu", {"partition": "brief,gpu"}, ["cn1", "v100n1", "v100n2", "a100n1", "login1"]),
        ("cpu", {"constraint": "big|rome"}, ["cn1", "cn2", "cn3"]),
        ("cpu", {"constraint": "rome&big"}, ["cn2"]),
        ("gpu", {"partition": "gpu"}, ["v100n1", "v100n2", "a100n1"]),
        ("gpu", {"partition": "gpu", "gres": "gpu:v100"}, ["v100n1", "v100n2"]),
        ("gpu", {"partition": "gpu", "constraint": "[v100*2&nvlink]"}, ["v100n1"]),
        ("cpu", {"directives": ["-p brief", "--exclude=cn[1-2]"]}, []),
        ("cpu", {"directives": ["--exclude=cn[1-2]"]}, ["cn3"]),
        ("cpu", {"partition": "nowhere"}, []),
    ],
)
def test_the_nodes_of_a_platform(device: str, slurm: dict[str, object], names: list[str]) -> None:
    found = node_states.nodes_of_platform(sinfo_rows(SINFO), cluster(Path("/w"), device=device, slurm=slurm))
    assert [node.name for node in found] == names


def test_a_reason_names_its_author_and_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        node = node_states.state_of(sinfo_rows(SINFO)["cn2"])
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (node.state, node.reason) == ("drained", "'bad DIMM | slot 3', by root since 2026-11-23 01:32")


def pends(reason: str, asked: str, sinfo: str | None = SINFO) -> tuple[State, str]:
    row = JobRow("7", "a", "PENDING", reason, asked_nodes=asked)
    status = judge.judge(PolledJob(row, nodes=None if sinfo is None else sinfo_rows(sinfo)))
    return status.state, status.reason


OUT = "ReqNodeNotAvail, UnavailableNodes:"


def test_a_job_that_must_have_a_node_out_of_service_can_never_start() -> None:
    state, why = pends(f"{OUT}cn2", "cn[2-3]")
    assert state is State.NEVER_ADMISSIBLE
    assert why.startswith("node cn2 is drained: 'bad DIMM | slot 3', by root since 2026-11-2")
    assert why.endswith(
        "(choose another node: sinfo --Node, or return it with: scontrol update nodename=cn2 state=resume)"
    )
    state, why = pends(f"({OUT}v100n2)", "v100n2")
    assert (state, why.partition(",")[0]) == (State.NEVER_ADMISSIBLE, "node v100n2 is down*: 'Not responding'")
    assert pends(f"{OUT}gone9", "gone9")[1].startswith("Slurm has no node gone9 any more")


@pytest.mark.parametrize(
    ("reason", "asked", "sinfo"),
    [
        ("Resources", "cn2", SINFO),  # Slurm does not say that the node is the cause
        ("ReqNodeNotAvail, May be reserved for other job", "cn2", SINFO),  # reservations end
        (f"{OUT}cn1", "cn1", SINFO),  # it is back
        (f"{OUT}cn2", "cn2", None),  # sinfo does not answer
        (f"{OUT}cn2", "cn2", SINFO.replace("drained", "drained@")),  # it reboots and comes back
        (f"{OUT}cn[1-99]", "", SINFO),  # nodes that the job did not ask for: a maintenance comes
    ],
)
def test_what_passes_by_itself_is_waited_for(reason: str, asked: str, sinfo: str | None) -> None:
    assert pends(reason, asked, sinfo) == (State.QUEUED, reason)


def test_what_an_administrator_types() -> None:
    backend = backend_of(cluster(Path("/w")))
    assert backend.drain_command("n07", "it's 15 % slow") == (
        "scontrol update nodename=n07 state=drain reason='it'\"'\"'s 15 % slow'"
    )


# --- a real Slurm ----------------------------------------------------------------------------------------------------


def first_end(scheduler: SlurmScheduler, job: Submitted) -> Status:
    """The status with which a poll says for the first time that the job has ended."""
    seen: list[Status] = []

    def has_ended() -> bool:
        seen.append(scheduler.status([job])[job.job_id])
        return not seen[-1].state.live

    until(has_ended, "it ends", longest_s=0.2)
    return seen[-1]


@pytest.mark.real_slurm
def test_a_job_runs_where_it_must_and_says_where_it_ran(slurm: Cluster, tmp_path: Path) -> None:
    scheduler = SlurmScheduler(cluster(tmp_path))
    job = submitted(scheduler, replace(shell("here", nodes=2), nodes=("cn3", "cn1")), tmp_path)
    ended(scheduler, job)
    status = scheduler.status([job])[job.job_id]
    assert (status.state, sorted(status.nodes)) == (State.SUCCEEDED, ["cn1", "cn3"])
    backend = backend_of(cluster(tmp_path))
    assert sorted(backend.nodes_of_job(cluster(tmp_path), job.job_id)) == ["cn1", "cn3"]
    assert backend.start_of_job(cluster(tmp_path), job.job_id) == status.started_s
    assert backend.start_of_job(cluster(tmp_path), "99999") is None
    with pytest.raises(RefusedError, match="neither squeue nor sacct shows a job 99999"):
        backend.nodes_of_job(cluster(tmp_path), "99999")
    with pytest.raises(RefusedError, match="is no id of a job at Slurm"):
        backend.nodes_of_job(cluster(tmp_path), "$(reboot)")


@pytest.mark.real_slurm
def test_a_job_on_a_drained_node_ends_at_once(slurm: Cluster, tmp_path: Path) -> None:
    slurm.ask("scontrol", "update", "nodename=cn2", "state=drain", "reason=bad DIMM | slot 3")
    scheduler = SlurmScheduler(cluster(tmp_path))
    job = submitted(scheduler, replace(shell("drained"), nodes=("cn2",)), tmp_path)
    seen = first_end(scheduler, job)
    assert seen.state is State.NEVER_ADMISSIBLE
    assert re.match(r"node cn2 is drained: 'bad DIMM \| slot 3', by \w+ since 20", seen.reason)
    assert slurm.ask("squeue", "-h", "--states=all", "-j", job.job_id, "-o", "%T") == "CANCELLED"
    nodes = backend_of(cluster(tmp_path)).nodes(cluster(tmp_path))
    assert [(node.name, node.state) for node in nodes] == [("cn1", "idle"), ("cn2", "drained"), ("cn3", "idle")]
    slurm.ask("scontrol", "update", "nodename=cn2", "state=resume")
    job = submitted(SlurmScheduler(cluster(tmp_path)), replace(shell("x"), nodes=("cn2",)), tmp_path)
    ended(scheduler, job)


@pytest.mark.real_slurm
def test_what_slurm_refuses_itself(slurm: Cluster, tmp_path: Path) -> None:
    for number, (changes, why) in enumerate(
        (
            ({"nodes": ("nope1",)}, r"Invalid node name specified \(the names of the nodes: sinfo --Node\)"),
            ({"nodes": ("v100n1",)}, r"Requested nodes not in this partition \(the nodes of each partition: sinfo"),
            ({"reservation": "nope"}, r"reservation is invalid \(the reservations.*: scontrol show reservation\)"),
            ({"reservation": "course", "nodes": ("cn1",)}, r"Problem using reservation"),
        )
    ):
        with pytest.raises(MachineError, match=why) as refusal:
            submitted(SlurmScheduler(cluster(tmp_path)), replace(shell(f"x{number}"), **changes), tmp_path)
        assert refusal.value.status.state in (State.SUBMIT_REFUSED, State.NEVER_ADMISSIBLE)


@pytest.mark.real_slurm
def test_a_job_in_its_reservation(slurm: Cluster, tmp_path: Path) -> None:
    there = cluster(tmp_path, slurm={"partition": "teaching"})
    scheduler = SlurmScheduler(there)
    job = submitted(scheduler, replace(shell("x"), nodes=("cn4",), reservation="course"), tmp_path)
    ended(scheduler, job)
    status = scheduler.status([job])[job.job_id]
    assert (status.state, status.nodes) == (State.SUCCEEDED, ("cn4",))
    assert [(node.name, node.state) for node in backend_of(there).nodes(there)] == [("cn4", "reserved")]
