"""What a cluster has room for, and what a job asks of it: nodes, taints, quotas and pods, read from their objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from platforms.config.values import quantity_of

Object = Mapping[str, Any]
_PASSING = "node.kubernetes.io/"  # taints by which Kubernetes says what a node is going through; they come and go
_REPEATS = ("replicas", "parallelism", "jobInstances")  # how kinds say that they start a template several times


@dataclass(frozen=True)
class Taint:
    """What keeps pods off a node that do not tolerate it."""

    key: str
    value: str
    effect: str

    def tolerated(self, tolerations: Iterable[Object]) -> bool:
        """Whether one of a pod's tolerations covers it, as kube-scheduler looks at them."""
        return any(self._covered(each) for each in tolerations)

    def _covered(self, toleration: Object) -> bool:
        if toleration.get("effect") not in (None, "", self.effect):
            return False
        if toleration.get("operator", "Equal") == "Exists":
            return toleration.get("key") in (None, "", self.key)
        return toleration.get("key") == self.key and str(toleration.get("value") or "") == self.value

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True)
class ClusterNode:
    """One node. `allocatable` is in Kubernetes' own units: cores, bytes, devices. `open`: ready, and takes new pods."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, float]
    taints: tuple[Taint, ...]
    open: bool

    def has(self, selector: Mapping[str, str]) -> bool:
        return all(self.labels.get(key) == value for key, value in selector.items())

    def lacks(self, demand: Mapping[str, float]) -> dict[str, float]:
        """What there is less of than is asked for: resource -> how much there is."""
        return {
            what: self.allocatable.get(what, 0.0) for what, n in demand.items() if n > self.allocatable.get(what, 0)
        }


@dataclass(frozen=True)
class Limit:
    """The most of one thing that may be had. `key` is Kubernetes' name for it, as in `requests.cpu`; `used` is what of
    it is taken; `of` says who sets it, as in `ResourceQuota team`."""

    key: str
    most: float
    of: str
    used: float = 0.0

    @property
    def resource(self) -> str:
        """`cpu`, whether it is of requests or of limits."""
        return self.key.removeprefix("requests.").removeprefix("limits.")


@dataclass(frozen=True)
class PodDemand:
    """What one kind of pod of a job asks for, `count` pods of it at the same time."""

    template: Object
    count: int

    @property
    def requests(self) -> dict[str, float]:
        """Of one pod; what has only a limit is requested as much, as Kubernetes has it."""
        return _amounts(self.template["spec"], "requests")

    @property
    def limits(self) -> dict[str, float]:
        return _amounts(self.template["spec"], "limits")


def node_of(node: Object) -> ClusterNode:
    """A Node object, understood."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
    taints = [Taint(each["key"], each.get("value") or "", each["effect"]) for each in spec.get("taints") or ()]
    return ClusterNode(
        metadata["name"],
        metadata.get("labels") or {},
        amounts(status.get("allocatable") or {}),
        tuple(each for each in taints if each.effect != "PreferNoSchedule" and not each.key.startswith(_PASSING)),
        ready and not spec.get("unschedulable"),
    )


def amounts(written: Mapping[str, object]) -> dict[str, float]:
    """Quantities as numbers; what is none is left out."""
    found = {}
    for name, value in written.items():
        try:
            found[name] = quantity_of(str(value))
        except ValueError:
            continue
    return found


# --- what a job asks for ---------------------------------------------------------------------------------------------


def demands(value: object, count: int = 1) -> Iterator[PodDemand]:
    """Every pod template in a tree, and how many pods of it run at the same time as far as the tree says it."""
    if isinstance(value, list):
        for child in value:
            yield from demands(child, count)
    elif isinstance(value, Mapping):
        if _is_template(value):
            yield PodDemand(value, count)
            return
        for name in _REPEATS:
            if isinstance(value.get(name), int):
                count *= max(1, value[name])
        for child in value.values():
            yield from demands(child, count)


def _is_template(value: Mapping[str, Any]) -> bool:
    spec = value.get("spec")
    return isinstance(spec, Mapping) and isinstance(spec.get("containers"), list)


def _amounts(pod: Object, what: str) -> dict[str, float]:
    """The sum over containers, or the largest initialising one."""
    found: Counter[str] = Counter()
    for container in pod["containers"]:
        found.update(_container(container, what))
    for container in pod.get("initContainers") or ():
        for name, amount in _container(container, what).items():
            found[name] = max(found[name], amount)  # type: ignore[assignment]
    return dict(found)


def _container(container: Object, what: str) -> dict[str, float]:
    resources = container.get("resources") or {}
    limits = amounts(resources.get("limits") or {})
    return {**limits, **amounts(resources.get("requests") or {})} if what == "requests" else limits


def total(found: Sequence[PodDemand], key: str) -> float:
    """How much of a quota's `key` a job takes: `pods`, `requests.cpu`, `limits.memory`, `requests.nvidia.com/gpu`."""
    if key in ("pods", "count/pods"):
        return float(sum(each.count for each in found))
    of_limits, name = key.startswith("limits."), key.removeprefix("limits.").removeprefix("requests.")
    return sum((each.limits if of_limits else each.requests).get(name, 0.0) * each.count for each in found)


# --- what may be had -------------------------------------------------------------------------------------------------


def quota_limits(quotas: Iterable[Object], priority_class: str | None = None) -> tuple[Limit, ...]:
    """What ResourceQuotas leave to jobs like ours, which have a deadline, requests, and at most a priority class."""
    found = []
    for quota in quotas:
        status, name = quota.get("status") or {}, quota["metadata"]["name"]
        hard = amounts(status.get("hard") or quota.get("spec", {}).get("hard") or {})
        used = amounts(status.get("used") or {})
        if _counts_ours(quota.get("spec") or {}, priority_class):
            found += [Limit(key, most, f"ResourceQuota {name}", used.get(key, 0.0)) for key, most in hard.items()]
    return tuple(found)


def _counts_ours(spec: Object, priority_class: str | None) -> bool:
    if {"NotTerminating", "BestEffort"} & set(spec.get("scopes") or ()):
        return False
    for each in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        if each["scopeName"] in ("NotTerminating", "BestEffort", "CrossNamespacePodAffinity"):
            return False
        if each["scopeName"] == "PriorityClass" and not _selects(each, priority_class):
            return False
    return True


def _selects(expression: Object, value: str | None) -> bool:
    operator, values = str(expression["operator"]), list(expression.get("values") or ())
    if operator in ("In", "NotIn"):
        return (value in values) == (operator == "In")
    return (value is not None) == (operator == "Exists")


def queue_limits(queue: Object) -> tuple[Limit, ...]:
    """What one job may get from Kueue's ClusterQueue: of each resource the flavor that has most. One that may borrow
    without a limit has none of its own."""
    spec = queue.get("spec") or {}
    borrows = bool(spec.get("cohort") or spec.get("cohortName"))
    found: dict[str, float] = {}
    for group in spec.get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for each in flavor.get("resources") or ():
                own, more = (amounts({"it": each.get(key)}).get("it") for key in ("nominalQuota", "borrowingLimit"))
                most = (own or 0.0) + ((more if more is not None else float("inf")) if borrows else 0.0)
                found[each["name"]] = max(found.get(each["name"], 0.0), most)
    of = f"ClusterQueue {queue['metadata']['name']}"
    return tuple(Limit(name, most, of) for name, most in found.items() if most != float("inf"))


def range_limits(ranges: Iterable[Object]) -> tuple[Limit, ...]:
    """The most that LimitRanges allow one pod, or one container, which ours have one of."""
    found = []
    for each in ranges:
        for item in each.get("spec", {}).get("limits") or ():
            if item.get("type") in ("Pod", "Container"):
                most = amounts(item.get("max") or {})
                found += [Limit(key, n, f"LimitRange {each['metadata']['name']}") for key, n in most.items()]
    return tuple(found)
