"""What a pod says of its job while it waits or runs."""

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
from platforms.schedulers.kubernetes.status.pods import Container, Pod
from platforms.schedulers.kubernetes.status.reasons import Finding, find, finding, patiently
from platforms.schedulers.kubernetes.status.wording import called, cause, words

OTHERS_S = 30.0  # how long a pod may go on after one of its containers has failed
DELETED_S = 90.0  # how long a pod that is being deleted may take, beyond the time that it is given
_CREATING = re.compile(r"Failed(Mount|MapVolume|AttachVolume|CreatePodSandBox)|Pull(ing|ed)|Created|Started")


def look(
    pod: Pod,
    events: Sequence[ClusterEvent],
    nodes: Mapping[str, Object],
    *,
    retries: bool,
    deletion: Finding | None = None,
) -> Finding:
    """A pod that has not ended. `retries`: its kind restarts what fails, so that a crash is not the end. `deletion`:
    why its kind deletes it, if it does."""
    mine = about(events, pod.uid)
    return (
        _leaving(pod, deletion)
        or _unscheduled(pod, mine, nodes)
        or _container_trouble(pod, mine, retries)
        or _node_trouble(pod, nodes, mine)
        or (Finding(State.RUNNING) if pod.ran else _creating(pod, mine))
    )


def _leaving(pod: Pod, deletion: Finding | None) -> Finding | None:
    """Something else than itself is ending it."""
    meanwhile = State.RUNNING if pod.ran else State.STARTING
    patience_s = pod.grace_s + DELETED_S
    if (found := disrupted(pod)) is not None:
        return patiently(found, max(patience_s, reasons.NODE_S), meanwhile, "disruption")
    if pod.deleted_s is None:
        return None
    why = deletion or Finding(State.CANCELLED, "somebody else is deleting it")
    return patiently(why, patience_s, meanwhile, "deletion")


def _unscheduled(pod: Pod, events: Sequence[ClusterEvent], nodes: Mapping[str, Object]) -> Finding | None:
    """It has no node yet."""
    said = pod.conditions.get("PodScheduled")
    if pod.node or pod.ran or (said is not None and said.true) or any(each.waiting for each in pod.containers):
        return None
    if pod.gates:
        return Finding(State.QUEUED, f"held back by {', '.join(pod.gates)}")
    if said is None:
        return Finding(State.QUEUED, "no node has been chosen yet")
    rule = find(reasons.UNSCHEDULABLE, said.reason, said.message)
    if rule is not None:
        return finding(rule, said.message)
    growing = any(event.reason == "TriggeredScaleUp" for event in events)
    found = None if growing else _no_node_ever(said.message) or _too_large(pod, said.message, nodes)
    return found or Finding(State.QUEUED, said.message or said.reason)


def _too_large(pod: Pod, message: str, nodes: Mapping[str, Object]) -> Finding | None:
    """It asks for more of something than any node has, as far as nodes are ours to see."""
    have = [amounts(mapping(each, "status", "allocatable")) for each in nodes.values()]
    for name, wanted in pod.requests.items():
        most = max((each.get(name, 0.0) for each in have), default=wanted)
        if f"Insufficient {name}" in message and most < wanted:
            why = f"no node is large enough: {name}: {wanted:g} asked for, and at most {most:g} there: {message}"
            return Finding(State.NEVER_ADMISSIBLE, why, patience_s=reasons.NEVER_S, meanwhile=State.QUEUED)
    return None


def _no_node_ever(message: str) -> Finding | None:
    """What it is when each single node is unfit for a reason that waiting does not change: its labels, a volume that is
    elsewhere, or that it is part of the control plane. Which taint it has is not told any more (kubernetes#134740, of
    2025): that of a control plane, or of a node that comes back."""
    total = re.match(r"0/(\d+) nodes are available", message)
    said = message.partition("preemption:")[0]

    def nodes(pattern: str) -> int:
        return sum(int(count) for count in re.findall(rf"(\d+) node\(s\) {pattern}", said))

    labels = nodes(r"didn't match (?:Pod's )?node (?:affinity|selector)")
    volumes = nodes(r"(?:had volume node affinity conflict|didn't find available persistent volumes)")
    control = nodes(r"had (?:untolerated )?taints? \{node-role\.kubernetes\.io/")
    tainted = nodes(r"had untolerated taint\(s\)")
    if not total or labels + volumes == 0 or labels + volumes + control + tainted < int(total[1]):
        return None
    state = State.VOLUME if volumes else State.NEVER_ADMISSIBLE
    patience_s = reasons.TAINTED_S if tainted else reasons.NEVER_S
    return Finding(state, message, patience_s=patience_s, meanwhile=State.QUEUED)


def _container_trouble(pod: Pod, events: Sequence[ClusterEvent], retries: bool) -> Finding | None:
    """The first container that cannot start, is started again and again, or has failed beside others that go on."""
    for container in pod.containers:
        if container.waiting == "CrashLoopBackOff":
            return _crashing(pod, container, retries)
        rule = find(reasons.WAITING, container.waiting, cause(container, events).replace(container.image, ""))
        if container.waiting and rule is not None:
            return finding(rule, called(pod, container) + words(container, events))
        end = container.end
        if pod.once and not container.role and end is not None and not end.good:
            return patiently(by_exit(pod, container, end), OTHERS_S, State.RUNNING, "container")
    return None


def _crashing(pod: Pod, container: Container, retries: bool) -> Finding:
    times = f"restarted {container.restarts} time{'s' if container.restarts != 1 else ''}"
    if container.last is None:
        return Finding(State.EXITED, f"{called(pod, container)}{container.message or container.waiting}, {times}")
    found = by_exit(pod, container, container.last)
    if found.state is State.SUCCEEDED:
        cure = "a job's pods need `restartPolicy: Never`"
        return Finding(State.EXITED, f"{called(pod, container)}ended well, and is {times}: {cure}")
    found = replace(found, reason=f"{found.reason}, {times}")
    return Finding(State.RUNNING, found.reason) if retries else found


def _node_trouble(pod: Pod, nodes: Mapping[str, Object], events: Sequence[ClusterEvent]) -> Finding | None:
    """Its node says nothing any more. Where nodes are not ours to see, an event tells."""
    said = conditions(nodes.get(pod.node, {})).get("Ready")
    silent = (
        any(event.reason == "NodeNotReady" for event in events) and not pod.ready if said is None else not said.true
    )
    if not silent or not any(each.running for each in pod.main):
        return None
    why = ": ".join(filter(None, (said.reason, said.message))) if said else "Node is not ready"
    lost = Finding(State.NODE_LOST, f"node {pod.node}: {why}")
    return patiently(lost, reasons.NODE_S, State.UNKNOWN, "node")


def _creating(pod: Pod, events: Sequence[ClusterEvent]) -> Finding:
    """It has a node, and nothing of it has run yet."""
    last = next((event for event in reversed(events) if _CREATING.match(event.reason)), None)
    rule = find(reasons.MOUNTS, last.reason, last.message) if last else None
    if rule is not None and last is not None:
        return finding(rule, f"{last.reason}: {last.message}")
    before = next((each for each in pod.containers if each.role == "init" and each.running), None)
    if before is not None:
        return Finding(State.STARTING, f"{before.called} runs")
    waiting = next((each for each in pod.containers if each.waiting), None)
    if waiting is None:
        return Finding(State.STARTING, f"on {pod.node}" if pod.node else "")
    return Finding(State.STARTING, ": ".join(filter(None, (waiting.waiting, waiting.message))))
