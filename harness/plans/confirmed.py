"""A test is measured once, and repeated if the gate finds its run suspect."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.plans import Conclusion, Request, TrialResult


class Confirmed:
    """The plan of a test that is measured once. Repeats follow only a run that is far from its pin.

    Args:
        repeats: what is to be repeated of a test, by its id (harness/confirmations.py).
    """

    most = 4  # the run, a repeat on other nodes, and two on its own; halves of a set of nodes are more

    def __init__(self, test: str, repeats: Callable[[str], Sequence[Request]]) -> None:
        self._test = test
        self._repeats = repeats

    def first(self) -> Sequence[Request]:
        return [Request()]

    def more(self, results: Sequence[TrialResult]) -> Sequence[Request]:
        return self._repeats(self._test)

    def conclusion(self, results: Sequence[TrialResult]) -> Conclusion | None:
        return None
