"""labelSelector and fieldSelector of a LIST or a watch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.fake_kubernetes.api.errors import bad_request

Match = Callable[[Mapping[str, Any]], bool]
_SET = re.compile(r"^\s*(\S+)\s+(in|notin)\s*\(([^()]*)\)\s*$")
_EQUALS = re.compile(r"^\s*([^\s=!]+)\s*(==|=|!=)\s*([^\s=!]*)\s*$")
_EXISTS = re.compile(r"^\s*(!?)\s*([A-Za-z0-9][^\s=!(),]*)\s*$")

# What can be asked of a kind beside metadata.name and metadata.namespace.
FIELDS = {
    "pods": {
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    },
    "events": {
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    },
    "jobs": {"status.successful"},
    "nodes": {"spec.unschedulable"},
    "namespaces": {"status.phase"},
    "secrets": {"type"},
}


def label_match(text: str) -> Match:
    """`a=b,c!=d,e in (f,g),h notin (i),j,!k`; what lacks the label satisfies != and notin. 400 for anything else."""
    rules = [_label_rule(part, text) for part in re.split(r",(?![^(]*\))", text) if part.strip()]
    return lambda obj: all(rule(obj.get("metadata", {}).get("labels") or {}) for rule in rules)


def _label_rule(part: str, text: str) -> Match:
    if found := _SET.match(part):
        key, word, values = found[1], found[2], {value.strip() for value in found[3].split(",")}
        if word == "in":
            return lambda labels: key in labels and labels[key] in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUALS.match(part):
        key, operator, value = found.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _EXISTS.match(part):
        absent, key = bool(found[1]), found[2]
        return lambda labels: (key in labels) != absent
    raise bad_request(f"unable to parse requirement: found '{part.strip()}' in \"{text}\"")


def field_match(text: str, plural: str) -> Match:
    """Return a test for `metadata.name=x,status.phase!=Failed`; fields that the server cannot select by are a 400."""
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
    if path == "source":
        value = obj.get("source", {}).get("component")
    elif path == "status.successful":
        value = obj.get("status", {}).get("succeeded", 0)
    else:
        for step in path.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or (value is None and path in {"spec.unschedulable", "spec.hostNetwork"}):
        return "true" if value else "false"
    return "" if value is None else str(value)


def matcher(labels: str, fields: str, plural: str) -> Match:
    """Return a function that tests an object against a label selector and a field selector."""
    first, second = label_match(labels), field_match(fields, plural)
    return lambda obj: first(obj) and second(obj)
