"""POST and PATCH of objects and of their status."""

from __future__ import annotations

from collections.abc import Callable

from tests.fake_kubernetes.api import decoding
from tests.fake_kubernetes.api.errors import KubeError, bad_request, conflict, invalid
from tests.fake_kubernetes.api.messages import Answer, Request
from tests.fake_kubernetes.api.resource_ref import ResourceRef, with_kind
from tests.fake_kubernetes.store.kinds import Kind
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree, merge_patched

MERGE = "application/merge-patch+json"
SYSTEM = {
    *("name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion", "generateName"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
}


def is_dry(request: Request) -> bool:
    text = request.query.get("dryRun", "")
    if text not in {"", "All"}:
        raise invalid("CreateOptions.meta.k8s.io", "", [("dryRun", "FieldValueNotSupported", _unsupported(text))])
    return bool(text)


def _unsupported(text: str) -> str:
    return f'Unsupported value: "{text}": supported values: "All"'


def _body(ref: ResourceRef, request: Request, headers: dict[str, str]) -> Tree:
    """Return the object in the body without unknown fields. Raises KubeError 400.

    For a built-in kind the path supplies kind and apiVersion if the body lacks them.
    """
    tree, wanted = request.json(), ref.kind.served_as(ref.version)
    if isinstance(tree, dict) and not ref.kind.custom:
        tree = {"apiVersion": wanted, "kind": ref.kind.kind, **{key: tree[key] for key in tree if tree[key]}}
    if not isinstance(tree, dict) or not tree.get("kind"):
        body = request.body.decode(errors="replace")[:200]
        of_type = f"the object provided is unrecognized (must be of type {ref.kind.kind})"
        raise bad_request(f"{of_type}: Object 'Kind' is missing in '{body}' ({body})")
    given = f"{tree.get('apiVersion')} {tree['kind']}"
    if given != f"{wanted} {ref.kind.kind}":
        raise bad_request(
            f'{tree["kind"]} in version "{str(tree.get("apiVersion")).rpartition("/")[2]}" cannot be handled as a '
            f'{ref.kind.kind}: no kind "{tree["kind"]}" is registered for version "{tree.get("apiVersion")}"'
        )
    return _decoded(ref.kind, ref.version, tree, request, headers)


def _decoded(kind: Kind, version: str, tree: Tree, request: Request, headers: dict[str, str]) -> Tree:
    known, unknown = decoding.decoded(kind, version, tree)
    mode = request.query.get("fieldValidation") or "Warn"
    if unknown and mode == "Strict":
        fields = ", ".join(f'unknown field "{field}"' for field in unknown)
        raise bad_request(
            f'{kind.kind} in version "{version}" cannot be handled as a {kind.kind}: strict decoding error: {fields}'
        )
    if unknown and mode == "Warn":
        headers["Warning"] = ", ".join(f'299 - "unknown field \\"{field}\\""' for field in unknown)
    return known


def create(store: Store, ref: ResourceRef, request: Request) -> Answer:
    headers: dict[str, str] = {}
    obj = _body(ref, request, headers)
    inside = obj.get("metadata", {}).get("namespace")
    if inside and ref.namespace and inside != ref.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    obj.pop("status", None)
    made = store.create(ref.key, ref.home, obj, dry_run=is_dry(request))
    return Answer(201, with_kind(ref, made), headers)


def patch(store: Store, ref: ResourceRef, request: Request) -> Answer:
    headers: dict[str, str] = {}
    changes = request.json()
    if request.headers.get("content-type", "").partition(";")[0] != MERGE:
        raise KubeError(415, f"this stand-in takes {MERGE} only")

    def new(old: Tree) -> Tree:
        return _decoded(ref.kind, ref.version, merge_patched(old, changes), request, headers)

    return _written(store, ref, request, new, headers)


def _written(
    store: Store, ref: ResourceRef, request: Request, make: Callable[[Tree], Tree], headers: dict[str, str]
) -> Answer:
    def change(obj: Tree) -> None:
        new = make(obj)
        _check_record(ref, obj, new)
        of_status = ref.subresource == "status"
        new = _recorded(obj, new, status=of_status, apart="status" in ref.kind.subresources)
        obj.clear()
        obj.update(new)

    if is_dry(request):
        obj = store.get(ref.key, ref.home, ref.name)
        change(obj)
        return Answer(200, with_kind(ref, obj), headers)
    return Answer(200, with_kind(ref, store.change(ref.key, ref.home, ref.name, change)), headers)


def _check_record(ref: ResourceRef, old: Tree, new: Tree) -> None:
    meta = new["metadata"]
    if meta.get("resourceVersion", old["metadata"]["resourceVersion"]) not in {"", old["metadata"]["resourceVersion"]}:
        raise conflict(ref.kind.resource, ref.name)
    if meta.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
        why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {old['metadata']['uid']}"
        raise conflict(ref.kind.resource, ref.name, why)


def _recorded(old: Tree, new: Tree, *, status: bool, apart: bool) -> Tree:
    """Return what a write stores: for the status only the status, for the object everything else.

    Neither changes the metadata fields that belong to the system.
    """
    if status:
        return {**old, "status": new.get("status", {})}
    meta = {name: value for name, value in new["metadata"].items() if name not in SYSTEM}
    meta |= {name: old["metadata"][name] for name in SYSTEM if name in old["metadata"]}
    result = {**new, "metadata": meta}
    if apart:
        result.pop("status", None)
        result |= {"status": old["status"]} if "status" in old else {}
    return result
