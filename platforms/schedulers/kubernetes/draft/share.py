"""Which nodes of a cluster a platform is about, and what one pod asks of such a node."""

from __future__ import annotations

from dataclasses import dataclass

from platforms.config.loading import nearest
from platforms.job import ConfigError
from platforms.schedulers.kubernetes.draft.cluster import Cluster, Pool, unit_of

SHARE = 0.9  # of a node whose devices are all asked for: what keeps the node itself needs some, too
SOCKET = 0.5  # of a node without devices: most have two sockets
IPUS = 4  # of one machine; they come by powers of two


@dataclass(frozen=True)
class Share:
    """What one pod asks for: `count` devices, and of cores and bytes so much, with the reason; None: nobody knows."""

    count: int
    cpu: tuple[float, str] | None
    memory: tuple[float, str] | None

    @property
    def threads(self) -> int | None:
        """Of each rank: a core each."""
        return None if self.cpu is None else max(1, int(self.cpu[0]) // max(1, self.count))


def choose(cluster: Cluster, asked: str | None) -> Pool:
    """The nodes of the product that was asked for, else the most common ones with devices; where we may not see nodes,
    what quotas speak of."""
    if asked is not None:
        named = {pool.product or pool.resource: pool for pool in reversed(cluster.pools) if pool.count}
        if asked not in named:
            raise ConfigError([f"{cluster.where}: no node has the product {asked!r} {nearest(asked, named)}"])
        return named[asked]
    if cluster.pools and (cluster.pools[0].count or not cluster.ipu_jobs):
        return cluster.pools[0]
    if cluster.ipu_jobs:
        return Pool("graphcore.ai/ipu", "", "", IPUS, nodes=0)
    named_by = [limit.resource for limit in (*cluster.limits, *cluster.largest) if unit_of(limit.resource)]
    return Pool(named_by[0], "", "", 1, nodes=0) if named_by else Pool("", "", "", 0, nodes=0)


def share_of(cluster: Cluster, pool: Pool) -> Share:
    """All devices of a node, as far as quotas let us; a part of a MIG device is what one process can use."""
    quota = cluster.limit(pool.resource) if pool.count else None
    count = min(pool.count, int(quota.most)) if quota and quota.most >= 1 else pool.count
    if "MIG" in pool.product or "/mig-" in pool.resource:
        count = min(count, 1)
    cpu, memory = (_fair(cluster, pool, count, what) for what in ("cpu", "memory"))
    return Share(count, cpu, memory)


def _fair(cluster: Cluster, pool: Pool, count: int, what: str) -> tuple[float, str] | None:
    """The least of a part of a node, the same part of a quota, and the most that a pod may have."""
    found = []
    there = pool.cpu if what == "cpu" else pool.memory
    if there:
        part = SHARE * count / pool.count if pool.count else SOCKET
        found.append((there * part, f"nodes: {amount(what, there)} each, {part:.0%} of it"))
    devices = cluster.limit(pool.resource) if pool.count else None
    if quota := cluster.limit(what):
        part = min(1.0, count / devices.most) if devices and devices.most else 1.0
        found.append((quota.most * part, f"{quota.of}: {amount(what, quota.most)}, {part:.0%} of it"))
    if largest := cluster.largest_of(what):
        found.append((largest.most, f"{largest.of}: the most of a pod"))
    return min(found, default=None)


def amount(resource: str, most: float) -> str:
    """A quantity as people write it, rounded down: cores or thousandths, Gi or Mi, else a plain number."""
    if resource in ("memory", "storage"):
        return f"{int(most // 2**30)}Gi" if most >= 2**30 else f"{int(most // 2**20)}Mi"
    return f"{int(most)}" if most >= 1 else f"{int(most * 1000)}m"
