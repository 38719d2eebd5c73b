"""DELETE of an object and of a collection."""

from __future__ import annotations

from typing import Any

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.api.messages import Answer, Request
from tests.fake_kubernetes.api.target import Place, item, shown
from tests.fake_kubernetes.api.writing import is_dry
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree


def _options(request: Request) -> dict[str, Any]:
    """Of a deletion: from the body, where one came, else from the query."""
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


def _delete(store: Store, place: Place, name: str, home: str, options: dict[str, Any]) -> Tree:
    """Whoever deletes a Job without saying what is to become of its pods leaves them running."""
    policy = options["propagation"] or ("Orphan" if place.key == "jobs" else "Background")
    return store.delete(place.key, home, name, **options | {"propagation": policy})


def delete(store: Store, place: Place, request: Request) -> Answer:
    options = _options(request)
    if is_dry(request):
        return Answer(200, shown(place, store.get(place.key, place.home, place.name)))
    obj = _delete(store, place, place.name, place.home, options)
    if place.key == "pods" or not _is_gone(store, place):
        return Answer(200, shown(place, obj))
    details = {"name": place.name, "kind": place.kind.plural, "uid": obj["metadata"]["uid"]}
    details |= {"group": place.kind.group} if place.kind.group else {}
    return Answer(200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})


def _is_gone(store: Store, place: Place) -> bool:
    try:
        store.get(place.key, place.home, place.name)
    except KubeError:
        return True
    return False


def delete_collection(store: Store, place: Place, request: Request) -> Answer:
    options = _options(request)
    labels, fields = request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
    found, version = store.list(place.key, place.namespace, labels, fields)
    for obj in found:
        _delete(store, place, obj["metadata"]["name"], obj["metadata"].get("namespace", ""), options)
    kind = {"kind": f"{place.kind.kind}List", "apiVersion": place.kind.served_as(place.version)}
    return Answer(200, kind | {"metadata": {"resourceVersion": str(version)}, "items": [item(place, o) for o in found]})
