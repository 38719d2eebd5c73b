"""What became of one job: the verdict over everything that one look at the cluster showed of it.

| What the cluster shows                               | What decides              | Verdict                           |
|------------------------------------------------------|---------------------------|-----------------------------------|
| its root says that it has succeeded                  | _reported_success         | SUCCEEDED, unless a pod differs   |
| its root says that it has failed                     | failures.reported_failure | why its first pod failed          |
| its root is gone                                     | _without_root             | how its pods ended, or who did it |
| it is suspended, or Kueue sent it back to its queue  | _held_back                | QUEUED, PREEMPTED, Kueue's reason |
| a pod can never start, or can never be created       | _cannot_start             | that reason, after some patience  |
| its pods have ended, and its root does not say so    | _pods_ended               | SUCCEEDED, or the first failure   |
| anything else                                        | _under_way                | QUEUED, STARTING or RUNNING       |

The root is the object that makes the pods, such as a Job. The first line that applies counts. Nothing here asks the
cluster, so the same observation always gives the same verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from platforms.job import State, Status
from platforms.schedulers.kubernetes.objects.fields import mapping, number, one_line, text, timestamp_s
from platforms.schedulers.kubernetes.status import events, exits, failures, kinds, kueue
from platforms.schedulers.kubernetes.status.failures import SETTLE_S
from platforms.schedulers.kubernetes.status.kinds import Completion
from platforms.schedulers.kubernetes.status.named_nodes import named_node_problem
from platforms.schedulers.kubernetes.status.observation import JobView, Observation
from platforms.schedulers.kubernetes.status.pods import Pod
from platforms.schedulers.kubernetes.status.reasons import Finding
from platforms.schedulers.kubernetes.status.wait_reasons import why_waiting

__all__ = ["JobVerdict", "Observation", "judge"]

LOST_S = 60.0  # how long a job may be missing in the cluster before it is lost
REPLACED_S = 30.0  # how long the controller of a kind that we do not know may take to replace a pod
SPEECHLESS_S = 300.0  # how long a controller may not report the end of a job after its last pod has ended
SILENT_S = 120.0  # how long a controller may ignore its object before the job's reason says so
SHORT_TTL_S = 3600.0


@dataclass(frozen=True)
class JobVerdict:
    """The status of a job and what follows from it.

    `stop`: it has failed, and a part of it still holds a device or could start again. `final`: it will not change.
    """

    status: Status
    stop: bool
    final: bool


def judge(observation: Observation) -> JobVerdict:
    """Say what became of a job. Its state stays live as long as its end is not certain."""
    job = JobView(observation)
    found = _decide(job)
    final = not found.state.live
    failed = final and found.state is not State.SUCCEEDED
    return JobVerdict(_status(job, found), stop=failed and _could_go_on(job), final=final)


def _decide(job: JobView) -> Finding:
    """The table above."""
    completion = job.completion
    if isinstance(completion, Completion) and completion.end == "succeeded":
        return _reported_success(job)
    if isinstance(completion, Completion):
        return failures.reported_failure(job, completion)
    if not job.root_exists:
        return _without_root(job)
    return _held_back(job) or _cannot_start(job) or _pods_ended(job) or _under_way(job)


def _could_go_on(job: JobView) -> bool:
    """True if any part of the job runs, or could start again."""
    if job.live_pods or any(pod.running and not pod.gone for pod in job.pods):
        return True
    root_has_ended = isinstance(job.completion, Completion) or job.is_pod
    return job.root_exists and not root_has_ended


# --- the root says that it has succeeded, or is gone -----------------------------------------------------------------


def _reported_success(job: JobView) -> Finding:
    """Check the success that the root reports against its pods.

    A child process that was killed for memory shows only in a pod that succeeded. A controller takes a pod that was
    deleted and left with exit code 0 for a success.
    """
    succeeded = job.succeeded_pods
    if len(succeeded) < job.needed_pods and job.live_pods and not job.has_lasted("report", SETTLE_S):
        return Finding(job.state_until_known, "ended; not all of its pods have reported yet")
    may_end_early = kinds.ends_early(job.root)
    needed = 1 if may_end_early else job.needed_pods
    found = failures.unseen_deletion(job, needed) or _success_of(job, succeeded)
    if found.state is not State.CANCELLED:
        return found
    if may_end_early and any(job.succeeded_by_itself(pod) for pod in succeeded):
        return Finding(State.SUCCEEDED, exit_code=0)  # the controller deleted the pods that it did not need any more
    return _evicted_by_kueue(job) or failures.deleted_under_a_job(job, found)


def _success_of(job: JobView, succeeded: Sequence[Pod]) -> Finding:
    """SUCCEEDED, unless one of the pods that ended with exit code 0 was killed for memory or stopped from outside."""
    return failures.first_failure(job, succeeded) or Finding(State.SUCCEEDED, exit_code=0)


def _evicted_by_kueue(job: JobView) -> Finding | None:
    workload = job.observation.workload
    if workload is None:
        return None
    return kueue.evicted(workload, has_run=True)


def _without_root(job: JobView) -> Finding:
    """The root was deleted, or the cluster does not show it yet."""
    succeeded = job.succeeded_pods
    if len(succeeded) == len(job.pods) >= job.needed_pods:
        found = _success_of(job, succeeded)
        if found.state is not State.CANCELLED:
            return found
    evicted = _evicted_by_kueue(job)
    if evicted is not None:
        return evicted
    decisive = [pod for pod in job.pods if pod.ended or pod.disruption or pod.gone]
    cause = failures.first_failure(job, decisive)
    if cause is not None and (job.is_pod or cause.state not in (State.LOST, State.CANCELLED)):
        return cause
    was_never_seen = not job.root
    if was_never_seen and not job.has_lasted("lost", LOST_S):
        return Finding(State.UNKNOWN, "the cluster does not know it (yet)")
    if was_never_seen:
        why = "it was deleted, by hand or by its ttlSecondsAfterFinished, before its end was seen"
        return Finding(State.LOST, f"the cluster does not know it: {why}")
    ttl_s = number(job.root, "spec", "ttlSecondsAfterFinished")
    may_have_finished = not job.observation.saw_deletion  # only then does Kubernetes delete it by itself
    if may_have_finished and ttl_s is not None and ttl_s <= SHORT_TTL_S:
        why = f"deleted by its ttlSecondsAfterFinished ({ttl_s} s), or by hand, before its end was seen"
        return Finding(State.LOST, why)
    what = (
        f"the {text(job.root, 'kind')}" if may_have_finished else f"the {text(job.root, 'kind')}, before it had ended"
    )
    return Finding(State.CANCELLED, f"{exits.DELETED}: {what}; {exits.WHO}")


# --- the root exists and does not say that it has ended --------------------------------------------------------------


def _held_back(job: JobView) -> Finding | None:
    """Judge a job that is suspended, or that Kueue has sent back to its queue; None for any other job."""
    workload = job.observation.workload
    suspended = kinds.suspended(job.root)
    if workload is not None:
        evicted = kueue.evicted(workload, has_run=job.has_run)
        if evicted is not None:
            return evicted.after_patience(job.observation.waited_s)
    if _lost_its_pods(job, suspended):
        why = kueue.last_eviction(workload) or "Kueue does not say why"
        return Finding(State.PREEMPTED, f"its pods were taken away after they had run, and it was queued again: {why}")
    if not suspended or any(pod.has_run for pod in job.live_pods):
        return None
    if workload is not None and kueue.admitted(workload):
        return Finding(State.STARTING, "admitted by Kueue")
    if workload is not None:
        return kueue.admission(workload).after_patience(job.observation.waited_s)
    queue = kueue.queue_of(job.root)
    if queue:
        return Finding(State.QUEUED, f"Kueue (queue {queue}) has not let it start yet")
    return Finding(State.QUEUED, "suspended: it waits until a user or a controller resumes it")


def _lost_its_pods(job: JobView, suspended: bool) -> bool:
    """True if pods that had run were taken away, and the job waits in its queue or has begun again."""
    unfinished = [pod for pod in job.vanished_pods + job.ended_pods if pod.has_run and not job.succeeded_by_itself(pod)]
    if not unfinished:
        return False
    if suspended:
        return True
    is_kueues = job.observation.workload is not None and not job.retries
    return is_kueues and any(job.was_replaced(pod) for pod in job.vanished_pods)


def _cannot_start(job: JobView) -> Finding | None:
    """Judge a job with a pod that can never start or be created, so that it would wait for ever; None for any other."""
    for pod in job.live_pods:
        found = _look_at(job, pod)
        if not found.state.live:
            return replace(found, reason=job.reason_with_pod(pod, found))
    refused = failures.refused_pod(job)
    if refused is not None and not refused.state.live:
        return refused
    return None


def _look_at(job: JobView, pod: Pod) -> Finding:
    """Say what a live pod waits for, or what is wrong with it, with patience and start limit applied."""
    seen = job.observation
    restarts_crashes = job.retries and job.completion == "running"
    why_deleted = failures.why_deleted(job) if pod.deletion_requested_s is not None else None
    nodes = seen.nodes
    if pod.named_nodes and not pod.node:  # the others do not count
        nodes = {name: node for name, node in nodes.items() if name in pod.named_nodes}
    found = named_node_problem(job, pod) or why_waiting(
        pod, job.events, nodes, retries=restarts_crashes, why_deleted=why_deleted
    )
    found = found.after_patience(seen.waited_s)
    if found.state is not State.STARTING or seen.start_limit_s is None:
        return found
    if not job.has_lasted("starting", seen.start_limit_s):
        return found
    why = f"no container ran {seen.start_limit_s:g} s after it had a node: {found.reason}".rstrip(": ")
    return Finding(State.START_DEADLINE, why)


def _pods_ended(job: JobView) -> Finding | None:
    """Let the job's ended pods decide; None as long as they decide nothing."""
    if job.completion == "running":
        return _controller_is_speechless(job)
    unsettled = [pod for pod in job.ended_pods if not pod.phase_is_final and not pod.gone]
    if unsettled and not job.has_lasted("phase", SETTLE_S):
        return Finding(job.state_until_known, "ended; the cluster has not recorded it yet")
    failed = [pod for pod in job.ended_pods if exits.why_ended(pod, job.events).state is not State.SUCCEEDED]
    final = [pod for pod in failed + job.vanished_pods if job.is_pod or not job.was_replaced(pod)]
    cause = failures.first_failure(job, final)
    if cause is not None:
        if job.is_pod or job.has_lasted("replaced", REPLACED_S):
            return cause
        return Finding(job.state_until_known, f"{cause.reason}; nothing has replaced it yet")
    succeeded = len(job.ended_pods) - len(failed)
    if job.live_pods or succeeded == 0 or succeeded < job.needed_pods:
        return None
    if job.expected_pods is None and not job.has_lasted("all done", SETTLE_S):
        return Finding(State.RUNNING, "its pods have ended; there may be more")
    return Finding(State.SUCCEEDED, exit_code=0)


def _controller_is_speechless(job: JobView) -> Finding | None:
    """Let the pods decide for a controller that reports nothing long after the last of them has ended."""
    final = [pod for pod in job.ended_pods + job.vanished_pods if pod.succeeded or not job.was_replaced(pod)]
    if job.live_pods or not final or job.retries:
        return None
    cause = failures.first_failure(job, final)
    succeeded = sum(pod.succeeded for pod in final)
    if cause is None and succeeded < job.needed_pods:
        return None
    if not job.has_lasted("speechless", SPEECHLESS_S):
        why = cause.reason if cause else "ended; its controller has not reported it yet"
        return Finding(job.state_until_known, why)
    return cause or Finding(State.SUCCEEDED, exit_code=0)


def _under_way(job: JobView) -> Finding:
    """Say how far the pod of rank 0 is, with what the other pods wait for."""
    looks = [(pod, _look_at(job, pod)) for pod in job.live_pods]
    refused = failures.refused_pod(job)
    first = min(job.live_pods + job.ended_pods, key=lambda pod: (pod.rank, pod.ended), default=None)
    if first is None:
        return refused or _without_pods(job)
    for _pod, found in looks:
        if found.state is State.UNKNOWN:
            return found
    if first.ended and not job.live_pods and job.retries:
        return Finding(State.STARTING, _retry_reason(job))
    state = State.RUNNING
    for pod, found in looks:
        if pod is first:
            state = found.state
    return Finding(state, _reason_under_way(job, looks, refused))


def _reason_under_way(job: JobView, looks: Sequence[tuple[Pod, Finding]], refused: Finding | None) -> str:
    """Explain why a pod does not run yet; else why a pod was refused; else a remark about a pod that runs."""
    for pod, found in looks:
        if found.state is not State.RUNNING and found.reason:
            return job.reason_with_pod(pod, found)
    if refused is not None and refused.reason:
        return refused.reason
    for _pod, found in looks:
        if found.reason:
            return found.reason
    return ""


def _without_pods(job: JobView) -> Finding:
    workload = job.observation.workload
    if workload is not None and kueue.admitted(workload):
        return Finding(State.STARTING, "admitted by Kueue; it has no pod yet")
    ignored = not job.events and not mapping(job.root, "status")
    if ignored and job.has_lasted("silent", SILENT_S):
        kind = f"{text(job.root, 'kind')} ({text(job.root, 'apiVersion')})"
        nothing = f"it has no pod, no status and no event after {SILENT_S:g} s"
        return Finding(State.QUEUED, f"{nothing}: the controller of {kind} does not seem to run")
    return Finding(State.QUEUED, "it has no pod yet")


def _retry_reason(job: JobView) -> str:
    cause = failures.first_failure(job, job.ended_pods)
    if cause is None:
        return "its controller will create more pods"
    return f"tried again after {cause.reason}"


# --- the status of a job ---------------------------------------------------------------------------------------------


def _status(job: JobView, found: Finding) -> Status:
    counted = job.succeeded_pods if found.state is State.SUCCEEDED else job.pods
    started = [pod.started_s for pod in counted if pod.started_s is not None]
    ended = [pod.ended_s for pod in counted if pod.ended_s is not None]
    nodes = dict.fromkeys(pod.node for pod in job.pods if pod.node)
    live = found.state.live
    return Status(
        found.state,
        one_line(found.reason),
        exit_code=found.exit_code,
        signal=found.signal,
        nodes=tuple(nodes),
        submitted_s=timestamp_s(job.root, "metadata", "creationTimestamp"),
        started_s=min(started, default=None),
        ended_s=None if live else max(ended, default=None),
        events=events.latest_distinct(job.events),
        last_word=_termination_message(counted),
    )


def _termination_message(pods: Sequence[Pod]) -> str:
    """The termination message of the pod of rank 0; messages of our own script do not count."""
    for pod in pods[:1]:
        for container in pod.main_containers:
            message = container.end.termination_message if container.end else ""
            if message and not message.startswith(exits.STARTED_TOO_LATE):
                return message
    return ""
