"""Why a job failed: which of its pods failed first and why, what its own object says, and why pods are missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from platforms.job import State, state_of_exit
from platforms.schedulers.kubernetes.objects.fields import number
from platforms.schedulers.kubernetes.status import exits, kinds, reasons
from platforms.schedulers.kubernetes.status.observation import JobView
from platforms.schedulers.kubernetes.status.pods import Pod, last_waited_for
from platforms.schedulers.kubernetes.status.reasons import Finding, find_rule, reason_and_message

SETTLE_S = 20.0  # how much later pods may show what their controller already reports, or the other way round
DELETED_POD = "its pod was deleted while it ran, and the job itself was not"
TAKEN = f"{DELETED_POD}: another user or program did it, since the pod names no eviction; {exits.WHO}"
TAKEN_UNSEEN = f"{DELETED_POD}: nothing shows whether a person did it or the pod was evicted"


# --- the failure that came first -------------------------------------------------------------------------------------


def first_failure(job: JobView, pods: Sequence[Pod]) -> Finding | None:
    """The failure that came first among some pods; None if none of them failed.

    A pod that was deleted or stopped by a signal may only follow another's failure. It counts if there is no other.
    """
    failures = []
    for pod in pods:
        found = exits.why_ended(pod, job.events) if pod.ended else exits.why_vanished(pod, job.events)
        if found.state is not State.SUCCEEDED:
            ended_s = pod.ended_s or float("inf")
            failures.append(((_consequence(found), ended_s, pod.rank), pod, found))
    if not failures:
        return None
    _order, pod, found = min(failures, key=lambda failure: failure[0])
    return replace(found, reason=job.reason_with_pod(pod, found))


def _consequence(found: Finding) -> int:
    """Rank how likely a failure only follows another: 0 is a cause of its own, 2 a consequence."""
    if found.state in (State.CANCELLED, State.LOST):
        return 2  # a controller deletes the other pods of a job that fails
    if found.state is State.SIGNALLED and found.signal == 15:
        return 1  # ranks end each other with SIGTERM
    return 0


def _first_crash(job: JobView) -> Finding | None:
    """The first failure of a container that was restarted."""
    crashes = []
    for pod in job.pods:
        for container in pod.containers:
            end = container.previous_end
            if end is not None and not end.successful:
                crashes.append((end.ended_s or 0.0, pod, container, end))
    if not crashes:
        return None
    _ended_s, pod, container, end = min(crashes, key=lambda crash: crash[0])
    return exits.by_exit(pod, container, end)


# --- a job whose own object says that it has failed ------------------------------------------------------------------


def reported_failure(job: JobView, completion: kinds.Completion) -> Finding:
    """Explain the failure of a job whose own object reports it; live while its pods do not show why yet."""
    report = reason_and_message(completion.reason, completion.message)
    rule = find_rule(reasons.KIND, completion.reason, completion.message)
    if rule is not None:
        has_run = job.has_run or not job.pods  # a Job deletes its pods when its deadline has passed
        waited_for = "" if has_run else _last_waited_for(job)
        if waited_for:
            report = f"{report}; until then {waited_for}"
        return rule.finding(report, has_run=has_run)
    cause = first_failure(job, job.ended_pods)
    if cause is None or _consequence(cause) > 1:
        if job.live_pods and not job.has_lasted("cause", SETTLE_S):
            return Finding(job.state_until_known, f"ended ({report}); its pods do not show why yet")
        leaving = [pod for pod in job.live_pods if pod.deletion_requested_s is not None]
        cause = first_failure(job, [*job.ended_pods, *job.vanished_pods, *leaving])
    if cause is None or cause.state in (State.LOST, State.CANCELLED):
        # The controller may have deleted the pods because the job failed, so that their deletion explains nothing.
        crash = _first_crash(job)
        if crash is not None:
            return replace(crash, reason=f"{crash.reason} ({report})")
        if completion.reason == "BackoffLimitExceeded":
            taken = _taken_away(job, cause)
            if taken is not None:
                return taken
        if cause is None or _exit_code_in(completion.message) is not None:
            return _failure_by_report(completion, report)
    return replace(cause, reason=_with_report(cause.reason, job, completion, report))


def _last_waited_for(job: JobView) -> str:
    for pod in job.pods:
        waited_for = last_waited_for(pod)
        if waited_for:
            return waited_for
    return ""


def _failure_by_report(completion: kinds.Completion, report: str) -> Finding:
    """The failure of a job whose pods are gone or show nothing, from the report of its own object."""
    exit_code = _exit_code_in(completion.message)
    if exit_code is None:
        return Finding(State.EXITED, report or "its controller reports a failure without a reason")
    return Finding(state_of_exit(exit_code, speaks_wire=False), report, exit_code=exit_code)


def _exit_code_in(message: str) -> int | None:
    match = re.search(r"exit code (\d+)", message)
    return int(match[1]) if match else None


def _with_report(reason: str, job: JobView, completion: kinds.Completion, report: str) -> str:
    """Add what the job's object reports, unless that is only that its pod failed."""
    tries = number(job.root, "status", "failed") or 0
    only_one_failed = completion.reason == "BackoffLimitExceeded" and tries < 2
    return reason if only_one_failed or not report else f"{reason} ({report})"


# --- pods that were deleted under a Job ------------------------------------------------------------------------------


def _taken_away(job: JobView, cause: Finding | None) -> Finding | None:
    # A Job fails when one of its pods is deleted while it runs, and reports only that it may not try again. That is no
    # failure of what ran, even if that pod was never seen.
    if cause is None or cause.state is State.LOST:
        return unseen_deletion(job, 1)
    if cause.state is State.CANCELLED:
        return deleted_under_a_job(job, cause)
    return None


def deleted_under_a_job(job: JobView, deletion: Finding) -> Finding:
    """Say what the deletion of a pod means for its job, if the job's controller does not delete pods itself.

    A pod that is evicted, preempted, or deleted because of its node says so (Kubernetes 1.26 and newer), and Kueue's
    Workload does. The controller deletes none of the pods that it needs, unless it restarts them in place.
    """
    if not _controller_keeps_pods(job):
        return deletion
    return replace(deletion, reason=deletion.reason.replace(exits.DELETED, TAKEN))


def unseen_deletion(job: JobView, needed: int) -> Finding | None:
    """Say what became of pods that a Job would still have if they had not been deleted.

    None if at least `needed` pods go on or were seen to succeed, and None if its controller may have deleted pods.
    """
    accounted_for = [pod for pod in job.live_pods + job.ended_pods if pod.succeeded or not pod.ended]
    if len(accounted_for) >= needed or not _controller_keeps_pods(job):
        return None
    cause = first_failure(job, job.vanished_pods)
    seen_leaving = any(pod.deletion_requested_s is not None for pod in job.vanished_pods)
    if cause is not None and cause.state is State.CANCELLED and seen_leaving:
        return Finding(State.CANCELLED, TAKEN)
    if any(exits.is_stop(event) for event in job.events):
        return Finding(State.LOST, TAKEN_UNSEEN)
    if cause is not None and cause.state is not State.LOST:
        return cause
    return Finding(State.LOST, "its pods are gone, and nothing shows how they ended")


def _controller_keeps_pods(job: JobView) -> bool:
    return job.root_exists and not job.being_deleted and kinds.keeps_its_pods(job.root)


def why_deleted(job: JobView) -> Finding | None:
    """Explain why the job's controller deletes its pods: the job is about to fail. None if nothing shows that."""
    failing = kinds.failing(job.root)
    if failing is not None:
        return reported_failure(job, failing)
    if job.is_pod or job.retries:
        return None
    cause = first_failure(job, job.ended_pods)
    if cause is None or _consequence(cause) != 0:
        return None
    return cause


# --- pods that the controller cannot create --------------------------------------------------------------------------


def refused_pod(job: JobView) -> Finding | None:
    """Explain why the cluster refused the last pod that was to be created; None if the job has enough pods."""
    if job.is_pod or len(job.live_pods) + len(job.succeeded_pods) >= job.needed_pods:
        return None
    attempts = [event for event in job.events if event.reason.startswith(("FailedCreate", "SuccessfulCreate"))]
    refusals = [event for event in attempts if event.reason in ("FailedCreate", "FailedCreatePod")]
    if not refusals or attempts[-1] is not refusals[-1]:
        return None
    latest = refusals[-1]
    message = latest.message.removeprefix("Error creating: ")
    quota = reasons.quota_refusal(message)
    if quota is not None:
        return Finding(State.NEVER_ADMISSIBLE if quota.never else State.QUEUED, quota.message)
    rule = reasons.rule_of(reasons.REFUSED, latest.reason, message)
    times = sum(event.count for event in refusals)
    if rule.state is not State.QUEUED and times < reasons.TRIES:
        return Finding(State.QUEUED, message)
    return rule.finding(message)
