"""Fields that cannot be changed after creation."""

from __future__ import annotations

import json
from typing import Any

from tests.fake_kubernetes.api.errors import invalid
from tests.fake_kubernetes.store.kinds import Kind
from tests.fake_kubernetes.store.trees import Tree, deep_copy

POD = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
JOB = ("completions", "selector", "template", "completionMode", "podFailurePolicy", "backoffLimitPerIndex")
# fields of a template that may change while its Job is suspended and has not started: Kueue sets them
SCHEDULING = ("nodeSelector", "tolerations", "affinity", "schedulingGates")


def check_update(kind: Kind, old: Tree, new: Tree) -> None:
    """Raise KubeError 422 if an update changes an immutable field."""
    causes = []
    if kind.kind == "Pod":
        causes = _pod(old.get("spec") or {}, new.get("spec") or {})
    elif kind.kind == "Job" and kind.group == "batch":
        causes = _job(old, new)
    elif kind.kind in {"Secret", "ConfigMap"} and old.get("immutable"):
        causes = [
            (field, "FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set")
            for field in ("data", "binaryData", "immutable")
            if old.get(field) != new.get(field)
        ]
    if causes:
        raise invalid(kind.qualified, new["metadata"]["name"], causes)


def _pod(old: Tree, new: Tree) -> list[tuple[str, str, str]]:
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    if before is not None and (after is None or after > before):
        why = "must be less than or equal to previous value"
        return [("spec.activeDeadlineSeconds", "FieldValueInvalid", f"Invalid value: {after or 'null'}: {why}")]
    for toleration in old.get("tolerations") or []:
        if toleration not in (new.get("tolerations") or []):
            why = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
            return [("spec.tolerations", "FieldValueForbidden", why)]
    return [] if _fixed(old) == _fixed(new) else [("spec", "FieldValueForbidden", POD)]


def _fixed(spec: Tree) -> Tree:
    fixed = {name: value for name, value in spec.items() if name not in {"activeDeadlineSeconds", "tolerations"}}
    for group in ("containers", "initContainers"):
        fixed[group] = [{**container, "image": ""} for container in spec.get(group) or []]
    return fixed


def _job(old: Tree, new: Tree) -> list[tuple[str, str, str]]:
    before, after = deep_copy(old.get("spec") or {}), deep_copy(new.get("spec") or {})
    if before.get("suspend") and not old.get("status", {}).get("startTime"):
        for spec in (before, after):
            for name in SCHEDULING:
                spec.get("template", {}).get("spec", {}).pop(name, None)
            for name in ("labels", "annotations"):
                spec.get("template", {}).get("metadata", {}).pop(name, None)
    return [_is_fixed(f"spec.{name}", after.get(name)) for name in JOB if before.get(name) != after.get(name)]


def _is_fixed(field: str, value: Any) -> tuple[str, str, str]:
    return field, "FieldValueInvalid", f"Invalid value: {json.dumps(value)}: field is immutable"
