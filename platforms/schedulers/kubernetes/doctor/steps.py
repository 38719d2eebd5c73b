"""The steps of doctor that look at a cluster: who we are there, what it knows, its queue, rules and clock."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from platforms.config.loading import nearest
from platforms.job import RefusedError
from platforms.schedulers.doctor_steps import Step, StepResult, Visit
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.resources import CONFIG_MAPS, NAMESPACES, PODS, Resource
from platforms.schedulers.kubernetes.doctor import rights, room, storage
from platforms.schedulers.kubernetes.doctor.context import ClusterVisit, RenderedJob

if TYPE_CHECKING:
    from platforms.schedulers.kubernetes.scheduler import KubernetesScheduler

Object = Mapping[str, Any]
# Why a namespace refuses a pod, whoever makes it.
NO_PODS = re.compile(r"violates PodSecurity|service account|no PriorityClass|must specify|m\w+imum \S+ usage per", re.I)
SKEW_S = 30.0  # what a clock may be off before anybody is told


def look_at_cluster(visit: Visit) -> list[Step]:
    """What there is to look at before the site's rules, in order."""
    look = ClusterVisit(visit)
    each: tuple[tuple[str, Callable[[ClusterVisit], StepResult]], ...] = (
        ("context", context),
        ("kind", kind),
        ("rights", rights.rights),
        ("queue", queue),
        ("quota", room.quota),
        ("nodes", room.nodes),
        ("storage", storage.storage),
    )
    return [(title, partial(_step, step, look)) for title, step in each]


def try_manifests(visit: Visit) -> list[Step]:
    """The API server's own word on the manifests."""
    return [("server", partial(_step, server, ClusterVisit(visit)))]


def _step(step: Callable[[ClusterVisit], StepResult], look: ClusterVisit, visit: Visit) -> StepResult:
    try:
        return step(look)
    except ApiError as error:  # what a step has not expected to be refused
        raise RefusedError(f"{look.client.where}: {error.message}") from None


def context(look: ClusterVisit) -> StepResult:
    """The kubeconfig can be read, the API server answers, and the namespace is there."""
    client = look.client
    version = client.version()
    try:
        client.get(NAMESPACES, client.namespace)
    except ApiError as error:
        if error.status == 404:
            raise _no_namespace(look) from None
        return StepResult(f"{client.where}: Kubernetes {version}; whether the namespace is there we may not see")
    return StepResult(f"{client.where}: Kubernetes {version}")


def _no_namespace(look: ClusterVisit) -> RefusedError:
    name = look.client.namespace
    try:
        known = nearest(name, [str(each["metadata"]["name"]) for each in look.client.list(NAMESPACES)[0]])
    except ApiError:
        known = f"(`kubectl config get-contexts {look.client.context}` shows the context's own)"
    return look.wrong(f"there is no namespace {name!r} {known}", "`kubernetes: {namespace: …}`")


def kind(look: ClusterVisit) -> StepResult:
    """The cluster serves every kind of object that the manifests hold."""
    named = {(str(each["apiVersion"]), str(each["kind"])) for job in look.jobs for each in job.objects}
    if not named:
        return _nothing()
    resources = [look.client.resource(*each) for each in sorted(named)]
    return StepResult(f"served: {', '.join(sorted(resource.kubectl for resource in resources))}")


def _nothing() -> StepResult:
    return StepResult("every benchmark is unsupported there", skipped=True)


# --- Kueue -----------------------------------------------------------------------------------------------------------


def queue(look: ClusterVisit) -> StepResult:
    """The LocalQueue is there and takes jobs, and so does the ClusterQueue behind it."""
    names = sorted({job.queue for job in look.jobs if job.queue})
    local = look.kueue_kind("LocalQueue")
    if names and not local:
        raise look.wrong(f"there is no Kueue, and so no queue {names[0]}: remove", "`kubernetes: {queue: …}`")
    if not local:
        return StepResult("the cluster has no Kueue", skipped=True)
    if not names:
        return StepResult(_unnamed(look, local), skipped=True)
    return StepResult("; ".join(_queue(look, local, name) for name in names))


def _unnamed(look: ClusterVisit, local: Resource) -> str:
    there = _names(look.client, local)
    hint = f"; there are: {', '.join(there)}: does the site demand one?" if there else ""
    return f"no `kubernetes: {{queue: …}}` is named{hint}"


def _names(client: Client, resource: Resource) -> list[str]:
    try:
        return [str(each["metadata"]["name"]) for each in client.list(resource)[0]]
    except ApiError:
        return []


def _queue(look: ClusterVisit, local: Resource, name: str) -> str:
    where = look.client.where
    try:
        found = look.client.get(local, name)
    except ApiError as error:
        if error.status != 404:
            return f"{name} may not be seen ({error.message})"
        known = nearest(name, _names(look.client, local))
        raise look.wrong(f"there is no LocalQueue {name!r} {known}", "`kubernetes: {queue: …}`") from None
    _refuse_stopped(f"{where}: LocalQueue {name}", found)
    behind = str(found["spec"]["clusterQueue"])
    try:
        cluster_queue = look.client.get(look.client.resource(local.api_version, "ClusterQueue"), behind)
    except ApiError:
        return f"{name} takes jobs{_waiting(found)}; ClusterQueue {behind} may not be seen"
    _refuse_stopped(f"{where}: ClusterQueue {behind}, behind LocalQueue {name}", cluster_queue)
    return f"{name} of ClusterQueue {behind} takes jobs{_waiting(found)}"


def _refuse_stopped(what: str, found: Object) -> None:
    if (policy := (found.get("spec") or {}).get("stopPolicy", "None")) != "None":
        raise RefusedError(f"{what} is stopped ({policy}); ask whoever runs it")
    for each in (found.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Active" and each.get("status") != "True":
            said = f"{each.get('reason', 'no reason')}: {each.get('message', '')}"
            raise RefusedError(f"{what} takes no jobs ({said}); ask whoever runs it")


def _waiting(found: Object) -> str:
    status = found.get("status") or {}
    return f", {status.get('pendingWorkloads', 0)} wait, {status.get('admittedWorkloads', 0)} admitted"


# --- the server's own word -------------------------------------------------------------------------------------------


def server(look: ClusterVisit, wall: Callable[[], float] = time.time) -> StepResult:
    """The API server takes the manifests, in a dry run with strict validation; and whose clock is right."""
    checked = list(_different(look.jobs))
    if not checked:
        return _nothing()
    scheduler = cast("KubernetesScheduler", look.visit.scheduler)
    for job in checked:
        if refused := [*scheduler.check(job.spec, job.text), *_refused_pods(look, job)]:
            show = f"pytest -m {look.visit.platform.name} --dry-run{look.visit.more}"
            raise RefusedError(f"{look.client.where} refuses {job}: {'; '.join(refused)}. Its manifest: {show}")
    return StepResult(f"takes {len(checked)} manifest{'s' if len(checked) > 1 else ''} in a dry run{_skew(look, wall)}")


def _refused_pods(look: ClusterVisit, job: RenderedJob) -> Iterator[str]:
    """What the server has against the pods that another object would make: of that one it takes everything, and then
    nobody sees why there are no pods. That pods may not be made by us, or by nobody, is no answer."""
    if job.root["kind"] == "Pod":
        return
    for demand in job.demands:
        metadata = {**demand.template.get("metadata", {}), "name": job.spec.name}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": demand.template["spec"]}
        try:
            look.client.create(PODS, pod, dry_run=True)
        except ApiError as error:
            if NO_PODS.search(error.message):
                yield f"its pods: {error.message}"


def _different(jobs: Sequence[RenderedJob]) -> Iterator[RenderedJob]:
    """One of each layout: what else differs is the command line."""
    seen: set[str] = set()
    for job in jobs:
        if str(job.spec.layout) not in seen:
            seen.add(str(job.spec.layout))
            yield job


def _skew(look: ClusterVisit, wall: Callable[[], float]) -> str:
    """What the server says it is o'clock: a job refuses to start after a time that this machine's clock has set."""
    name = {"name": f"{look.visit.platform.name.replace('_', '-')}-doctor"}
    before_s = wall()
    try:
        made = look.client.create(
            CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name}, dry_run=True
        )
        there = datetime.datetime.fromisoformat(made["metadata"]["creationTimestamp"]).timestamp()
    except (ApiError, KeyError, ValueError):
        return ""
    ahead_s = there - (before_s + wall()) / 2
    if abs(ahead_s) < SKEW_S:
        return ""
    return (
        f"; its clock is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's: set one right"
    )
