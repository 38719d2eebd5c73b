"""Kueue's visibility API: the pending workloads of a queue and their positions."""

from __future__ import annotations

from collections.abc import Iterable

from tests.fake_kubernetes.api.errors import not_found
from tests.fake_kubernetes.api.messages import Answer, Request
from tests.fake_kubernetes.api.resource_ref import ResourceRef
from tests.fake_kubernetes.kueue.workloads import is_true
from tests.fake_kubernetes.store.kinds import Kind
from tests.fake_kubernetes.store.trees import Tree

GROUP, PENDING = "visibility.kueue.x-k8s.io", "pendingworkloads"
LIMIT, MOST = 1000, 4000


def kind(versions: tuple[str, ...]) -> Kind:
    """Return the kind, which serves only its subresource."""
    return Kind(GROUP, versions, "LocalQueue", "localqueues", True, subresources=(PENDING,), stored=False)


def waiting(workloads: Iterable[Tree]) -> list[Tree]:
    """Return the pending workloads in their order: by priority, then as given, which is oldest first."""
    found = [one for one in workloads if one["spec"]["active"] and not is_true(one, "QuotaReserved", "Finished")]
    return sorted(found, key=lambda one: -int(one["spec"].get("priority") or 0))


def summary(ref: ResourceRef, request: Request, queues: Iterable[str], workloads: Iterable[Tree]) -> Answer:
    """Of one LocalQueue; `queues` are those of its namespace, `workloads` all that its ClusterQueue has. 404."""
    if ref.name not in queues:
        raise not_found(f"localqueue.{GROUP}", ref.name)
    offset, limit = int(request.query.get("offset") or 0), min(int(request.query.get("limit") or LIMIT), MOST)
    own = [
        (index, one)
        for index, one in enumerate(waiting(workloads))
        if (one["metadata"]["namespace"], one["spec"]["queueName"]) == (ref.namespace, ref.name)
    ]
    rows = [_row(one, number, index) for number, (index, one) in enumerate(own)][max(offset, 0) :][:limit]
    head = {"kind": "PendingWorkloadsSummary", "apiVersion": ref.kind.served_as(ref.version)}
    return Answer(200, head | {"metadata": {"creationTimestamp": None}, "items": rows})


def _row(workload: Tree, local: int, everywhere: int) -> Tree:
    meta, spec = workload["metadata"], workload["spec"]
    owners = [{name: one[name] for name in ("apiVersion", "kind", "name", "uid")} for one in meta["ownerReferences"]]
    about = {name: meta[name] for name in ("name", "namespace", "creationTimestamp")} | {"ownerReferences": owners}
    places = {"positionInClusterQueue": everywhere, "positionInLocalQueue": local}
    return {"metadata": about, "priority": spec["priority"], "localQueueName": spec["queueName"], **places}
