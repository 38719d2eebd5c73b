"""Which job is begun again after a machine failure, and under which name. Called by runner.py and finalizer.py."""

from __future__ import annotations

from dataclasses import replace

from platforms.job import RETRIED, UNFIT, JobSpec, State, Status, job_name
from platforms.rundir.session_history import FIRST, Attempt
from platforms.runner.live_job import Job

# The states of a job that was refused before it cost anything: perhaps it avoids more nodes than there are.
REFUSED_STATES = (State.SUBMIT_REFUSED, State.NEVER_ADMISSIBLE)


def spec_of_attempt(spec: JobSpec, run_id: str, attempt: Attempt, before: Attempt = FIRST) -> JobSpec:
    """The spec of an attempt. From the second on it has its own name: the scheduler may still know the first job.

    Args:
        spec: of the first attempt, or of the attempt `before`, whose nodes to avoid are then in it.
    """
    asked = [node for node in spec.avoid_nodes if node not in before.avoid]
    spec = replace(spec, avoid_nodes=tuple(dict.fromkeys((*asked, *attempt.avoid))))
    if attempt.number == 1:
        return spec
    key = job_name("", spec.layout, run_id, spec.key, attempt.number).rpartition("-")[2]
    label = spec.name.rpartition("-")[0]
    return replace(spec, name=f"{label}-{key}")


def next_attempt(job: Job, status: Status) -> Attempt | None:
    """The attempt that follows a job which ended with this status; None when it is not begun again.

    A job that the machine failed is begun again on other nodes, up to `retries:` of its platform. One that must run on
    certain nodes stays there. One that was refused while it avoided nodes may take any node. One that a killed session
    cancelled is begun again as it was.
    """
    attempt = job.attempt
    number = attempt.number + 1
    if status.state in REFUSED_STATES and attempt.avoid:
        return Attempt(number, attempt.earlier)
    if status.state is State.CANCELLED and attempt.ending:
        return Attempt(number, attempt.earlier, attempt.avoid)
    if status.state not in RETRIED or len(attempt.earlier) >= job.platform.retries:
        return None
    nodes = status.failed_nodes or status.nodes
    where = f" on {', '.join(nodes)}" if nodes else ""
    how_it_ended = f"attempt {attempt.number} ended as {status.state.value}{where}"
    if status.reason.startswith(UNFIT):
        how_it_ended += f", {status.reason}"  # so that the run that passes names the unfit nodes
    avoid = attempt.avoid
    if status.state is not State.PREEMPTED and not job.spec.nodes:
        avoid = (*avoid, *nodes)
    return Attempt(number, (*attempt.earlier, how_it_ended), avoid)
