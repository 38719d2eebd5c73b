"""What runs of a platform have left in its namespace, found by its labels, and taken away."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from platforms.job import RefusedError
from platforms.schedulers.kubernetes import ending, labels
from platforms.schedulers.kubernetes.client import ApiError, Client
from platforms.schedulers.kubernetes.resources import CONFIG_MAPS, JOBS, PODS, SECRETS, SERVICES, Resource

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
    pods = _list(client, PODS, chosen)
    live = {_label(pod, labels.JOB) for pod in ending.live(pods)}
    now = datetime.datetime.now(datetime.UTC)
    found = []
    for resource in (*_roots(client, pods), PODS, SERVICES, SECRETS):
        for each in pods if resource == PODS else _list(client, resource, chosen):
            metadata, job = each["metadata"], _label(each, labels.JOB)
            born = datetime.datetime.fromisoformat(metadata["creationTimestamp"])
            found.append(
                Left(
                    resource,
                    metadata["name"],
                    metadata["uid"],
                    _label(each, labels.RUN),
                    job,
                    (now - born).total_seconds(),
                    job in live,
                    bool(metadata.get("ownerReferences")),
                )
            )
    return found


def code(client: Client) -> list[str]:
    """The names of code archives that no pod of ours mounts any more."""
    chosen = f"{labels.MANAGED_BY}={labels.US}"
    mounted = {
        volume["configMap"]["name"]
        for pod in ending.live(_list(client, PODS, chosen))
        for volume in pod["spec"].get("volumes") or ()
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


def _roots(client: Client, pods: Sequence[Mapping[str, Any]]) -> list[Resource]:
    """The kinds whose objects own pods of ours, and those that may have none left."""
    kinds = {
        (owner["apiVersion"], owner["kind"]) for pod in pods for owner in pod["metadata"].get("ownerReferences") or ()
    }
    for group, kind in OTHERS:
        if served := client.served(group):
            kinds.add((f"{group}/{served[0]}", kind))
    roots = {JOBS}
    for version, kind in kinds:
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
