"""Kueue: which Workload is a job's, and what it says while the job waits in a queue or was sent back to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from platforms.job import State
from platforms.schedulers.kubernetes.objects import labels
from platforms.schedulers.kubernetes.objects.fields import (
    Condition,
    Object,
    conditions,
    dig,
    items,
    label,
    number,
    text,
    uid,
)
from platforms.schedulers.kubernetes.status import reasons
from platforms.schedulers.kubernetes.status.reasons import Finding

GROUP = "kueue.x-k8s.io"
VISIBILITY = f"visibility.{GROUP}"  # an extension of the API, in which Kueue tells who waits
JOB_UID = "kueue.x-k8s.io/job-uid"
VERSIONS = ("v1beta2", "v1beta1")


def version(served: Sequence[str]) -> str | None:
    """The API version to read Workloads in, of those that the cluster serves. None: there is no Kueue."""
    return next((each for each in (*VERSIONS, *served) if each in served), None)


def queue_of(root: Object) -> str:
    """The LocalQueue that an object names; empty when it names none."""
    return label(root, labels.QUEUE)


def by_owner(workloads: Iterable[Object]) -> dict[str, Object]:
    """The newest Workload of each object: of one that owns it or whose uid it bears. By uid; by kind and name for an
    object whose uid is not known, as in a manifest."""
    found: dict[str, Object] = {}
    for workload in sorted(workloads, key=lambda each: text(each, "metadata", "creationTimestamp")):
        owners = items(workload, "metadata", "ownerReferences")
        keys = {label(workload, JOB_UID), *(text(owner, "uid") for owner in owners)}
        keys |= {f"{text(owner, 'kind')}/{text(owner, 'name')}" for owner in owners if text(owner, "name")}
        found |= dict.fromkeys(filter(None, keys), workload)
    return found


def owner_key(root: Object) -> str:
    """Under which an object's Workload stands."""
    return uid(root) or f"{text(root, 'kind')}/{text(root, 'metadata', 'name')}"


def pending(workload: Object) -> bool:
    """It waits in its queue: Kueue has set nothing aside for it, and may yet."""
    said = conditions(workload)
    past = any(name in said and said[name].true for name in ("QuotaReserved", "Finished"))
    return not past and bool(text(workload, "spec", "queueName")) and dig(workload, "spec", "active") is not False


def positions(summary: Object) -> dict[str, int]:
    """Of the Workloads in a PendingWorkloadsSummary, by name: each one's place, 1 being the next, among all that wait
    for the same quota, whichever queue they have named."""
    before = {
        text(each, "metadata", "name"): number(each, "positionInClusterQueue") for each in items(summary, "items")
    }
    return {name: count + 1 for name, count in before.items() if count is not None}


def admitted(workload: Object) -> bool:
    """Kueue lets it run, or has done with it."""
    said = conditions(workload)
    return any(name in said and said[name].true for name in ("Admitted", "Finished")) and eviction(workload) is None


def eviction(workload: Object) -> Condition | None:
    """That Kueue took its quota away, or is about to, as long as it has not got another."""
    said = conditions(workload)
    return next((said[name] for name in ("Evicted", "DeactivationTarget") if name in said and said[name].true), None)


def last_eviction(workload: Object | None) -> str:
    """Why Kueue took its quota away the last time, also when it has got it again since."""
    said = conditions(workload)
    return next((said[name].message for name in ("Evicted", "Preempted", "Requeued") if name in said), "")


def evicted(workload: Object, *, ran: bool) -> Finding | None:
    """What an eviction means. What had run is torn; what had not goes back to the queue, where Kueue puts it there."""
    why = eviction(workload)
    if why is None:
        return None
    rule = reasons.always(reasons.EVICTED, why.reason, why.message)
    words = ": ".join(filter(None, (why.reason, why.message)))
    found = reasons.finding(rule, f"evicted by Kueue: {words}", ran=ran)
    if not found.state.live:
        return found
    if dig(workload, "spec", "active") is False:
        return Finding(State.CANCELLED, f"evicted by Kueue, and deactivated: {words}")
    waiting = admission(workload)
    again = f": {waiting.reason}" if waiting.reason and why.message not in waiting.reason else ""
    after = f"evicted: {words}, queued again{again}"
    return Finding(waiting.state, after, patience_s=waiting.patience_s, meanwhile=waiting.meanwhile, name=waiting.name)


def admission(workload: Object) -> Finding:
    """Why a Workload is not admitted, in Kueue's words."""
    said, queue = conditions(workload), text(workload, "spec", "queueName")
    where = f"Kueue (queue {queue})" if queue else "Kueue"
    reserved = said.get("QuotaReserved")
    if reserved is not None and not reserved.true:
        rule = reasons.always(reasons.ADMISSION, reserved.reason, reserved.message)
        return reasons.finding(rule, f"{where}: {reserved.message or reserved.reason}")
    checks = [each for each in items(workload, "status", "admissionChecks") if text(each, "state") != "Ready"]
    told = [f"{text(each, 'name')} ({text(each, 'state')}) {text(each, 'message')}".rstrip() for each in checks]
    if told:
        rejected = any(text(each, "state") == "Rejected" for each in checks)
        state = State.NEVER_ADMISSIBLE if rejected else State.QUEUED
        return Finding(state, f"{where}: admission checks pending: {'; '.join(told)}")
    return Finding(State.QUEUED, f"{where}: quota is reserved" if reserved else f"{where}: has not looked at it yet")
