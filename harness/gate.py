"""Loads the gate when a session has a number to judge: it takes 40 ms, and many jobs only have to end well."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.plans import TrialRequest

if TYPE_CHECKING:
    from harness.confirmations import Confirmations
    from harness.trials import Trials


class Gate:
    """The gate of a session, and the repeats that it asks for. Only the main thread calls it.

    While no job of the session has a number, no test is suspect, so there is nothing to repeat or to wait for.

    Args:
        make: loads it.

    Attributes:
        loaded: None until it is needed.
    """

    def __init__(self, make: Callable[[], Confirmations], trials: Trials) -> None:
        self.loaded: Confirmations | None = None
        self._make = make
        self._trials = trials
        self._asked: dict[str, None] = {}  # tests with a job that has ended without a number

    def load(self) -> Confirmations:
        if self.loaded is None:
            self.loaded = self._make()
            for test in self._asked:
                self.loaded.note(test)
        return self.loaded

    def repeats(self, test: str) -> list[TrialRequest]:
        """As those of Confirmations."""
        if self.loaded is None and not self._has_number(test):
            self._asked[test] = None
            return []
        return self.load().repeats(test)

    def waits(self, test: str) -> bool:
        """As that of Confirmations."""
        return self.loaded is not None and self.loaded.waits(test)

    def released(self) -> list[str]:
        """As those of Confirmations."""
        return [] if self.loaded is None else self.loaded.released()

    def _has_number(self, test: str) -> bool:
        envelopes = (result.envelope for result in self._trials.results(test))
        return any(envelope.metrics for envelope in envelopes if envelope is not None)
