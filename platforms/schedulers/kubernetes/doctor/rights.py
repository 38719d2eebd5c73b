"""The step of doctor that asks a cluster for each thing that the suite does there whether we may do it."""

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
    """`resource` as `pods/log`; `without` says what there is then, and is "" where nothing goes without."""

    verb: str
    resource: str
    group: str = ""
    without: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}"


OPTIONAL = (
    Right("list", "events", without="nobody says why a pod waits"),
    Right("list", "nodes", without="nobody says whether a pod's node is lost, and which devices there are"),
    Right("list", "resourcequotas", without="nobody says whether a quota has room"),
    Right("list", "configmaps", without="`prune` finds no code archives"),
    Right("delete", "configmaps", without="`prune` leaves code archives"),
)
OF_QUEUES = (
    Right("list", "workloads", kueue.GROUP, "nobody says why Kueue lets a job wait"),
    Right("get", "localqueues/pendingworkloads", kueue.VISIBILITY, "nobody says at which place a job waits"),
    Right("get", "localqueues", kueue.GROUP, "nobody says whether the queue takes jobs"),
)


def rights(look: ClusterVisit) -> StepResult:
    """Everything that is needed is allowed; what is optional and not allowed is said."""
    missing = [right for right in dict.fromkeys(needed(look)) if not _may(look, right)]
    if missing:
        raise RefusedError(_ask_for(look, missing))
    poorer = [right for right in optional(look) if not _may(look, right)]
    words = [f"without `{right}` {right.without}" for right in poorer]
    return StepResult("; ".join(["everything that is needed is allowed", *words]))


def needed(look: ClusterVisit) -> Iterator[Right]:
    """What jobs of this platform do not go without."""
    for job in look.jobs:
        for each in job.objects:
            resource = look.client.resource(str(each["apiVersion"]), str(each["kind"]))
            for verb in ROOT if each is job.root else BESIDE:
                yield Right(verb, resource.plural, resource.group)
    yield from (Right(verb, resource) for verb, resource in PODS)
    platform = look.visit.platform
    if platform.kubernetes.archive is None:
        yield from (Right(verb, "configmaps") for verb in CODE)
    if any(map(names_a_secret, platform.env)):
        yield from (Right(verb, "secrets") for verb in BESIDE)
    if any(_to_be_made(look, volume.pvc) for volume in platform.kubernetes.volumes if volume.pvc and volume.size):
        yield from (Right(verb, "persistentvolumeclaims") for verb in CODE)


def _to_be_made(look: ClusterVisit, claim: str) -> bool:
    """Whether `prepare` would. One that we may not see is somebody else's to make."""
    try:
        look.client.get(CLAIMS, claim)
    except ApiError as error:
        return error.status == 404
    return False


def optional(look: ClusterVisit) -> Iterator[Right]:
    """What only explanations and `prune` need."""
    yield from OPTIONAL
    if any(volume.pvc for volume in look.visit.platform.kubernetes.volumes):
        yield Right("get", "persistentvolumeclaims", without="nobody says whether the claims are there")
    if any(each["kind"] == "Service" for job in look.jobs for each in job.objects):
        yield Right("list", "services", without="`prune` finds none that a broken submission has left")
    if any(map(names_a_secret, look.visit.platform.env)):
        yield Right("list", "secrets", without="`prune` finds none that a broken submission has left")
    if look.client.served_versions(kueue.GROUP):
        yield from OF_QUEUES


def _may(look: ClusterVisit, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    return look.client.is_allowed(right.verb, right.group, resource, subresource)


def _ask_for(look: ClusterVisit, missing: list[Right]) -> str:
    client = look.client
    grant = (
        f"sed 's/namespace: default/namespace: {client.namespace}/' {ROLE} | {client.kubectl_command('create -f -')}"
    )
    bind = client.kubectl_command("create rolebinding hpc-ml-bench-me --role=hpc-ml-bench --user=…")
    return (
        f"{client.where}: not allowed: {', '.join(map(str, missing))}. Who administers the namespace can allow it: "
        f"{grant}; then {bind} (`{client.kubectl_command('auth whoami')}` says which user you are)"
    )
