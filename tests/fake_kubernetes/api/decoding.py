"""Decodes objects: drops and reports unknown fields, refuses wrong types."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from tests.fake_kubernetes.api.errors import bad_request
from tests.fake_kubernetes.store.kinds import Kind
from tests.fake_kubernetes.store.quantities import canonical
from tests.fake_kubernetes.store.trees import Tree

INT_BITS = {"int32": 31, "int64": 63}
MAPS = {"map": "string", "quantities": "quantity"}


@cache
def types() -> dict[str, dict[str, str]]:
    """Return the fields of each type with their types, from fields.txt."""
    text = (Path(__file__).parent / "fields.txt").read_text()
    found: dict[str, dict[str, str]] = {}
    for line in re.sub(r"\n +", " ", re.sub(r"(?m)^#.*\n", "", text)).splitlines():
        name, _, fields = line.partition(" = ")
        pairs = [field.partition(":") for field in fields.split()]
        found[name] = {field: kind or "string" for field, _, kind in pairs}
    return found


def decoded(kind: Kind, version: str, tree: Tree) -> tuple[Tree, list[str]]:
    """Return the object without unknown fields, and the paths of those. Raises KubeError 400 for wrong types."""
    if kind.custom or kind.kind not in types():
        meta, unknown = _Decoder(kind, version).decode("ObjectMeta", tree.get("metadata") or {}, "metadata")
        return {**tree, "metadata": meta}, unknown
    return _Decoder(kind, version).decode(kind.kind, tree, "")


class _Decoder:
    def __init__(self, kind: Kind, version: str) -> None:
        self._kind = kind
        self._version = version
        self._unknown: list[str] = []

    def decode(self, type_name: str, tree: Any, path: str) -> tuple[Any, list[str]]:
        return self._struct(type_name, tree, path, "", self._kind.kind), self._unknown

    def _struct(self, type_name: str, tree: Any, path: str, field: str, owner: str) -> Any:
        if not isinstance(tree, dict):
            self._refuse(tree, owner, path, f"v1.{type_name}")
        fields, result = types()[type_name], {}
        for name, value in tree.items():
            below = f"{path}.{name}" if path else name
            if name not in fields:
                self._unknown.append(below)
            elif value is not None:
                result[name] = self._value(fields[name], value, below, type_name)
        return result

    def _value(self, kind: str, value: Any, path: str, owner: str) -> Any:
        if kind == "*":
            return value
        if kind.startswith("["):
            if not isinstance(value, list):
                inner = kind[1:-1]
                self._refuse(value, owner, path, f"[]{'v1.' if inner in types() else ''}{inner}")
            return [self._value(kind[1:-1], item, f"{path}[{at}]", owner) for at, item in enumerate(value)]
        if kind in MAPS:
            if not isinstance(value, dict):
                self._refuse(value, owner, path, "map[string]string" if kind == "map" else "v1.ResourceList")
            return {name: self._value(MAPS[kind], item, path, owner) for name, item in value.items()}
        if kind in types():
            return self._struct(kind, value, path, path, owner)
        return self._scalar(kind, value, path, owner)

    def _scalar(self, kind: str, value: Any, path: str, owner: str) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if kind == "quantity" and (number or isinstance(value, str)):
            return self._quantity(value)
        if kind in {"string", "time"}:
            fits = isinstance(value, str)
        elif kind in INT_BITS:
            fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) >> INT_BITS[kind] == 0
        elif kind == "port":
            fits = isinstance(value, str) or (number and isinstance(value, int))
        else:
            fits = isinstance(value, bool)
        if not fits:
            self._refuse(value, owner, path, kind)
        return value

    def _quantity(self, value: str | float) -> str:
        try:
            return canonical(value)
        except ValueError as error:
            raise bad_request(self._cannot(str(error))) from error

    def _refuse(self, value: Any, owner: str, path: str, wanted: str) -> None:
        names = {bool: "bool", str: "string", list: "array", dict: "object"}
        given = names.get(type(value), "number")
        if given == "number" and wanted in INT_BITS:
            given = f"number {value}"
        path = re.sub(r"\[\d+\]", "", path)
        where = f"Go struct field {owner}.{path}" if path else "Go value"
        raise bad_request(self._cannot(f"json: cannot unmarshal {given} into {where} of type {wanted}"))

    def _cannot(self, why: str) -> str:
        return f'{self._kind.kind} in version "{self._version}" cannot be handled as a {self._kind.kind}: {why}'
