"""labelSelector and fieldSelector of a LIST or a watch: `a=b,c!=d,e in (f,g),h` and `metadata.name=x`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.fake_kubernetes.api.errors import bad_request

Match = Callable[[Mapping[str, Any]], bool]
_SET = re.compile(r"^\s*(\S+)\s+in\s*\(([^()]*)\)\s*$")
_EQUALS = re.compile(r"^\s*([^\s=!()]+)\s*(==|=|!=)\s*([^\s=!()]*)\s*$")
_EXISTS = re.compile(r"^\s*([^\s=!()]+)\s*$")

# What can be asked of a kind beside metadata.name and metadata.namespace.
FIELDS = {
    "pods": {"spec.nodeName", "status.phase"},
    "events": {f"involvedObject.{field}" for field in ("kind", "name", "uid")} | {"reason", "type"},
}


def label_match(text: str) -> Match:
    """What lacks the label satisfies !=. 400 for anything else."""
    rules = [_label_rule(part, text) for part in re.split(r",(?![^(]*\))", text) if part.strip()]
    return lambda obj: all(rule(obj.get("metadata", {}).get("labels") or {}) for rule in rules)


def _label_rule(part: str, text: str) -> Match:
    if found := _SET.match(part):
        name, values = found[1], {value.strip() for value in found[2].split(",")}
        return lambda labels: labels.get(name) in values
    if found := _EQUALS.match(part):
        key, operator, value = found.groups()
        return lambda labels: (labels.get(key) != value) == (operator == "!=")
    if found := _EXISTS.match(part):
        wanted = found[1]
        return lambda labels: wanted in labels
    raise bad_request(f"unable to parse requirement: found '{part.strip()}' in \"{text}\"")


def field_match(text: str, plural: str) -> Match:
    """Return a test of fields; those that the server cannot select by are a 400."""
    rules = []
    for part in filter(None, text.split(",")):
        found = _EQUALS.match(part)
        if not found:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        path, operator, value = found.groups()
        if path not in {"metadata.name", "metadata.namespace"} | FIELDS.get(plural, set()):
            raise bad_request(f"field label not supported: {path}")
        rules.append((path, operator == "!=", value))
    return lambda obj: all((_field(obj, path) != value) == unlike for path, unlike, value in rules)


def _field(obj: Mapping[str, Any], path: str) -> str:
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)


def matcher(labels: str, fields: str, plural: str) -> Match:
    """Return a function that tests an object against a label selector and a field selector."""
    first, second = label_match(labels), field_match(fields, plural)
    return lambda obj: first(obj) and second(obj)
