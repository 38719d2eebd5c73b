"""GET of an object and of a collection."""

from __future__ import annotations

from tests.fake_kubernetes.api.messages import Answer, Request
from tests.fake_kubernetes.api.resource_ref import ResourceRef, list_item, with_kind
from tests.fake_kubernetes.store.store import Store


def get(store: Store, ref: ResourceRef, request: Request) -> Answer:
    return Answer(200, with_kind(ref, store.get(ref.key, ref.home, ref.name)))


def list_(store: Store, ref: ResourceRef, request: Request) -> Answer:
    """List all objects: no collection here is as long as a page that is asked for."""
    selectors = (request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))
    found, version = store.list(ref.key, ref.namespace, *selectors)
    kind = {"kind": f"{ref.kind.kind}List", "apiVersion": ref.kind.served_as(ref.version)}
    items = [list_item(ref, obj) for obj in found]
    return Answer(200, kind | {"metadata": {"resourceVersion": str(version)}, "items": items})
