"""Whatever a cluster may say: nothing of it is an error of ours, and every line of our tables is tried."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable
from typing import Any

import pytest

from platforms.job import Outcome, State
from platforms.schedulers.kubernetes.objects.fields import REASON_LENGTH
from platforms.schedulers.kubernetes.status import reasons
from platforms.schedulers.kubernetes.status.judge import Observation, judge
from tests.platforms.kubernetes_objects import (
    DELETED,
    LESS,
    LONG,
    NAMES,
    PYTORCH,
    Json,
    conditions,
    disrupted,
    ended,
    event,
    job,
    look,
    other,
    pod,
    pods_of,
    queued,
    recorded,
    running,
    told,
    was,
    workload,
)
from tests.platforms.test_kubernetes_judge import ENDS, MOUNTS, PODS, UNSCHEDULABLE, VANISHED, WAITS
from tests.platforms.test_kubernetes_kinds import ADMISSIONS, EVICTIONS, KUEUE_STOPS, LATE, REFUSALS


def scenes() -> list[Json]:
    """What was recorded, and more, as arguments of a Sight."""
    nodes = {"n1": {"status": conditions(("Ready", "Unknown", "NodeStatusUnknown", ""))}}
    found: list[Json] = [{"root": was(name), "events": told(name), "nodes": nodes} for name in PODS]
    for name in sorted(set(NAMES) - set(PODS)):
        pods = pods_of(name, lambda each: ended(2))
        found.append({"root": job(recorded(name)["status"]), "pods": tuple(pods), "events": told(name)})
    evicted = workload(("Evicted", "True", "Preempted", "x"), ("QuotaReserved", "False", "Pending", LESS),
                       admissionChecks=[{"name": "a", "state": "Pending"}])  # fmt: skip
    gone = (pod(running(**disrupted("PreemptionByScheduler")), **DELETED),)
    quota = (event("FailedCreate", "exceeded quota: q, requested: a=1, used: a=1, limited: a=1"),)
    found.append({"root": queued(), "gone_pods": gone, "workload": evicted, "events": quota})
    found.append({"root": None, "gone_root": job(), "gone_pods": gone})
    specs = {"Master": {"replicas": 1}}
    said = conditions(("Running", "True", "", ""))
    found.append({"root": other("PyTorchJob", said, PYTORCH, pytorchReplicaSpecs=specs), "pods": (pod(ended(1)),)})
    found.append({"root": other("JobSet", replicatedJobs=[{"template": {"spec": {}}}]), "pods": (pod(running()),)})
    return found


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every key and index in a tree, each with what holds it."""
    if isinstance(tree, dict):
        return [(tree, key) for key in tree] + [found for value in tree.values() for found in places(value)]
    if isinstance(tree, list):
        return [(tree, n) for n in range(len(tree))] + [found for value in tree for found in places(value)]
    return []


STRANGE: tuple[Any, ...] = (None, "", "x", 7, -1, True, 1.5, [], {}, [None], ["x"], {"x": {}})
STRANGE += ("1970-01-01T00:00:00Z", "99999-01-01")


SCENES = scenes()


@pytest.mark.parametrize("number", range(len(SCENES)))
def test_incomplete_or_odd_objects_still_get_a_verdict(number: int) -> None:
    dice = random.Random(number)
    for _ in range(40):
        scene = copy.deepcopy(SCENES[number])
        for _ in range(dice.randint(1, 6)):
            holders = [
                found
                for part in scene.values()
                for each in (part if isinstance(part, tuple) else (part,))
                for found in places(each)
            ]
            holder, key = dice.choice(holders)
            if dice.random() < 0.5 and isinstance(holder, dict):
                holder.pop(key, None)
            elif isinstance(holder, dict) or key < len(holder):
                holder[key] = copy.deepcopy(dice.choice(STRANGE))
        verdict = judge(Observation(**scene, waited_s=lambda name: dice.choice((0.0, LONG))))
        assert verdict.final == (not verdict.status.state.live)
        assert not (verdict.stop and not verdict.final)
        assert len(verdict.status.reason) <= REASON_LENGTH
        assert verdict.status.state is not State.SUCCEEDED or verdict.status.exit_code == 0


def test_empty_objects_are_never_a_success() -> None:
    for root in ({}, {"kind": "Pod"}, {"kind": "Job"}, {"kind": "Job", "apiVersion": "batch/v1", "status": None}):
        assert look(root, waited=LONG).status.state.outcome is Outcome.PENDING
    assert look(None, waited=LONG).status.state is State.LOST


TABLES = {name: table for name, table in vars(reasons).items() if name.isupper() and isinstance(table, tuple)}


def both(listed: Iterable[Json]) -> list[tuple[str, str]]:
    return [(each.get("reason", ""), each.get("message", "")) for each in listed]


def tried() -> dict[str, list[tuple[str, str]]]:
    """The reasons and messages of the tests above, by the table that they are for."""
    statuses = [row[0] for row in ENDS]
    states = [each["state"] for status in statuses for each in status.get("containerStatuses", ())]
    seen = [recorded(name)["status"] for name in PODS]
    waits = [each["state"] for status in seen for each in status.get("containerStatuses", ())]
    unscheduled_ones = [each for status in seen for each in status["conditions"] if each["type"] == "PodScheduled"]
    return {
        "WAITING": both(each["waiting"] for each in waits if "waiting" in each) + [row[:2] for row in WAITS],
        "TERMINATED": both(each["terminated"] for each in states if "terminated" in each),
        "POD": both(statuses),
        "DISRUPTED": both(each for status in statuses for each in status.get("conditions", ())) + KUEUE_STOPS,
        "VANISHED": [(reason, "") for reason, _state in VANISHED],
        "UNSCHEDULABLE": both(unscheduled_ones) + [("Unschedulable", row[0]) for row in UNSCHEDULABLE],
        "MOUNTS": [row[:2] for row in MOUNTS],
        "REFUSED": [("FailedCreate", row[0]) for row in REFUSALS],
        "KIND": [("DeadlineExceeded", ""), ("PyTorchJobFailed", LATE)],
        "ADMISSION": [row[:2] for row in ADMISSIONS],
        "EVICTED": [row[:2] for row in EVICTIONS],
    }


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_row_of_the_reason_tables_is_tested(name: str) -> None:
    """Who adds a line adds a row to a test, and no line hides behind another."""
    table = TABLES[name]
    found = {table.index(rule) for row in tried()[name] if (rule := reasons.find_rule(table, *row)) is not None}
    assert [rule for n, rule in enumerate(table) if n not in found] == []


def test_no_row_of_the_reason_tables_passes_a_job_or_waits_10_minutes() -> None:
    for rule in (rule for table in TABLES.values() for rule in table):
        assert Outcome.PASSED not in (rule.state.outcome, rule.unstarted.outcome if rule.unstarted else None)
        assert rule.patience_s == 0 or rule.meanwhile.live
        assert rule.patience_s < 600  # not measured: after ten minutes without a word the runner gives up by itself
