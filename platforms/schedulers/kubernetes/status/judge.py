"""What became of one job, from all that was seen of it: its object, its pods, Kueue's workload, events, nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from platforms.job import State, Status
from platforms.schedulers.kubernetes.objects.fields import mapping, number, one_line, text, timestamp_s
from platforms.schedulers.kubernetes.status import events, exits, failures, kinds, kueue, wait_reasons
from platforms.schedulers.kubernetes.status.failures import SETTLE_S
from platforms.schedulers.kubernetes.status.kinds import Completion
from platforms.schedulers.kubernetes.status.observation import JobView, Observation
from platforms.schedulers.kubernetes.status.pods import Pod
from platforms.schedulers.kubernetes.status.reasons import Finding

__all__ = ["Observation", "Verdict", "judge"]

LOST_S = 60.0  # how long a job may be known to nobody
REPLACED_S = 30.0  # how long a kind that we do not know may take to replace a pod
SPEECHLESS_S = 300.0  # how long a kind may say nothing after its last pod has ended
SILENT_S = 120.0  # how long a kind may take no note at all of its object before that is said
SHORT_TTL_S = 3600.0


@dataclass(frozen=True)
class Verdict:
    """`stop`: it has failed, and something of it holds a device or could start again. `final`: nothing will change."""

    status: Status
    stop: bool
    final: bool


def judge(sight: Observation) -> Verdict:
    """The job's state now, and why; live while its end cannot be told for certain."""
    case = JobView(sight)
    found = _decide(case)
    final = not found.state.live
    failed = final and found.state is not State.SUCCEEDED
    return Verdict(_status(case, found), failed and _holds(case), final)


def _holds(case: JobView) -> bool:
    """Whether anything of it goes on, or could."""
    undecided = not isinstance(case.completion, Completion) and not case.is_pod
    running = any(not pod.gone and any(each.running for each in pod.main) for pod in case.pods)
    return bool(case.live) or running or (case.sight.root is not None and undecided)


def _decide(case: JobView) -> Finding:
    own = case.completion
    if isinstance(own, Completion):
        return _succeeded(case) if own.end == "succeeded" else failures.of_kind(case, own)
    if case.sight.root is None:
        return _without_root(case)
    return _held_back(case) or _trouble(case) or _over(case) or _going(case)


# --- the kind says that it has ended, or is gone ---------------------------------------------------------------------


def _succeeded(case: JobView) -> Finding:
    """Its kind says so. A child that was killed for memory shows in a pod that succeeded; and one that was deleted and
    left with exit code 0 counts as good to its kind."""
    good = [pod for pod in case.over if pod.succeeded]
    if len(good) < (case.expected or 1) and case.live and not case.waited("report", SETTLE_S):
        return Finding(case.between, "ended; not all of its pods have reported yet")
    early = kinds.ends_early(case.object)
    found = failures.unwitnessed(case, 1 if early else case.expected or 1) or _at_best(case, good)
    if found.state is not State.CANCELLED:
        return found
    if early and any(map(case.well, good)):  # it has deleted what it needed no more
        return Finding(State.SUCCEEDED, exit_code=0)
    return _evicted(case) or failures.from_a_job(case, found)


def _at_best(case: JobView, good: Sequence[Pod]) -> Finding:
    """What comes of pods that ended with exit code 0."""
    return failures.of_pods(case, good) or Finding(State.SUCCEEDED, exit_code=0)


def _evicted(case: JobView) -> Finding | None:
    workload = case.sight.workload
    return kueue.evicted(workload, ran=True) if workload is not None else None


def _without_root(case: JobView) -> Finding:
    """Nobody has it any more."""
    good = [pod for pod in case.over if pod.succeeded]
    if len(good) == len(case.pods) >= (case.expected or 1):
        found = _at_best(case, good)
        if found.state is not State.CANCELLED:
            return found
    if (evicted := _evicted(case)) is not None:
        return evicted
    cause = failures.of_pods(case, [pod for pod in case.pods if pod.ended or pod.disruption or pod.gone])
    if cause is not None and (case.is_pod or cause.state not in (State.LOST, State.CANCELLED)):
        return cause
    if not case.object:
        if not case.waited("lost", LOST_S):
            return Finding(State.UNKNOWN, "the cluster does not know it (yet)")
        why = "somebody deleted it, or its ttlSecondsAfterFinished did, before anybody looked"
        return Finding(State.LOST, f"the cluster does not know it: {why}")
    ttl_s = number(case.object, "spec", "ttlSecondsAfterFinished")
    if ttl_s is not None and ttl_s <= SHORT_TTL_S:
        return Finding(
            State.LOST, f"deleted by its ttlSecondsAfterFinished ({ttl_s} s) after an end that nobody saw, or by hand"
        )
    return Finding(State.CANCELLED, "somebody else deleted it")


# --- it is there, and goes on, as far as it says itself --------------------------------------------------------------


def _held_back(case: JobView) -> Finding | None:
    """Suspended, or sent back to its queue by Kueue."""
    workload, held = case.sight.workload, kinds.suspended(case.object)
    again = held or any(_replaced(pod, case) for pod in case.torn)
    if workload is not None and (found := kueue.evicted(workload, ran=case.ran)) is not None:
        return found.settled(case.sight.waited)
    unfinished = any(pod.ran and not case.well(pod) for pod in case.torn + case.over)
    if unfinished and again and (held or (workload is not None and not case.retries)):
        why = kueue.last_eviction(workload) or "nobody told why"
        return Finding(State.PREEMPTED, f"its pods were taken away after they had run, and it was queued again: {why}")
    if not held or any(pod.ran for pod in case.live):
        return None
    if workload is not None:
        found = kueue.admission(workload).settled(case.sight.waited)
        return Finding(State.STARTING, "admitted by Kueue") if kueue.admitted(workload) else found
    queue = kueue.queue_of(case.object)
    who = f"Kueue (queue {queue}) has not let it start yet" if queue else "suspended: somebody must let it start"
    return Finding(State.QUEUED, who)


def _replaced(pod: Pod, case: JobView) -> bool:
    """Another pod was made after this one had left; one of the same second as itself is its neighbour."""
    times = (pod.created_s, pod.started_s, pod.ended_s, pod.deleted_s)
    left_s = max((time for time in times if time is not None), default=0.0)
    made = [each.created_s or 0.0 for each in case.live + case.over if each is not pod]
    return any(time >= left_s and time > (pod.created_s or 0.0) for time in made)


def _trouble(case: JobView) -> Finding | None:
    """Pods that cannot start, or are not even created: each of them would wait for ever."""
    for pod in case.live:
        found = _looked(case, pod)
        if not found.state.live:
            return replace(found, reason=case.said_of(pod, found))
    refused = failures.refused(case)
    return refused if refused is not None and not refused.state.live else None


def _looked(case: JobView, pod: Pod) -> Finding:
    crashes = case.retries and case.completion == "running"
    deletion = failures.of_deletion(case) if pod.deleted_s is not None else None
    found = wait_reasons.look(pod, case.events, case.sight.nodes, retries=crashes, deletion=deletion)
    found = found.settled(case.sight.waited)
    limit_s = case.sight.start_limit_s
    if found.state is State.STARTING and limit_s is not None and case.waited("starting", limit_s):
        return Finding(
            State.START_DEADLINE, f"no container ran {limit_s:g} s after it had a node: {found.reason}".rstrip(": ")
        )
    return found


def _over(case: JobView) -> Finding | None:
    """Pods that have ended, as far as they decide."""
    if case.completion == "running":
        return _speechless(case)
    if any(not pod.settled and not pod.gone for pod in case.over) and not case.waited("phase", SETTLE_S):
        return Finding(case.between, "ended; the cluster has not taken note of it yet")
    bad = [pod for pod in case.over if exits.ending(pod, case.events).state is not State.SUCCEEDED]
    failed = [pod for pod in (*bad, *case.torn) if case.is_pod or not _replaced(pod, case)]
    cause = failures.of_pods(case, failed)
    if cause is not None:
        patient = not case.is_pod and not case.waited("replaced", REPLACED_S)
        return Finding(case.between, f"{cause.reason}; nothing has replaced it yet") if patient else cause
    good = len(case.over) - len(bad)
    if case.live or not good or good < (case.expected or 1):
        return None
    if case.expected is None and not case.waited("all done", SETTLE_S):
        return Finding(State.RUNNING, "its pods have ended; there may be more")
    return Finding(State.SUCCEEDED, exit_code=0)


def _speechless(case: JobView) -> Finding | None:
    """Its kind decides, unless that says nothing long after the last pod has ended."""
    left = [pod for pod in case.over + case.torn if pod.succeeded or not _replaced(pod, case)]
    if case.live or not left or case.retries:
        return None
    cause = failures.of_pods(case, left)
    good = sum(pod.succeeded for pod in left)
    if cause is None and good < (case.expected or 1):
        return None
    if case.waited("speechless", SPEECHLESS_S):
        return cause or Finding(State.SUCCEEDED, exit_code=0)
    return Finding(case.between, cause.reason if cause else "ended; its kind has not said so yet")


def _going(case: JobView) -> Finding:
    """As far as its rank 0 is, with what the others wait for."""
    looks = [(pod, _looked(case, pod)) for pod in case.live]
    first = min(case.live + case.over, key=lambda pod: (pod.rank, pod.ended), default=None)
    refused = failures.refused(case)
    waiting = [case.said_of(pod, found) for pod, found in looks if found.state is not State.RUNNING and found.reason]
    reason = next(iter(waiting), refused.reason if refused else "")
    if first is None:
        return refused or Finding(*_no_pod(case))
    state = next((found.state for pod, found in looks if pod is first), State.RUNNING)
    lost = next((found for _pod, found in looks if found.state is State.UNKNOWN), None)
    if lost is not None:
        return lost
    if first.ended and not case.live and case.retries:
        return Finding(State.STARTING, _retried(case))
    notes = [found.reason for _pod, found in looks if found.reason]
    return Finding(state, reason or next(iter(notes), ""))


def _no_pod(case: JobView) -> tuple[State, str]:
    if case.sight.workload is not None and kueue.admitted(case.sight.workload):
        return State.STARTING, "admitted by Kueue; it has no pod yet"
    silent = not case.events and not mapping(case.object, "status")
    if silent and case.waited("silent", SILENT_S):
        kind = f"{text(case.object, 'kind')} ({text(case.object, 'apiVersion')})"
        nothing = f"it has no pod, no status and no event after {SILENT_S:g} s"
        return State.QUEUED, f"{nothing}: the controller of {kind} does not seem to run"
    return State.QUEUED, "it has no pod yet"


def _retried(case: JobView) -> str:
    cause = failures.of_pods(case, case.over)
    return f"tried again after {cause.reason}" if cause else "more pods are to come"


# --- what is told ----------------------------------------------------------------------------------------------------


def _status(case: JobView, found: Finding) -> Status:
    counted = [pod for pod in case.over if pod.succeeded] if found.state is State.SUCCEEDED else case.pods
    started = [pod.started_s for pod in counted if pod.started_s is not None]
    ended = [pod.ended_s for pod in counted if pod.ended_s is not None]
    return Status(
        found.state,
        one_line(found.reason),
        exit_code=found.exit_code,
        signal=found.signal,
        nodes=tuple(dict.fromkeys(pod.node for pod in case.pods if pod.node)),
        submitted_s=timestamp_s(case.object, "metadata", "creationTimestamp"),
        started_s=min(started, default=None),
        ended_s=None if found.state.live else max(ended, default=None),
        events=events.told(case.events),
        last_word=_last_word(counted),
        position=case.sight.position if found.state.live else None,
    )


def _last_word(counted: Sequence[Pod]) -> str:
    """What rank 0 left as its termination message; the words of the machinery are none of it."""
    ends = (each.end for pod in counted[:1] for each in pod.main)
    words = (end.last_word for end in ends if end is not None)
    return next((said for said in words if said and not said.startswith(exits.NOT_AFTER)), "")
