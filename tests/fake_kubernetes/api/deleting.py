"""DELETE of an object and of a collection."""

from __future__ import annotations

from typing import Any

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.api.messages import Answer, Request
from tests.fake_kubernetes.api.resource_ref import ResourceRef, list_item, with_kind
from tests.fake_kubernetes.api.writing import is_dry
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree


def _options(request: Request) -> dict[str, Any]:
    """Return the options of a deletion from the body, else from the query."""
    body = request.json() if request.body.strip() else {}
    conditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds", request.query.get("gracePeriodSeconds"))
    policy = body.get("propagationPolicy") or request.query.get("propagationPolicy", "")
    return {
        "propagation": policy,
        "grace_s": None if grace in (None, "") else int(grace),
        "uid": conditions.get("uid"),
        "version": conditions.get("resourceVersion"),
    }


def _delete(store: Store, ref: ResourceRef, name: str, home: str, options: dict[str, Any]) -> Tree:
    """Delete one object. Deleting a Job without a policy leaves its pods running, as on a real server."""
    policy = options["propagation"] or ("Orphan" if ref.key == "jobs" else "Background")
    return store.delete(ref.key, home, name, **options | {"propagation": policy})


def delete(store: Store, ref: ResourceRef, request: Request) -> Answer:
    options = _options(request)
    if is_dry(request):
        return Answer(200, with_kind(ref, store.get(ref.key, ref.home, ref.name)))
    obj = _delete(store, ref, ref.name, ref.home, options)
    if ref.key == "pods" or not _is_gone(store, ref):
        return Answer(200, with_kind(ref, obj))
    details = {"name": ref.name, "kind": ref.kind.plural, "uid": obj["metadata"]["uid"]}
    details |= {"group": ref.kind.group} if ref.kind.group else {}
    return Answer(200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})


def _is_gone(store: Store, ref: ResourceRef) -> bool:
    try:
        store.get(ref.key, ref.home, ref.name)
    except KubeError:
        return True
    return False


def delete_collection(store: Store, ref: ResourceRef, request: Request) -> Answer:
    options = _options(request)
    labels, fields = request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
    found, version = store.list(ref.key, ref.namespace, labels, fields)
    for obj in found:
        _delete(store, ref, obj["metadata"]["name"], obj["metadata"].get("namespace", ""), options)
    kind = {"kind": f"{ref.kind.kind}List", "apiVersion": ref.kind.served_as(ref.version)}
    return Answer(
        200, kind | {"metadata": {"resourceVersion": str(version)}, "items": [list_item(ref, o) for o in found]}
    )
