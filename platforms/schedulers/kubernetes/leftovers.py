"""What runs of a platform have left in its namespace, found by its labels, and taken away."""

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

# Kinds that make pods and that nobody may have left a pod of; those whose pods are there are found by their pods.
OTHERS = (
    ("graphcore.ai", "IPUJob"),
    ("jobset.x-k8s.io", "JobSet"),
    ("trainer.kubeflow.org", "TrainJob"),
    *(("kubeflow.org", f"{name}Job") for name in ("PyTorch", "MPI", "TF", "XGBoost", "Paddle", "JAX")),
)


@dataclass(frozen=True)
class LeftoverObject:
    """One object of ours. `live`: pods of its job run, or wait to. `age_s` since it was created."""

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
    """What the cluster shows us of itself, and in `unseen` a sentence for each kind that it does not."""

    client: Client
    unseen: list[str] = field(default_factory=list)

    def all(self, resource: Resource, selector: str = "") -> list[dict[str, Any]]:
        """Raises RefusedError where pods or jobs may not be listed."""
        try:
            return self.client.list(resource, labels=selector)[0]
        except ApiError as error:
            if resource in (PODS, JOBS):
                raise RefusedError(f"{self.client.where}: {error.message}") from None
            self.unseen.append(error.message)
            return []

    def jobs(self, resource: Resource, selector: str) -> list[dict[str, Any]]:
        """As `all`; where we may not make jobs of that kind either, none is ours."""
        before = list(self.unseen)
        found = self.all(resource, selector)
        if self.unseen != before and not self.client.is_allowed("create", resource.group, resource.plural):
            self.unseen = before
        return found


def find_leftovers(client: Client, platform: str) -> tuple[list[LeftoverObject], list[str]]:
    """Everything with the platform's label, owners first; what is owned goes with its owner. And what may not be
    listed, a sentence each. Raises RefusedError."""
    chosen = f"{labels.MANAGED_BY}={labels.OUR_NAME},{labels.PLATFORM}={platform}"
    listed = ObjectLister(client)
    found = _there(listed, chosen)
    live = {_label(each, labels.JOB) for each in _live(found)}
    now = datetime.datetime.now(datetime.UTC)
    rest = [(resource, each) for resource in (SERVICES, SECRETS) for each in listed.all(resource, chosen)]
    return [_left(resource, each, live, now) for resource, each in (*found, *rest)], listed.unseen


def unused_code_archives(client: Client, least_s: float = 0.0) -> tuple[list[str], list[str]]:
    """The names of code archives, at least that old, that no job of ours mounts any more, or will when it may make its
    pods. None of them where that cannot be told, and a sentence for each reason why not. Raises RefusedError."""
    chosen = f"{labels.MANAGED_BY}={labels.OUR_NAME}"
    listed = ObjectLister(client)
    now = datetime.datetime.now(datetime.UTC)
    archives = [str(each["metadata"]["name"]) for each in listed.all(CONFIG_MAPS, chosen) if _age(each, now) >= least_s]
    if not archives:
        return [], listed.unseen
    mounted = {
        volume["configMap"].get("name")
        for each in (*_live(_there(listed, chosen)), *_held(listed))
        for _path, template in templates(each)
        for volume in template["spec"].get("volumes") or ()
        if "configMap" in volume
    }
    return [] if listed.unseen else [name for name in archives if name not in mounted], listed.unseen


def remove(client: Client, found: Sequence[LeftoverObject], archives: Sequence[str]) -> list[str]:
    """Delete them; returns a sentence for each that would not go."""
    wrong = []
    for each in found:
        if each.owned:
            continue
        try:
            client.delete(each.resource, each.name, uid=each.uid)
        except ApiError as error:
            wrong.append(f"{each.resource.kubectl}/{each.name}: {error.message}")
    for name in archives:
        try:
            client.delete(CONFIG_MAPS, name)
        except ApiError as error:
            wrong.append(f"configmap/{name}: {error.message}")
    return wrong


def age(seconds: float) -> str:
    """`3 days`, `5 h`, `20 min`."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _there(listed: ObjectLister, chosen: str) -> list[tuple[Resource, dict[str, Any]]]:
    """Jobs and pods, owners first. Raises RefusedError."""
    pods = listed.all(PODS, chosen)
    roots = [(resource, each) for resource in _roots(listed.client, pods) for each in listed.jobs(resource, chosen)]
    return [*roots, *((PODS, pod) for pod in pods)]


def _held(listed: ObjectLister) -> list[dict[str, Any]]:
    """Kueue's Workloads that are not finished. Each holds the pod templates of its job, of whatever kind that is."""
    if (served := kueue.version(listed.client.served_versions(kueue.GROUP))) is None:
        return []
    workloads = listed.all(listed.client.resource(f"{kueue.GROUP}/{served}", "Workload"))
    return [each for each in workloads if not _finished(each)]


def _finished(workload: Mapping[str, Any]) -> bool:
    said = conditions(workload).get("Finished")
    return said is not None and said.true


def _live(found: Sequence[tuple[Resource, dict[str, Any]]]) -> list[dict[str, Any]]:
    """What waits or runs."""
    had_pods = {_label(each, labels.JOB) for resource, each in found if resource == PODS}
    return [each for resource, each in found if _goes_on(resource, each, had_pods)]


def _goes_on(resource: Resource, each: dict[str, Any], had_pods: set[str]) -> bool:
    """Also a job without a pod: Kueue may let it have one."""
    if resource == PODS:
        return bool(delete.live_pods([each]))
    said = kinds.completion(each)
    return said == "running" or (said is None and _label(each, labels.JOB) not in had_pods)


def _left(resource: Resource, each: Mapping[str, Any], live: set[str], now: datetime.datetime) -> LeftoverObject:
    metadata, job, run = each["metadata"], _label(each, labels.JOB), _label(each, labels.RUN)
    owned = bool(metadata.get("ownerReferences"))
    return LeftoverObject(resource, metadata["name"], metadata["uid"], run, job, _age(each, now), job in live, owned)


def _age(each: Mapping[str, Any], now: datetime.datetime) -> float:
    return (now - datetime.datetime.fromisoformat(each["metadata"]["creationTimestamp"])).total_seconds()


def _roots(client: Client, pods: Sequence[Mapping[str, Any]]) -> list[Resource]:
    """The kinds whose objects own pods of ours, and those that may have none left."""
    wanted = {
        (owner["apiVersion"], owner["kind"]) for pod in pods for owner in pod["metadata"].get("ownerReferences") or ()
    }
    wanted |= {(f"{group}/{version}", kind) for group, kind in OTHERS for version in client.served_versions(group)}
    roots = {(JOBS.group, JOBS.kind): JOBS}  # one version of each shows all of them
    for version, kind in wanted:
        with contextlib.suppress(RefusedError):  # it is served without that kind
            found = client.resource(version, kind)
            roots.setdefault((found.group, found.kind), found)
    return sorted(roots.values(), key=lambda each: each.kubectl)


def _label(each: Mapping[str, Any], name: str) -> str:
    return str((each["metadata"].get("labels") or {}).get(name, ""))
