"""Chooses the nodes of a cluster that a platform uses, and the share of a node that one pod asks for."""

from __future__ import annotations

from dataclasses import dataclass

from platforms.config.loading import nearest
from platforms.job import ConfigError
from platforms.schedulers.kubernetes.draft.inventory import ClusterInventory, Pool, unit_of

SHARE = 0.9  # of a node whose devices are all asked for: the system pods of the node need the rest
SOCKET = 0.5  # of a node without devices: most have two sockets
IPUS = 4  # of one machine; they come by powers of two
GIB = 2**30
MIB = 2**20


@dataclass(frozen=True)
class PodShare:
    """The devices, cores and memory that one pod asks for.

    Attributes:
        count: devices.
        cpu, memory: cores and bytes, each with its reason; None where nothing is known.
    """

    count: int
    cpu: tuple[float, str] | None
    memory: tuple[float, str] | None

    @property
    def threads(self) -> int | None:
        """Threads of each rank, one for each of its cores."""
        if self.cpu is None:
            return None
        return max(1, int(self.cpu[0]) // max(1, self.count))


def choose(cluster: ClusterInventory, product: str | None) -> Pool:
    """Choose the nodes of the requested product, else the most common ones with devices.

    Where nodes may not be seen, the devices are those that quotas speak of.
    """
    if product is not None:
        by_product = {pool.product or pool.resource: pool for pool in reversed(cluster.pools) if pool.count}
        if product not in by_product:
            hint = nearest(product, by_product)
            raise ConfigError([f"{cluster.where}: no node has the product {product!r} {hint}"])
        return by_product[product]
    if cluster.pools and (cluster.pools[0].count or not cluster.ipu_jobs):
        return cluster.pools[0]
    if cluster.ipu_jobs:
        return Pool("graphcore.ai/ipu", "", "", IPUS, nodes=0)
    for limit in (*cluster.limits, *cluster.largest):
        if unit_of(limit.resource):
            return Pool(limit.resource, "", "", 1, nodes=0)
    return Pool("", "", "", 0, nodes=0)


def share_of(cluster: ClusterInventory, pool: Pool) -> PodShare:
    """Compute a pod's share: all devices of a node, as far as quotas allow. One process can use one MIG slice only."""
    count = pool.count
    quota = cluster.limit(pool.resource) if pool.count else None
    if quota and quota.most >= 1:
        count = min(count, int(quota.most))
    if "MIG" in pool.product or "/mig-" in pool.resource:
        count = min(count, 1)
    return PodShare(count, _fair(cluster, pool, count, "cpu"), _fair(cluster, pool, count, "memory"))


def _fair(cluster: ClusterInventory, pool: Pool, count: int, resource: str) -> tuple[float, str] | None:
    """Take the least of the pod's part of a node, the same part of a quota, and the most that a pod may have."""
    candidates = []
    of_node = pool.cpu if resource == "cpu" else pool.memory
    if of_node:
        part = SHARE * count / pool.count if pool.count else SOCKET
        candidates.append((of_node * part, f"nodes: {amount(resource, of_node)} each, {part:.0%} of it"))
    quota = cluster.limit(resource)
    if quota:
        devices = cluster.limit(pool.resource) if pool.count else None
        part = 1.0
        if devices and devices.most:
            part = min(1.0, count / devices.most)
        candidates.append((quota.most * part, f"{quota.of}: {amount(resource, quota.most)}, {part:.0%} of it"))
    largest = cluster.largest_of(resource)
    if largest:
        candidates.append((largest.most, f"{largest.of}: the most of a pod"))
    return min(candidates, default=None)


def amount(resource: str, value: float) -> str:
    """Write a quantity in the usual units, rounded down: cores or thousandths, Gi or Mi, else a plain number."""
    if resource in ("memory", "storage"):
        return f"{int(value // GIB)}Gi" if value >= GIB else f"{int(value // MIB)}Mi"
    return f"{int(value)}" if value >= 1 else f"{int(value * 1000)}m"
