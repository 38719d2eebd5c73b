"""The scheduler and the controllers of the Kubernetes stand-in, beside what real ones were seen to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_kubernetes import Kube
from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.store.trees import Tree
from tests.fake_kubernetes.tests.helpers import (
    OBEDIENT,
    conditions,
    container,
    create_pod,
    events,
    get_pod,
    shell,
    template,
    wait_until_ended,
    wait_until_running,
)  # fmt: skip

RECORDED = Path(__file__).parents[2] / "platforms" / "kubernetes_recorded"
GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """One node, with four GPUs."""
    with Kube(tmp_path_factory.mktemp("kube")) as kube:
        kube.node("node-1", capacity={GPU: "4"})
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


def test_a_pod_pends_until_a_node_has_room_and_then_runs(kube: Kube) -> None:
    create_pod(kube, "holder", **gpus(3))
    wait_until_running(kube, "holder")
    create_pod(kube, "waiter", **gpus(2, ["true"]))
    said = f"0/1 nodes are available: 1 Insufficient {GPU}. no new claims to deallocate, preemption: 0/1 nodes are "
    kube.until(lambda: said in str(get_pod(kube, "waiter")))
    kube.store.delete("pods", "default", "holder", grace_s=0)
    assert wait_until_ended(kube, "waiter")["status"]["phase"] == "Succeeded"


# As they were on the real cluster
JOBS: dict[str, dict[str, Any]] = {
    "par": {"script": "exit 0", "completions": 4, "parallelism": 2, "completionMode": "Indexed"},
    "backoff": {"script": "exit 2", "backoffLimit": 1},
    "jdeadline": {"script": "sleep 600"},
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
    assert of_pods(ours) == of_pods(recorded["pods"])
    wanted = {(kind, reason) for kind, reason, _ in recorded["events"]}
    kube.until(lambda: wanted <= {row[:2] for row in events(kube, name)})


def test_objects_owned_by_a_job_are_deleted_with_it(kube: Kube) -> None:
    job(kube, "owner", OBEDIENT)
    kube.until(lambda: (get(kube, "owner") or {})["status"].get("ready") == 1)
    kube.store.delete("jobs", "default", "owner")
    kube.until(lambda: get(kube, "owner") is None and not pods_of(kube, "owner"))


# recordings


def test_a_recording_is_played_act_by_act(kube: Kube) -> None:
    kube.play("played", "image-500-heals")
    job(kube, "played", "true")
    kube.until(lambda: "500 Internal Server Error" in str(pods_of(kube, "played")))
    (pod,) = pods_of(kube, "played")
    assert (pod["metadata"]["name"].partition("-")[0], pod["spec"]["nodeName"]) == ("played", "127.0.0.1")
    assert pod["status"]["phase"] == "Pending"
    kube.go_on("played")
    until(kube, "played", "Complete")
    assert ("Normal", "Completed", "Job completed") in events(kube, "played")
    assert pods_of(kube, "played")[0]["status"]["phase"] == "Succeeded"


def test_who_deletes_a_played_job_ends_the_play(kube: Kube) -> None:
    kube.play("ended", "image-404")
    job(kube, "ended", "true")
    kube.until(lambda: "ErrImagePull" in str(pods_of(kube, "ended")))
    kube.store.delete("jobs", "default", "ended")
    kube.until(lambda: not pods_of(kube, "ended"))


def test_our_deadline_begins_the_last_act_of_a_pod_that_cannot_start(kube: Kube) -> None:
    kube.play("stopped", "image-404")
    job(kube, "stopped", "true")
    kube.until(lambda: "ErrImagePull" in str(pods_of(kube, "stopped")))
    name = pods_of(kube, "stopped")[0]["metadata"]["name"]
    kube.store.change("pods", "default", name, lambda one: one["spec"].update(activeDeadlineSeconds=1))
    until(kube, "stopped", "Failed")
    assert pods_of(kube, "stopped")[0]["status"]["reason"] == "DeadlineExceeded"
