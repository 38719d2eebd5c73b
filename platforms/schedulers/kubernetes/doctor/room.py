"""The steps of doctor that ask whether a cluster has room for the largest job: quotas and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from platforms.config.loading import nearest
from platforms.job import AwayError
from platforms.schedulers.doctor_steps import StepResult
from platforms.schedulers.kubernetes.api.client import ApiError
from platforms.schedulers.kubernetes.api.resources import LIMIT_RANGES, NODES, QUOTAS
from platforms.schedulers.kubernetes.doctor.context import ClusterVisit, RenderedJob
from platforms.schedulers.kubernetes.objects.capacity import (
    ClusterNode,
    Limit,
    PodDemand,
    node_of,
    queue_limits,
    quota_limits,
    range_limits,
    total,
)

Object = Mapping[str, Any]
SIZE_KEYS = "`layouts:` or `kubernetes: {cpu: …, memory: …}`"


def quota(look: ClusterVisit) -> StepResult:
    """The largest job fits into the namespace's quotas and into its queue's; what is in use now is only said."""
    try:
        quotas = look.client.list(QUOTAS)[0]
    except ApiError as error:
        return StepResult(f"quotas may not be seen ({error.message})", skipped=True)
    ranges = _ranges(look)
    limits = (*quota_limits(quotas, look.visit.platform.kubernetes.priority_class), *_of_queue(look))
    busy: dict[str, None] = {}
    for job in look.jobs:
        _refuse_too_large(look, job, range_limits(ranges))
        for limit in limits:
            _refuse_beyond(look, job, limit, _defaults(ranges))
            if _needs(look, job, limit.key) > limit.most - limit.used:
                busy[f"{limit.of}: {limit.used:g} of {limit.most:g} {limit.key} are in use now, a job would wait"] = (
                    None
                )
    if not limits:
        return StepResult("the namespace has no quota")
    return StepResult(
        "; ".join([f"every layout fits into {', '.join(dict.fromkeys(each.of for each in limits))}", *busy])
    )


def _ranges(look: ClusterVisit) -> list[dict[str, Any]]:
    try:
        return look.client.list(LIMIT_RANGES)[0]
    except ApiError:
        return []


def _of_queue(look: ClusterVisit) -> tuple[Limit, ...]:
    """What one job may get from the ClusterQueue, where it may be seen."""
    local, behind = look.kueue_kind("LocalQueue"), look.kueue_kind("ClusterQueue")
    found: tuple[Limit, ...] = ()
    if not local or not behind:
        return found
    for name in sorted({job.queue for job in look.jobs if job.queue}):
        try:
            queue = look.client.get(local, name)
            found += queue_limits(look.client.get(behind, queue["spec"]["clusterQueue"]))
        except ApiError:
            continue
    return found


def _defaults(ranges: Iterable[Object]) -> set[str]:
    """Resources that a LimitRange writes into containers that do not ask for them."""
    items = [item for each in ranges for item in each.get("spec", {}).get("limits") or ()]
    return {name for item in items for key in ("default", "defaultRequest") for name in item.get(key) or ()}


def _needs(look: ClusterVisit, job: RenderedJob, key: str) -> float:
    resource = look.client.resource(str(job.root["apiVersion"]), str(job.root["kind"]))
    if key == f"count/{resource.plural}.{resource.group}".rstrip("."):
        return 1.0
    return total(job.demands, key)


def _refuse_beyond(look: ClusterVisit, job: RenderedJob, limit: Limit, defaults: set[str]) -> None:
    need = _needs(look, job, limit.key)
    if need > limit.most:
        said = f"{job} asks for {need:g} {limit.key}, and {limit.of} never allows more than {limit.most:g}"
        raise look.wrong(said, SIZE_KEYS)
    asks = limit.resource in ("cpu", "memory") and limit.of.startswith("ResourceQuota")
    if asks and not need and limit.resource not in defaults:
        said = f"{limit.of} wants every pod to say its {limit.key}"
        raise look.wrong(said, f"`kubernetes: {{{limit.resource}: …}}`")


def _refuse_too_large(look: ClusterVisit, job: RenderedJob, largest: Sequence[Limit]) -> None:
    """Against LimitRanges, which refuse single pods; a Job that makes such pods shows nothing of it."""
    for each in job.demands:
        for limit in largest:
            if (need := each.limits.get(limit.key, 0.0)) > limit.most:
                said = f"a pod of {job} asks for {need:g} {limit.key}, and {limit.of} allows {limit.most:g}"
                raise look.wrong(said, SIZE_KEYS)


# --- nodes -----------------------------------------------------------------------------------------------------------


def nodes(look: ClusterVisit) -> StepResult:
    """Some node that takes pods has the labels, no taint against us, and room for one pod of each layout."""
    try:
        found = [node_of(each) for each in look.client.list(NODES)[0]]
    except ApiError as error:
        return StepResult(f"nodes may not be seen ({error.message})", skipped=True)
    counts: dict[int, None] = {}
    for job in look.jobs:
        for each in job.demands:
            counts[len(_suited(look, job, each, found))] = None
    if not counts:
        return StepResult("nothing runs there", skipped=True)
    least = min(counts)
    return StepResult(f"{least} of {len(found)} nodes suit{'s' if least == 1 else ''} every layout")


def _suited(look: ClusterVisit, job: RenderedJob, demand: PodDemand, found: Sequence[ClusterNode]) -> list[ClusterNode]:
    """The nodes that can take such a pod when nothing else runs there. Raises RefusedError when there is none."""
    pod = demand.template["spec"]
    selector = {key: str(value) for key, value in (pod.get("nodeSelector") or {}).items()}
    having = [node for node in found if node.has(selector)]
    if not having:
        raise look.wrong(_misspelt(selector, found), "`kubernetes: {node_selector: …}`")
    large = [node for node in having if not node.lacks(demand.requests)]
    if not large:
        raise look.wrong(_too_small(job, demand, having), SIZE_KEYS)
    tolerated = [node for node in large if all(taint.tolerated(pod.get("tolerations") or ()) for taint in node.taints)]
    if not tolerated:
        taints = ", ".join(dict.fromkeys(str(taint) for node in large for taint in node.taints))
        said = f"taints keep pods of {job} off every node that is large enough ({taints})"
        raise look.wrong(f"{said}; if those are meant for you", "`kubernetes: {tolerations: …}`")
    ready = [node for node in tolerated if node.open]
    if not ready:
        names = ", ".join(node.name for node in tolerated[:6])
        raise AwayError(f"{look.client.where}: no node for {job} is ready and takes pods now ({names})")
    return ready


def _too_small(job: RenderedJob, demand: PodDemand, nodes: Sequence[ClusterNode]) -> str:
    closest = min(nodes, key=lambda node: len(node.lacks(demand.requests)))
    lacks = [f"{demand.requests[what]:g} {what} (it has {n:g})" for what, n in closest.lacks(demand.requests).items()]
    return f"no node is large enough for a pod of {job}, which wants of {closest.name} {', '.join(lacks)}"


def _misspelt(selector: Mapping[str, str], found: Sequence[ClusterNode]) -> str:
    for key, value in selector.items():
        values = sorted({node.labels[key] for node in found if key in node.labels})
        if not values:
            return f"no node has a label {key}"
        if value not in values:
            return f"no node has {key} {value!r} {nearest(value, values)}"
    return f"no node has all of {', '.join(f'{key}={value}' for key, value in selector.items())}"
