"""The scheduler and the controllers of the Kubernetes stand-in, beside what real ones were seen to do."""

from __future__ import annotations

from collections.abc import Iterator
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

GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """One node, with four GPUs."""
    with Kube(tmp_path_factory.mktemp("kube")) as kube:
        kube.node("node-1", capacity={GPU: "4"})
        yield kube


def gpus(count: int, command: list[str] | None = None) -> dict[str, Any]:
    return {"containers": [container(command or shell(OBEDIENT), resources={"limits": {GPU: str(count)}})]}


def job(kube: Kube, name: str, script: str) -> None:
    kube.store.create("jobs", "default", {"metadata": {"name": name}, "spec": {"template": template(shell(script))}})


def get(kube: Kube, name: str) -> Tree | None:
    try:
        return kube.store.get("jobs", "default", name)
    except KubeError:
        return None


def until(kube: Kube, name: str, condition: str) -> None:
    kube.until(lambda: conditions(get(kube, name) or {"status": {}}).get(condition, ("",))[0] == "True")


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


def test_objects_owned_by_a_job_are_deleted_with_it(kube: Kube) -> None:
    job(kube, "owner", OBEDIENT)
    kube.until(lambda: (get(kube, "owner") or {})["status"].get("ready") == 1)
    kube.store.delete("jobs", "default", "owner")
    kube.until(lambda: get(kube, "owner") is None and not pods_of(kube, "owner"))


# recordings


@pytest.mark.slow
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


@pytest.mark.slow
def test_our_deadline_begins_the_last_act_of_a_pod_that_cannot_start(kube: Kube) -> None:
    kube.play("stopped", "image-404")
    job(kube, "stopped", "true")
    kube.until(lambda: "ErrImagePull" in str(pods_of(kube, "stopped")))
    name = pods_of(kube, "stopped")[0]["metadata"]["name"]
    kube.store.change("pods", "default", name, lambda one: one["spec"].update(activeDeadlineSeconds=1))
    until(kube, "stopped", "Failed")
    assert pods_of(kube, "stopped")[0]["status"]["reason"] == "DeadlineExceeded"
