"""Kueue: which Workload belongs to a job, and what it says while the job waits or was sent back to its queue."""

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
    text,
    uid,
)
from platforms.schedulers.kubernetes.status import reasons
from platforms.schedulers.kubernetes.status.reasons import Finding, reason_and_message

GROUP = "kueue.x-k8s.io"
JOB_UID = "kueue.x-k8s.io/job-uid"
VERSIONS = ("v1beta2", "v1beta1")


def version(served: Sequence[str]) -> str | None:
    """Choose the API version to read Workloads in from those that the cluster serves. None: there is no Kueue."""
    for candidate in (*VERSIONS, *served):
        if candidate in served:
            return candidate
    return None


def queue_of(root: Object) -> str:
    """The LocalQueue that an object names; empty if it names none."""
    return label(root, labels.QUEUE)


def by_owner(workloads: Iterable[Object]) -> dict[str, Object]:
    """The newest Workload of each object that owns one or whose uid it bears.

    The keys are uids, and kinds with names (`Job/name`) for objects whose uid is not known, as in a manifest.
    """
    found: dict[str, Object] = {}
    for workload in sorted(workloads, key=lambda each: text(each, "metadata", "creationTimestamp")):
        keys = [label(workload, JOB_UID)]
        for owner in items(workload, "metadata", "ownerReferences"):
            keys.append(text(owner, "uid"))
            if text(owner, "name"):
                keys.append(f"{text(owner, 'kind')}/{text(owner, 'name')}")
        for key in keys:
            if key:
                found[key] = workload
    return found


def owner_key(root: Object) -> str:
    """The key of an object's Workload in `by_owner`."""
    return uid(root) or f"{text(root, 'kind')}/{text(root, 'metadata', 'name')}"


def admitted(workload: Object) -> bool:
    """True if Kueue lets it run, or has let it run to its end."""
    may_run = _has(workload, "Admitted") or _has(workload, "Finished")
    return may_run and eviction(workload) is None


def eviction(workload: Object) -> Condition | None:
    """The condition that says that Kueue has taken its quota away or is about to; None if it has got quota again."""
    found = conditions(workload)
    for name in ("Evicted", "DeactivationTarget"):
        if name in found and found[name].true:
            return found[name]
    return None


def last_eviction(workload: Object | None) -> str:
    """The reason why Kueue last took its quota away, even if it has got quota again since; empty if it never did."""
    found = conditions(workload)
    for name in ("Evicted", "Preempted", "Requeued"):
        if name in found:
            return found[name].message
    return ""


def evicted(workload: Object, *, has_run: bool) -> Finding | None:
    """Say what an eviction means for the job. None if Kueue has not evicted it.

    A job that had run has lost its pods. A job that had not run goes back to its queue, if Kueue puts it there.
    """
    condition = eviction(workload)
    if condition is None:
        return None
    why = reason_and_message(condition.reason, condition.message)
    rule = reasons.rule_of(reasons.EVICTED, condition.reason, condition.message)
    found = rule.finding(f"evicted by Kueue: {why}", has_run=has_run)
    if not found.state.live:
        return found
    if dig(workload, "spec", "active") is False:
        return Finding(State.CANCELLED, f"evicted by Kueue, and deactivated: {why}")
    waiting = admission(workload)
    reason = f"evicted: {why}, queued again"
    if waiting.reason and condition.message not in waiting.reason:
        reason = f"{reason}: {waiting.reason}"
    return Finding(
        waiting.state, reason, patience_s=waiting.patience_s, meanwhile=waiting.meanwhile, timer=waiting.timer
    )


def admission(workload: Object) -> Finding:
    """Explain in Kueue's words why a Workload is not admitted."""
    queue = text(workload, "spec", "queueName")
    kueue = f"Kueue (queue {queue})" if queue else "Kueue"
    reserved = conditions(workload).get("QuotaReserved")
    if reserved is not None and not reserved.true:
        rule = reasons.rule_of(reasons.ADMISSION, reserved.reason, reserved.message)
        return rule.finding(f"{kueue}: {reserved.message or reserved.reason}")
    pending_checks = []
    rejected = False
    for check in items(workload, "status", "admissionChecks"):
        state = text(check, "state")
        if state != "Ready":
            pending_checks.append(f"{text(check, 'name')} ({state}) {text(check, 'message')}".rstrip())
        if state == "Rejected":
            rejected = True
    if pending_checks:
        state_of_job = State.NEVER_ADMISSIBLE if rejected else State.QUEUED
        return Finding(state_of_job, f"{kueue}: admission checks pending: {'; '.join(pending_checks)}")
    if reserved is not None:
        return Finding(State.QUEUED, f"{kueue}: quota is reserved")
    return Finding(State.QUEUED, f"{kueue}: has not looked at it yet")


def _has(workload: Object, condition: str) -> bool:
    found = conditions(workload)
    return condition in found and found[condition].true
