"""The step of doctor that asks a cluster whether the user may do each thing that the suite does there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from platforms.job import RefusedError, names_a_secret
from platforms.schedulers.doctor_steps import StepResult
from platforms.schedulers.kubernetes.api.client import ApiError
from platforms.schedulers.kubernetes.api.resources import CLAIMS
from platforms.schedulers.kubernetes.doctor.context import ClusterVisit
from platforms.schedulers.kubernetes.status import kueue

ROLE = "k8s_templates/rbac.yaml"
ROOT = ("create", "get", "list", "watch", "patch", "delete")
BESIDE = ("create", "get", "patch", "delete")
PODS = (("list", "pods"), ("watch", "pods"), ("patch", "pods"), ("delete", "pods"), ("get", "pods/log"))
CODE = ("create", "get")


@dataclass(frozen=True)
class Right:
    """A verb on a resource, as in `get pods/log`.

    Attributes:
        without: what is lost when the right is missing; empty for a right that jobs need.
    """

    verb: str
    resource: str
    group: str = ""
    without: str = ""

    def __str__(self) -> str:
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {name}"


OPTIONAL = (
    Right("list", "events", without="no message says why a pod waits"),
    Right("list", "nodes", without="no message says whether a pod's node is lost, and which devices there are"),
    Right("list", "resourcequotas", without="no message says whether a quota has room"),
)
OF_QUEUES = (
    Right("list", "workloads", kueue.GROUP, "no message says why Kueue lets a job wait"),
    Right("get", "localqueues", kueue.GROUP, "no message says whether the queue takes jobs"),
)


def rights(cluster: ClusterVisit) -> StepResult:
    """Check the rights that jobs need. The result names the optional rights that are missing."""
    missing = [right for right in dict.fromkeys(needed(cluster)) if not _may(cluster, right)]
    if missing:
        raise RefusedError(_ask_for(cluster, missing))
    parts = ["everything that is needed is allowed"]
    for right in optional(cluster):
        if not _may(cluster, right):
            parts.append(f"without `{right}` {right.without}")
    return StepResult("; ".join(parts))


def needed(cluster: ClusterVisit) -> Iterator[Right]:
    """List the rights that this platform's jobs need; a right may occur twice."""
    for job in cluster.jobs:
        for manifest in job.objects:
            resource = cluster.client.resource(str(manifest["apiVersion"]), str(manifest["kind"]))
            verbs = ROOT if manifest is job.root else BESIDE
            for verb in verbs:
                yield Right(verb, resource.plural, resource.group)
    for verb, pod_resource in PODS:
        yield Right(verb, pod_resource)
    platform = cluster.visit.platform
    if platform.kubernetes.archive is None:
        for verb in CODE:
            yield Right(verb, "configmaps")
    if any(map(names_a_secret, platform.env)):
        for verb in BESIDE:
            yield Right(verb, "secrets")
    claims = [volume.pvc for volume in platform.kubernetes.volumes if volume.pvc and volume.size]
    if any(_prepare_makes(cluster, claim) for claim in claims):
        for verb in CODE:
            yield Right(verb, "persistentvolumeclaims")


def _prepare_makes(cluster: ClusterVisit, claim: str) -> bool:
    """Tell whether `prepare` would make a claim. It does not make a claim that the user may not see."""
    try:
        cluster.client.get(CLAIMS, claim)
    except ApiError as error:
        return error.status == 404
    return False


def optional(cluster: ClusterVisit) -> Iterator[Right]:
    """List the rights that only explanations and `prune` need."""
    yield from OPTIONAL
    if any(volume.pvc for volume in cluster.visit.platform.kubernetes.volumes):
        yield Right("get", "persistentvolumeclaims", without="no message says whether the claims are there")
    kinds: set[str] = set()
    for job in cluster.jobs:
        kinds.update(manifest["kind"] for manifest in job.objects)
    if "Service" in kinds:
        yield Right("list", "services", without="`prune` finds none that a broken submission has left")
    if any(map(names_a_secret, cluster.visit.platform.env)):
        yield Right("list", "secrets", without="`prune` finds none that a broken submission has left")
    if cluster.client.served_versions(kueue.GROUP):
        yield from OF_QUEUES


def _may(cluster: ClusterVisit, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    return cluster.client.is_allowed(right.verb, right.group, resource, subresource)


def _ask_for(cluster: ClusterVisit, missing: list[Right]) -> str:
    client = cluster.client
    names = ", ".join(str(right) for right in missing)
    grant = (
        f"sed 's/namespace: default/namespace: {client.namespace}/' {ROLE} | {client.kubectl_command('create -f -')}"
    )
    bind = client.kubectl_command("create rolebinding hpc-ml-bench-me --role=hpc-ml-bench --user=…")
    return (
        f"{client.where}: not allowed: {names}. The namespace's administrator can allow it: "
        f"{grant}; then {bind} (`{client.kubectl_command('auth whoami')}` says which user you are)"
    )
