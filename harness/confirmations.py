"""Repeats of suspect runs in a session: which are begun, and what they say of each test.

The rules are those of reporting/gate/confirmation.py and mass_event.py. Everything is derived from the jobs' results,
so a session that is resumed goes on alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.plans import Request, TrialResult
from platforms.job import Role, job_key
from platforms.runner.retries import REFUSED_STATES
from platforms.schedulers import backend_of
from reporting.gate.confirmation import Decision, Place, Repeat, confirmed, first_repeat, unknown
from reporting.gate.mass_event import TestSoFar, decide_together
from reporting.gate.verdict import Suspect, Verdict

if TYPE_CHECKING:
    from harness.judging import Judging
    from harness.trials import Trials
    from platforms.config.schema import Platform
    from reporting.history.envelope import Envelope

BUDGET = "max_device_hours does not allow it"
ENDED = "the session has ended before"


@dataclass(frozen=True)
class _Judged:
    """What the gate has said of an envelope. `unread`: metrics that only the test's body can read."""

    envelope: Envelope
    suspects: Mapping[str, Suspect]
    unread: frozenset[str]


class Confirmations:
    """What is to be repeated in a session. Only the main thread calls it.

    Args:
        platforms: of each test whose runs are confirmed.
        begun_before: the keys of jobs that earlier sessions of the run have begun.
    """

    def __init__(
        self, judging: Judging, trials: Trials, platforms: Mapping[str, Platform], begun_before: Collection[str]
    ) -> None:
        self._judging = judging
        self._trials = trials
        self._platforms = platforms
        self._begun_before = begun_before
        self._judged: dict[str, _Judged] = {}

    def repeats(self, test: str) -> list[Request]:
        """What is to be repeated of a test now."""
        own = self._so_far(test)
        if own is None or not own.suspects:
            return []
        if not own.repeats and self._has_begun_before(test):
            asked = [first_repeat(next(iter(own.suspects.values())), self._place(test))]
        else:
            asked = list(self._decision(test).next)
        return [Request(one.trial, nodes=one.nodes, avoid_nodes=one.avoid_nodes) for one in asked]

    def waits(self, test: str) -> bool:
        """Whether it depends on other tests what is to be repeated of a test, or what repeats say of it."""
        if test not in self._platforms:
            return False
        own = self._so_far(test)
        return own is not None and bool(own.suspects) and self._decision(test).waits

    def confirmed(self, test: str, verdicts: Mapping[str, Verdict]) -> Mapping[str, Verdict]:
        """The verdicts on a test whose jobs have ended, with what repeats say of its suspects."""
        if test not in self._platforms or not any(verdict.suspect for verdict in verdicts.values()):
            return verdicts
        found = self._decision(test).confirmations
        return {
            metric: verdict
            if verdict.suspect is None
            else confirmed(verdict, found.get(metric) or unknown(verdict.suspect, ENDED, ()))
            for metric, verdict in verdicts.items()
        }

    def _decision(self, test: str) -> Decision:
        name = self._platforms[test].name
        tests = {}
        for other, platform in self._platforms.items():
            so_far = self._so_far(other) if platform.name == name else None
            if so_far is not None:
                tests[other] = so_far
        return decide_together(test, tests, self._place(test))

    def _place(self, test: str) -> Place:
        platform = self._platforms[test]
        backend = backend_of(platform)
        return Place(backend.is_one_machine, backend.drain_command)

    def _has_begun_before(self, test: str) -> bool:
        return job_key(test, f"{Role.CONFIRM}-1") in self._begun_before

    def _so_far(self, test: str) -> TestSoFar | None:
        """What is known of a test; None if only its body, which has not run yet, can say whether it is suspect."""
        first, *others = self._trials.results(test)
        if first.envelope is None:
            return TestSoFar(not first.live, {})
        judged = self._judge(test, first.envelope)
        assert first.job is not None
        unread = frozenset() if self._trials.has_passed(test, first.job) else judged.unread
        if unread and not judged.suspects:
            return None
        repeats = [self._repeat(test, result, judged.suspects) for result in others]
        return TestSoFar(True, judged.suspects, repeats)

    def _judge(self, test: str, envelope: Envelope) -> _Judged:
        known = self._judged.get(test)
        if known is None or known.envelope is not envelope:
            suspects = {
                metric: verdict.suspect
                for metric, verdict in self._judging.look(envelope).items()
                if verdict.suspect is not None
            }
            known = _Judged(envelope, suspects, self._judging.metrics_before(envelope) - envelope.metrics.keys())
            self._judged[test] = known
        return known

    def _repeat(self, test: str, result: TrialResult, suspects: Mapping[str, Suspect]) -> Repeat:
        trial, asked, job = result.request.trial, result.request.nodes, result.job
        if job is None:
            return Repeat(trial, asked, failure=BUDGET)
        if result.envelope is not None:
            unread = suspects.keys() - result.envelope.metrics.keys()
            live = bool(unread) and not self._trials.has_passed(test, job)
            return Repeat(trial, asked, result.envelope, live)
        if result.live:
            return Repeat(trial, asked, live=True)
        refused = job.status.state in REFUSED_STATES
        return Repeat(trial, asked, failure=_failure(result), refused=refused)


def _failure(result: TrialResult) -> str:
    """Why a repeat has no numbers."""
    assert result.job is not None
    if result.error is not None:
        return result.error.splitlines()[0]
    if result.job.left is not None:
        return ENDED
    return result.job.status.state.value
