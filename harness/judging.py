"""The gate in a session: judges what a test has recorded, and fails the test if it is a regression."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from platforms.config.schema import Site
from platforms.job import BenchError, Metric
from reporting.gate.changed_metrics import changed_metrics
from reporting.gate.committed import Commitment, Counted, counted, standing
from reporting.gate.confirmation import settled
from reporting.gate.judge import judge
from reporting.gate.verdict import Kind, Verdict
from reporting.history import reader, same_values
from reporting.history.comparability import VALUES
from reporting.history.envelope import Envelope
from reporting.references import store
from reporting.references.answers import References

PROBLEMS = 3  # so many are said; the rest is counted


@dataclass(frozen=True)
class PastRuns:
    """What a session compares with. `problems` are sentences on what could not be read."""

    envelopes: list[Envelope]
    references: References
    problems: list[str]


class Judging:
    """Judges the tests of one session.

    Args:
        history: the folder.
        site_folder: with the answers of people.
        tests: whose history is read, once, when the first of them is judged; `test_x.py::test_x[` for all its cases.
        committed: values of these tests.
        require: a number that cannot be compared is an error.
        typed: what printed commands need beside their arguments, such as `--site=DIR`.
    """

    def __init__(
        self,
        history: Path,
        site: Site,
        site_folder: Path,
        tests: Collection[str],
        committed: Sequence[Commitment],
        *,
        require: bool,
        typed: str,
    ) -> None:
        self._history = history
        self._site = site
        self._site_folder = site_folder
        self._tests = frozenset(tests)
        self._committed = committed
        self._require = require
        self._typed = typed
        self._judged: dict[str, Envelope] = {}  # by test
        self._counted: dict[Commitment, list[Counted]] = {}

    @cached_property
    def past(self) -> PastRuns:
        """The history of the tests, and people's answers."""
        problems: list[str] = []
        references = References()
        envelopes: list[Envelope] = []
        try:
            references = store.of_site(self._site_folder, self._site, self._history)
            envelopes = reader.read(self._history, self._tests, problems, visits=False)
        except (BenchError, OSError) as error:
            problems.append(str(error))
        return PastRuns(envelopes, references, [*problems, *references.problems])

    @cached_property
    def _past_of_tests(self) -> Mapping[str, list[Envelope]]:
        """The history by test, since each test is judged more than once."""
        tests: dict[str, list[Envelope]] = {}
        for envelope in self.past.envelopes:
            tests.setdefault(envelope.key.test, []).append(envelope)
        return tests

    @property
    def problem(self) -> str | None:
        """What the gate could not read, in a sentence; None if it could read everything."""
        problems = self.past.problems
        if not problems:
            return None
        text = "; ".join(problems[:PROBLEMS])
        if len(problems) > PROBLEMS:
            text += f"; and {len(problems) - PROBLEMS} more"
        return f"the gate does not see everything: {text}"

    def verdicts(self, current: Envelope, beside: Sequence[Envelope] = ()) -> Mapping[str, Verdict]:
        """The verdicts on what a test has recorded, by metric.

        Args:
            beside: of the other jobs of the test in this session. All of them together are one value, their median.
        """
        self._judged[current.key.test] = current
        return self._verdicts(current, beside)

    def look(self, current: Envelope) -> Mapping[str, Verdict]:
        """The verdicts on a job that has measured well, while its test may still go on."""
        return self._verdicts(current)

    def metrics_before(self, current: Envelope) -> frozenset[str]:
        """The metrics that the last run of a test had. Some of them may only be known once the test's body has run."""
        return frozenset(self._last_metrics(current.key.test))

    def _past_of(self, current: Envelope) -> list[Envelope]:
        """The history of a test, with the runs of the same values under another id (`same_values`)."""
        if VALUES not in current.fields:
            return self._past_of_tests.get(current.key.test, [])
        of_function = same_values.function(current.key.test)
        runs = [run for run in self.past.envelopes if run.key.test.startswith(of_function)]
        return same_values.joined([*runs, current])[:-1]

    def _last_metrics(self, test: str) -> Mapping[str, Metric]:
        """The metrics of the last run of a test that has passed; empty if there is none."""
        runs = self._past_of_tests.get(test, ())
        return next((run.metrics for run in reversed(runs) if run.sane), {})

    def _verdicts(self, current: Envelope, beside: Sequence[Envelope] = ()) -> Mapping[str, Verdict]:
        past = [*self._past_of(current), *beside]
        references, night_ends = self.past.references, self._site.night_ends
        return judge(current, past, references, night_ends, options=self._typed, repeats_follow=True)

    def settled(self, verdicts: Mapping[str, Verdict]) -> Mapping[str, Verdict]:
        """The verdicts on a test once nothing of it is repeated any more."""
        return {metric: settled(verdict) for metric, verdict in verdicts.items()}

    def failing(self, verdicts: Mapping[str, Verdict]) -> list[Verdict]:
        """The verdicts that fail their test. The metrics of a run are one family: the first one lost most."""
        failing = [verdict for verdict in verdicts.values() if self.fails(verdict)]
        return sorted(failing, key=lambda verdict: (verdict.change or 0.0) / (verdict.limit or 1.0))

    def text(self, failing: Sequence[Verdict]) -> str:
        """The message of a failed test: all about the metric that lost most, and a line for each other one."""
        first, *others = failing
        if not others:
            return first.text
        judge_command = f"python -m reporting judge {shlex.quote(first.test)} {self._typed}".rstrip()
        lines = [f"  {verdict.metric.replace('_', ' ')}: {verdict.short}" for verdict in others]
        return "\n".join([first.text, f"Other metrics of the same run ({judge_command} says all of them):", *lines])

    def mistaken_commitments(self) -> list[str]:
        """A line on each committed value that cannot be compared with what the last run of its test has recorded."""
        last = [(commitment, self._last_metrics(commitment.keys.test)) for commitment in self._committed]
        return [said for commitment, metrics in last if metrics and (said := commitment.misfit(metrics))]

    def missed(self, jobs: Sequence[Envelope]) -> list[str]:
        """A sentence on each committed value that a run of a test misses, or that cannot be compared with it."""
        sentences = []
        for commitment in self._committed:
            test = jobs[-1].key.test
            if commitment.keys.test != test:
                continue
            runs = counted(commitment, [*self._past_of_tests.get(test, ()), *jobs])
            self._counted[commitment] = runs
            misfit = commitment.misfit(jobs[-1].metrics)
            if misfit is not None:
                sentences.append(misfit)
            elif runs[-1].is_met is False and runs[-1].value is not None:
                sentences.append(commitment.missed(runs[-1].value))
        return sentences

    def fails(self, verdict: Verdict) -> bool:
        """Whether a verdict fails its test."""
        unsure = verdict.blind or not verdict.pinned or verdict.kind is Kind.SUSPECT
        return verdict.red or (self._require and unsure)

    def why_not_comparable(self, current: Envelope) -> str | None:
        """Under --gate=require, why a run cannot be compared with anything; None if it can.

        Args:
            current: of a job that has ended. What its test will read from the log is not known yet, so the metrics of
                the test's last run stand for it.
        """
        if not self._require:
            return None
        if self.problem is not None:
            return f"--gate=require: {self.problem}"
        current = replace(current, metrics={**self._last_metrics(current.key.test), **current.metrics})
        verdicts = self._verdicts(current).values()
        if verdicts and all(verdict.pinned or verdict.red for verdict in verdicts):
            return None
        return (
            f"--gate=require: {current.key.test} has no pin in {shlex.quote(str(self._history))} to be compared with. "
            "Its first 20 eligible runs with --gate=on, the default, become the pin"
        )

    def summary(self, verdicts: Mapping[str, Mapping[str, Verdict]]) -> list[str]:
        """Lines on what a person should know after a session, beside the failures.

        Args:
            verdicts: by test and metric.
        """
        lines = []
        for test, current in self._judged.items():
            changes = changed_metrics(current, self._past_of(current), self._site.night_ends)
            lines += [f"{test}: {change}" for change in changes]
        for test, of_test in verdicts.items():
            for metric, verdict in of_test.items():
                if verdict.kind not in (Kind.OK, Kind.LEARNING):
                    lines.append(f"{test}: {metric}: {verdict.short}")
        for commitment, runs in self._counted.items():
            said = f"{standing(commitment, runs)}; this run: {runs[-1].said}"
            lines.append(f"{commitment.keys.test}: {commitment} ({commitment.keys.source}): {said}")
        if verdicts and self.problem is not None:
            lines.append(self.problem)
        return lines
