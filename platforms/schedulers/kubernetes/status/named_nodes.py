"""Whether a node that a job must have takes no pods: the job would wait until a person puts the node back into service.

The nodes themselves say so where we may see them; elsewhere the job waits until its start limit ends it.
"""

from __future__ import annotations

from platforms.job import State
from platforms.schedulers.kubernetes.objects.node_states import why_out_of_service
from platforms.schedulers.kubernetes.status.observation import JobView
from platforms.schedulers.kubernetes.status.pods import Pod
from platforms.schedulers.kubernetes.status.reasons import Finding

NOT_READY_S = 60.0  # how long a node may be not ready: a kubelet that restarts is back by then


def named_node_problem(job: JobView, pod: Pod) -> Finding | None:
    """Judge a pod without a node that may run on certain nodes only; None for any other pod, and if they take pods."""
    if not pod.named_nodes or pod.node or pod.ended or pod.gone:
        return None
    taken = {other.node for other in job.pods if other is not pod}  # a node that is cordoned later keeps its pods
    needed = [name for name in pod.named_nodes if name not in taken]
    if not job.observation.nodes:
        return None
    why, passes = why_out_of_service(needed, job.observation.nodes)
    if not why:
        return None
    return Finding(
        State.NEVER_ADMISSIBLE,
        why,
        patience_s=NOT_READY_S if passes else 0.0,
        meanwhile=State.QUEUED,
        timer="named nodes",
    )
