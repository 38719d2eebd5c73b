"""What a pod says of its job that has ended, or that is not there any more."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from platforms.job import State, state_of_exit
from platforms.schedulers.kubernetes.state import reasons
from platforms.schedulers.kubernetes.state.events import Event, about
from platforms.schedulers.kubernetes.state.pods import Container, End, Pod
from platforms.schedulers.kubernetes.state.reasons import Finding, always, find, finding
from platforms.schedulers.kubernetes.state.wording import called, plain, waited_for

NOT_AFTER, NOT_AFTER_CODE = "hpc-ml-bench: not after", 75  # what our own script says when it is too late to begin
SKEW_S = 5.0  # by how much the clock of a node may differ from that of the API server
KILLED = (137, 143)  # exit codes of what does not handle the signals that a deletion sends
DELETED = "somebody else deleted it"


def ending(pod: Pod, events: Sequence[Event]) -> Finding:
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


def _from_outside(pod: Pod, worst: tuple[Container, End] | None, events: Sequence[Event]) -> Finding | None:
    """What ended it, when that was not itself."""
    rule = find(reasons.POD, pod.reason, pod.message) if pod.phase == "Failed" and pod.reason else None
    if rule is not None:
        found = finding(rule, _pod_words(pod), ran=pod.ran)
        own = re.search(r'EmptyDir volume "([^"]*)"', pod.message)
        memory = own is not None and own[1] in pod.memory
        return replace(found, state=State.OUT_OF_MEMORY) if memory else found
    if worst is not None and worst[1].reason == "OOMKilled":
        return None
    if pod.deleted_s is None:
        return None if pod.succeeded else disrupted(pod)
    told = stopped(pod, [worst[0]] if worst else pod.main, events) if worst or pod.succeeded else True
    return (disrupted(pod) or Finding(State.CANCELLED, DELETED)) if told else None


def stopped(pod: Pod, containers: Sequence[Container], events: Sequence[Event]) -> bool:
    """Whether one of them ended because somebody had asked its pod to go. Objects of jobs that have ended are deleted,
    too: by their TTL, by their kind, when a node is drained, by us."""
    asked_s = pod.deleted_s
    mine = about(events, pod.uid)
    return asked_s is not None and any(_told(pod, each, each.end, asked_s, mine) for each in containers if each.end)


def _told(pod: Pod, container: Container, end: End, asked_s: float, events: Sequence[Event]) -> bool:
    """The kubelet says so, or the times do, which are of two clocks. What ended well, and what ended as nobody ends it,
    did so by itself in case of doubt: a kind may clean up right after the end. Nobody drains or preempts just then."""
    name = f"{{{container.name}}}"
    killed = [each.last_s for each in events if each.reason == "Killing" and each.field.endswith(name)]
    if any(time_s >= asked_s - SKEW_S for time_s in killed):
        return True
    if end.ended_s is None:
        return not end.good
    if end.good:
        return end.ended_s >= asked_s if pod.disruption else end.ended_s > asked_s + SKEW_S
    return end.ended_s >= (asked_s - SKEW_S if pod.disruption or end.exit_code in KILLED else asked_s)


def _pod_words(pod: Pod) -> str:
    said = f"{pod.reason}: {pod.message}".rstrip(": ")
    waited = "" if pod.ran else waited_for(pod)
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


def vanished(pod: Pod, events: Sequence[Event]) -> Finding:
    """A pod that went away before it was seen to end."""
    if (found := disrupted(pod)) is not None:
        return found
    for event in reversed(about(events, pod.uid)):
        if (rule := find(reasons.VANISHED, event.reason, event.message)) is not None:
            return finding(rule, f"{event.reason}: {event.message}")
    if pod.deleted_s is not None:
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
