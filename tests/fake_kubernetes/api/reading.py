"""GET of an object and of a collection."""

from __future__ import annotations

import base64
import json

from tests.fake_kubernetes.api.errors import KubeError, bad_request
from tests.fake_kubernetes.api.messages import Answer, Request
from tests.fake_kubernetes.api.resource_ref import ResourceRef, list_item, with_kind
from tests.fake_kubernetes.api.watch import version_of
from tests.fake_kubernetes.store.selectors import matcher
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree

GONE_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
GONE_VERSION = "The resourceVersion for the provided list is too old."


def get(store: Store, ref: ResourceRef, request: Request) -> Answer:
    return Answer(200, with_kind(ref, store.get(ref.key, ref.home, ref.name)))


def list_(store: Store, ref: ResourceRef, request: Request) -> Answer:
    """List objects. All pages show the same resourceVersion; 410 if that is forgotten."""
    limit, asked = int(request.query.get("limit") or 0), version_of(request)
    version, start = store.version, ("", "")
    exact = request.query.get("resourceVersionMatch") == "Exact" or limit
    if token := request.query.get("continue"):
        version, start = _position(token)
    elif asked and asked > version:
        raise KubeError(504, f"Too large resource version: {asked}, current: {version}", details=_retry())
    elif asked and exact:
        version = asked
    objects = _page(store, ref, version, GONE_TOKEN if token else GONE_VERSION)
    match = matcher(request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""), ref.key)
    found = [(key, obj) for key, obj in objects if key[1:] > start and match(obj)]
    page = found[:limit] if limit else found
    meta: Tree = {"resourceVersion": str(version)}
    if len(page) < len(found):
        text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": page[-1][0][1:]})
        meta |= {"continue": base64.urlsafe_b64encode(text.encode()).decode(), "remainingItemCount": len(found) - limit}
    items = [list_item(ref, obj) for _, obj in page]
    kind = {"kind": f"{ref.kind.kind}List", "apiVersion": ref.kind.served_as(ref.version)}
    return Answer(200, kind | {"metadata": meta, "items": items})


def _retry() -> Tree:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return {"causes": causes, "retryAfterSeconds": 1}


def _position(token: str) -> tuple[int, tuple[str, str]]:
    try:
        tree = json.loads(base64.urlsafe_b64decode(token))
        return tree["rv"], tuple(tree["start"])
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error


def _page(store: Store, ref: ResourceRef, version: int, gone: str) -> list[tuple[tuple[str, str, str], Tree]]:
    try:
        objects = store.at(version, ref.key)
    except KubeError as error:
        raise KubeError(410, gone) from error
    return sorted(
        ((key, obj) for key, obj in objects.items() if ref.namespace in (None, key[1])), key=lambda row: row[0]
    )
