"""A test is measured once."""

from __future__ import annotations

from collections.abc import Sequence

from harness.plans import Conclusion, TrialRequest, TrialResult


class Once:
    """The plan of a test that is measured once.

    Args:
        nodes: the ones that it must run on; () leaves the choice to the scheduler.
    """

    most = 1

    def __init__(self, nodes: tuple[str, ...] = ()) -> None:
        self._nodes = nodes

    def first(self) -> Sequence[TrialRequest]:
        return [TrialRequest(nodes=self._nodes)]

    def more(self, results: Sequence[TrialResult]) -> Sequence[TrialRequest]:
        return []

    def conclusion(self, results: Sequence[TrialResult]) -> Conclusion | None:
        return None
