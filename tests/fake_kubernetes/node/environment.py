"""A container's environment: values, references, and $(NAME) in values and commands."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.fake_kubernetes.store.trees import Tree

_NAMED = re.compile(r"\$(?:\$|\((?P<name>[^()]*)\))")
_BY_KEY = re.compile(r"^metadata\.(labels|annotations)\['([^']+)'\]$")
Get = Callable[[str, str], Tree | None]  # (plural, name) -> the object in the pod's namespace, if there is one


class Misconfigured(Exception):
    """The container refers to something that does not exist: CreateContainerConfigError."""


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace $(NAME) by its value, if it has one, and $$ by $."""

    def one(match: re.Match[str]) -> str:
        if match["name"] is None:
            return "$"
        return values.get(match["name"], match[0])

    return _NAMED.sub(one, text)


def environment(pod: Tree, container: Tree, get: Get) -> dict[str, str]:
    """Return the variables of envFrom and env, in this order. Raises Misconfigured."""
    values: dict[str, str] = {}
    for source in container.get("envFrom", []):
        values |= _all_of(pod, source, get)
    for entry in container.get("env", []):
        if "valueFrom" in entry:
            value = _referred(pod, entry["valueFrom"], get)
            if value is None:
                continue
        else:
            value = expand(entry.get("value") or "", values)
        values[entry["name"]] = value
    return values


def _all_of(pod: Tree, source: Tree, get: Get) -> dict[str, str]:
    for field, plural in (("secretRef", "secrets"), ("configMapRef", "configmaps")):
        if field in source:
            found = _object(pod, plural, source[field], get)
            return {key: value.decode() for key, value in contents(found).items()} if found else {}
    return {}


def _referred(pod: Tree, source: Tree, get: Get) -> str | None:
    if "fieldRef" in source:
        return field_of(pod, source["fieldRef"]["fieldPath"])
    for field, plural, kind in (("secretKeyRef", "secrets", "Secret"), ("configMapKeyRef", "configmaps", "ConfigMap")):
        if field in source:
            reference = source[field]
            found = _object(pod, plural, reference, get)
            data = contents(found) if found else {}
            if reference["key"] in data:
                return data[reference["key"]].decode()
            if reference.get("optional"):
                return None
            where = f"{pod['metadata']['namespace']}/{reference['name']}"
            raise Misconfigured(f"couldn't find key {reference['key']} in {kind} {where}")
    return None


def _object(pod: Tree, plural: str, reference: Tree, get: Get) -> Tree | None:
    found = get(plural, reference["name"])
    if found is None and not reference.get("optional"):
        raise Misconfigured(missing(plural, reference["name"]))
    return found


def missing(plural: str, name: str) -> str:
    """Return the API's message for a missing object."""
    return f'{plural.removesuffix("s")} "{name}" not found'


def contents(obj: Tree) -> dict[str, bytes]:
    """Return the contents of a Secret or ConfigMap by key."""
    if obj["kind"] == "Secret":
        return {key: base64.b64decode(value) for key, value in (obj.get("data") or {}).items()}
    text = {key: value.encode() for key, value in (obj.get("data") or {}).items()}
    return text | {key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()}


def field_of(pod: Tree, path: str) -> str:
    """Return a field of the pod for the downward API, "" if the pod does not have it yet."""
    if match := _BY_KEY.match(path):
        return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
    value: Any = pod
    for word in path.split("."):
        value = value.get(word, {}) if isinstance(value, Mapping) else {}
    return str(value) if value != {} else ""
