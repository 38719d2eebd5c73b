"""The steps of doctor that ask whether a cluster has room for the largest job: quotas and nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from platforms.config.loading import nearest
from platforms.job import AwayError
from platforms.schedulers.doctor_steps import StepResult
from platforms.schedulers.kubernetes.api.client import ApiError
from platforms.schedulers.kubernetes.api.resources import NODES, QUOTAS
from platforms.schedulers.kubernetes.doctor.context import ClusterVisit, RenderedJob
from platforms.schedulers.kubernetes.objects.capacity import (
    ClusterNode,
    Limit,
    PodDemand,
    covered,
    node_of,
    queue_limits,
    quota_limits,
    total,
)

Object = Mapping[str, Any]
SIZE_KEYS = "`layouts:` or `kubernetes: {cpu: …, memory: …}`"


def quota(cluster: ClusterVisit) -> StepResult:
    """Check that the largest job fits into the quotas of the namespace and of its queue.

    What is in use now does not count. What one pod may ask for says the server's dry run.
    """
    try:
        quotas = cluster.client.list(QUOTAS)[0]
    except ApiError as error:
        return StepResult(f"quotas may not be seen ({error.message})", skipped=True)
    queues = cluster.cluster_queues
    limits = list(quota_limits(quotas))
    for queue in queues.values():
        limits += queue_limits(queue)
    for job in cluster.jobs:
        if job.queue in queues:
            _refuse_uncovered(cluster, job, queues[job.queue])
        for limit in limits:
            _refuse_beyond(cluster, job, limit)
    if not limits:
        return StepResult("the namespace has no quota")
    owners = ", ".join(dict.fromkeys(limit.of for limit in limits))
    return StepResult(f"every layout fits into {owners}")


def _refuse_uncovered(cluster: ClusterVisit, job: RenderedJob, queue: Object) -> None:
    """Refuse a job that requests a resource of which its ClusterQueue has none. Kueue may never say so."""
    requested = {name for demand in job.demands for name, amount in demand.requests.items() if amount > 0}
    missing = ", ".join(sorted(requested - covered(queue)))
    if missing:
        problem = f"ClusterQueue {queue['metadata']['name']} does not cover {missing}, so Kueue never admits {job}"
        raise cluster.refusal(f"{problem}: ask its administrator, or name another queue", "`kubernetes: {queue: …}`")


def _needs(cluster: ClusterVisit, job: RenderedJob, key: str) -> float:
    resource = cluster.client.resource(str(job.root["apiVersion"]), str(job.root["kind"]))
    if key == f"count/{resource.plural}.{resource.group}".rstrip("."):
        return 1.0
    return total(job.demands, key)


def _refuse_beyond(cluster: ClusterVisit, job: RenderedJob, limit: Limit) -> None:
    need = _needs(cluster, job, limit.key)
    if need > limit.most:
        problem = f"{job} asks for {need:g} {limit.key}, and {limit.of} never allows more than {limit.most:g}"
        raise cluster.refusal(problem, SIZE_KEYS)


# --- nodes -----------------------------------------------------------------------------------------------------------


def nodes(cluster: ClusterVisit) -> StepResult:
    """Check that a node suits one pod of each layout: its labels, its taints, its size, and whether it takes pods."""
    try:
        listed = cluster.client.list(NODES)[0]
    except ApiError as error:
        return StepResult(f"nodes may not be seen ({error.message})", skipped=True)
    all_nodes = [node_of(node) for node in listed]
    counts = []
    for job in cluster.jobs:
        for demand in job.demands:
            counts.append(len(_suited(cluster, job, demand, all_nodes)))
    if not counts:
        return StepResult("nothing runs there", skipped=True)
    return StepResult(f"nodes that suit every layout: {min(counts)} of {len(all_nodes)}")


def _suited(
    cluster: ClusterVisit, job: RenderedJob, demand: PodDemand, all_nodes: Sequence[ClusterNode]
) -> list[ClusterNode]:
    """Find the nodes that can take such a pod when nothing else runs there. Raises RefusedError when there is none."""
    pod = demand.template["spec"]
    selector = {key: str(value) for key, value in (pod.get("nodeSelector") or {}).items()}
    labelled = [node for node in all_nodes if node.has(selector)]
    if not labelled:
        raise cluster.refusal(_misspelt(selector, all_nodes), "`kubernetes: {node_selector: …}`")
    large = [node for node in labelled if not node.lacks(demand.requests)]
    if not large:
        raise cluster.refusal(_too_small(job, demand, labelled), SIZE_KEYS)
    tolerations = pod.get("tolerations") or ()
    tolerated = [node for node in large if all(taint.tolerated(tolerations) for taint in node.taints)]
    if not tolerated:
        taints = ", ".join(_taints_of(large))
        problem = f"taints keep pods of {job} off every node that is large enough ({taints})"
        raise cluster.refusal(f"{problem}; if those are meant for you", "`kubernetes: {tolerations: …}`")
    ready = [node for node in tolerated if node.open]
    if not ready:
        names = ", ".join(node.name for node in tolerated[:6])
        raise AwayError(f"{cluster.client.where}: no node for {job} is ready and takes pods now ({names})")
    return ready


def _taints_of(nodes: Sequence[ClusterNode]) -> list[str]:
    """Each taint once."""
    taints: dict[str, None] = {}
    for node in nodes:
        taints.update(dict.fromkeys(map(str, node.taints)))
    return list(taints)


def _too_small(job: RenderedJob, demand: PodDemand, nodes: Sequence[ClusterNode]) -> str:
    closest = min(nodes, key=lambda node: len(node.lacks(demand.requests)))
    lacks = []
    for resource, amount in closest.lacks(demand.requests).items():
        lacks.append(f"{demand.requests[resource]:g} {resource} (it has {amount:g})")
    return f"no node is large enough for a pod of {job}, which wants of {closest.name} {', '.join(lacks)}"


def _misspelt(selector: Mapping[str, str], all_nodes: Sequence[ClusterNode]) -> str:
    for key, value in selector.items():
        values = sorted({node.labels[key] for node in all_nodes if key in node.labels})
        if not values:
            return f"no node has a label {key}"
        if value not in values:
            return f"no node has {key} {value!r} {nearest(value, values)}"
    return f"no node has all of {', '.join(f'{key}={value}' for key, value in selector.items())}"
