"""Why a pod that has not ended waits, or what is wrong with it while it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from platforms.job import State
from platforms.schedulers.kubernetes.objects.capacity import amounts
from platforms.schedulers.kubernetes.objects.fields import Object, conditions, mapping
from platforms.schedulers.kubernetes.status import reasons
from platforms.schedulers.kubernetes.status.events import ClusterEvent, about
from platforms.schedulers.kubernetes.status.exits import by_exit, disrupted
from platforms.schedulers.kubernetes.status.pods import Container, Pod, prefix, pull_error, waiting_explanation
from platforms.schedulers.kubernetes.status.reasons import Finding, find_rule, reason_and_message

OTHER_CONTAINERS_S = 30.0  # how long a pod may go on after one of its containers has failed
DELETION_S = 90.0  # how long the deletion of a pod may take beyond its grace period
_CREATION_EVENTS = re.compile(
    r"Failed(Mount|MapVolume|AttachVolume|CreatePodSandBox)|Pull(ing|ed)|Created|Started",
)


def why_waiting(
    pod: Pod,
    events: Sequence[ClusterEvent],
    nodes: Mapping[str, Object],
    *,
    retries: bool,
    why_deleted: Finding | None = None,
) -> Finding:
    """Say what a pod that has not ended waits for, or what is wrong with it.

    If nothing is wrong: RUNNING without a reason, or STARTING with what is being created.

    `retries`: its controller restarts what fails, so that a crash is not the end. `why_deleted`: why its controller
    deletes it, if it does.
    """
    own_events = about(events, pod.uid)
    found = (
        _being_deleted(pod, why_deleted)
        or _without_node(pod, own_events, nodes)
        or _container_problem(pod, own_events, retries)
        or _node_problem(pod, nodes, own_events)
    )
    if found is not None:
        return found
    if pod.has_run:
        return Finding(State.RUNNING)
    return _being_created(pod, own_events)


def _being_deleted(pod: Pod, why_deleted: Finding | None) -> Finding | None:
    meanwhile = State.RUNNING if pod.has_run else State.STARTING
    patience_s = pod.grace_s + DELETION_S
    disruption = disrupted(pod)
    if disruption is not None:
        return disruption.with_patience(max(patience_s, reasons.NODE_S), meanwhile, "disruption")
    if pod.deletion_requested_s is None:
        return None
    why = why_deleted or Finding(State.CANCELLED, "another user or program is deleting it")
    return why.with_patience(patience_s, meanwhile, "deletion")


# --- a pod without a node --------------------------------------------------------------------------------------------


def _without_node(pod: Pod, events: Sequence[ClusterEvent], nodes: Mapping[str, Object]) -> Finding | None:
    scheduled = pod.conditions.get("PodScheduled")
    if pod.node or pod.has_run or any(container.waiting_reason for container in pod.containers):
        return None
    if scheduled is not None and scheduled.true:
        return None
    if pod.scheduling_gates:
        return Finding(State.QUEUED, f"held back by {', '.join(pod.scheduling_gates)}")
    if scheduled is None:
        return Finding(State.QUEUED, "no node has been chosen yet")
    rule = find_rule(reasons.UNSCHEDULABLE, scheduled.reason, scheduled.message)
    if rule is not None:
        return rule.finding(scheduled.message)
    waiting = Finding(State.QUEUED, scheduled.message or scheduled.reason)
    if any(event.reason == "TriggeredScaleUp" for event in events):
        return waiting  # an autoscaler is adding a node
    return _fits_no_node(scheduled.message) or _too_large(pod, scheduled.message, nodes) or waiting


def _fits_no_node(message: str) -> Finding | None:
    """Read whether each single node is unfit for a reason that waiting does not change.

    Such reasons are the labels of a node, a volume that lies elsewhere, and that the node is part of the control plane.
    Since 2025 the message does not say which taint a node has (kubernetes#134740): that of a control plane, or that of
    a node that comes back.
    """
    total = re.match(r"0/(\d+) nodes are available", message)
    if total is None:
        return None
    about_nodes = message.partition("preemption:")[0]

    def count(pattern: str) -> int:
        return sum(int(number) for number in re.findall(rf"(\d+) node\(s\) {pattern}", about_nodes))

    wrong_labels = count(r"didn't match (?:Pod's )?node (?:affinity|selector)")
    wrong_volumes = count(r"(?:had volume node affinity conflict|didn't find available persistent volumes)")
    control_plane = count(r"had (?:untolerated )?taints? \{node-role\.kubernetes\.io/")
    tainted = count(r"had untolerated taint\(s\)")
    if wrong_labels + wrong_volumes == 0:
        return None
    if wrong_labels + wrong_volumes + control_plane + tainted < int(total[1]):
        return None
    state = State.VOLUME if wrong_volumes else State.NEVER_ADMISSIBLE
    patience_s = reasons.TAINTED_S if tainted else reasons.NEVER_S
    return Finding(state, message, patience_s=patience_s, meanwhile=State.QUEUED)


def _too_large(pod: Pod, message: str, nodes: Mapping[str, Object]) -> Finding | None:
    """Find a resource of which the pod requests more than any visible node has."""
    allocatable = [amounts(mapping(node, "status", "allocatable")) for node in nodes.values()]
    if not allocatable:
        return None
    for resource, wanted in pod.requests.items():
        most = max(node.get(resource, 0.0) for node in allocatable)
        if f"Insufficient {resource}" in message and most < wanted:
            largest = f"it requests {wanted:g} {resource}, and the largest node has {most:g}"
            why = f"no node is large enough: {largest}: {message}"
            return Finding(State.NEVER_ADMISSIBLE, why, patience_s=reasons.NEVER_S, meanwhile=State.QUEUED)
    return None


# --- a pod on a node -------------------------------------------------------------------------------------------------


def _container_problem(pod: Pod, events: Sequence[ClusterEvent], retries: bool) -> Finding | None:
    """The first container that cannot start, is restarted again and again, or has failed while others go on."""
    for container in pod.containers:
        if container.waiting_reason == "CrashLoopBackOff":
            return _crash_loop(pod, container, retries)
        if container.waiting_reason:
            # The name of the image must not be mistaken for a part of the error.
            message = pull_error(container, events).replace(container.image, "")
            rule = find_rule(reasons.WAITING, container.waiting_reason, message)
            if rule is not None:
                return rule.finding(prefix(pod, container) + waiting_explanation(container, events))
        end = container.end
        if pod.never_restarts and not container.role and end is not None and not end.successful:
            return by_exit(pod, container, end).with_patience(OTHER_CONTAINERS_S, State.RUNNING, "container")
    return None


def _crash_loop(pod: Pod, container: Container, retries: bool) -> Finding:
    times = "1 time" if container.restarts == 1 else f"{container.restarts} times"
    if container.previous_end is None:
        why = container.waiting_message or container.waiting_reason
        return Finding(State.EXITED, f"{prefix(pod, container)}{why}, restarted {times}")
    crash = by_exit(pod, container, container.previous_end)
    if crash.state is State.SUCCEEDED:
        cure = "a job's pods need `restartPolicy: Never`"
        return Finding(State.EXITED, f"{prefix(pod, container)}ended well, and is restarted {times}: {cure}")
    reason = f"{crash.reason}, restarted {times}"
    if retries:
        return Finding(State.RUNNING, reason)
    return replace(crash, reason=reason)


def _node_problem(pod: Pod, nodes: Mapping[str, Object], events: Sequence[ClusterEvent]) -> Finding | None:
    """Judge a pod that runs on a node that does not report any more; None for any other pod."""
    node_ready = conditions(nodes.get(pod.node, {})).get("Ready")
    if node_ready is None:  # we may not see nodes; an event says the same
        silent = not pod.ready and any(event.reason == "NodeNotReady" for event in events)
        why = "Node is not ready"
    else:
        silent = not node_ready.true
        why = reason_and_message(node_ready.reason, node_ready.message)
    if not silent or not pod.running:
        return None
    lost = Finding(State.NODE_LOST, f"node {pod.node}: {why}")
    return lost.with_patience(reasons.NODE_S, State.UNKNOWN, "node")


def _being_created(pod: Pod, events: Sequence[ClusterEvent]) -> Finding:
    """Say what a pod that has a node waits for before its main containers run."""
    creation = [event for event in events if _CREATION_EVENTS.match(event.reason)]
    if creation:
        latest = creation[-1]
        rule = find_rule(reasons.MOUNTS, latest.reason, latest.message)
        if rule is not None:
            return rule.finding(f"{latest.reason}: {latest.message}")
    for container in pod.containers:
        if container.role == "init" and container.running:
            return Finding(State.STARTING, f"{container.title} runs")
    for container in pod.containers:
        if container.waiting_reason:
            why = reason_and_message(container.waiting_reason, container.waiting_message)
            return Finding(State.STARTING, why)
    return Finding(State.STARTING, f"on {pod.node}" if pod.node else "")
