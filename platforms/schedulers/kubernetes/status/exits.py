"""What a pod says of its job that has ended, or that is not there any more."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from platforms.job import State, state_of_exit
from platforms.schedulers.kubernetes.status import reasons
from platforms.schedulers.kubernetes.status.events import ClusterEvent, about
from platforms.schedulers.kubernetes.status.pods import Container, End, Pod
from platforms.schedulers.kubernetes.status.reasons import Finding, always, find, finding
from platforms.schedulers.kubernetes.status.wording import called, plain, waited_for

NOT_AFTER, NOT_AFTER_CODE = "hpc-ml-bench: not after", 75  # what our own script says when it is too late to begin
SKEW_S = 5.0  # by how much the clock of a node may differ from that of the API server
KILLED = (137, 143)  # exit codes of what does not handle the signals that a deletion sends
DELETED = "somebody else deleted it"


def ending(pod: Pod, events: Sequence[ClusterEvent]) -> Finding:
    """A pod that has ended. SUCCEEDED only with exit code 0 everywhere, nothing of it killed for memory, and nothing
    told to end."""
    worst = _worst(pod)
    own = Finding(State.SUCCEEDED, exit_code=0) if pod.succeeded else None
    found = by_exit(pod, *worst) if worst else own
    outside = _from_outside(pod, worst, events)
    if outside is not None:
        return replace(outside, exit_code=found.exit_code, signal=found.signal) if found else outside
    if found is not None:
        return found
    why = ": ".join(filter(None, (pod.reason, pod.message)))
    return Finding(State.LOST, why or "it failed, and the cluster does not say why")


def _from_outside(pod: Pod, worst: tuple[Container, End] | None, events: Sequence[ClusterEvent]) -> Finding | None:
    """What ended it, when that was not itself."""
    rule = find(reasons.POD, pod.reason, pod.message) if pod.phase == "Failed" and pod.reason else None
    if rule is not None:
        ran = has_run(pod, events)
        found = finding(rule, _pod_words(pod, ran), ran=ran)
        own = re.search(r'EmptyDir volume "([^"]*)"', pod.message)
        memory = own is not None and own[1] in pod.memory
        return replace(found, state=State.OUT_OF_MEMORY) if memory else found
    if worst is not None and worst[1].reason == "OOMKilled":
        return None
    known = worst is not None or pod.succeeded
    if stopped(pod, [worst[0]] if worst else pod.main, events) or (pod.deleted_s is not None and not known):
        return _taken(pod)
    return disrupted(pod) if pod.deleted_s is None and not pod.succeeded else None


def stopped(pod: Pod, containers: Sequence[Container], events: Sequence[ClusterEvent]) -> bool:
    """Whether one of them ended because its pod was to go. Objects of jobs that have ended are deleted, too: by their
    TTL, by their kind, when a node is drained, by us."""
    mine = about(events, pod.uid)
    return any(_told(pod, each, each.end, mine) for each in containers if each.end is not None)


def _told(pod: Pod, container: Container, end: End, events: Sequence[ClusterEvent]) -> bool:
    """Whether a container was stopped before it ended by itself, by what is surest: the kubelet's event, which is dated
    by the clock that dates the end; the order of what the API server has shown; what the kubelet knew when it reported;
    and last the times of two clocks, which in case of doubt make no success."""
    killed_s = _killed_s(container, end, events)
    if killed_s is not None and end.ended_s is not None and killed_s < end.ended_s:
        return True
    if container.run in pod.past.ended_by_itself or pod.knew is False:
        return False
    if killed_s is not None or container.run in pod.past.stopped or pod.knew:
        return True
    asked_s = _asked_s(pod)
    if asked_s is None or end.ended_s is None:
        return asked_s is not None and not end.good
    doubtful = end.good or pod.disruption is not None or end.exit_code in KILLED
    return end.ended_s >= asked_s - (SKEW_S if doubtful else 0.0)


def _killed_s(container: Container, end: End, events: Sequence[ClusterEvent]) -> float | None:
    """When the kubelet says that it stopped this run of a container, in whole seconds. None: it does not say so."""
    field = f"{{{container.name}}}"
    said = [each for each in events if stops(each) and each.field.endswith(field)]
    began_s = (end.started_s or 0.0) - 1.0  # which containerd writes down a little late
    ended_s = float("inf") if end.ended_s is None else end.ended_s
    return min((each.first_s for each in said if began_s <= each.first_s <= ended_s), default=None)


def stops(event: ClusterEvent) -> bool:
    """Whether a kubelet says that it ends a container because its pod is to go, and not for a probe that failed."""
    return event.reason == "Killing" and event.message.startswith("Stopping container")


def _asked_s(pod: Pod) -> float | None:
    """When it was first asked to go: an eviction is written down a moment before its deletion. None: it was not."""
    if pod.deleted_s is None or pod.disruption is None or pod.disruption.since_s is None:
        return pod.deleted_s
    return min(pod.deleted_s, pod.disruption.since_s)


def _taken(pod: Pod) -> Finding:
    """Something else than itself has ended it: what, as far as anything tells."""
    if (found := disrupted(pod)) is not None:
        return found
    if pod.deleted_s is None:
        return Finding(State.EVICTED, f"the kubelet of {pod.node or 'its node'} stopped it, and does not say why")
    return Finding(State.CANCELLED, DELETED)


def has_run(pod: Pod, events: Sequence[ClusterEvent]) -> bool:
    """Whether one of its containers has ever begun, as far as anything is left that tells."""
    starts = (each for each in about(events, pod.uid) if each.reason == "Started")
    return pod.ran or any(each.field.startswith("spec.containers") for each in starts)


def _pod_words(pod: Pod, ran: bool) -> str:
    said = f"{pod.reason}: {pod.message}".rstrip(": ")
    waited = "" if ran else waited_for(pod)
    return f"{said}; until then {waited}" if waited else said


def _worst(pod: Pod) -> tuple[Container, End] | None:
    """The container that failed first."""
    ends = [(each, each.end) for each in pod.containers if each.role != "sidecar" and each.end and not each.end.good]
    return min(ends, key=lambda pair: pair[1].ended_s or 0.0, default=None)


def by_exit(pod: Pod, container: Container, end: End) -> Finding:
    """What the end of a container says."""
    code, who = end.exit_code, called(pod, container)
    if code == NOT_AFTER_CODE and end.message.strip().startswith(NOT_AFTER):
        why = end.message.strip().removeprefix(NOT_AFTER).lstrip(": ")
        reason = why or "its start limit had passed when the cluster started it"
        return Finding(State.START_DEADLINE, who + reason, exit_code=code)
    rule = find(reasons.TERMINATED, end.reason, end.message)
    if rule is not None:
        words = _memory(code) if rule.state is State.OUT_OF_MEMORY else plain(end.message) or end.reason
        return replace(finding(rule, who + words), exit_code=code, signal=end.signal)
    if code is None:
        return Finding(State.LOST, f"{who}it ended, and the cluster does not say how")
    state = state_of_exit(code, speaks_wire=False)
    words = f"exit code {code}" if state is not State.SUCCEEDED else ""
    if code == 137:
        words = "exit code 137: it was killed, and not for memory"
    return Finding(state, who + words, exit_code=code, signal=end.signal)


def _memory(code: int | None) -> str:
    if code == 0:
        return "OOMKilled: a process of it was killed for memory, though it ended with exit code 0"
    return "OOMKilled: killed for memory"


def vanished(pod: Pod, events: Sequence[ClusterEvent]) -> Finding:
    """A pod that went away before it was seen to end."""
    if (found := disrupted(pod)) is not None:
        return found
    mine = about(events, pod.uid)
    for event in reversed(mine):
        if (rule := find(reasons.VANISHED, event.reason, event.message)) is not None:
            return finding(rule, f"{event.reason}: {event.message}")
    if pod.deleted_s is not None or any(map(stops, mine)):
        return Finding(State.CANCELLED, DELETED)
    return Finding(State.LOST, "it vanished, and nobody saw why")


def disrupted(pod: Pod) -> Finding | None:
    """By its conditions: preempted, evicted, its node gone."""
    why = pod.disruption
    if why is None:
        return None
    found = finding(
        always(reasons.DISRUPTED, why.reason, why.message),
        ": ".join(filter(None, (why.reason, why.message))),
        ran=pod.ran,
    )
    silent = not pod.ready and any(each.running for each in pod.main)  # a kubelet that lived would have stopped it
    return replace(found, state=State.NODE_LOST) if why.reason == "DeletionByTaintManager" and silent else found
