"""The step of doctor that asks whether the claims are there that pods mount, or can be made."""

from __future__ import annotations

from collections.abc import Iterator

from platforms.config.loading import nearest
from platforms.job import RefusedError
from platforms.schedulers.doctor_steps import StepResult
from platforms.schedulers.kubernetes.api.client import ApiError
from platforms.schedulers.kubernetes.api.resources import CLAIMS, STORAGE_CLASSES, Resource
from platforms.schedulers.kubernetes.doctor.context import ClusterVisit, RenderedJob
from platforms.schedulers.kubernetes.objects.capacity import amounts

KEYS = "`kubernetes: {volumes: …}`"


def storage(look: ClusterVisit) -> StepResult:
    """The claims that pods mount are there and bound, or `prepare` can make them."""
    names = dict.fromkeys(name for job in look.jobs for name in _claims(job))
    if not names:
        return StepResult("the pods mount no claim", skipped=True)
    return StepResult("; ".join(_claim(look, name) for name in names))


def _claims(job: RenderedJob) -> Iterator[str]:
    for demand in job.demands:
        for volume in demand.template["spec"].get("volumes") or ():
            if "persistentVolumeClaim" in volume:
                yield str(volume["persistentVolumeClaim"]["claimName"])


def _claim(look: ClusterVisit, name: str) -> str:
    try:
        found = look.client.get(CLAIMS, name)
    except ApiError as error:
        return _missing(look, name) if error.status == 404 else f"{name} may not be seen ({error.message})"
    phase, spec = (found.get("status") or {}).get("phase", "Pending"), found.get("spec") or {}
    if phase == "Lost":
        raise look.wrong(f"claim {name} has lost its volume: delete it, or name another one", KEYS)
    modes = spec.get("accessModes") or []
    several = [job for job in look.jobs if job.spec.layout.nodes > 1 and name in _claims(job)]
    if several and not {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
        said = f"claim {name} is {', '.join(modes)}, and the pods of {several[0]} are on several nodes"
        raise look.wrong(said, "a ReadWriteMany one of `kubernetes: {volumes: …}`")
    if phase != "Bound" and not _waits_for_pod(look, spec.get("storageClassName")):
        said = f"claim {name} is {phase}, not Bound: {look.client.kubectl_command(f'describe pvc {name}')}"
        raise RefusedError(f"{look.client.where}: {said}")
    size = amounts((found.get("status") or {}).get("capacity") or {}).get("storage")
    room = f", {size / 2**30:.0f}Gi" if size else ""
    return f"{name}: {phase}{room}{'' if phase == 'Bound' else ', bound with its first pod'}, {', '.join(modes)}"


def _missing(look: ClusterVisit, name: str) -> str:
    platform = look.visit.platform
    volume = next((each for each in platform.kubernetes.volumes if each.pvc == name and each.size), None)
    make = f"`python -m platforms prepare {platform.name}{look.visit.more}` makes it"
    if volume is None:
        close = nearest(name, _names(look, CLAIMS) or [])
        raise look.wrong(f"there is no claim {name!r} {close}: create it, or say its `size:` and {make}", KEYS)
    known = _names(look, STORAGE_CLASSES)
    if volume.storage_class is not None and known is not None and volume.storage_class not in known:
        said = f"there is no storage class {volume.storage_class!r} {nearest(volume.storage_class, known)}"
        raise look.wrong(said, KEYS)
    look.visit.unmade.append(name)
    return f"{name} is not there yet: {make}, {volume.size}, {volume.access_mode}"


def _names(look: ClusterVisit, resource: Resource) -> list[str] | None:
    """None: we may not see them."""
    try:
        return [str(each["metadata"]["name"]) for each in look.client.list(resource)[0]]
    except ApiError:
        return None


def _waits_for_pod(look: ClusterVisit, name: str | None) -> bool:
    """Whether claims of this class are bound when the first pod wants them."""
    try:
        classes = look.client.list(STORAGE_CLASSES)[0]
    except ApiError:
        return True  # nobody says otherwise
    return any(
        each["metadata"]["name"] == name and each.get("volumeBindingMode") == "WaitForFirstConsumer" for each in classes
    )
