"""Schemas of custom kinds: which fields they drop, and what they refuse."""

from __future__ import annotations

import re
from typing import Any

from tests.fake_kubernetes.admission.field_errors import Cause
from tests.fake_kubernetes.store.kinds import Kind
from tests.fake_kubernetes.store.trees import Tree

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}
ROOT = {"apiVersion", "kind", "metadata"}


def kind_of(definition: Tree) -> Kind:
    """Return the kind that a CustomResourceDefinition defines; its storage version comes first."""
    spec, names = definition["spec"], definition["spec"]["names"]
    served = sorted(
        (one for one in spec["versions"] if one.get("served", True)), key=lambda one: not one.get("storage")
    )
    return Kind(
        group=spec["group"],
        versions=tuple(one["name"] for one in served),
        kind=names["kind"],
        plural=names["plural"],
        namespaced=spec.get("scope") != "Cluster",
        short_names=tuple(names.get("shortNames", ())),
        subresources=("status",) if "status" in served[0].get("subresources", {}) else (),
        custom=True,
        schema=served[0].get("schema", {}).get("openAPIV3Schema"),
    )


def pruned(schema: Tree, tree: Any, path: str = "") -> tuple[Any, list[str]]:
    """Return the tree without the fields that the schema does not name, and the paths of those."""
    if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource"):
        return tree, []
    if isinstance(tree, list) and isinstance(schema.get("items"), dict):
        rows = [pruned(schema["items"], item, f"{path}[{at}]") for at, item in enumerate(tree)]
        return [row for row, _ in rows], [field for _, fields in rows for field in fields]
    if not isinstance(tree, dict):
        return tree, []
    rest, known, unknown = schema.get("additionalProperties"), {}, []
    for name, value in tree.items():
        below = f"{path}.{name}" if path else name
        inner = schema.get("properties", {}).get(name)
        if inner is None and isinstance(rest, dict):
            inner = rest
        if not path and name in ROOT:
            known[name] = value
        elif inner is not None:
            known[name], fields = pruned(inner, value, below)
            unknown += fields
        elif rest:
            known[name] = value
        else:
            unknown.append(below)
    return known, unknown


def faults(schema: Tree, tree: Any, path: str = "") -> list[Cause]:
    """Return the violations of the schema as causes of a 422."""
    kind = schema.get("type")
    if kind and not _is(tree, kind):
        why = f'Invalid value: "{_go_type(tree)}": {path} in body must be of type {kind}: "{_go_type(tree)}"'
        return [(path, "FieldValueTypeInvalid", why)]
    found = [
        (path, "FieldValueInvalid", f"Invalid value: {_shown(tree)}: {path} in body {why}")
        for why in _limits(schema, tree)
    ]
    if "enum" in schema and tree not in schema["enum"]:
        values = ", ".join(_shown(value) for value in schema["enum"])
        found.append((path, "FieldValueNotSupported", f"Unsupported value: {_shown(tree)}: supported values: {values}"))
    if isinstance(tree, dict):
        required = [name for name in schema.get("required", []) if name not in tree]
        found += [(_below(path, name), "FieldValueRequired", "Required value") for name in required]
        for name, inner in schema.get("properties", {}).items():
            if name in tree and (path or name not in ROOT):
                found += faults(inner, tree[name], _below(path, name))
    elif isinstance(tree, list):
        for at, item in enumerate(tree):
            found += faults(schema.get("items", {}), item, f"{path}[{at}]")
    return found


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, TYPES[kind])


def _limits(schema: Tree, value: Any) -> list[str]:
    broken = []
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            broken.append(f"should be greater than or equal to {schema['minimum']}")
        if "maximum" in schema and value > schema["maximum"]:
            broken.append(f"should be less than or equal to {schema['maximum']}")
    if isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            broken.append(f"should match '{schema['pattern']}'")
        if len(value) > schema.get("maxLength", len(value)):
            broken.append(f"should be at most {schema['maxLength']} chars long")
    return broken


def _go_type(value: Any) -> str:
    names = {bool: "boolean", str: "string", list: "array", dict: "object", int: "integer", float: "number"}
    return names.get(type(value), "null")


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
