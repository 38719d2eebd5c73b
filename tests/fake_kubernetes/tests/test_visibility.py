"""Kueue's visibility API on the Kubernetes stand-in, beside what the real one's sources say that it answers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.fake_kubernetes import Kube

GROUP = "visibility.kueue.x-k8s.io"


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """Two LocalQueues of one ClusterQueue that admits nothing, in which jobs wait in the order of their names."""
    with Kube(tmp_path_factory.mktemp("kube")) as kube:
        kueue = kube.kueue(queue="ours", quota={"cpu": "1"})
        kueue.pause()
        kueue.add_queue("theirs", "default", {})
        for name, queue in (("a", "theirs"), ("b", "ours"), ("c", "theirs"), ("d", "ours")):
            template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
            labels = {"kueue.x-k8s.io/queue-name": queue}
            kube.store.create("jobs", "default", {"metadata": {"name": name, "labels": labels},
                                                  "spec": {"template": template}})  # fmt: skip
            kube.until(lambda name=name: name in [owner(one) for one in kube.store.list("workloads")[0]])
        shown(kube, [("b", 1, 0), ("d", 3, 1)])
        yield kube


def owner(workload: dict[str, Any]) -> str:
    return str(workload["metadata"]["ownerReferences"][0]["name"])


def ask(kube: Kube, path: str) -> dict[str, Any]:
    """An HTTPError is raised for what is no success."""
    headers = {"Authorization": f"Bearer {kube.access.token}"}
    with urlopen(Request(f"{kube.url}/apis/{GROUP}{path}", headers=headers), timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def pending(kube: Kube, queue: str, query: str = "") -> list[tuple[str, int, int]]:
    """(job, position in the ClusterQueue, position in the LocalQueue)."""
    rows = ask(kube, f"/v1beta2/namespaces/default/localqueues/{queue}/pendingworkloads{query}")["items"]
    return [(owner(row), row["positionInClusterQueue"], row["positionInLocalQueue"]) for row in rows]


def test_discovery_lists_the_visibility_api(kube: Kube) -> None:
    assert [each["version"] for each in ask(kube, "")["versions"]] == ["v1beta2", "v1beta1"]
    assert {(row["name"], row["kind"]) for row in ask(kube, "/v1beta1")["resources"]} == {
        ("localqueues", "LocalQueue"),
        ("localqueues/pendingworkloads", "PendingWorkloadsSummary"),
    }


def test_positions_count_all_workloads_that_share_the_quota(kube: Kube) -> None:
    assert pending(kube, "ours") == [("b", 1, 0), ("d", 3, 1)]
    assert pending(kube, "theirs") == [("a", 0, 0), ("c", 2, 1)]
    assert pending(kube, "theirs", "?limit=1&offset=1") == [("c", 2, 1)]


def test_a_pending_workload_has_the_fields_of_a_real_one(kube: Kube) -> None:
    summary = ask(kube, "/v1beta1/namespaces/default/localqueues/ours/pendingworkloads")
    assert (summary["kind"], summary["apiVersion"]) == ("PendingWorkloadsSummary", f"{GROUP}/v1beta1")
    row = summary["items"][0]
    assert set(row) == {"metadata", "priority", "localQueueName", "positionInClusterQueue", "positionInLocalQueue"}
    assert set(row["metadata"]) == {"name", "namespace", "creationTimestamp", "ownerReferences"}
    assert (row["localQueueName"], row["priority"]) == ("ours", 0)


def test_a_workload_of_higher_priority_has_the_lower_position(kube: Kube) -> None:
    name = next(one["metadata"]["name"] for one in kube.store.list("workloads")[0] if owner(one) == "d")
    kube.store.change("workloads", "default", name, lambda one: one["spec"].update(priority=5))
    shown(kube, [("d", 0, 0), ("b", 2, 1)])
    kube.store.change("workloads", "default", name, lambda one: one["spec"].update(priority=0))
    shown(kube, [("b", 1, 0), ("d", 3, 1)])


def shown(kube: Kube, rows: list[tuple[str, int, int]]) -> None:
    """As soon as Kueue has heard of it."""
    end = time.monotonic() + 60
    while (found := pending(kube, "ours")) != rows:
        assert time.monotonic() < end, found
        time.sleep(0.02)


def refused(kube: Kube, path: str) -> tuple[int, str]:
    """Code and body."""
    with pytest.raises(HTTPError) as error:
        ask(kube, f"/v1beta2/namespaces/default/localqueues/{path}")
    with error.value as answer:
        return answer.code, answer.read().decode()


@pytest.mark.parametrize(("path", "code"), [("nobody/pendingworkloads", 404), ("ours", 405), ("ours/status", 404)])
def test_unknown_paths_of_the_visibility_api_answer_404(kube: Kube, path: str, code: int) -> None:
    assert refused(kube, path)[0] == code


def test_an_unknown_queue_answers_404(kube: Kube) -> None:
    _code, body = refused(kube, "nobody/pendingworkloads")
    assert json.loads(body)["message"] == f'localqueue.{GROUP} "nobody" not found'


def test_the_visibility_api_answers_403_without_the_right(kube: Kube) -> None:
    kube.forbid("get localqueues/pendingworkloads")
    try:
        code, body = refused(kube, "ours/pendingworkloads")
    finally:
        kube.allow()
    assert code == 403
    assert 'cannot get resource "localqueues/pendingworkloads"' in json.loads(body)["message"]
