"""Patches: merge (RFC 7396), JSON (RFC 6902), and strategic merge for the lists that our objects have."""

from __future__ import annotations

from typing import Any

from tests.fake_kubernetes.api.errors import KubeError, bad_request
from tests.fake_kubernetes.store.trees import Tree, deep_copy, merge_patched

MERGE, STRATEGIC, JSON = (f"application/{name}-patch+json" for name in ("merge", "strategic-merge", "json"))
# The key of a list's elements in a strategic merge patch; other lists are replaced.
KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "conditions": "type",
    "ownerReferences": "uid",
    "taints": "key",
    "ports": "port",
}


def patched(obj: Tree, content_type: str, patch: Any, *, custom: bool) -> Tree:
    """Return the patched object.

    Raises KubeError 415 for an unsupported type, which a strategic patch of a custom object is; 400 or 422 if the patch
    does not fit.
    """
    supported = [JSON, MERGE] if custom else [JSON, MERGE, STRATEGIC]
    media = content_type.partition(";")[0].strip()
    if media not in supported:
        why = f"the body of the request was in an unknown format - accepted media types include: {', '.join(supported)}"
        raise KubeError(415, why)
    if media == JSON:
        if not isinstance(patch, list):
            raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
        new = deep_copy(obj)
        for step in patch:
            new = _step(new, step)
        return new  # type: ignore[no-any-return]
    if not isinstance(patch, dict):
        raise bad_request("json: cannot unmarshal array into Go value of type map[string]interface {}")
    return (merge_patched if media == MERGE else _strategic)(obj, patch)  # type: ignore[no-any-return]


def _strategic(tree: Any, patch: Any, name: str = "") -> Any:
    if isinstance(patch, list) and isinstance(tree, list) and (key := KEYS.get(name)):
        return _elements(tree, patch, key)
    if not isinstance(patch, dict):
        return deep_copy(patch)
    result = dict(tree) if isinstance(tree, dict) else {}
    for field, value in patch.items():
        if value is None:
            result.pop(field, None)
        elif not field.startswith("$"):
            result[field] = _strategic(result.get(field), value, field)
    return result


def _elements(old: list[Any], patch: list[Any], key: str) -> list[Any]:
    result = {element.get(key): element for element in old}
    for element in patch:
        if element.get("$patch") == "delete":
            result.pop(element.get(key), None)
        else:
            result[element.get(key)] = _strategic(result.get(element.get(key)), element)
    return list(result.values())


def _step(tree: Any, step: Tree) -> Any:
    operation, path = step["op"], [_unescaped(part) for part in step["path"].split("/")[1:]]
    if operation == "test":
        if _at(tree, path) != step.get("value"):
            raise KubeError(422, f"the server rejected our request due to an error in our request: {step['path']}")
        return tree
    value = deep_copy(_at(tree, [_unescaped(part) for part in step["from"].split("/")[1:]])) if "from" in step else None
    if operation == "move":
        _change(tree, [_unescaped(part) for part in step["from"].split("/")[1:]], "remove", None)
    kind = "add" if operation in {"move", "copy"} else operation
    _change(tree, path, kind, value if "from" in step else deep_copy(step.get("value")))
    return tree


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _at(tree: Any, path: list[str]) -> Any:
    try:
        for part in path:
            tree = tree[int(part)] if isinstance(tree, list) else tree[part]
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise KubeError(422, "the server rejected our request due to an error in our request") from error
    return tree


def _change(tree: Any, path: list[str], operation: str, value: Any) -> None:
    home, last = _at(tree, path[:-1]), path[-1]
    if operation != "add":
        _at(home, [last])
    if isinstance(home, list):
        at = len(home) if last == "-" else int(last)
        home[at : at if operation == "add" else at + 1] = [] if operation == "remove" else [value]
    elif operation == "remove":
        del home[last]
    else:
        home[last] = value
