"""The volume that data sets go to: a claim that the namespace has, else one to be made, as a line of a file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from platforms.config.draft import DraftLine, written
from platforms.schedulers.kubernetes.draft.cluster import Claim, Cluster, StorageClass

MOUNT = "/data"
OURS = "hpc-ml-bench"
SIZE = 100 * 2**30  # bytes: every data set of the sizes smoke, quick and subset, with room
SHARED = "ReadWriteMany"
# Provisioners whose volumes many nodes can mount for writing, by the words in their names.
_FILES = re.compile(
    r"cephfs|nfs|file|efs|lustre|beegfs|weka|gpfs|spectrumscale|gluster|longhorn|juicefs|vast|minikube", re.IGNORECASE
)


def lines(cluster: Cluster) -> Iterator[DraftLine]:
    """`kubernetes.volumes`, and why this one."""
    usable = sorted((one for one in cluster.claims if one.phase != "Lost"), key=_rank)
    names = {claim.name for claim in usable}

    def fits(said: str) -> bool:
        return "size: " in said or all(name in names for name in re.findall(r"pvc: ([^,}\]]+)", said))

    if usable and (SHARED in usable[0].modes or usable[0].name == OURS):
        value, origin = f"{{mount: {MOUNT}, pvc: {written(usable[0].name)}}}", _there(usable)
        yield DraftLine(("kubernetes", "volumes"), f"[{value}]", origin, fits=fits)
        return
    value, origin = _proposed(cluster)
    others = f"; there are: {', '.join(map(_shown, usable[:6]))}" if usable else ""
    yield DraftLine(("kubernetes", "volumes"), f"[{value}]", origin + others, fits=fits)


def _rank(claim: Claim) -> tuple[bool, bool, bool, float]:
    """Our own first, then those that many nodes can write, that are there, and that are large."""
    return claim.name != OURS, SHARED not in claim.modes, claim.phase != "Bound", -claim.size


def _there(claims: list[Claim]) -> str:
    others = f"; others: {', '.join(map(_shown, claims[1:7]))}" if len(claims) > 1 else ""
    return f"claim: {_shown(claims[0])}; may data sets be written there?{others}"


def _shown(claim: Claim) -> str:
    return f"{claim.name} ({claim.size / 2**30:.0f}Gi, {', '.join(claim.modes)})"


def _proposed(cluster: Cluster) -> tuple[str, str]:
    """A claim that `prepare` would make, and its origin."""
    size, quota = SIZE, cluster.limit("storage")
    origin = "TODO no claim is there that many nodes can write: `prepare` makes this one"
    if quota and quota.most < size:
        size, origin = int(quota.most), f"{origin}, as large as {quota.of} allows"
    keys = {"mount": MOUNT, "pvc": OURS, "size": f"{max(1, size // 2**30)}Gi"}
    best = choose(cluster.classes)
    if best and not best.default:
        keys["storage_class"] = written(best.name)
    if best and not _FILES.search(best.provisioner):
        keys["access_mode"] = "ReadWriteOnce"
        origin += f"; storage class {best.name} serves one node at a time"
    elif best:
        origin += f"; storage class {best.name} ({best.provisioner})"
    elif "storageclasses" in cluster.hidden:
        origin += f"; which storage class: {cluster.hidden['storageclasses']}"
    else:
        origin += "; the cluster has no storage class"
    others = [one.name for one in cluster.classes if one is not best]
    return f"{{{', '.join(f'{key}: {value}' for key, value in keys.items())}}}", origin + (
        f"; others: {', '.join(others[:6])}" if others else ""
    )


def choose(classes: tuple[StorageClass, ...]) -> StorageClass | None:
    """The default one where many nodes can write it, else another such, else the default, else any."""
    return min(classes, key=lambda one: (not _FILES.search(one.provisioner), not one.default), default=None)
