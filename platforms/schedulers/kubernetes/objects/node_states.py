"""Which nodes a pod must have, what state a node is in, and why it takes no pods: read from objects."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from platforms.schedulers import NodeState
from platforms.schedulers.kubernetes.objects.fields import Object, conditions, dig, items, text, timestamp_s

NODE_NAME = "metadata.name"  # the field of a node by which affinity names it, as `kubectl get nodes` prints it
_CORDONED = "node.kubernetes.io/unschedulable"


def named_nodes(pod: Object) -> tuple[str, ...]:
    """The names of the only nodes on which a pod may run; () if it may also run on others."""
    affinity = dig(pod, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    names: dict[str, None] = {}
    for term in items(affinity, "nodeSelectorTerms"):
        fields = [field for field in items(term, "matchFields") if text(field, "key") == NODE_NAME]
        if not fields or fields[0].get("operator") != "In":
            return ()
        names.update(dict.fromkeys(str(value) for value in fields[0].get("values") or ()))
    return tuple(names)


def state_of(node: Object) -> NodeState:
    """The node's state. A node does not say which pods it has, so that every node that takes pods is idle."""
    name = text(node, "metadata", "name")
    if dig(node, "spec", "unschedulable"):
        cordoned = [taint for taint in items(node, "spec", "taints") if text(taint, "key") == _CORDONED]
        since_s = timestamp_s(cordoned[0], "timeAdded") if cordoned else None
        return NodeState(name, "drained", f"cordoned{_since(since_s)}")
    ready = conditions(node).get("Ready")
    if ready is None or not ready.true:
        why = ": ".join(part for part in (ready.reason, ready.message) if part) if ready else "it reports no condition"
        return NodeState(name, "down", f"not ready{_since(ready.since_s if ready else None)}: {why}")
    return NodeState(name, "idle")


def why_out_of_service(names: Collection[str], nodes: Mapping[str, Object]) -> tuple[str, bool]:
    """Why a job that needs all of these nodes cannot start until a person acts, and what to type.

    Args:
        names: of the nodes.
        nodes: all nodes of the cluster, by name.

    Returns:
        The sentence, "" if the nodes take pods; and whether it may pass by itself, as when a node boots.
    """
    problems = []
    passes = True
    for name in names:
        if name not in nodes:
            passes = False
            problems.append(f"the cluster has no node {name} (its nodes: kubectl get nodes)")
            continue
        node = state_of(nodes[name])
        if node.state == "drained":
            passes = False
            problems.append(f"node {name} is {node.reason} (choose another node, or type: kubectl uncordon {name})")
        elif node.state == "down":
            problems.append(f"node {name} is {node.reason} (look with: kubectl describe node {name})")
    return "; ".join(problems), passes


def _since(unix_s: float | None) -> str:
    if unix_s is None:
        return ""
    return f" since {time.strftime('%Y-%m-%d %H:%M', time.localtime(unix_s))}"
