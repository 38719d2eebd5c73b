"""Asks a cluster what it is made of: kinds of nodes, queues, quotas, claims, storage and priority classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from platforms.config.loading import nearest
from platforms.config.schema import Unit
from platforms.config.values import quantity_of
from platforms.job import RefusedError
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.resources import (
    CLAIMS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    QUOTAS,
    STORAGE_CLASSES,
    Resource,
)
from platforms.schedulers.kubernetes.objects.capacity import (
    ClusterNode,
    Limit,
    Taint,
    node_of,
    queue_limits,
    quota_limits,
    range_limits,
)
from platforms.schedulers.kubernetes.status import kueue

Object = Mapping[str, Any]
# Extended resources that are devices of ours, and the labels by which vendors' operators say what they are.
UNITS: Mapping[str, Unit] = {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu", "graphcore.ai/ipu": "ipu"}
MIG = "nvidia.com/mig-"  # with the strategy `mixed` a slice is a resource of its own
PRODUCTS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "beta.amd.com/gpu.product-name")
IPU_GROUP = "graphcore.ai"
PRIORITIES = Resource("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", namespaced=False)
_CONTROL = "node-role.kubernetes.io/"  # nodes that keep the cluster itself
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_ENFORCE = "pod-security.kubernetes.io/enforce"


@dataclass(frozen=True)
class Pool:
    """Nodes that are alike: `count` devices called `resource` on each of `nodes` nodes ("" and 0: none). `label` and
    `product` say which device it is, where anything does; `cpu` (cores) and `memory` (bytes) are the least that pods
    can have of one of them, `taints` what is on all of them."""

    resource: str
    product: str
    label: str
    count: int
    nodes: int = 1
    cpu: float = 0.0
    memory: float = 0.0
    taints: tuple[Taint, ...] = ()

    @property
    def unit(self) -> Unit:
        return unit_of(self.resource) or "cpu"

    def __str__(self) -> str:
        devices = f"{self.count} x {self.product or self.resource}" if self.count else "no devices"
        return f"{devices} on {self.nodes} node{'s' if self.nodes > 1 else ''}"


@dataclass(frozen=True)
class Queue:
    """A LocalQueue of Kueue's in the namespace; `away` says why it takes no jobs now."""

    name: str
    cluster_queue: str
    away: str = ""


@dataclass(frozen=True)
class Claim:
    """A PersistentVolumeClaim of the namespace; `size` in bytes."""

    name: str
    modes: tuple[str, ...]
    size: float
    phase: str
    storage_class: str


@dataclass(frozen=True)
class StorageClass:
    name: str
    provisioner: str
    default: bool


@dataclass(frozen=True)
class Cluster:
    """Everything that was asked. `hidden` is what we may not see: plural -> the server's own words."""

    where: str
    context: str
    namespace: str
    version: str = ""
    pools: tuple[Pool, ...] = ()
    queues: tuple[Queue, ...] = ()
    limits: tuple[Limit, ...] = ()
    largest: tuple[Limit, ...] = ()
    claims: tuple[Claim, ...] = ()
    classes: tuple[StorageClass, ...] = ()
    priorities: Mapping[str, int] = field(default_factory=dict)
    default_priority: str = ""
    security: str = ""
    kueue: str = ""
    ipu_jobs: bool = False
    hidden: Mapping[str, str] = field(default_factory=dict)

    def limit(self, *resources: str) -> Limit | None:
        """The least that quotas allow of a resource at the same time."""
        return min((each for each in self.limits if each.resource in resources), key=lambda it: it.most, default=None)

    def largest_of(self, resource: str) -> Limit | None:
        """The most of a resource that one pod may ask for."""
        return min((each for each in self.largest if each.key == resource), key=lambda it: it.most, default=None)


def unit_of(resource: str) -> Unit | None:
    """What a layout counts where pods ask for this resource; None for one that is no device of ours."""
    return "gpu" if resource.startswith(MIG) else UNITS.get(resource)


def ask(client: Client) -> Cluster:
    """Ask an API server, with one request a question. Raises RefusedError for a namespace that is not there,
    AwayError and LoginNeeded; what we may not see is in `hidden`."""
    hidden: dict[str, str] = {}

    def seen(resource: Resource) -> list[dict[str, Any]]:
        try:
            return client.list(resource)[0]
        except ApiError as error:
            hidden[resource.plural] = error.message
            return []

    version = kueue.version(client.served_versions(kueue.GROUP))
    queues, queue_quotas = _ask_kueue(client, f"{kueue.GROUP}/{version}", seen, hidden) if version else ([], ())
    priorities = seen(PRIORITIES)
    return Cluster(
        client.where,
        client.context,
        client.namespace,
        version=client.version(),
        security=_security(client, hidden),
        pools=pools(map(node_of, seen(NODES))),
        queues=tuple(map(_queue, queues)),
        limits=(*quota_limits(seen(QUOTAS)), *queue_quotas),
        largest=range_limits(seen(LIMIT_RANGES)),
        claims=tuple(map(_claim, seen(CLAIMS))),
        classes=tuple(map(_class, seen(STORAGE_CLASSES))),
        priorities={
            name: each.get("value", 0) for each in priorities if not (name := _name(each)).startswith("system-")
        },
        default_priority=next((_name(each) for each in priorities if each.get("globalDefault")), ""),
        kueue=version or "",
        ipu_jobs=bool(client.served_versions(IPU_GROUP)),
        hidden=hidden,
    )


def _ask_kueue(
    client: Client, group: str, seen: Callable[[Resource], list[dict[str, Any]]], hidden: dict[str, str]
) -> tuple[list[dict[str, Any]], tuple[Limit, ...]]:
    """The namespace's LocalQueues, and what the ClusterQueue of the only one allows."""
    queues = seen(client.resource(group, "LocalQueue"))
    if len(queues) != 1:
        return queues, ()
    try:
        behind = client.get(client.resource(group, "ClusterQueue"), queues[0]["spec"]["clusterQueue"])
    except ApiError as error:
        hidden["clusterqueues"] = error.message
        return queues, ()
    return queues, queue_limits(behind)


def _security(client: Client, hidden: dict[str, str]) -> str:
    """The Pod Security Standard that the namespace enforces."""
    try:
        labels = client.get(NAMESPACES, client.namespace)["metadata"].get("labels") or {}
    except ApiError as error:
        if error.status == 404:
            raise RefusedError(_no_namespace(client)) from None
        hidden["namespaces"] = error.message
        return ""
    return str(labels.get(_ENFORCE, ""))


def _no_namespace(client: Client) -> str:
    said = f"{client.where}: there is no namespace {client.namespace!r}"
    try:
        names = [_name(each) for each in client.list(NAMESPACES)[0]]
    except ApiError:
        return f"{said}; --namespace names another"
    return f"{said} {nearest(client.namespace, names)}; --namespace names another"


def pools(nodes: Iterable[ClusterNode]) -> tuple[Pool, ...]:
    """Nodes that take pods, by their devices: those that have any first, then the most common."""
    found = [node for node in nodes if node.open]
    workers = [node for node in found if not any(taint.key.startswith(_CONTROL) for taint in node.taints)]
    alike: dict[tuple[str, str, str, int], list[ClusterNode]] = {}
    for node in workers or found:
        for key in _devices(node):
            alike.setdefault(key, []).append(node)
    made = [_pool(key, members) for key, members in alike.items()]
    return tuple(sorted(made, key=lambda pool: (not pool.count, -pool.nodes, -pool.count, pool.product)))


def _devices(node: ClusterNode) -> list[tuple[str, str, str, int]]:
    """(resource, product, the product's label, how many)"""
    label = next((label for label in PRODUCTS if node.labels.get(label)), "")
    product = node.labels.get(label, "")
    there = [(name, int(n)) for name, n in node.allocatable.items() if n >= 1 and unit_of(name)]
    return [(name, product, label, count) for name, count in there] or [("", "", "", 0)]


def _pool(key: tuple[str, str, str, int], members: Sequence[ClusterNode]) -> Pool:
    cpu, memory = (min(node.allocatable.get(what, 0.0) for node in members) for what in ("cpu", "memory"))
    taints = tuple(each for each in members[0].taints if all(each in node.taints for node in members))
    return Pool(*key, nodes=len(members), cpu=cpu, memory=memory, taints=taints)


def _name(each: Object) -> str:
    return str(each["metadata"]["name"])


def _queue(each: Object) -> Queue:
    conditions = (each.get("status") or {}).get("conditions") or ()
    stopped = [it for it in conditions if it.get("type") == "Active" and it.get("status") != "True"]
    return Queue(_name(each), str(each["spec"]["clusterQueue"]), str(stopped[0].get("message", "")) if stopped else "")


def _claim(each: Object) -> Claim:
    spec, status = each.get("spec") or {}, each.get("status") or {}
    size = (status.get("capacity") or spec.get("resources", {}).get("requests") or {}).get("storage", "0")
    modes = tuple(spec.get("accessModes") or ())
    return Claim(
        _name(each), modes, quantity_of(size), str(status.get("phase", "")), spec.get("storageClassName") or ""
    )


def _class(each: Object) -> StorageClass:
    default = (each["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
    return StorageClass(_name(each), str(each.get("provisioner", "")), default)
