"""Repeats of suspect runs in a session: which are begun, and what they say of each test.

The rules are those of reporting/gate/confirmation.py and mass_event.py. Everything is derived from the jobs' results,
so a session that is resumed goes on alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.plans import TrialRequest, TrialResult
from platforms.job import job_key
from platforms.runner.retries import REFUSED_STATES
from platforms.schedulers import backend_of
from reporting.gate.confirmation import FIRST, NextSteps, Place, Repeat, confirmed, first_repeat, unknown
from reporting.gate.mass_event import PlatformSoFar, TestSoFar, decide_together, platform_so_far, sentence
from reporting.gate.verdict import Suspect, Verdict
from reporting.phrases import percent

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
        begun_jobs: the keys of jobs that earlier sessions of the run have begun.
        say: shows a line in the terminal.

    Attributes:
        judging: the gate.
    """

    def __init__(
        self,
        judging: Judging,
        trials: Trials,
        platforms: Mapping[str, Platform],
        begun_jobs: Collection[str],
        say: Callable[[str], None],
    ) -> None:
        self.judging = judging
        self._trials = trials
        self._platforms = platforms
        self._begun_jobs = begun_jobs
        self._say = say
        self._judged: dict[str, _Judged] = {}
        self._tests = {test: self._at_first(test) for test in platforms}
        self._of_platforms: dict[str, PlatformSoFar] = {}  # by name, until a test of it changes

    def repeats(self, test: str) -> list[TrialRequest]:
        """What is to be repeated of a test now, since one of its jobs has ended or its body has run."""
        own = self._note(test, self._so_far(test))
        if not own.suspects:
            return []
        if not own.repeats and self._has_begun_before(test):
            asked = [first_repeat(next(iter(own.suspects.values())), self._place(test))]
        else:
            asked = list(self._decision(test).next)
        begun = [Repeat(one.trial, one.nodes, live=True) for one in asked]
        self._note(test, replace(own, repeats=[*own.repeats, *begun]))
        for one in begun:
            changes = ", ".join(f"{metric} {percent(suspect.change)}" for metric, suspect in own.suspects.items())
            self._say(f"{test}: {changes}: suspect, so {one.trial.key} begins")
        return [TrialRequest(one.trial, nodes=one.nodes, avoid_nodes=one.avoid_nodes) for one in asked]

    def note(self, test: str) -> None:
        """Note how the jobs of a test have ended before this was made."""
        if test in self._tests:
            self._note(test, self._so_far(test))

    def released(self) -> list[str]:
        """The tests of which something is to be repeated, since jobs of other tests have ended."""
        return [test for test, own in self._tests.items() if own.suspects and self._decision(test).next]

    def waits(self, test: str) -> bool:
        """Whether it depends on other tests what is to be repeated of a test, or what repeats say of it."""
        own = self._tests.get(test)
        if own is None or not own.suspects or any(repeat.live for repeat in own.repeats):
            return False
        decision = self._decision(test)
        return decision.waits and not decision.next

    def confirmed(self, test: str, verdicts: Mapping[str, Verdict]) -> Mapping[str, Verdict]:
        """The verdicts on a test whose jobs have ended, with what repeats say of its suspects."""
        if test not in self._tests:
            return verdicts
        self._note(test, self._so_far(test))
        found = self._decision(test).confirmations if self._tests[test].suspects else {}
        with_repeats = dict(verdicts)
        for metric, verdict in verdicts.items():
            if verdict.suspect is not None:
                said = found.get(metric) or verdict.suspect.known or unknown(verdict.suspect, ENDED, ())
                with_repeats[metric] = confirmed(verdict, said)
        return with_repeats

    def summary(self) -> list[str]:
        """A line for each platform of which many tests are suspect."""
        lines = []
        for name in dict.fromkeys(platform.name for platform in self._platforms.values()):
            said = sentence(self._of_platform(name))
            if said is not None:
                lines.append(f"{name}: {said}")
        return lines

    def _at_first(self, test: str) -> TestSoFar:
        """What is known of a test before any of its jobs has ended: an earlier session may have begun a repeat."""
        begun = [Repeat(FIRST, live=True)] if self._has_begun_before(test) else []
        return TestSoFar(ended=False, suspects={}, repeats=begun)

    def _note(self, test: str, so_far: TestSoFar) -> TestSoFar:
        self._tests[test] = so_far
        self._of_platforms.pop(self._platforms[test].name, None)
        return so_far

    def _decision(self, test: str) -> NextSteps:
        return decide_together(self._tests[test], self._of_platform(self._platforms[test].name), self._place(test))

    def _of_platform(self, name: str) -> PlatformSoFar:
        if name not in self._of_platforms:
            of_platform = [own for other, own in self._tests.items() if self._platforms[other].name == name]
            self._of_platforms[name] = platform_so_far(of_platform)
        return self._of_platforms[name]

    def _place(self, test: str) -> Place:
        platform = self._platforms[test]
        backend = backend_of(platform)
        return Place(backend.is_one_machine, backend.drain_command)

    def _has_begun_before(self, test: str) -> bool:
        return job_key(test, FIRST.key) in self._begun_jobs

    def _so_far(self, test: str) -> TestSoFar:
        first, *others = self._trials.results(test)
        if first.envelope is None:
            return TestSoFar(ended=not first.live, suspects={})
        judged = self._judge(test, first.envelope)
        assert first.job is not None
        unread = frozenset() if self._trials.has_passed(test, first.job) else judged.unread
        repeats = [self._repeat(test, result, judged.suspects) for result in others]
        return TestSoFar(True, judged.suspects, repeats, unread=bool(unread) and not judged.suspects)

    def _judge(self, test: str, envelope: Envelope) -> _Judged:
        known = self._judged.get(test)
        if known is None or known.envelope is not envelope:
            suspects = {
                metric: verdict.suspect
                for metric, verdict in self.judging.look(envelope).items()
                if verdict.suspect is not None
            }
            known = _Judged(envelope, suspects, self.judging.metrics_before(envelope) - envelope.metrics.keys())
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
        refused = job.status.state in REFUSED_STATES and bool(result.request.avoid_nodes)
        return Repeat(trial, asked, failure=_failure(result), refused=refused)


def _failure(result: TrialResult) -> str:
    """Why a repeat has no numbers."""
    assert result.job is not None
    if result.error is not None:
        return result.error.splitlines()[0]
    if result.job.left is not None:
        return ENDED
    return result.job.status.state.value
