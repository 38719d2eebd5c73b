"""Asks a cluster for its nodes and for the nodes of a job: one LIST for each question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from platforms.job import RefusedError
from platforms.schedulers import NodeState
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.resources import NODES, PODS
from platforms.schedulers.kubernetes.manifest import placeholders
from platforms.schedulers.kubernetes.objects import labels
from platforms.schedulers.kubernetes.objects.capacity import node_of
from platforms.schedulers.kubernetes.objects.fields import Object, items, mapping, text
from platforms.schedulers.kubernetes.objects.node_states import state_of

if TYPE_CHECKING:
    from platforms.config.schema import Platform

# Labels with which controllers write the name of their object on its pods; then ours.
_OWNER_LABELS = (
    "job-name",
    "batch.kubernetes.io/job-name",
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    labels.JOB,
)


def list_nodes(client: Client) -> dict[str, Object]:
    """All nodes of the cluster, by name. Raises AwayError, and RefusedError if they may not be listed."""
    try:
        listed = client.list(NODES)[0]
    except ApiError as error:
        rights = "k8s_templates/rbac.yaml has the right to list nodes: an administrator may grant it"
        raise RefusedError(f"{client.where}: the nodes may not be listed: {error.message}; {rights}") from None
    return {text(node, "metadata", "name"): node for node in listed}


def nodes_of_platform(client: Client, platform: Platform) -> list[NodeState]:
    """The nodes that the platform's pods can get: by node_selector, tolerations and devices. Raises as list_nodes."""
    keys = platform.kubernetes
    resource = None if platform.unit == "cpu" else keys.resource or placeholders.RESOURCES.get(platform.unit)
    tolerations = [toleration.content() for toleration in keys.tolerations]
    found = []
    for _name, tree in sorted(list_nodes(client).items()):
        node = node_of(tree)
        has_device = resource is None or node.allocatable.get(resource, 0.0) > 0
        tolerated = all(taint.tolerated(tolerations) for taint in node.taints)
        if has_device and tolerated and node.has(keys.node_selector):
            found.append(state_of(tree))
    return found


def nodes_of_job(client: Client, job: str) -> tuple[str, ...]:
    """The nodes of a job's pods that the cluster still has, in the order of the pods' names; () while they have none.

    Args:
        client: of the job's namespace.
        job: the name of the object that makes the pods, or of one pod.

    Raises:
        AwayError: the cluster does not answer.
        RefusedError: pods may not be listed, or none belongs to such a job.
    """
    try:
        listed = client.list(PODS)[0]
    except ApiError as error:
        raise RefusedError(f"{client.where}: the pods may not be listed: {error.message}") from None
    pods = sorted((pod for pod in listed if _belongs(pod, job)), key=lambda pod: text(pod, "metadata", "name"))
    if not pods:
        why = "they are deleted, or it lies in another namespace"
        raise RefusedError(f"{client.where}: there are no pods of a job {job} in {client.namespace} ({why})")
    return tuple(dict.fromkeys(text(pod, "spec", "nodeName") for pod in pods if text(pod, "spec", "nodeName")))


def _belongs(pod: Mapping[str, object], job: str) -> bool:
    own_labels = mapping(pod, "metadata", "labels")
    owners = [text(owner, "name") for owner in items(pod, "metadata", "ownerReferences")]
    return job in (text(pod, "metadata", "name"), *owners, *(own_labels.get(name) for name in _OWNER_LABELS))
