"""The step of doctor that checks the volume claims that pods mount: they exist, or `prepare` can make them."""

from __future__ import annotations

from collections.abc import Iterator

from platforms.config.loading import nearest
from platforms.schedulers.doctor_steps import StepResult
from platforms.schedulers.kubernetes.api.client import ApiError
from platforms.schedulers.kubernetes.api.resources import CLAIMS
from platforms.schedulers.kubernetes.doctor.context import ClusterVisit, RenderedJob

KEYS = "`kubernetes: {volumes: …}`"


def storage(cluster: ClusterVisit) -> StepResult:
    """Check that the claims that pods mount are there, or that `prepare` can make them.

    A claim that is still pending may be bound with its first pod. If it never is, the job's own reason says why.
    """
    names = dict.fromkeys(name for job in cluster.jobs for name in _claims(job))
    if not names:
        return StepResult("the pods mount no claim", skipped=True)
    return StepResult("; ".join(_claim(cluster, name) for name in names))


def _claims(job: RenderedJob) -> Iterator[str]:
    for demand in job.demands:
        for volume in demand.template["spec"].get("volumes") or ():
            if "persistentVolumeClaim" in volume:
                yield str(volume["persistentVolumeClaim"]["claimName"])


def _claim(cluster: ClusterVisit, name: str) -> str:
    try:
        claim = cluster.client.get(CLAIMS, name)
    except ApiError as error:
        if error.status == 404:
            return _missing(cluster, name)
        return f"{name} may not be seen ({error.message})"
    spec = claim.get("spec") or {}
    phase = (claim.get("status") or {}).get("phase", "Pending")
    if phase == "Lost":
        raise cluster.refusal(f"claim {name} has lost its volume: delete it, or name another one", KEYS)
    modes = spec.get("accessModes") or []
    jobs_on_several_nodes = [job for job in cluster.jobs if job.spec.layout.nodes > 1 and name in _claims(job)]
    shared = "ReadWriteMany" in modes or "ReadOnlyMany" in modes
    if jobs_on_several_nodes and not shared:
        job = jobs_on_several_nodes[0]
        problem = f"claim {name} is {', '.join(modes)}, and the pods of {job} are on several nodes"
        raise cluster.refusal(problem, "a ReadWriteMany one of `kubernetes: {volumes: …}`")
    return f"{name}: {phase}, {', '.join(modes)}"


def _missing(cluster: ClusterVisit, name: str) -> str:
    platform = cluster.visit.platform
    made_volumes = [volume for volume in platform.kubernetes.volumes if volume.pvc == name and volume.size]
    make = f"`python -m platforms prepare {platform.name}{cluster.visit.more}` makes it"
    if not made_volumes:
        hint = nearest(name, _claim_names(cluster))
        raise cluster.refusal(f"there is no claim {name!r} {hint}: create it, or say its `size:` and {make}", KEYS)
    volume = made_volumes[0]
    cluster.visit.unmade.append(name)
    return f"{name} is not there yet: {make}, {volume.size}, {volume.access_mode}"


def _claim_names(cluster: ClusterVisit) -> list[str]:
    try:
        return [str(claim["metadata"]["name"]) for claim in cluster.client.list(CLAIMS)[0]]
    except ApiError:
        return []
