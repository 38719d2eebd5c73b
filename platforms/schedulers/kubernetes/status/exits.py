"""Why a pod ended or vanished, read from its containers, its conditions and its events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from platforms.job import State, state_of_exit
from platforms.schedulers.kubernetes.status import reasons
from platforms.schedulers.kubernetes.status.events import ClusterEvent, about
from platforms.schedulers.kubernetes.status.pods import (
    NEVER_STARTED,
    Container,
    ContainerEnd,
    Pod,
    last_waited_for,
    prefix,
    without_layers,
)
from platforms.schedulers.kubernetes.status.reasons import Finding, find_rule, reason_and_message, rule_of

# The script of our templates leaves this message and exit code if the job starts after its start limit.
STARTED_TOO_LATE = "hpc-ml-bench: not after"
STARTED_TOO_LATE_CODE = 75

CLOCK_SKEW_S = 5.0  # by how much the clock of a node may differ from that of the API server
KILLED_CODES = (137, 143)  # exit codes of a program that does not handle the signals of a deletion
DELETED = "another user or program deleted it"
WHO = "only the cluster's audit log says who"


def why_ended(pod: Pod, events: Sequence[ClusterEvent]) -> Finding:
    """Explain why a pod ended.

    SUCCEEDED only if each container ended with exit code 0, none was killed for memory and none was stopped.
    """
    failed = _first_failed(pod)
    by_itself = None
    if failed is not None:
        by_itself = by_exit(pod, *failed)
    elif pod.succeeded:
        by_itself = Finding(State.SUCCEEDED, exit_code=0)
    from_outside = _ended_from_outside(pod, failed, events)
    if from_outside is not None and by_itself is not None:
        return replace(from_outside, exit_code=by_itself.exit_code, signal=by_itself.signal)
    if from_outside is not None:
        return from_outside
    if by_itself is not None:
        return by_itself
    why = reason_and_message(pod.reason, pod.message)
    return Finding(State.LOST, why or "it failed, and the cluster does not say why")


def why_vanished(pod: Pod, events: Sequence[ClusterEvent]) -> Finding:
    """Explain why a pod vanished that was not seen to end."""
    disruption = disrupted(pod)
    if disruption is not None:
        return disruption
    own_events = about(events, pod.uid)
    for event in reversed(own_events):
        rule = find_rule(reasons.VANISHED, event.reason, event.message)
        if rule is not None:
            return rule.finding(f"{event.reason}: {event.message}")
    if pod.deletion_requested_s is not None:
        return Finding(State.CANCELLED, DELETED)
    if any(is_stop(event) for event in own_events):
        return Finding(State.LOST, "it was deleted while it ran: by a person or an eviction, nothing shows which")
    return Finding(State.LOST, "it vanished, and nothing shows why")


def disrupted(pod: Pod) -> Finding | None:
    """Read a disruption from the pod's conditions: it was preempted or evicted, or its node is gone."""
    condition = pod.disruption
    if condition is None:
        return None
    rule = rule_of(reasons.DISRUPTED, condition.reason, condition.message)
    found = rule.finding(reason_and_message(condition.reason, condition.message), has_run=pod.has_run)
    # A kubelet that is alive would have stopped the containers of a pod that is evicted for a taint.
    if condition.reason == "DeletionByTaintManager" and pod.running and not pod.ready:
        return replace(found, state=State.NODE_LOST)
    return found


def by_exit(pod: Pod, container: Container, end: ContainerEnd) -> Finding:
    """Explain the end of one container, by itself."""
    who = prefix(pod, container)
    code = end.exit_code
    signal = end.signal
    if not container.has_run and end.reason not in NEVER_STARTED:
        code = None  # the kubelet writes 137 for a container that it does not find
        signal = None
    message = end.message.strip()
    if code == STARTED_TOO_LATE_CODE and message.startswith(STARTED_TOO_LATE):
        why = message.removeprefix(STARTED_TOO_LATE).lstrip(": ")
        why = why or "its start limit had passed when the cluster started it"
        return Finding(State.START_DEADLINE, who + why, exit_code=code)
    rule = find_rule(reasons.TERMINATED, end.reason, end.message)
    if rule is not None:
        why = _killed_for_memory(code) if rule.state is State.OUT_OF_MEMORY else without_layers(end.message)
        return replace(rule.finding(who + (why or end.reason)), exit_code=code, signal=signal)
    if code is None:
        return Finding(State.LOST, f"{who}it ended, and the cluster does not say how")
    state = state_of_exit(code, speaks_wire=False)
    if state is State.SUCCEEDED:
        why = ""
    elif code == 137:
        why = "exit code 137: it was killed, and not for memory"
    else:
        why = f"exit code {code}"
    return Finding(state, who + why, exit_code=code, signal=signal)


def was_stopped(pod: Pod, containers: Sequence[Container], events: Sequence[ClusterEvent]) -> bool:
    """True if one of a pod's containers ended because the pod was to be deleted.

    A deletion alone proves nothing. Objects of jobs that have ended are deleted too: by their TTL, by their controller,
    when a node is drained, and by this suite.
    """
    own_events = about(events, pod.uid)
    for container in containers:
        if container.end is not None and _was_stopped(pod, container, container.end, own_events):
            return True
    return False


def is_stop(event: ClusterEvent) -> bool:
    """True if a kubelet reports that it stops a container because its pod is to be deleted, not for a failed probe."""
    return event.reason == "Killing" and event.message.startswith("Stopping container")


def has_run(pod: Pod, events: Sequence[ClusterEvent]) -> bool:
    """True if one of its main containers has ever run, as far as its status or its events still show it."""
    return pod.has_run or any(is_start(event) for event in about(events, pod.uid))


def is_start(event: ClusterEvent) -> bool:
    """True if a kubelet reports that it started a main container."""
    return event.reason == "Started" and event.field.startswith("spec.containers")


def _first_failed(pod: Pod) -> tuple[Container, ContainerEnd] | None:
    """The container that failed first, and its end. Sidecars do not count."""
    failed = []
    for container in pod.containers:
        if container.role != "sidecar" and container.end is not None and not container.end.successful:
            failed.append((container, container.end))
    return min(failed, key=lambda pair: pair[1].ended_s or 0.0, default=None)


def _killed_for_memory(exit_code: int | None) -> str:
    if exit_code == 0:
        return "OOMKilled: a process of it was killed for memory, though it ended with exit code 0"
    return "OOMKilled: killed for memory"


def _ended_from_outside(
    pod: Pod, failed: tuple[Container, ContainerEnd] | None, events: Sequence[ClusterEvent]
) -> Finding | None:
    """Find what ended the pod from outside; None if it ended by itself. `failed` is its first failed container."""
    if pod.phase == "Failed" and pod.reason:
        rule = find_rule(reasons.POD, pod.reason, pod.message)
        if rule is not None:
            return _by_reason_of_pod(pod, rule, events)
    if failed is not None and failed[1].reason == "OOMKilled":
        return None
    containers = pod.main_containers if failed is None else (failed[0],)
    end_is_known = failed is not None or pod.succeeded
    deleted_before_its_end = pod.deletion_requested_s is not None and not end_is_known
    if deleted_before_its_end or was_stopped(pod, containers, events):
        return _taken_away(pod)
    if pod.deletion_requested_s is None and not pod.succeeded:
        return disrupted(pod)
    return None


def _by_reason_of_pod(pod: Pod, rule: reasons.Rule, events: Sequence[ClusterEvent]) -> Finding:
    started = has_run(pod, events)
    message = f"{pod.reason}: {pod.message}".rstrip(": ")
    waited_for = "" if started else last_waited_for(pod)
    if waited_for:
        message = f"{message}; until then {waited_for}"
    found = rule.finding(message, has_run=started)
    overflowed = re.search(r'EmptyDir volume "([^"]*)"', pod.message)
    if overflowed is not None and overflowed[1] in pod.memory_volumes:
        return replace(found, state=State.OUT_OF_MEMORY)
    return found


def _taken_away(pod: Pod) -> Finding:
    """Find what stopped the pod from outside, as far as the cluster shows it."""
    disruption = disrupted(pod)
    if disruption is not None:
        return disruption
    if pod.deletion_requested_s is None:
        return Finding(State.EVICTED, f"the kubelet of {pod.node or 'its node'} stopped it, and does not say why")
    return Finding(State.CANCELLED, DELETED)


def _was_stopped(pod: Pod, container: Container, end: ContainerEnd, events: Sequence[ClusterEvent]) -> bool:
    """True if a container was stopped before it ended by itself. The most reliable evidence decides:

    1. the kubelet's event, which the same clock dates as the end;
    2. the order in which the API server showed the end and the deletion, and what the kubelet knew when it reported;
    3. the times of two different clocks. If these leave a doubt, the container did not succeed.
    """
    stopped_s = _stopped_s(container, end, events)
    if stopped_s is not None and end.ended_s is not None and stopped_s < end.ended_s:
        return True
    if container.run in pod.history.ended_by_itself or pod.kubelet_knew_deletion is False:
        return False
    if stopped_s is not None or container.run in pod.history.stopped or pod.kubelet_knew_deletion:
        return True
    asked_s = _asked_to_go_s(pod)
    if asked_s is None:
        return False
    if end.ended_s is None:
        return not end.successful
    doubtful = end.successful or pod.disruption is not None or end.exit_code in KILLED_CODES
    tolerance_s = CLOCK_SKEW_S if doubtful else 0.0
    return end.ended_s >= asked_s - tolerance_s


def _stopped_s(container: Container, end: ContainerEnd, events: Sequence[ClusterEvent]) -> float | None:
    """The time at which the kubelet stopped this run of a container, in whole seconds; None without such an event."""
    started_s = (end.started_s or 0.0) - 1.0  # containerd writes the start down a little late
    ended_s = float("inf") if end.ended_s is None else end.ended_s
    times = []
    for event in events:
        is_about_it = event.field.endswith(f"{{{container.name}}}")
        if is_about_it and is_stop(event) and started_s <= event.first_s <= ended_s:
            times.append(event.first_s)
    return min(times, default=None)


def _asked_to_go_s(pod: Pod) -> float | None:
    """The time at which the pod was first asked to go. An eviction is written down a moment before the deletion."""
    if pod.deletion_requested_s is None or pod.disruption is None or pod.disruption.since_s is None:
        return pod.deletion_requested_s
    return min(pod.deletion_requested_s, pod.disruption.since_s)
