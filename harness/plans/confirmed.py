"""A test is measured once, and repeated if the gate finds its run suspect."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.plans import Conclusion, TrialRequest, TrialResult


class Confirmed:
    """The plan of a test that is measured once. Repeats follow only a run that is far from its pin.

    Args:
        repeats: what is to be repeated of a test, by its id (harness/confirmations.py).
        has_one_node: the platform has no other node for repeats.
    """

    def __init__(self, test: str, repeats: Callable[[str], Sequence[TrialRequest]], *, has_one_node: bool) -> None:
        # The run and a repeat of it; elsewhere two on its own nodes, too. Halves of a set of nodes are more.
        self.most = 2 if has_one_node else 4
        self._test = test
        self._repeats = repeats

    def first(self) -> Sequence[TrialRequest]:
        return [TrialRequest()]

    def more(self, results: Sequence[TrialResult]) -> Sequence[TrialRequest]:
        return self._repeats(self._test)

    def conclusion(self, results: Sequence[TrialResult]) -> Conclusion | None:
        return None
