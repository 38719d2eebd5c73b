"""The line of the file for the volume of the data sets: a claim that the namespace has, else one to be made."""

from __future__ import annotations

import re
from collections.abc import Iterator

from platforms.config.draft import DraftLine, written
from platforms.schedulers.kubernetes.draft.inventory import Claim, ClusterInventory, StorageClass

MOUNT = "/data"
OURS = "hpc-ml-bench"
SIZE = 100 * 2**30  # bytes: every data set of the sizes smoke, quick and subset, with room
SHARED = "ReadWriteMany"
# Provisioners whose volumes many nodes can mount for writing, by words in their names.
_FILE_SYSTEMS = re.compile(
    r"cephfs|nfs|file|efs|lustre|beegfs|weka|gpfs|spectrumscale|gluster|longhorn|juicefs|vast|minikube", re.IGNORECASE
)


def lines(cluster: ClusterInventory) -> Iterator[DraftLine]:
    """The line `kubernetes.volumes`, with the reason for this volume."""
    claims = sorted((claim for claim in cluster.claims if claim.phase != "Lost"), key=_preference)
    names = {claim.name for claim in claims}

    def fits(value: str) -> bool:
        return "size: " in value or all(name in names for name in re.findall(r"pvc: ([^,}\]]+)", value))

    if claims and (SHARED in claims[0].modes or claims[0].name == OURS):
        value = f"{{mount: {MOUNT}, pvc: {written(claims[0].name)}}}"
        origin = f"claim: {_described(claims[0])}; may data sets be written there?"
        if len(claims) > 1:
            origin += f"; others: {', '.join(_described(claim) for claim in claims[1:7])}"
    else:
        value, origin = _new_claim(cluster)
        if claims:
            origin += f"; there are: {', '.join(_described(claim) for claim in claims[:6])}"
    yield DraftLine(("kubernetes", "volumes"), f"[{value}]", origin, fits=fits)


def _preference(claim: Claim) -> tuple[bool, bool, bool, float]:
    """Sorts our own claim first, then those that many nodes can write to, that are bound, and that are large."""
    return claim.name != OURS, SHARED not in claim.modes, claim.phase != "Bound", -claim.size


def _described(claim: Claim) -> str:
    return f"{claim.name} ({claim.size / 2**30:.0f}Gi, {', '.join(claim.modes)})"


def _new_claim(cluster: ClusterInventory) -> tuple[str, str]:
    """The claim that `prepare` would make, and its origin."""
    size = SIZE
    origin = "TODO no claim is there that many nodes can write: `prepare` makes this one"
    quota = cluster.limit("storage")
    if quota and quota.most < size:
        size = int(quota.most)
        origin += f", as large as {quota.of} allows"
    keys = {"mount": MOUNT, "pvc": OURS, "size": f"{max(1, size // 2**30)}Gi"}
    best = choose(cluster.classes)
    if best and not best.default:
        keys["storage_class"] = written(best.name)
    if best and not _FILE_SYSTEMS.search(best.provisioner):
        keys["access_mode"] = "ReadWriteOnce"
        origin += f"; storage class {best.name} serves one node at a time"
    elif best:
        origin += f"; storage class {best.name} ({best.provisioner})"
    elif "storageclasses" in cluster.hidden:
        origin += f"; which storage class: {cluster.hidden['storageclasses']}"
    else:
        origin += "; the cluster has no storage class"
    others = [other.name for other in cluster.classes if other is not best]
    if others:
        origin += f"; others: {', '.join(others[:6])}"
    claim = ", ".join(f"{key}: {value}" for key, value in keys.items())
    return f"{{{claim}}}", origin


def choose(classes: tuple[StorageClass, ...]) -> StorageClass | None:
    """The default class if many nodes can write to its volumes, else another such one, else the default, else any."""
    return min(
        classes,
        key=lambda storage_class: (not _FILE_SYSTEMS.search(storage_class.provisioner), not storage_class.default),
        default=None,
    )
