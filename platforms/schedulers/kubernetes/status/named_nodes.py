"""Whether a node that a job must have takes no pods: the job would wait until a person puts the node back into service.

The nodes themselves say so where we may see them. Elsewhere the scheduler's message about the pod does, as far as it
can be told which nodes it speaks of.
"""

from __future__ import annotations

import re

from platforms.job import State
from platforms.schedulers.kubernetes.objects.node_states import why_out_of_service
from platforms.schedulers.kubernetes.status.observation import JobView
from platforms.schedulers.kubernetes.status.pods import Pod
from platforms.schedulers.kubernetes.status.reasons import Finding

NOT_READY_S = 60.0  # how long a node may be not ready: a kubelet that restarts is back by then
_OTHER_NODE = r"didn't (?:match (?:Pod's )?node (?:affinity|selector)|satisfy plugin\(s\) \[NodeAffinity\])"
_NOT_READY_TAINT = r"had untolerated taint \{node\.kubernetes\.io/(?:not-ready|unreachable)"


def named_node_problem(job: JobView, pod: Pod) -> Finding | None:
    """Judge a pod without a node that may run on certain nodes only; None for any other pod, and if they take pods."""
    if not pod.named_nodes or pod.node or pod.ended or pod.gone:
        return None
    taken = {other.node for other in job.pods if other is not pod}  # a node that is cordoned later keeps its pods
    needed = [name for name in pod.named_nodes if name not in taken]
    nodes = job.observation.nodes
    if not nodes:
        return _by_message(pod, needed)
    why, passes = why_out_of_service(needed, nodes)
    if not why:
        return None
    return Finding(
        State.NEVER_ADMISSIBLE,
        why,
        patience_s=NOT_READY_S if passes else 0.0,
        meanwhile=State.QUEUED,
        timer="named nodes",
    )


def _by_message(pod: Pod, needed: list[str]) -> Finding | None:
    """Read the scheduler's message, which counts nodes by reason and names none."""
    scheduled = pod.conditions.get("PodScheduled")
    message = scheduled.message if scheduled is not None else ""
    total = re.match(r"0/(\d+) nodes are available", message)
    if total is None:
        return None
    about_nodes = message.partition("preemption:")[0]

    def count(pattern: str) -> int:
        return sum(int(number) for number in re.findall(rf"(\d+) node\(s\) {pattern}", about_nodes))

    ours = int(total[1]) - count(_OTHER_NODE)
    names = ", ".join(needed)
    if ours <= 0:
        why = f"the cluster has no node {names} that fits (its nodes: kubectl get nodes): {message}"
        return Finding(State.NEVER_ADMISSIBLE, why)
    if ours > len(pod.named_nodes):
        return None  # it also speaks of nodes that the pod does not need
    if count(r"were unschedulable"):
        why = f"a node of {names} is cordoned (choose another node, or type: kubectl uncordon NODE): {message}"
        return Finding(State.NEVER_ADMISSIBLE, why)
    if count(_NOT_READY_TAINT):
        why = f"a node of {names} is not ready (look with: kubectl describe node NODE): {message}"
        return Finding(State.NEVER_ADMISSIBLE, why, patience_s=NOT_READY_S, meanwhile=State.QUEUED, timer="named nodes")
    return None
