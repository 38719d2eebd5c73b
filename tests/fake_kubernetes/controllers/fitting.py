"""Decides whether a pod fits on a node, with the real scheduler's messages. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from tests.fake_kubernetes.store.quantities import quantity, requests_of
from tests.fake_kubernetes.store.trees import Tree

Amounts = dict[str, Fraction]
UNHELPFUL = "Preemption is not helpful for scheduling"


def pod_requests(spec: Mapping[str, Any]) -> Amounts:
    """Return a pod's requests: the sum of its containers, or its largest init container if that is more."""
    total: Amounts = {}
    for container in spec.get("containers", []):
        for name, text in requests_of(container).items():
            total[name] = total.get(name, Fraction()) + quantity(text)
    for container in spec.get("initContainers", []):
        for name, text in requests_of(container).items():
            total[name] = max(total.get(name, Fraction()), quantity(text))
    return total


def free_resources(node: Tree, pods: Iterable[Tree]) -> Amounts:
    """Return the resources of a node that its pods leave free."""
    free = {name: quantity(text) for name, text in node["status"]["allocatable"].items()}
    for pod in pods:
        for name, amount in pod_requests(pod["spec"]).items():
            free[name] = free.get(name, Fraction()) - amount
    return free


def exclusion_reason(pod: Tree, node: Tree) -> str:
    """Return why a node is excluded, whatever is free on it; "" if it is not."""
    spec = pod["spec"]
    name = node["metadata"]["name"]
    names = _only_names(spec)
    if names is not None and name not in names:  # the scheduler does not look at such nodes
        return "node(s) didn't satisfy plugin(s) [NodeAffinity]"
    if node["spec"].get("unschedulable"):
        return "node(s) were unschedulable"
    for taint in node["spec"].get("taints", []):
        if taint["effect"] != "PreferNoSchedule" and not _tolerated(taint, spec.get("tolerations", [])):
            return "node(s) had untolerated taint(s)"  # which one is not told any more (kubernetes#134740)
    if not any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", [])):
        return "node(s) were not ready"
    labels = node["metadata"].get("labels", {})
    selected = all(labels.get(key) == value for key, value in (spec.get("nodeSelector") or {}).items())
    return "" if selected and _attracted(spec, labels, name) else "node(s) didn't match Pod's node affinity/selector"


def insufficient(pod: Tree, free: Mapping[str, Fraction]) -> list[str]:
    wanted = sorted(pod_requests(pod["spec"]).items())
    return [f"Insufficient {name}" for name, amount in wanted if amount > free.get(name, Fraction())]


def unschedulable_message(reasons: Sequence[Sequence[str]]) -> str:
    """Return the whole message, from each node's reasons."""
    if not reasons:
        return "no nodes available to schedule pods"
    counts = Counter(reason for each in reasons for reason in each)
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    head = f"0/{len(reasons)} nodes are available"
    return f"{head}: {listed}. no new claims to deallocate, preemption: {head}: {len(reasons)} {UNHELPFUL}."


def _tolerated(taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    for one in tolerations:
        exists = one.get("operator") == "Exists"
        named = one.get("key") == taint["key"] or (exists and not one.get("key"))
        valued = exists or one.get("value", "") == taint.get("value", "")
        if named and valued and one.get("effect") in (None, "", taint["effect"]):
            return True
    return False


def _required_terms(spec: Tree) -> list[Tree]:
    """requiredDuringSchedulingIgnoredDuringExecution: a pod needs one of its terms."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms: list[Tree] = required.get("nodeSelectorTerms") or []
    return terms


def _only_names(spec: Tree) -> set[str] | None:
    """Return the names of the nodes that the terms allow; None if a term allows nodes of any name."""
    names: set[str] = set()
    for term in _required_terms(spec):
        allowed = [set(field["values"]) for field in term.get("matchFields", []) if field["operator"] == "In"]
        if not allowed:
            return None
        names |= set.intersection(*allowed)
    return names or None


def _attracted(spec: Tree, labels: Mapping[str, str], name: str) -> bool:
    terms = _required_terms(spec)
    return not terms or any(
        all(_matches(expression, labels) for expression in term.get("matchExpressions", []))
        and all(_matches(field, {"metadata.name": name}) for field in term.get("matchFields", []))
        for term in terms
    )


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, operator = labels.get(expression["key"]), expression["operator"]
    if operator in ("Exists", "DoesNotExist"):
        return bool((value is not None) == (operator == "Exists"))
    return bool((value in expression.get("values", [])) == (operator == "In"))
