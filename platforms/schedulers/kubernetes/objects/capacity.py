"""What a cluster has room for, and what a job requests of it: nodes, taints, limits and pods, read from objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from platforms.config.cluster_values import quantity_of

Object = Mapping[str, Any]
_PASSING_TAINTS = "node.kubernetes.io/"  # the state of a node, such as not-ready; these taints come and go
_COUNTS = ("replicas", "parallelism", "jobInstances")  # keys with which kinds start a template several times


@dataclass(frozen=True)
class Taint:
    """A mark of a node that keeps away all pods that do not tolerate it."""

    key: str
    value: str
    effect: str

    def tolerated(self, tolerations: Iterable[Object]) -> bool:
        """True if one of a pod's tolerations covers it, by the rules of kube-scheduler."""
        return any(self._is_covered_by(toleration) for toleration in tolerations)

    def _is_covered_by(self, toleration: Object) -> bool:
        if toleration.get("effect") not in (None, "", self.effect):
            return False
        if toleration.get("operator", "Equal") == "Exists":
            return toleration.get("key") in (None, "", self.key)
        return toleration.get("key") == self.key and str(toleration.get("value") or "") == self.value

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True)
class ClusterNode:
    """One node. `allocatable` is in the units of Kubernetes: cores, bytes, devices. `open`: it takes new pods."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, float]
    taints: tuple[Taint, ...]
    open: bool

    def has(self, selector: Mapping[str, str]) -> bool:
        return all(self.labels.get(key) == value for key, value in selector.items())

    def lacks(self, demand: Mapping[str, float]) -> dict[str, float]:
        """The resources of which it has less than is requested, with the amount that it has."""
        lacking = {}
        for resource, amount in demand.items():
            available = self.allocatable.get(resource, 0.0)
            if amount > available:
                lacking[resource] = available
        return lacking


@dataclass(frozen=True)
class Limit:
    """The most of one resource that may be requested.

    `key` is the name that Kubernetes gives it, as in `requests.cpu`. `of` names the object that sets the limit, as in
    `ResourceQuota team`.
    """

    key: str
    most: float
    of: str


@dataclass(frozen=True)
class PodDemand:
    """The requests of the pods of one template. `count` of them run at the same time."""

    template: Object
    count: int

    @property
    def requests(self) -> dict[str, float]:
        """The requests of one pod. Kubernetes requests as much as the limit of a resource that has only a limit."""
        return _pod_amounts(self.template["spec"], "requests")

    @property
    def limits(self) -> dict[str, float]:
        return _pod_amounts(self.template["spec"], "limits")


def node_of(node: Object) -> ClusterNode:
    """Read a Node object."""
    metadata = node["metadata"]
    spec = node.get("spec") or {}
    status = node.get("status") or {}
    taints = []
    for entry in spec.get("taints") or ():
        taint = Taint(entry["key"], entry.get("value") or "", entry["effect"])
        if taint.effect != "PreferNoSchedule" and not taint.key.startswith(_PASSING_TAINTS):
            taints.append(taint)
    conditions = status.get("conditions") or ()
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return ClusterNode(
        name=metadata["name"],
        labels=metadata.get("labels") or {},
        allocatable=amounts(status.get("allocatable") or {}),
        taints=tuple(taints),
        open=ready and not spec.get("unschedulable"),
    )


def amounts(written: Mapping[str, object]) -> dict[str, float]:
    """Quantities as numbers, without the values that are no quantities."""
    found = {}
    for name, value in written.items():
        try:
            found[name] = quantity_of(str(value))
        except ValueError:
            continue
    return found


# --- what a job requests ---------------------------------------------------------------------------------------------


def demands(value: object, count: int = 1) -> Iterator[PodDemand]:
    """Every pod template in a tree, and how many of its pods run at the same time, as far as the tree says it."""
    if isinstance(value, list):
        for child in value:
            yield from demands(child, count)
    elif isinstance(value, Mapping):
        if _is_template(value):
            yield PodDemand(value, count)
            return
        for key in _COUNTS:
            if isinstance(value.get(key), int):
                count *= max(1, value[key])
        for child in value.values():
            yield from demands(child, count)


def _is_template(value: Mapping[str, Any]) -> bool:
    spec = value.get("spec")
    return isinstance(spec, Mapping) and isinstance(spec.get("containers"), list)


def _pod_amounts(pod_spec: Object, kind: str) -> dict[str, float]:
    """The sum over the containers, or the largest init container if it requests more."""
    total: dict[str, float] = {}
    for container in pod_spec["containers"]:
        for resource, amount in _container_amounts(container, kind).items():
            total[resource] = total.get(resource, 0.0) + amount
    for container in pod_spec.get("initContainers") or ():
        for resource, amount in _container_amounts(container, kind).items():
            total[resource] = max(total.get(resource, 0.0), amount)
    return total


def _container_amounts(container: Object, kind: str) -> dict[str, float]:
    resources = container.get("resources") or {}
    limits = amounts(resources.get("limits") or {})
    if kind == "limits":
        return limits
    return {**limits, **amounts(resources.get("requests") or {})}


def total(demand: Sequence[PodDemand], key: str) -> float:
    """The amount that a job takes of a quota's `key`, such as `pods`, `requests.cpu` or `limits.nvidia.com/gpu`."""
    if key in ("pods", "count/pods"):
        return float(sum(pods.count for pods in demand))
    resource = key.removeprefix("limits.").removeprefix("requests.")
    result = 0.0
    for pods in demand:
        of_pod = pods.limits if key.startswith("limits.") else pods.requests
        result += of_pod.get(resource, 0.0) * pods.count
    return result


# --- what a namespace may have ---------------------------------------------------------------------------------------


def quota_limits(quotas: Iterable[Object]) -> tuple[Limit, ...]:
    """The limits of ResourceQuotas that surely count our jobs: these have a deadline and requests.

    Whether a quota with a scopeSelector counts them says the server's dry run.
    """
    limits = []
    for quota in quotas:
        spec = quota.get("spec") or {}
        status = quota.get("status") or {}
        if spec.get("scopeSelector") or {"NotTerminating", "BestEffort"} & set(spec.get("scopes") or ()):
            continue
        hard = amounts(status.get("hard") or spec.get("hard") or {})
        for key, most in hard.items():
            limits.append(Limit(key, most, f"ResourceQuota {quota['metadata']['name']}"))
    return tuple(limits)


def queue_limits(queue: Object) -> tuple[Limit, ...]:
    """The most that one job may get from a ClusterQueue of Kueue: for each resource, from the flavor that has most.

    A resource that the queue may borrow without a limit has no limit.
    """
    of = f"ClusterQueue {queue['metadata']['name']}"
    most = _most_of_queue(queue)
    return tuple(Limit(name, amount, of) for name, amount in most.items() if amount != float("inf"))


def covered(queue: Object) -> frozenset[str]:
    """The resources of which a ClusterQueue has any, or may borrow any. Kueue admits no job that requests others."""
    return frozenset(name for name, amount in _most_of_queue(queue).items() if amount > 0)


def _most_of_queue(queue: Object) -> dict[str, float]:
    spec = queue.get("spec") or {}
    may_borrow = bool(spec.get("cohort") or spec.get("cohortName"))
    most: dict[str, float] = {}
    for group in spec.get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                quota = amounts({key: resource.get(key) for key in ("nominalQuota", "borrowingLimit")})
                amount = quota.get("nominalQuota", 0.0)
                if may_borrow:
                    amount += quota.get("borrowingLimit", float("inf"))
                most[resource["name"]] = max(most.get(resource["name"], 0.0), amount)
    return most
