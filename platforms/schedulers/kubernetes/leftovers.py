"""What ended jobs have left in a platform's namespace: found by labels and removed, for `prune`."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Sequence
from typing import Any, Self

from platforms.config.schema import Platform
from platforms.job import RefusedError
from platforms.rundir.retention import Leftover
from platforms.schedulers.kubernetes import delete
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget
from platforms.schedulers.kubernetes.api.resources import JOBS, PODS, SECRETS, SERVICES, Resource
from platforms.schedulers.kubernetes.objects import labels
from platforms.schedulers.kubernetes.objects.pod_templates import templates
from platforms.schedulers.kubernetes.status import kinds

# Kinds whose jobs may have no pods left. Any other kind is found by the pods that its objects own.
OTHERS = (
    ("graphcore.ai", "IPUJob"),
    ("jobset.x-k8s.io", "JobSet"),
    ("trainer.kubeflow.org", "TrainJob"),
    *(("kubeflow.org", f"{name}Job") for name in ("PyTorch", "MPI", "TF", "XGBoost", "Paddle", "JAX")),
)

FRESH_S = 600.0  # a Service or Secret of that age may wait for the job that is created behind it

Object = dict[str, Any]
Found = tuple[Resource, Object]


class NamespaceLeftovers:
    """The objects with the platform's label that no owner takes with it.

    Claims hold people's data, and code archives are shared by all platforms of a namespace: both stay.
    """

    def __init__(self, platform: Platform) -> None:
        self._client = Client(ClusterTarget.of(platform))
        self._platform = platform.name
        self._found: dict[str, Found] = {}
        self._unseen: list[str] = []

    @property
    def where(self) -> str:
        unseen = "".join(f"; not looked for: {reason}" for reason in self._unseen)
        return f"{self._client.where}, {self._platform}{unseen}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """Nothing is to be closed: each request has a connection of its own."""

    def find(self) -> list[Leftover]:
        """Raises RefusedError when jobs or pods may not be listed."""
        self._unseen = []
        jobs_and_pods = self._jobs_and_pods()
        live_jobs = _live_jobs(jobs_and_pods)
        now = datetime.datetime.now(datetime.UTC)
        leftovers = []
        self._found = {}
        selector = f"{labels.PLATFORM}={self._platform}"  # other people's secrets are not read
        for resource, obj in (*jobs_and_pods, *self._list(SERVICES, selector), *self._list(SECRETS, selector)):
            metadata = obj["metadata"]
            if metadata.get("ownerReferences") or not self._is_ours(obj):
                continue
            job = _job(obj)
            age_s = (now - datetime.datetime.fromisoformat(metadata["creationTimestamp"])).total_seconds()
            stays = ""
            if job in live_jobs:
                stays = "its job waits or runs"
            elif resource in (SERVICES, SECRETS) and age_s < FRESH_S:
                stays = "its job may be about to begin"
            leftover = Leftover(f"{resource.kubectl}/{metadata['name']}", age_s, job, stays=stays)
            self._found[leftover.name] = (resource, obj)
            leftovers.append(leftover)
        return leftovers

    def remove(self, leftovers: Sequence[Leftover]) -> list[str]:
        """Delete objects. What they own goes by and by. Returns a sentence for each that cannot be deleted."""
        problems = []
        for leftover in leftovers:
            resource, obj = self._found[leftover.name]
            try:
                self._client.delete(resource, obj["metadata"]["name"], uid=obj["metadata"]["uid"])
            except ApiError as error:
                problems.append(f"{leftover.name}: {error.message}")
        return problems

    def _jobs_and_pods(self) -> list[Found]:
        pods = self._list(PODS)
        found: list[Found] = []
        for resource in self._job_kinds(pods):
            found += self._list(resource)
        return [*found, *pods]

    def _job_kinds(self, pods: Sequence[Found]) -> list[Resource]:
        """Return the kinds whose objects own these pods, and those whose jobs may have no pods left."""
        candidates = set()
        for _resource, pod in pods:
            if not self._is_ours(pod):
                continue
            for owner in pod["metadata"].get("ownerReferences") or ():
                candidates.add((owner["apiVersion"], owner["kind"]))
        for group, kind in OTHERS:
            for version in self._client.served_versions(group):
                candidates.add((f"{group}/{version}", kind))
        by_kind = {(JOBS.group, JOBS.kind): JOBS}  # any one version of a kind shows all its objects
        for api_version, kind in candidates:
            with contextlib.suppress(RefusedError):  # the version is served without that kind
                resource = self._client.resource(api_version, kind)
                by_kind.setdefault((resource.group, resource.kind), resource)
        return sorted(by_kind.values(), key=lambda resource: resource.kubectl)

    def _list(self, resource: Resource, selector: str = "") -> list[Found]:
        """All objects of a kind, or those with some labels.

        A kind that may not be listed is noted, unless we may not make such objects either.
        """
        try:
            objects, _version = self._client.list(resource, labels=selector)
        except ApiError as error:
            if resource in (PODS, JOBS):
                raise RefusedError(f"{self._client.where}: {error.message}") from None
            if self._client.is_allowed("create", resource.group, resource.plural):
                self._unseen.append(error.message)
            return []
        return [(resource, obj) for obj in objects]

    def _is_ours(self, obj: Object) -> bool:
        """Whether it has the platform's label, if only in the template of its pods: a webhook may change its own."""
        return any(labels_of.get(labels.PLATFORM) == self._platform for labels_of in _all_labels(obj))


def _live_jobs(jobs_and_pods: Sequence[Found]) -> set[str]:
    """The names of jobs that wait or run."""
    jobs_with_pods = {_job(obj) for resource, obj in jobs_and_pods if resource == PODS}
    return {_job(obj) for resource, obj in jobs_and_pods if _is_live(resource, obj, jobs_with_pods)}


def _is_live(resource: Resource, obj: Object, jobs_with_pods: set[str]) -> bool:
    if resource == PODS:
        return bool(delete.live_pods([obj]))
    completion = kinds.completion(obj)
    if completion is None:  # its pods say how it is; without any it may wait for Kueue to let it create them
        return _job(obj) not in jobs_with_pods
    return completion == "running"


def _job(obj: Object) -> str:
    named = (labels_of[labels.JOB] for labels_of in _all_labels(obj) if labels.JOB in labels_of)
    return str(next(named, obj["metadata"]["name"]))


def _all_labels(obj: Object) -> list[Object]:
    return [each.get("metadata", {}).get("labels") or {} for each in (obj, *(tree for _, tree in templates(obj)))]
