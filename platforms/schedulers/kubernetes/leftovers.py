"""Finds what a platform's runs have left in its namespace, by labels, and deletes it."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from platforms.job import RefusedError
from platforms.schedulers.kubernetes import delete
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.resources import CONFIG_MAPS, JOBS, PODS, SECRETS, SERVICES, Resource
from platforms.schedulers.kubernetes.objects import labels
from platforms.schedulers.kubernetes.objects.fields import conditions
from platforms.schedulers.kubernetes.objects.pod_templates import templates
from platforms.schedulers.kubernetes.status import kinds, kueue

# Kinds whose jobs may have no pods left. Any other kind is found by the pods that its objects own.
OTHERS = (
    ("graphcore.ai", "IPUJob"),
    ("jobset.x-k8s.io", "JobSet"),
    ("trainer.kubeflow.org", "TrainJob"),
    *(("kubeflow.org", f"{name}Job") for name in ("PyTorch", "MPI", "TF", "XGBoost", "Paddle", "JAX")),
)

Object = dict[str, Any]
Found = tuple[Resource, Object]


@dataclass(frozen=True)
class LeftoverObject:
    """An object that a run has left. `live`: pods of its job run or wait to. `owned`: it goes with its owner."""

    resource: Resource
    name: str
    uid: str
    run: str
    job: str
    age_s: float
    live: bool
    owned: bool

    def __str__(self) -> str:
        state = "running" if self.live else "ended"
        return f"{self.resource.kubectl}/{self.name}  run {self.run}, {age(self.age_s)} old, {state}"


@dataclass
class ObjectLister:
    """Lists objects. `unseen` collects a sentence for each kind that may not be listed."""

    client: Client
    unseen: list[str] = field(default_factory=list)

    def all(self, resource: Resource, selector: str = "") -> list[Object]:
        """Raises RefusedError when pods or jobs may not be listed."""
        try:
            objects, _version = self.client.list(resource, labels=selector)
            return objects
        except ApiError as error:
            if resource in (PODS, JOBS):
                raise RefusedError(f"{self.client.where}: {error.message}") from None
            self.unseen.append(error.message)
            return []

    def jobs(self, resource: Resource, selector: str) -> list[Object]:
        """List jobs of a kind. Where we may neither list nor create that kind, none is ours, so none is unseen."""
        unseen_before = list(self.unseen)
        objects = self.all(resource, selector)
        if self.unseen != unseen_before and not self.client.is_allowed("create", resource.group, resource.plural):
            self.unseen = unseen_before
        return objects


def find_leftovers(client: Client, platform: str) -> tuple[list[LeftoverObject], list[str]]:
    """Return all objects with the platform's label, owners first, and a sentence for each kind that cannot be listed.

    Raises RefusedError.
    """
    selector = f"{labels.MANAGED_BY}={labels.OUR_NAME},{labels.PLATFORM}={platform}"
    lister = ObjectLister(client)
    found = _jobs_and_pods(lister, selector)
    live_jobs = {_label(obj, labels.JOB) for obj in _live_objects(found)}
    for resource in (SERVICES, SECRETS):
        for obj in lister.all(resource, selector):
            found.append((resource, obj))
    now = datetime.datetime.now(datetime.UTC)
    leftovers = []
    for resource, obj in found:
        metadata = obj["metadata"]
        job = _label(obj, labels.JOB)
        leftovers.append(
            LeftoverObject(
                resource=resource,
                name=metadata["name"],
                uid=metadata["uid"],
                run=_label(obj, labels.RUN),
                job=job,
                age_s=_age_s(obj, now),
                live=job in live_jobs,
                owned=bool(metadata.get("ownerReferences")),
            )
        )
    return leftovers, lister.unseen


def unused_code_archives(client: Client, least_s: float = 0.0) -> tuple[list[str], list[str]]:
    """Return the names of code archives that no job mounts, nor will mount when it may create its pods.

    Only archives that are at least `least_s` seconds old count. When some jobs cannot be listed, no archive is
    returned, but a sentence for each reason. Raises RefusedError.
    """
    selector = f"{labels.MANAGED_BY}={labels.OUR_NAME}"
    lister = ObjectLister(client)
    now = datetime.datetime.now(datetime.UTC)
    archives = []
    for obj in lister.all(CONFIG_MAPS, selector):
        if _age_s(obj, now) >= least_s:
            archives.append(str(obj["metadata"]["name"]))
    if not archives:
        return [], lister.unseen
    mounted = set()
    for obj in (*_live_objects(_jobs_and_pods(lister, selector)), *_unfinished_workloads(lister)):
        for _path, template in templates(obj):
            for volume in template["spec"].get("volumes") or ():
                if "configMap" in volume:
                    mounted.add(volume["configMap"].get("name"))
    if lister.unseen:
        return [], lister.unseen
    return [name for name in archives if name not in mounted], []


def remove(client: Client, leftovers: Sequence[LeftoverObject], archives: Sequence[str]) -> list[str]:
    """Delete objects and code archives. Returns a sentence for each that cannot be deleted."""
    problems = []
    for leftover in leftovers:
        if leftover.owned:
            continue
        try:
            client.delete(leftover.resource, leftover.name, uid=leftover.uid)
        except ApiError as error:
            problems.append(f"{leftover.resource.kubectl}/{leftover.name}: {error.message}")
    for name in archives:
        try:
            client.delete(CONFIG_MAPS, name)
        except ApiError as error:
            problems.append(f"configmap/{name}: {error.message}")
    return problems


def age(seconds: float) -> str:
    """Return an age in words: `3 days`, `5 h`, `20 min`."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _jobs_and_pods(lister: ObjectLister, selector: str) -> list[Found]:
    """Return jobs and pods, owners first. Raises RefusedError."""
    pods = lister.all(PODS, selector)
    found: list[Found] = []
    for resource in _job_kinds(lister.client, pods):
        for obj in lister.jobs(resource, selector):
            found.append((resource, obj))
    for pod in pods:
        found.append((PODS, pod))
    return found


def _unfinished_workloads(lister: ObjectLister) -> list[Object]:
    """Return Kueue's Workloads that are not finished. Each holds the pod templates of its job, whatever its kind."""
    version = kueue.version(lister.client.served_versions(kueue.GROUP))
    if version is None:
        return []
    unfinished = []
    for workload in lister.all(lister.client.resource(f"{kueue.GROUP}/{version}", "Workload")):
        finished = conditions(workload).get("Finished")
        if finished is None or not finished.true:
            unfinished.append(workload)
    return unfinished


def _live_objects(found: Sequence[Found]) -> list[Object]:
    """Return the pods and jobs that wait or run."""
    jobs_with_pods = {_label(obj, labels.JOB) for resource, obj in found if resource == PODS}
    return [obj for resource, obj in found if _is_live(resource, obj, jobs_with_pods)]


def _is_live(resource: Resource, obj: Object, jobs_with_pods: set[str]) -> bool:
    if resource == PODS:
        return bool(delete.live_pods([obj]))
    completion = kinds.completion(obj)
    if completion is None:  # its pods say how it is; without any it may wait for Kueue to let it create them
        return _label(obj, labels.JOB) not in jobs_with_pods
    return completion == "running"


def _age_s(obj: Mapping[str, Any], now: datetime.datetime) -> float:
    return (now - datetime.datetime.fromisoformat(obj["metadata"]["creationTimestamp"])).total_seconds()


def _job_kinds(client: Client, pods: Sequence[Mapping[str, Any]]) -> list[Resource]:
    """Return the kinds whose objects own these pods, and those whose jobs may have no pods left."""
    candidates = set()
    for pod in pods:
        for owner in pod["metadata"].get("ownerReferences") or ():
            candidates.add((owner["apiVersion"], owner["kind"]))
    for group, kind in OTHERS:
        for version in client.served_versions(group):
            candidates.add((f"{group}/{version}", kind))
    by_kind = {(JOBS.group, JOBS.kind): JOBS}  # any one version of a kind shows all its objects
    for api_version, kind in candidates:
        with contextlib.suppress(RefusedError):  # the version is served without that kind
            resource = client.resource(api_version, kind)
            by_kind.setdefault((resource.group, resource.kind), resource)
    return sorted(by_kind.values(), key=lambda resource: resource.kubectl)


def _label(obj: Mapping[str, Any], name: str) -> str:
    return str((obj["metadata"].get("labels") or {}).get(name, ""))
