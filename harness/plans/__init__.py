"""What a plan is: it decides which jobs a test begins, one after the other, and what they say together.

A test that is measured once has the plan in once.py. Plans decide with the pure functions of reporting/. They keep no
state of their own, so that a resumed session, which reads the results of earlier jobs again, asks for the same jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from platforms.job import ONLY, Trial

if TYPE_CHECKING:
    from platforms.runner import Job
    from reporting.history.envelope import Envelope


@dataclass(frozen=True)
class TrialRequest:
    """A job that a plan asks for.

    Attributes:
        trial: which of the test's jobs it is. No other request of the test has the same.
        nodes: the ones that it must run on; () leaves the choice to the scheduler.
        avoid_nodes: the ones that it must not run on.
        stack: one of the platform's `stacks:`; None for the platform as it is.
        group: of the nodes in an upgrade, `treated` or `control`.
    """

    trial: Trial = ONLY
    nodes: tuple[str, ...] = ()
    avoid_nodes: tuple[str, ...] = ()
    stack: str | None = None
    group: str | None = None


@dataclass(frozen=True)
class TrialResult:
    """One of a test's jobs.

    Attributes:
        job: its last attempt; None if `max_device_hours` does not allow it.
        envelope: of a job that has measured well; None while it is live, or if it has failed. What the test's body
            reads from the log is in it only once the body has run.
        error: what the test's body says against a job that has ended well.
    """

    request: TrialRequest
    job: Job | None
    envelope: Envelope | None = None
    error: str | None = None

    @property
    def live(self) -> bool:
        """The job has not ended, and the session still waits for it."""
        return self.job is not None and not self.job.done and self.job.left is None


@dataclass(frozen=True)
class Conclusion:
    """What a test's jobs say together.

    Attributes:
        text: sentences.
        short: a line for tables and for pytest's summary.
        fails: the test fails.
    """

    text: str
    short: str
    fails: bool = False


class Plan(Protocol):
    """Decides which jobs a test begins. The engine (harness/trials.py) calls it on the main thread."""

    most: int
    """How many jobs the test may have at most, for the line on costs."""

    def first(self) -> Sequence[TrialRequest]:
        """The jobs that begin before the first test waits; at least one."""
        ...

    def more(self, results: Sequence[TrialResult]) -> Sequence[TrialRequest]:
        """The jobs that begin now.

        Args:
            results: of all jobs so far, in the order in which they were begun. One of them has just ended, or the
                test's body has just read its numbers.
        """
        ...

    def conclusion(self, results: Sequence[TrialResult]) -> Conclusion | None:
        """What the jobs say together once none is live; None if each speaks for itself."""
        ...
