"""Workloads: how Kueue holds back each kind, what a job needs, and how it ends. Pure functions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from tests.fake_kubernetes.controllers.fitting import pod_requests
from tests.fake_kubernetes.controllers.job_pods import owner_of
from tests.fake_kubernetes.store.kinds import Kind
from tests.fake_kubernetes.store.trees import Tree, deep_copy

GROUP = "kueue.x-k8s.io"
QUEUE, MAX_TIME = f"{GROUP}/queue-name", f"{GROUP}/max-exec-time-seconds"
GATE = {"name": f"{GROUP}/admission"}
MANAGED = ("jobs", "pods", "jobsets", "pytorchjobs")
ENDS = {"Complete": "Succeeded", "Completed": "Succeeded", "Succeeded": "Succeeded", "Failed": "Failed"}
DONE = {"Succeeded": "Job finished successfully", "Failed": "Job failed"}


def served(versions: tuple[str, ...]) -> Iterator[Kind]:
    rows = (("ClusterQueue", False), ("LocalQueue", True), ("Workload", True), ("ResourceFlavor", False))
    for name, namespaced in (*rows, ("WorkloadPriorityClass", False)):
        plural = f"{name.lower()}{'es' if name.endswith('s') else 's'}"
        yield Kind(GROUP, versions, name, plural, namespaced, subresources=("status",), custom=True)


def is_managed(plural: str, obj: Tree) -> bool:
    """Return whether an object names a queue and has no controlling owner."""
    labels = obj["metadata"].get("labels") or {}
    owned = any(owner.get("controller") for owner in obj["metadata"].get("ownerReferences", []))
    return plural in MANAGED and bool(labels.get(QUEUE)) and not owned


def set_suspended(plural: str, obj: Tree, *, on: bool) -> None:
    """Suspend or resume an object, in place. A pod gets or loses a scheduling gate."""
    spec = obj["spec"]
    if plural == "pods":
        gates = [gate for gate in spec.get("schedulingGates", []) if gate != GATE]
        spec["schedulingGates"] = [*gates, GATE] if on else gates
    elif plural == "pytorchjobs":
        spec.setdefault("runPolicy", {})["suspend"] = on
    else:
        spec["suspend"] = on


def _pod_sets(plural: str, obj: Tree) -> Iterator[tuple[str, int, Tree]]:
    """(name, count, template)."""
    spec = obj["spec"]
    if plural == "pods":
        yield "main", 1, {"metadata": {}, "spec": spec}
    elif plural == "jobs":
        yield "main", min(spec.get("parallelism", 1), spec.get("completions") or 10**6), spec["template"]
    elif plural == "pytorchjobs":
        for role, replica in spec["pytorchReplicaSpecs"].items():
            yield role.lower(), replica.get("replicas", 1), replica["template"]
    else:
        for group in spec["replicatedJobs"]:
            job = group["template"]["spec"]
            yield group["name"], group.get("replicas", 1) * job.get("parallelism", 1), job["template"]


def ended(plural: str, obj: Tree) -> tuple[str, str] | None:
    """Return (reason, message) of the condition Finished, None if the job has not ended."""
    status = obj.get("status", {})
    if plural == "pods":
        phase = status.get("phase")
        return (phase, DONE[phase]) if phase in DONE else None
    for condition in status.get("conditions", []):
        if condition["status"] == "True" and condition["type"] in ENDS:
            return ENDS[condition["type"]], condition.get("message", "")
    return None


def workload_of(plural: str, obj: Tree) -> Tree:
    meta = obj["metadata"]
    labels = meta["labels"]
    tail = hashlib.sha256(meta["uid"].encode()).hexdigest()[:5]
    sets = [{"name": name, "count": count, "template": template} for name, count, template in _pod_sets(plural, obj)]
    spec: dict[str, Any] = {"queueName": labels[QUEUE], "active": True, "priority": 0, "podSets": sets}
    if MAX_TIME in labels:
        spec["maximumExecutionTimeSeconds"] = int(labels[MAX_TIME])
    name = f"{obj['kind'].lower()}-{meta['name']}"[:57] + f"-{tail}"
    own = {"name": name, "labels": {f"{GROUP}/job-uid": meta["uid"]}, "ownerReferences": [owner_of(obj)]}
    return {"metadata": own, "spec": spec, "status": {}}


def needs(workload: Tree) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for one in workload["spec"]["podSets"]:
        for name, amount in pod_requests(one["template"]["spec"]).items():
            total[name] = total.get(name, Fraction()) + amount * one["count"]
    return total


def shortage(
    wanted: Mapping[str, Fraction], used: Mapping[str, Fraction], quota: Mapping[str, Fraction], flavor: str
) -> tuple[str, str]:
    """Return (reason, message) of a quota shortage, two empty strings if the quota suffices."""
    head = "couldn't assign flavors to pod set main: insufficient"
    for name, amount in sorted(wanted.items()):
        if name in quota and amount > quota[name]:
            detail = f"request > maximum capacity ({float(amount):g} > {float(quota[name]):g})"
            return "ExceedsMaxQuota", f"{head} quota for {name} in flavor {flavor}, {detail}"
    for name, amount in sorted(wanted.items()):
        lacking = amount + used.get(name, Fraction()) - quota.get(name, amount + used.get(name, Fraction()))
        if lacking > 0:
            more = f"{float(lacking):g} more needed"
            return "WaitingForQuota", f"{head} unused quota for {name} in flavor {flavor}, {more}"
    return "", ""


def conditions(workload: Tree) -> list[Tree]:
    return deep_copy(workload.get("status", {}).get("conditions", []))  # type: ignore[no-any-return]


def is_true(workload: Tree, *names: str) -> bool:
    """Return whether any of these conditions is true."""
    return any(c["type"] in names and c["status"] == "True" for c in workload.get("status", {}).get("conditions", []))


def name_of(workload: Tree) -> str:
    return f"{workload['metadata']['namespace']}/{workload['metadata']['name']}"
