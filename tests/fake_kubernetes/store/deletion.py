"""What a DELETE does to an object before it vanishes: preconditions, grace period, finalizers."""

from __future__ import annotations

import time

from tests.fake_kubernetes.api.errors import KubeError, conflict
from tests.fake_kubernetes.store.kinds import Kind
from tests.fake_kubernetes.store.trees import Tree, timestamp, unix

DEFAULT_GRACE_S = 30


def check_preconditions(kind: Kind, obj: Tree, uid: str | None, version: str | None) -> None:
    """Raise 409 if the object is not the one that the caller means."""
    meta = obj["metadata"]
    if uid is not None and uid != meta["uid"]:
        why = f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']})."
        raise conflict(kind.kind, meta["name"], why + " The object might have been deleted and then recreated")
    if version is not None and version != meta["resourceVersion"]:
        why = f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
        why += f"({meta['resourceVersion']}). The object might have been modified"
        raise conflict(kind.kind, meta["name"], why)


def grace_of(plural: str, pod: Tree, asked_s: int | None) -> int:
    """Return the seconds that a running pod gets to end by itself; 0 for everything else."""
    if plural != "pods" or not pod.get("spec", {}).get("nodeName"):
        return 0
    if pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
        return 0
    if asked_s is None:
        return int(pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_S))
    return max(0, asked_s)


def mark(plural: str, obj: Tree, asked_s: int | None) -> None:
    """Mark obj as being deleted. A second request can only shorten the grace period of the first."""
    meta, grace_s = obj["metadata"], grace_of(plural, obj, asked_s)
    if "deletionTimestamp" in meta and meta.get("deletionGracePeriodSeconds", 0) <= grace_s:
        return
    set_grace(meta, grace_s)


def set_grace(meta: Tree, grace_s: int) -> None:
    """Set deletionTimestamp and grace period.

    The timestamp is the time of the first request plus the grace period, even if that is shortened later. Without a
    grace period it is now, as in the kubelet's own DELETE at the end of a pod. The first request raises the generation.
    """
    asked_s = time.time()
    if "deletionTimestamp" in meta and grace_s:
        asked_s = unix(meta["deletionTimestamp"]) - meta.get("deletionGracePeriodSeconds", 0)
    if "deletionTimestamp" not in meta and "generation" in meta:
        meta["generation"] += 1
    meta["deletionTimestamp"] = timestamp(asked_s + grace_s)
    meta["deletionGracePeriodSeconds"] = grace_s


def is_over(obj: Tree) -> bool:
    """Return whether neither a grace period nor a finalizer keeps the object."""
    meta = obj["metadata"]
    return "deletionTimestamp" in meta and not meta.get("deletionGracePeriodSeconds") and not meta.get("finalizers")


def being_deleted(namespace: str) -> KubeError:
    """Return the error of a create in a namespace that is being deleted."""
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return KubeError(403, why)
