"""Asks a cluster what it is made of: kinds of nodes, and queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from platforms.config.loading import nearest
from platforms.config.schema import Unit
from platforms.job import RefusedError
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.resources import NAMESPACES, NODES, Resource
from platforms.schedulers.kubernetes.objects.capacity import ClusterNode, Taint, node_of
from platforms.schedulers.kubernetes.status import kueue

Object = Mapping[str, Any]
# Extended resources that are devices of the suite. Vendors' operators name the product in the labels of PRODUCTS.
UNITS: Mapping[str, Unit] = {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu", "graphcore.ai/ipu": "ipu"}
MIG = "nvidia.com/mig-"  # with the strategy `mixed` a slice is a resource of its own
PRODUCTS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "beta.amd.com/gpu.product-name")
IPU_GROUP = "graphcore.ai"
_CONTROL = "node-role.kubernetes.io/"  # the taint of nodes that run the control plane


@dataclass(frozen=True)
class Pool:
    """Nodes that are alike.

    Attributes:
        resource: the devices' resource name; empty on nodes without devices.
        product: which device it is, as the nodes' label `label` says; both are empty where no label says it.
        count: the devices of each node.
        nodes: how many nodes there are.
        cpu: cores that pods can have on the smallest of the nodes.
        memory: bytes that pods can have on the smallest of the nodes.
        taints: those that all of the nodes have.
    """

    resource: str = ""
    product: str = ""
    label: str = ""
    count: int = 0
    nodes: int = 0
    cpu: float = 0.0
    memory: float = 0.0
    taints: tuple[Taint, ...] = ()

    @property
    def unit(self) -> Unit:
        return unit_of(self.resource) or "cpu"

    @property
    def is_mig(self) -> bool:
        """Whether its devices are parts of GPUs."""
        return "MIG" in self.product or self.resource.startswith(MIG)

    def __str__(self) -> str:
        devices = f"{self.count} x {self.product or self.resource}" if self.count else "no devices"
        return f"{devices} on {self.nodes} {'nodes' if self.nodes > 1 else 'node'}"


@dataclass(frozen=True)
class ClusterInventory:
    """The nodes and queues of a cluster, as far as the user may see them.

    Attributes:
        queues: the LocalQueues of the namespace, each with its ClusterQueue.
        kueue: the version of Kueue's API; empty without Kueue.
        hidden: the server's refusal for each kind of object (its plural) that the user may not see.
    """

    where: str
    context: str
    namespace: str
    version: str = ""
    pools: tuple[Pool, ...] = ()
    queues: Mapping[str, str] = field(default_factory=dict)
    kueue: str = ""
    ipu_jobs: bool = False
    hidden: Mapping[str, str] = field(default_factory=dict)


def unit_of(resource: str) -> Unit | None:
    """Find the unit that layouts count for a resource. Returns None for a resource that is no device of the suite."""
    if resource.startswith(MIG):
        return "gpu"
    return UNITS.get(resource)


def ask(client: Client) -> ClusterInventory:
    """Ask an API server, with one request for each kind of object.

    Raises RefusedError for a namespace that does not exist, AwayError and LoginNeeded.
    """
    hidden: dict[str, str] = {}

    def list_visible(resource: Resource) -> list[dict[str, Any]]:
        try:
            return client.list(resource)[0]
        except ApiError as error:
            hidden[resource.plural] = error.message
            return []

    _refuse_missing_namespace(client)
    version = kueue.version(client.served_versions(kueue.GROUP))
    queues = {}
    if version:
        for queue in list_visible(client.resource(f"{kueue.GROUP}/{version}", "LocalQueue")):
            queues[_name(queue)] = str(queue["spec"]["clusterQueue"])
    return ClusterInventory(
        client.where,
        client.context,
        client.namespace,
        version=client.version(),
        pools=pools(map(node_of, list_visible(NODES))),
        queues=queues,
        kueue=version or "",
        ipu_jobs=bool(client.served_versions(IPU_GROUP)),
        hidden=hidden,
    )


def _refuse_missing_namespace(client: Client) -> None:
    try:
        client.get(NAMESPACES, client.namespace)
    except ApiError as error:
        if error.status == 404:
            raise RefusedError(_no_namespace(client)) from None


def _no_namespace(client: Client) -> str:
    problem = f"{client.where}: there is no namespace {client.namespace!r}"
    try:
        names = [_name(namespace) for namespace in client.list(NAMESPACES)[0]]
    except ApiError:
        return f"{problem}; --namespace names another"
    return f"{problem} {nearest(client.namespace, names)}; --namespace names another"


def pools(nodes: Iterable[ClusterNode]) -> tuple[Pool, ...]:
    """Group the nodes that take pods by their devices: nodes with devices first, then the most common."""
    open_nodes = [node for node in nodes if node.open]
    workers = [node for node in open_nodes if not _is_control(node)]
    alike: dict[tuple[str, str, str, int], list[ClusterNode]] = {}
    for node in workers or open_nodes:
        for key in _devices(node):
            alike.setdefault(key, []).append(node)
    groups = [_pool(key, members) for key, members in alike.items()]
    groups.sort(key=lambda pool: (not pool.count, -pool.nodes, -pool.count, pool.product))
    return tuple(groups)


def _is_control(node: ClusterNode) -> bool:
    return any(taint.key.startswith(_CONTROL) for taint in node.taints)


def _devices(node: ClusterNode) -> list[tuple[str, str, str, int]]:
    """List a node's devices as tuples of resource, product, the product's label and count."""
    labels = [label for label in PRODUCTS if node.labels.get(label)]
    label = labels[0] if labels else ""
    product = node.labels.get(label, "")
    devices = []
    for resource, amount in node.allocatable.items():
        if amount >= 1 and unit_of(resource):
            devices.append((resource, product, label, int(amount)))
    return devices or [("", "", "", 0)]


def _pool(key: tuple[str, str, str, int], members: Sequence[ClusterNode]) -> Pool:
    return Pool(
        *key,
        nodes=len(members),
        cpu=min(node.allocatable.get("cpu", 0.0) for node in members),
        memory=min(node.allocatable.get("memory", 0.0) for node in members),
        taints=tuple(taint for taint in members[0].taints if all(taint in node.taints for node in members)),
    )


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])
