"""`--each-node WHICH`: a test runs once on each node, and once more on a node that turns out to be slow."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence

from harness.plans import Conclusion, TrialRequest, TrialResult
from platforms.job import Role, State, Status, Trial
from platforms.runner.live_job import Job
from reporting.fleet.node_runs import NODES_OF_A_NIGHT, NodeJob, node_jobs, node_runs
from reporting.fleet.nodes import NodeRecord, Standing, records_of
from reporting.fleet.sentences import NodeVisit, go_no_go

SECOND = 2  # the number of a second visit
LOOKS = 20  # at the visits so far, in a session
REASON_LENGTH = 200  # of a job's reason, in characters
REFUSED = frozenset({State.SUBMIT_REFUSED, State.REQUEST_REFUSED})
"""The scheduler did not take the job, for instance because it has no such node."""
NOT_THE_NODES_FAULT = frozenset(
    {
        State.NEVER_ADMISSIBLE,
        State.START_DEADLINE,
        State.PREEMPTED,
        State.CANCELLED,
        State.LOST,
        State.CONTROLLER_AWAY,
    }
)
"""The node is out of service already, others use it, or a person or the scheduler has ended the job."""


class EachNode:
    """The plan of a test that visits nodes.

    Args:
        nodes: in the order in which they are visited.
        past: the jobs of the test in the history.
        night_ends: the hour at which the site's nights end.
        drain_command: writes the command that takes a node out of service, from the node and the reason.
    """

    role = Role.VISIT

    def __init__(
        self,
        nodes: Sequence[str],
        past: Sequence[NodeJob],
        night_ends: datetime.time,
        drain_command: Callable[[str, str], str | None],
    ) -> None:
        self._nodes = nodes
        self._past = past
        self._night_ends = night_ends
        self._drain_command = drain_command
        self.most = 2 * len(nodes)

    def first(self) -> Sequence[TrialRequest]:
        return [TrialRequest(Trial(self.role, node=node), nodes=(node,)) for node in self._nodes]

    def more(self, results: Sequence[TrialResult]) -> Sequence[TrialRequest]:
        """Second visits of the nodes whose first one was slow, the slowest first.

        They wait until five other nodes have been measured, which are the level of this night. Between two looks a
        twentieth of the visits ends, because each look compares all runs of the history.
        """
        begun_again = {_node(result) for result in results if result.request.trial.repeat == SECOND}
        firsts = [result for result in results if result.request.trial.repeat is None]
        measured = [result for result in firsts if result.envelope is not None]
        is_going_on = any(result.live for result in firsts)
        is_look = len(measured) % max(1, len(self._nodes) // LOOKS) == 0
        if is_going_on and (len(measured) <= NODES_OF_A_NIGHT or not is_look):
            return []
        records = self._records(results)
        suspects = [records[node] for node in map(_node, measured) if records[node].standing is Standing.SUSPECT]
        suspects = [record for record in suspects if record.name not in begun_again]
        suspects.sort(key=lambda record: record.slow_streak[-1].change or 0.0)
        return [
            TrialRequest(Trial(self.role, node=record.name, repeat=SECOND), nodes=(record.name,)) for record in suspects
        ]

    def conclusion(self, results: Sequence[TrialResult]) -> Conclusion | None:
        if any(result.job is not None and result.job.left is not None for result in results):
            return None  # some visits go on without this session
        visits = [_visit(result) for result in results]
        records = self._records(results)
        said = go_no_go(visits, records, self._drain_command)
        return Conclusion(said.text, said.short, fails=not said.fits)

    def _records(self, results: Sequence[TrialResult]) -> Mapping[str, NodeRecord]:
        """What the test says of each node, with the visits of this session. Other tests have plans of their own."""
        own = node_jobs(result.envelope for result in results if result.envelope is not None)
        return records_of(node_runs([*self._past, *own], self._night_ends), self._nodes)


def failure(result: TrialResult) -> str:
    """Why a job measured nothing; "" if it measured, or is still under way."""
    if result.envelope is not None or result.live:
        return ""
    if result.job is None:
        return "was not visited: max_device_hours"
    if result.error is not None:
        return f"failed: {result.error.splitlines()[0]}"
    status = _last_status(result.job)
    verb = "did not start" if status.started_s is None else "failed"
    reason = next(iter(status.reason.splitlines()), "")[:REASON_LENGTH]
    return f"{verb}: {status.state.value}" + (f": {reason}" if reason else "")


def _visit(result: TrialResult) -> NodeVisit:
    if result.job is None:
        return NodeVisit(_node(result), failure(result), reached=False)
    state = _last_status(result.job).state
    is_fault = state not in NOT_THE_NODES_FAULT
    return NodeVisit(_node(result), failure(result), reached=state not in REFUSED, drainable=is_fault)


def _last_status(job: Job) -> Status:
    return job.status if job.error is None else job.error.status


def _node(result: TrialResult) -> str:
    return str(result.request.trial.node)
