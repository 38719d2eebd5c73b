"""DELETE of an object. What it owns goes with it, whatever the policy is."""

from __future__ import annotations

from typing import Any

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.api.messages import Answer, Request
from tests.fake_kubernetes.api.resource_ref import ResourceRef, with_kind
from tests.fake_kubernetes.api.writing import is_dry
from tests.fake_kubernetes.store.store import Store


def _options(request: Request) -> dict[str, Any]:
    """Return the options of a deletion from the body, else from the query."""
    body = request.json() if request.body.strip() else {}
    conditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds", request.query.get("gracePeriodSeconds"))
    return {
        "grace_s": None if grace in (None, "") else int(grace),
        "uid": conditions.get("uid"),
        "version": conditions.get("resourceVersion"),
    }


def delete(store: Store, ref: ResourceRef, request: Request) -> Answer:
    options = _options(request)
    if is_dry(request):
        return Answer(200, with_kind(ref, store.get(ref.key, ref.home, ref.name)))
    obj = store.delete(ref.key, ref.home, ref.name, **options)
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
