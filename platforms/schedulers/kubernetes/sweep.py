"""What runs of a platform have left in its namespace, found by its labels, and taken away."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from platforms.job import RefusedError
from platforms.schedulers.kubernetes import ending, labels
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.resources import CONFIG_MAPS, JOBS, PODS, SECRETS, SERVICES, Resource
from platforms.schedulers.kubernetes.objects import templates
from platforms.schedulers.kubernetes.state import kinds

# Kinds that make pods and that nobody may have left a pod of; those whose pods are there are found by their pods.
OTHERS = (("graphcore.ai", "IPUJob"), ("kubeflow.org", "PyTorchJob"), ("jobset.x-k8s.io", "JobSet"))


@dataclass(frozen=True)
class Left:
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


def left(client: Client, platform: str) -> list[Left]:
    """Everything with the platform's label, owners first; what is owned goes with its owner. Raises RefusedError."""
    chosen = f"{labels.MANAGED_BY}={labels.US},{labels.PLATFORM}={platform}"
    found = _there(client, chosen)
    live = {_label(each, labels.JOB) for each in _live(found)}
    now = datetime.datetime.now(datetime.UTC)
    rest = [(resource, each) for resource in (SERVICES, SECRETS) for each in _list(client, resource, chosen)]
    return [_left(resource, each, live, now) for resource, each in (*found, *rest)]


def code(client: Client) -> list[str]:
    """The names of code archives that no job of ours mounts any more, or will when it may make its pods."""
    chosen = f"{labels.MANAGED_BY}={labels.US}"
    mounted = {
        volume["configMap"].get("name")
        for each in _live(_there(client, chosen))
        for _path, template in templates(each)
        for volume in template["spec"].get("volumes") or ()
        if "configMap" in volume
    }
    archives = (str(each["metadata"]["name"]) for each in _list(client, CONFIG_MAPS, chosen))
    return [name for name in archives if name not in mounted]


def remove(client: Client, found: Sequence[Left], archives: Sequence[str]) -> list[str]:
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


def _there(client: Client, chosen: str) -> list[tuple[Resource, dict[str, Any]]]:
    """Jobs and pods, owners first. Raises RefusedError."""
    pods = _list(client, PODS, chosen)
    roots = [(resource, each) for resource in _roots(client, pods) for each in _list(client, resource, chosen)]
    return [*roots, *((PODS, pod) for pod in pods)]


def _live(found: Sequence[tuple[Resource, dict[str, Any]]]) -> list[dict[str, Any]]:
    """What waits or runs."""
    had_pods = {_label(each, labels.JOB) for resource, each in found if resource == PODS}
    return [each for resource, each in found if _goes_on(resource, each, had_pods)]


def _goes_on(resource: Resource, each: dict[str, Any], had_pods: set[str]) -> bool:
    """Also a job without a pod: Kueue may let it have one."""
    if resource == PODS:
        return bool(ending.live([each]))
    said = kinds.completion(each)
    return said == "running" or (said is None and _label(each, labels.JOB) not in had_pods)


def _left(resource: Resource, each: Mapping[str, Any], live: set[str], now: datetime.datetime) -> Left:
    metadata, job = each["metadata"], _label(each, labels.JOB)
    age_s = (now - datetime.datetime.fromisoformat(metadata["creationTimestamp"])).total_seconds()
    owned = bool(metadata.get("ownerReferences"))
    run = _label(each, labels.RUN)
    return Left(resource, metadata["name"], metadata["uid"], run, job, age_s, job in live, owned)


def _roots(client: Client, pods: Sequence[Mapping[str, Any]]) -> list[Resource]:
    """The kinds whose objects own pods of ours, and those that may have none left."""
    wanted = {
        (owner["apiVersion"], owner["kind"]) for pod in pods for owner in pod["metadata"].get("ownerReferences") or ()
    }
    for group, kind in OTHERS:
        if served := client.served(group):
            wanted.add((f"{group}/{served[0]}", kind))
    roots = {JOBS}
    for version, kind in wanted:
        try:
            roots.add(client.resource(version, kind))
        except RefusedError:
            continue  # the group is served without that kind
    return sorted(roots, key=lambda each: each.kubectl)


def _list(client: Client, resource: Resource, selector: str) -> list[dict[str, Any]]:
    try:
        found, _version = client.list(resource, labels=selector)
    except ApiError as error:
        if resource in (PODS, JOBS):
            raise RefusedError(f"{client.where}: {error.message}") from None
        return []
    return found


def _label(each: Mapping[str, Any], name: str) -> str:
    return str((each["metadata"].get("labels") or {}).get(name, ""))
