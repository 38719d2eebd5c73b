"""The steps of doctor that look at a cluster: its API server, kinds, Kueue queue, and its check of the manifests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from platforms.config.loading import nearest
from platforms.job import RefusedError
from platforms.schedulers.doctor_steps import Step, StepResult, Visit
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.resources import NAMESPACES, PODS, Resource
from platforms.schedulers.kubernetes.doctor import rights, room, storage
from platforms.schedulers.kubernetes.doctor.context import ClusterVisit, RenderedJob

if TYPE_CHECKING:
    from platforms.schedulers.kubernetes.scheduler import KubernetesScheduler

Object = Mapping[str, Any]
# Reasons for which a namespace refuses a pod, whichever user or controller makes it.
NO_PODS = re.compile(r"violates PodSecurity|service account|no PriorityClass|must specify|m\w+imum \S+ usage per", re.I)


def look_at_cluster(visit: Visit) -> list[Step]:
    """List the steps before the one of the site's rules, in order."""
    cluster = ClusterVisit(visit)
    steps: tuple[tuple[str, Callable[[ClusterVisit], StepResult]], ...] = (
        ("context", context),
        ("kind", kind),
        ("rights", rights.rights),
        ("queue", queue),
        ("quota", room.quota),
        ("nodes", room.nodes),
        ("storage", storage.storage),
    )
    return [(title, partial(_step, step, cluster)) for title, step in steps]


def try_manifests(visit: Visit) -> list[Step]:
    """List the steps after the one of the site's rules: the API server checks the manifests."""
    return [("server", partial(_step, server, ClusterVisit(visit)))]


def _step(step: Callable[[ClusterVisit], StepResult], cluster: ClusterVisit, visit: Visit) -> StepResult:
    try:
        return step(cluster)
    except ApiError as error:  # a step handles the refusals that it expects
        raise RefusedError(f"{cluster.client.where}: {error.message}") from None


def context(cluster: ClusterVisit) -> StepResult:
    """Check that the kubeconfig can be read, the API server answers, and the namespace exists."""
    client = cluster.client
    version = client.version()
    try:
        client.get(NAMESPACES, client.namespace)
    except ApiError as error:
        if error.status == 404:
            raise _no_namespace(cluster) from None
        return StepResult(f"{client.where}: Kubernetes {version}; whether the namespace is there we may not see")
    return StepResult(f"{client.where}: Kubernetes {version}")


def _no_namespace(cluster: ClusterVisit) -> RefusedError:
    name = cluster.client.namespace
    try:
        namespaces = [str(namespace["metadata"]["name"]) for namespace in cluster.client.list(NAMESPACES)[0]]
        hint = nearest(name, namespaces)
    except ApiError:
        hint = f"(`kubectl config get-contexts {cluster.client.context}` shows the context's own)"
    return cluster.refusal(f"there is no namespace {name!r} {hint}", "`kubernetes: {namespace: …}`")


def kind(cluster: ClusterVisit) -> StepResult:
    """Check that the cluster serves every kind of object that the manifests hold."""
    kinds = set()
    for job in cluster.jobs:
        for manifest in job.objects:
            kinds.add((str(manifest["apiVersion"]), str(manifest["kind"])))
    if not kinds:
        return _nothing_runs()
    names = [cluster.client.resource(api_version, kind).kubectl for api_version, kind in sorted(kinds)]
    return StepResult(f"served: {', '.join(sorted(names))}")


def _nothing_runs() -> StepResult:
    return StepResult("every benchmark is unsupported there", skipped=True)


# --- Kueue -----------------------------------------------------------------------------------------------------------


def queue(cluster: ClusterVisit) -> StepResult:
    """Check that the LocalQueue and its ClusterQueue exist and take jobs."""
    names = sorted({job.queue for job in cluster.jobs if job.queue})
    local_queues = cluster.kueue_kind("LocalQueue")
    if names and not local_queues:
        raise cluster.refusal(f"there is no Kueue, and so no queue {names[0]}: remove", "`kubernetes: {queue: …}`")
    if not local_queues:
        return StepResult("the cluster has no Kueue", skipped=True)
    if not names:
        return StepResult(_unnamed(cluster, local_queues), skipped=True)
    return StepResult("; ".join(_queue(cluster, local_queues, name) for name in names))


def _unnamed(cluster: ClusterVisit, local_queues: Resource) -> str:
    message = "no `kubernetes: {queue: …}` is named"
    names = _names(cluster.client, local_queues)
    if not names:
        return message
    return f"{message}; there are: {', '.join(names)}: does the site demand one?"


def _names(client: Client, resource: Resource) -> list[str]:
    try:
        return [str(listed["metadata"]["name"]) for listed in client.list(resource)[0]]
    except ApiError:
        return []


def _queue(cluster: ClusterVisit, local_queues: Resource, name: str) -> str:
    where = cluster.client.where
    try:
        local_queue = cluster.client.get(local_queues, name)
    except ApiError as error:
        if error.status != 404:
            return f"{name} may not be seen ({error.message})"
        hint = nearest(name, _names(cluster.client, local_queues))
        raise cluster.refusal(f"there is no LocalQueue {name!r} {hint}", "`kubernetes: {queue: …}`") from None
    _refuse_stopped(f"{where}: LocalQueue {name}", local_queue)
    owner = str(local_queue["spec"]["clusterQueue"])
    try:
        cluster_queues = cluster.client.resource(local_queues.api_version, "ClusterQueue")
        cluster_queue = cluster.client.get(cluster_queues, owner)
    except ApiError:
        return f"{name} takes jobs{_waiting(local_queue)}; ClusterQueue {owner} may not be seen"
    cluster.cluster_queues[name] = cluster_queue
    _refuse_stopped(f"{where}: ClusterQueue {owner}, behind LocalQueue {name}", cluster_queue)
    return f"{name} of ClusterQueue {owner} takes jobs{_waiting(local_queue)}"


def _refuse_stopped(title: str, queue: Object) -> None:
    policy = (queue.get("spec") or {}).get("stopPolicy", "None")
    if policy != "None":
        raise RefusedError(f"{title} is stopped ({policy}); ask its administrator")
    for condition in (queue.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Active" and condition.get("status") != "True":
            reason = f"{condition.get('reason', 'no reason')}: {condition.get('message', '')}"
            raise RefusedError(f"{title} takes no jobs ({reason}); ask its administrator")


def _waiting(local_queue: Object) -> str:
    status = local_queue.get("status") or {}
    return f", {status.get('pendingWorkloads', 0)} wait, {status.get('admittedWorkloads', 0)} admitted"


# --- the server's dry run --------------------------------------------------------------------------------------------


def server(cluster: ClusterVisit) -> StepResult:
    """Check in a dry run with strict validation that the API server takes the manifests."""
    jobs = _one_of_each_layout(cluster.jobs)
    if not jobs:
        return _nothing_runs()
    scheduler = cast("KubernetesScheduler", cluster.visit.scheduler)
    for job in jobs:
        refusals = [*scheduler.check(job.spec, job.text), *_refused_pods(cluster, job)]
        if refusals:
            show = f"pytest -m {cluster.visit.platform.name} --dry-run{cluster.visit.more}"
            raise RefusedError(f"{cluster.client.where} refuses {job}: {'; '.join(refusals)}. Its manifest: {show}")
    manifests = "manifests" if len(jobs) > 1 else "manifest"
    return StepResult(f"takes {len(jobs)} {manifests} in a dry run")


def _refused_pods(cluster: ClusterVisit, job: RenderedJob) -> Iterator[str]:
    """Ask the server about the pods that the job's root object would make.

    The server takes a Job whose pods it would refuse, and then no message says why the job has no pods. Only the
    refusals of NO_PODS count: the user needs no right to make pods.
    """
    if job.root["kind"] == "Pod":
        return
    for demand in job.demands:
        metadata = {**demand.template.get("metadata", {}), "name": job.spec.name}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": demand.template["spec"]}
        try:
            cluster.client.create(PODS, pod, dry_run=True)
        except ApiError as error:
            if NO_PODS.search(error.message):
                yield f"its pods: {error.message}"


def _one_of_each_layout(jobs: Sequence[RenderedJob]) -> list[RenderedJob]:
    """Choose the first job of each layout: the others differ in their command lines only."""
    chosen: dict[str, RenderedJob] = {}
    for job in jobs:
        chosen.setdefault(str(job.spec.layout), job)
    return list(chosen.values())
