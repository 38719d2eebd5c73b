"""`--check PLATFORM --nodes LIST`: a user asks whether nodes are as fast as the others of their platform."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from harness.plans import Conclusion, TrialResult
from harness.plans.each_node import EachNode, failure
from platforms.job import Role
from reporting.fleet.node_runs import NodeJob
from reporting.fleet.sentences import check_answer


class Check(EachNode):
    """The plan of the test that checks nodes. Its jobs are like visits, and it speaks to a user.

    Args:
        nodes: that are checked; each once more if it was slow.
        past: the jobs of the test in the centre's history.
        night_ends: the hour at which the site's nights end.
    """

    role = Role.CHECK

    def __init__(self, nodes: Sequence[str], past: Sequence[NodeJob], night_ends: datetime.time) -> None:
        super().__init__(nodes, past, night_ends, lambda node, reason: None)

    def conclusion(self, results: Sequence[TrialResult]) -> Conclusion | None:
        if any(result.job is not None and result.job.left is not None for result in results):
            return None
        lines = []
        fails = False
        for node in self._nodes:
            of_node = [result for result in results if result.request.trial.node == node]
            own = [result.envelope for result in of_node if result.envelope is not None]
            if not own:
                lines.append(f"{node} {failure(of_node[-1])}")
                fails = True
                continue
            answer = check_answer(node, own, self._past, self._night_ends)
            lines.append(answer.text)
            fails = fails or answer.as_fast is False
        return Conclusion("\n".join(lines), "; ".join(lines), fails)
