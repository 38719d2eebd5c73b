"""The scheduler and the controllers of the Kubernetes stand-in, beside what real ones were seen to do."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_kubernetes import Kube
from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.controllers.custom_jobs import IPU_JOB, JOB_SET, PYTORCH_JOB
from tests.fake_kubernetes.kueue.kueue import EVICTIONS, OVERTIME
from tests.fake_kubernetes.store.trees import Tree
from tests.fake_kubernetes.tests.helpers import (
    OBEDIENT,
    conditions,
    container,
    create_pod,
    events,
    get_pod,
    log_text,
    shell,
    state,
    template,
    wait_for_output,
    wait_until_ended,
    wait_until_running,
)  # fmt: skip
from tests.fake_kubernetes.timings import Timings

RECORDED = Path(__file__).parents[2] / "platforms" / "kubernetes_recorded"
GPU = "nvidia.com/gpu"
WAIT = "sleep 600 & wait"


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """One node, with four GPUs; the kinds that make pods of templates."""
    with Kube(tmp_path_factory.mktemp("kube")) as kube:
        kube.node("node-1", capacity={GPU: "4"})
        kube.add_crd("graphcore.ai", "v1alpha1", "IPUJob", "ipujobs", IPU_JOB)
        kube.add_crd("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", PYTORCH_JOB)
        kube.add_crd("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", JOB_SET)
        yield kube


def gpus(count: int, command: list[str] | None = None) -> dict[str, Any]:
    return {"containers": [container(command or shell(OBEDIENT), resources={"limits": {GPU: str(count)}})]}


def job(
    kube: Kube, name: str, script: str, *, labels: dict[str, str] | None = None, pods: Any = (), **spec: Any
) -> Tree:
    meta = {"name": name, "labels": labels or {}}
    return kube.store.create(
        "jobs", "default", {"metadata": meta, "spec": {**spec, "template": template(shell(script), **dict(pods))}}
    )


def get(kube: Kube, name: str, plural: str = "jobs") -> Tree | None:
    try:
        return kube.store.get(plural, "default", name)
    except KubeError:
        return None


def until(kube: Kube, name: str, condition: str, plural: str = "jobs") -> Tree:
    def look() -> Tree | None:
        found = get(kube, name, plural)
        return found if found and conditions({"status": {}, **found}).get(condition, ("",))[0] == "True" else None

    return kube.until(look)


def pods_of(kube: Kube, name: str) -> list[Tree]:
    return kube.store.list("pods", "default", labels=f"job-name={name}")[0]


def unscheduled(kube: Kube, name: str) -> str:
    """Its reason, as soon as there is one."""

    def look() -> str:
        rows = (get_pod(kube, name) or {"status": {}})["status"].get("conditions", [])
        return next((row["message"] for row in rows if row["status"] == "False"), "")

    return kube.until(look)


def test_a_pod_pends_until_a_node_has_room_and_then_runs(kube: Kube) -> None:
    create_pod(kube, "holder", **gpus(3))
    wait_until_running(kube, "holder")
    create_pod(kube, "waiter", **gpus(2, ["true"]))
    assert unscheduled(kube, "waiter") == (
        f"0/1 nodes are available: 1 Insufficient {GPU}. no new claims to deallocate, preemption: 0/1 nodes are "
        "available: 1 No preemption victims found for incoming pod."
    )
    kube.store.delete("pods", "default", "holder", grace_s=0)
    assert wait_until_ended(kube, "waiter")["status"]["phase"] == "Succeeded"


def test_a_cordoned_node_gets_no_new_pod(kube: Kube) -> None:
    kube.components.cordon("node-1")
    create_pod(kube, "outside", ["true"])
    assert unscheduled(kube, "outside").startswith("0/1 nodes are available: 1 node(s) were unschedulable.")
    kube.components.cordon("node-1", on=False)
    wait_until_ended(kube, "outside")


@pytest.mark.parametrize(("disliked", "liked"), [("node-1", "node-2"), ("node-2", "node-1")])
def test_scheduler_prefers_the_node_of_the_preferred_affinity(tmp_path: Path, disliked: str, liked: str) -> None:
    dislike = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [disliked]}]}
    wishes = [{"weight": 100, "preference": dislike}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}
    with Kube(tmp_path) as kube:
        kube.node("node-2")
        create_pod(kube, "choosy", ["true"], affinity=affinity)
        assert wait_until_ended(kube, "choosy")["spec"]["nodeName"] == liked


def test_a_tainted_node_gets_only_pods_that_tolerate_the_taint(kube: Kube) -> None:
    taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    kube.store.change("nodes", "", "node-1", lambda one: one["spec"].update(taints=[taint]))
    create_pod(kube, "repelled", ["true"])
    assert unscheduled(kube, "repelled").startswith("0/1 nodes are available: 1 node(s) had untolerated taint(s).")
    create_pod(kube, "tolerant", ["true"], tolerations=[{"key": taint["key"], "operator": "Exists"}])
    wait_until_ended(kube, "tolerant")
    kube.store.change("nodes", "", "node-1", lambda one: one["spec"].pop("taints"))
    wait_until_ended(kube, "repelled")


def test_a_pod_pends_while_its_claim_names_an_unknown_storage_class(kube: Kube) -> None:
    claim = {"metadata": {"name": "later"}, "spec": {"storageClassName": "slow"}}
    kube.store.create("persistentvolumeclaims", "default", claim)
    create_pod(kube, "claimant", ["true"], volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "later"}}])
    words = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
    assert unscheduled(kube, "claimant") == words
    assert ("Warning", "FailedScheduling", words) in kube.until(lambda: events(kube, "claimant"))
    kube.store.create("storageclasses", "", {"metadata": {"name": "slow"}})
    wait_until_ended(kube, "claimant")


def test_a_deleted_claim_stays_while_a_pod_uses_it(kube: Kube) -> None:
    kube.store.create("persistentvolumeclaims", "default", {"metadata": {"name": "used"}, "spec": {}})
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "used"}}]
    create_pod(kube, "user", shell(OBEDIENT), volumes=volumes)
    wait_for_output(kube, "user", "ready")
    kube.store.delete("persistentvolumeclaims", "default", "used")
    assert "deletionTimestamp" in kube.store.get("persistentvolumeclaims", "default", "used")["metadata"]
    kube.store.delete("pods", "default", "user")
    kube.until(lambda: get(kube, "used", "persistentvolumeclaims") is None)


def test_a_pod_of_higher_priority_preempts_another(kube: Kube) -> None:
    kube.store.create("priorityclasses", "", {"metadata": {"name": "high"}, "value": 1000})
    create_pod(kube, "victim", **gpus(4, ["sleep", "600"]), terminationGracePeriodSeconds=30)
    wait_until_running(kube, "victim")
    create_pod(kube, "urgent", **gpus(4, ["true"]), priorityClassName="high")
    kube.until(lambda: "DisruptionTarget" in str(get_pod(kube, "victim")))
    kube.store.delete("pods", "default", "victim", grace_s=1)
    wait_until_ended(kube, "urgent")
    assert get_pod(kube, "victim") is None
    last = [event.obj for event in kube.store.events_since(101, "pods") if event.obj["metadata"]["name"] == "victim"][
        -1
    ]
    assert last["status"]["phase"] == "Failed"
    assert conditions(last)["DisruptionTarget"] == ("True", "PreemptionByScheduler")
    assert [row[1] for row in events(kube, "victim")].count("Preempted") == 1


def test_an_evicted_pod_gets_a_condition_and_vanishes(kube: Kube) -> None:
    create_pod(kube, "evicted", shell(OBEDIENT), terminationGracePeriodSeconds=600)
    wait_for_output(kube, "evicted", "ready")
    kube.evict("evicted")
    kube.until(lambda: get_pod(kube, "evicted") is None)
    rows = [event for event in kube.store.events_since(101, "pods") if event.obj["metadata"]["name"] == "evicted"]
    last = rows[-1].obj
    assert (rows[-1].type, last["status"]["phase"]) == ("DELETED", "Failed")
    assert conditions(last)["DisruptionTarget"] == ("True", "EvictionByEvictionAPI")
    assert state(last)["terminated"]["exitCode"] == 143


# As they were on the real cluster
JOBS: dict[str, dict[str, Any]] = {
    "par": {"script": "exit 0", "completions": 4, "parallelism": 2, "completionMode": "Indexed"},
    "backoff": {"script": "exit 2", "backoffLimit": 1},
    "jdeadline": {"script": "sleep 600"},
    "onfailure": {"script": "exit 1", "backoffLimit": 0, "pods": {"restartPolicy": "OnFailure"}},
    "ttl": {"script": "exit 0", "ttlSecondsAfterFinished": 600},
}


@pytest.mark.parametrize("name", JOBS)
def test_a_job_ends_as_on_the_real_cluster(kube: Kube, name: str) -> None:
    recorded = json.loads((RECORDED / f"job-{name}.json").read_text())
    last = recorded["status"]["conditions"][-1]["type"]
    job(kube, name, **JOBS[name])
    if name == "jdeadline":
        kube.until(lambda: (get(kube, name) or {})["status"].get("ready"))
        kube.store.change("jobs", "default", name, lambda one: one["spec"].update(activeDeadlineSeconds=1))
    found = until(kube, name, last)

    def outline(status: Tree) -> Tree:
        rest = {key: value for key, value in status.items() if not key.endswith("Time") and key != "conditions"}
        rows = [{key: row[key] for key in row if not key.endswith("Time")} for row in status["conditions"]]
        return rest | {
            "conditions": rows,
            "keys": set(status),
            "of conditions": {frozenset(row) for row in status["conditions"]},
        }

    assert outline(found["status"]) == outline(recorded["status"])

    def of_pods(rows: list[Tree]) -> list[Any]:
        return sorted((len(re.sub(rf"^{name}-", "", row["name"])), row["phase"]) for row in rows)

    ours = [{"name": one["metadata"]["name"], "phase": one["status"]["phase"]} for one in pods_of(kube, name)]
    if name != "onfailure":  # seen on the real cluster an instant before its pod was gone
        assert of_pods(ours) == of_pods(recorded["pods"])
    wanted = {(kind, reason) for kind, reason, _ in recorded["events"]}
    kube.until(lambda: wanted <= {row[:2] for row in events(kube, name)})


@pytest.mark.parametrize(
    ("script", "look_s", "first", "last"),
    [
        ("trap 'sleep 5; exit 0' TERM; echo ready; sleep 600 & wait", 0.1, "FailureTarget", "Failed"),
        ("trap 'exit 0' TERM; echo ready; sleep 600 & wait", 60.0, "SuccessCriteriaMet", "Complete"),
    ],
)
def test_a_job_counts_a_pod_that_is_deleted_as_failed_unless_it_ends_well_at_once(
    tmp_path: Path, script: str, look_s: float, first: str, last: str
) -> None:
    kube = Kube(tmp_path)
    kube.components.timings = Timings(job_look_s=look_s)
    with kube:
        job(kube, "torn", script, backoffLimit=0)
        kube.until(lambda: pods_of(kube, "torn"))
        name = pods_of(kube, "torn")[0]["metadata"]["name"]
        wait_for_output(kube, name, "ready")
        kube.store.delete("pods", "default", name, grace_s=30)
        until(kube, "torn", first)
        if last == "Failed":
            assert pods_of(kube, "torn")[0]["status"]["phase"] == "Running"
        until(kube, "torn", last)


def test_a_finished_job_is_deleted_after_its_ttl(kube: Kube) -> None:
    job(kube, "fleeting", "exit 0", ttlSecondsAfterFinished=1)
    kube.until(lambda: get(kube, "fleeting") is None and not pods_of(kube, "fleeting"))
    seen = [event.obj for event in kube.store.events_since(101, "jobs") if event.obj["metadata"]["name"] == "fleeting"]
    assert conditions(seen[-1])["Complete"] == ("True", "CompletionsReached")


def test_an_indexed_job_gives_each_pod_its_index(kube: Kube) -> None:
    how = {"completions": 2, "parallelism": 2, "completionMode": "Indexed"}
    script = f"trap 'exit 0' TERM; echo $JOB_COMPLETION_INDEX $HOSTNAME; {WAIT}"
    made = job(kube, "indexed", script, **how)
    kube.until(lambda: (get(kube, "indexed") or {})["status"].get("ready") == 2)
    assert (get(kube, "indexed") or {})["status"]["active"] == 2
    for one in pods_of(kube, "indexed"):
        wait_for_output(kube, one["metadata"]["name"], "indexed")
        kube.components.kill(one["metadata"]["name"], number=signal.SIGTERM)
    until(kube, "indexed", "Complete")
    pods = pods_of(kube, "indexed")
    mark = "batch.kubernetes.io/job-completion-index"
    for number, one in enumerate(pods):
        meta = one["metadata"]
        assert re.fullmatch(rf"indexed-{number}-[a-z0-9]{{5}}", meta["name"])
        assert (meta["labels"][mark], meta["annotations"][mark]) == (str(number),) * 2
        assert meta["labels"]["batch.kubernetes.io/controller-uid"] == made["metadata"]["uid"]
        assert log_text(kube, meta["name"]) == f"{number} indexed-{number}\n"


def test_a_failed_pod_is_replaced_until_the_job_succeeds(kube: Kube) -> None:
    kube.store.create("persistentvolumeclaims", "default", {"metadata": {"name": "once"}, "spec": {}})
    box = container(shell("[ -e /d/x ] || { touch /d/x; exit 1; }"), volumeMounts=[{"name": "d", "mountPath": "/d"}])
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "once"}}]
    job(kube, "retry", "", backoffLimit=3, pods={"containers": [box], "volumes": volumes})
    found = until(kube, "retry", "Complete")
    assert (found["status"]["failed"], found["status"]["succeeded"]) == (1, 1)
    assert sorted(one["status"]["phase"] for one in pods_of(kube, "retry")) == ["Failed", "Succeeded"]


def test_a_pod_failure_policy_ends_a_job_at_once(kube: Kube) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}}
    job(kube, "policy", "exit 42", backoffLimit=6, podFailurePolicy={"rules": [rule]})
    row = next(row for row in until(kube, "policy", "Failed")["status"]["conditions"] if row["type"] == "Failed")
    name = pods_of(kube, "policy")[0]["metadata"]["name"]
    assert row["reason"] == "PodFailurePolicy"
    assert (
        row["message"]
        == f"Container c for pod default/{name} failed with exit code 42 matching FailJob rule at index 0"
    )


def test_a_suspended_job_has_no_pods_until_it_is_resumed(kube: Kube) -> None:
    job(kube, "held", OBEDIENT, suspend=True)
    until(kube, "held", "Suspended")
    assert pods_of(kube, "held") == []

    def suspend(value: bool) -> Callable[[Tree], None]:
        return lambda one: one["spec"].update(suspend=value)

    kube.store.change("jobs", "default", "held", suspend(False))
    kube.until(lambda: (get(kube, "held") or {})["status"].get("ready") == 1)
    kube.store.change("jobs", "default", "held", suspend(True))
    kube.until(lambda: not pods_of(kube, "held"))
    found = until(kube, "held", "Suspended")
    assert "startTime" not in found["status"]
    assert "failed" not in kube.store.get("jobs", "default", "held")["status"]


def test_an_exceeded_quota_shows_only_in_the_events_of_the_job(kube: Kube) -> None:
    hard = {f"requests.{GPU}": "1"}
    kube.store.create("resourcequotas", "default", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    job(kube, "refused", "true", pods=gpus(2))
    rows = kube.until(lambda: [row for row in events(kube, "refused") if row[1] == "FailedCreate"])
    assert re.fullmatch(
        r'Error creating: pods "refused-\w{5}" is forbidden: exceeded quota: q, requested: .*', rows[0][2]
    )
    found = get(kube, "refused")
    assert found
    assert "conditions" not in found["status"]
    kube.store.delete("resourcequotas", "default", "q")
    kube.until(lambda: (get(kube, "refused") or {})["status"].get("active") == 1)
    kube.store.delete("jobs", "default", "refused")


@pytest.mark.parametrize(("propagation", "left"), [("Background", 0), ("Foreground", 0), ("Orphan", 1)])
def test_objects_owned_by_a_job_are_deleted_with_it(kube: Kube, propagation: str, left: int) -> None:
    name = f"owner-{propagation.lower()}"
    job(kube, name, OBEDIENT)
    kube.until(lambda: (get(kube, name) or {})["status"].get("ready") == 1)
    kube.store.delete("jobs", "default", name, propagation=propagation)
    kube.until(lambda: get(kube, name) is None)
    if propagation == "Foreground":
        assert not pods_of(kube, name)  # it has waited for its pods
    if left:
        assert "ownerReferences" not in pods_of(kube, name)[0]["metadata"]
    else:
        kube.until(lambda: not pods_of(kube, name))
    assert len(pods_of(kube, name)) == left


def custom(kube: Kube, plural: str, name: str, spec: Tree) -> None:
    kube.store.create(plural, "default", {"metadata": {"name": name}, "spec": spec})


@pytest.mark.parametrize(("script", "phase"), [("exit 0", "Completed"), ("exit 1", "Failed")])
def test_an_ipu_job_runs_its_workers(kube: Kube, script: str, phase: str) -> None:
    name = f"ipu-{phase.lower()}"
    workers = {"template": template(shell(script))}
    custom(kube, "ipujobs", name, {"jobInstances": 2, "ipusPerJobInstance": "4", "workers": workers})
    kube.until(lambda: (get(kube, name, "ipujobs") or {}).get("status", {}).get("phase") == phase)
    assert wait_until_ended(kube, f"{name}-worker-0")["metadata"]["ownerReferences"][0]["kind"] == "IPUJob"
    kube.store.delete("ipujobs", "default", name)
    kube.until(lambda: get_pod(kube, f"{name}-worker-1") is None)


@pytest.mark.parametrize(("script", "condition"), [("exit 0", "Succeeded"), ("exit 1", "Failed")])
def test_a_pytorch_job_ends_with_its_master(kube: Kube, script: str, condition: str) -> None:
    name = f"torch-{condition.lower()}"
    roles = {"Master": template(shell(f"sleep 0.2; {script}")), "Worker": template(shell("sleep 0.2"))}
    specs = {role: {"replicas": 1, "restartPolicy": "Never", "template": one} for role, one in roles.items()}
    custom(kube, "pytorchjobs", name, {"pytorchReplicaSpecs": specs})
    found = until(kube, name, condition, "pytorchjobs")
    assert conditions(found) == {
        "Created": ("True", "PyTorchJobCreated"),
        "Running": ("False", f"PyTorchJob{condition}"),
        condition: ("True", f"PyTorchJob{condition}"),
    }


def test_a_job_set_runs_its_jobs(kube: Kube) -> None:
    inner = {"spec": {"backoffLimit": 0, "template": template(["true"])}}
    custom(kube, "jobsets", "set", {"replicatedJobs": [{"name": "w", "replicas": 2, "template": inner}]})
    assert until(kube, "set", "Completed", "jobsets")["status"]["terminalState"] == "Completed"
    assert {name for name in ("set-w-0", "set-w-1") if get(kube, name)} == {"set-w-0", "set-w-1"}


# Kueue

QUEUED = {"kueue.x-k8s.io/queue-name": "user-queue"}


@pytest.fixture(scope="module", params=[("v1beta2", "v1beta1"), ("v1beta1",)], ids=lambda versions: versions[0])
def queued(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kube, Any]]:
    """A cluster with a quota of four GPUs, with a newer and an older Kueue."""
    with Kube(tmp_path_factory.mktemp("kueue")) as kube:
        kube.node("node-1", capacity={GPU: "8"})
        yield kube, kube.kueue(quota={GPU: "4"}, versions=request.param)


def reason(kueue: Any, name: str, condition: str = "QuotaReserved") -> tuple[str, str | None]:
    try:
        return conditions(kueue.workload(name)).get(condition, ("", None))
    except KeyError:
        return "", None


def test_kueue_admits_jobs_within_its_quota(queued: tuple[Kube, Any]) -> None:
    kube, kueue = queued
    new = "v1beta2" in kube.store.kinds["workloads"].versions
    job(kube, "first", "true", labels=QUEUED, pods=gpus(3, shell(f"trap 'exit 0' TERM; echo ready; {WAIT}")))
    job(kube, "second", "true", labels=QUEUED, pods=gpus(3, ["true"]))
    job(kube, "never", "true", labels=QUEUED, pods=gpus(5, ["true"]))
    job(kube, "astray", "true", labels={"kueue.x-k8s.io/queue-name": "nowhere"})
    waiting, misplaced = ("WaitingForQuota", "Misconfigured") if new else ("Pending", "Inadmissible")
    kube.until(lambda: reason(kueue, "second") == ("False", waiting))
    kube.until(lambda: reason(kueue, "never") == ("False", "ExceedsMaxQuota" if new else "Pending"))
    kube.until(lambda: reason(kueue, "astray") == ("False", misplaced))
    found = get(kube, "second")
    assert found
    assert found["spec"]["suspend"] is True
    workload = kueue.workload("second")
    assert workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] == found["metadata"]["uid"]
    assert workload["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]
    holder = kube.until(lambda: pods_of(kube, "first"))[0]["metadata"]["name"]
    wait_for_output(kube, holder, "ready")
    kube.components.kill(holder, number=signal.SIGTERM)
    until(kube, "first", "Complete")
    until(kube, "second", "Complete")
    kube.until(lambda: reason(kueue, "second", "Finished") == ("True", "Succeeded"))
    assert {"QuotaReserved", "Admitted", "PodsReady"} <= set(conditions(kueue.workload("second")))
    told = {"CreatedWorkload", "Suspended", "Started", "Resumed", "Completed"}
    kube.until(lambda: told <= {row[1] for row in events(kube, "second")})
    kube.store.delete("jobs", "default", "never")
    kube.until(lambda: reason(kueue, "never") == ("", None))


@pytest.mark.parametrize("why", EVICTIONS)
def test_kueue_deletes_the_pods_of_an_evicted_workload(queued: tuple[Kube, Any], why: str) -> None:
    kube, kueue = queued
    name = why.lower()
    job(kube, name, "true", labels=QUEUED, pods=gpus(3))
    kube.until(lambda: reason(kueue, name, "PodsReady")[0] == "True")
    wait_for_output(kube, pods_of(kube, name)[0]["metadata"]["name"], "ready")
    kueue.pause()
    kueue.evict(name, why)
    kube.until(lambda: not pods_of(kube, name))
    said = conditions(kueue.workload(name))
    assert said["Evicted"][0] == "True"
    assert (said["Evicted"][1] or "").endswith(why)
    assert (said["QuotaReserved"][0], said["Admitted"]) == ("False", ("False", "NoReservation"))
    kueue.pause(on=False)
    if why in ("MaximumExecutionTimeExceeded", "Deactivated"):
        assert kueue.workload(name)["spec"]["active"] is False
    else:
        kube.until(lambda: pods_of(kube, name))  # new ones: its status may still be that of before
        kube.until(lambda: (get(kube, name) or {})["status"].get("ready") == 1)
        assert conditions(kueue.workload(name))["Evicted"] == ("False", "QuotaReserved")
    kube.store.delete("jobs", "default", name)
    kube.until(lambda: not pods_of(kube, name))


def test_kueue_stops_a_job_after_its_maximum_execution_time(queued: tuple[Kube, Any]) -> None:
    kube, kueue = queued
    job(kube, "slow", OBEDIENT, labels={**QUEUED, "kueue.x-k8s.io/max-exec-time-seconds": "1"})
    kube.until(lambda: reason(kueue, "slow", "Evicted")[0] == "True")
    row = next(row for row in kueue.workload("slow")["status"]["conditions"] if row["type"] == "Evicted")
    assert row["message"] == OVERTIME
    assert kueue.workload("slow")["spec"]["maximumExecutionTimeSeconds"] == 1
    kube.until(lambda: not pods_of(kube, "slow"))


def test_kueue_gates_a_plain_pod_until_it_is_admitted(queued: tuple[Kube, Any]) -> None:
    kube, kueue = queued
    kueue.pause()
    create_pod(kube, "plain", ["true"], labels=QUEUED)
    kube.until(lambda: reason(kueue, "plain") == ("", None) and "plain" in str(kube.store.list("workloads")[0]))
    found = get_pod(kube, "plain")
    assert found
    assert "nodeName" not in found["spec"]
    kueue.pause(on=False)
    wait_until_ended(kube, "plain")
    kube.until(lambda: reason(kueue, "plain", "Finished") == ("True", "Succeeded"))


def test_kueue_refuses_a_job_without_a_queue_if_queues_are_mandatory(tmp_path: Path) -> None:
    with Kube(tmp_path) as kube:
        kube.kueue(mandatory=True)
        with pytest.raises(KubeError, match="queue-name"):
            job(kube, "free", "true")
        job(kube, "queued", "true", labels=QUEUED)
        until(kube, "queued", "Complete")
