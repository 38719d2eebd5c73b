"""The first reading of ReFrame's files: which tests and metrics they have, and which direction of each is good."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reporting.imports.directions import Decision, Direction, MetricName, Said, decide
from reporting.imports.reframe import ReframeCase


@dataclass
class Survey:
    """What the files have.

    Attributes:
        metrics: each metric that has a value somewhere, and which bounds its references ever had alone.
        tests: the ids of the tests that have it, by metric.
        all_tests: the ids of all tests.
        cases: how many test cases there are, by ReFrame's word for their result.
    """

    metrics: dict[MetricName, set[str]] = field(default_factory=dict)
    tests: dict[MetricName, set[str]] = field(default_factory=dict)
    all_tests: set[str] = field(default_factory=set)
    cases: dict[str, int] = field(default_factory=dict)


def survey_of(cases: Iterable[ReframeCase]) -> Survey:
    """Read all test cases once."""
    survey = Survey()
    for case in cases:
        survey.cases[case.result] = survey.cases.get(case.result, 0) + 1
        survey.all_tests.add(case.test)
        for value in case.values:
            if value.value is None:
                continue
            name = case.metric_name(value)
            alone = survey.metrics.setdefault(name, set())
            if value.lower is not None and value.upper is None:
                alone.add("lower")
            if value.upper is not None and value.lower is None:
                alone.add("upper")
            survey.tests.setdefault(name, set()).add(case.test)
    return survey


def decisions(survey: Survey, said: Said, before: Mapping[tuple[str, str], Direction]) -> dict[MetricName, Decision]:
    """Decide the direction of each metric.

    Args:
        before: the directions in the history, by test and metric.
    """
    decided = {}
    for name, alone in sorted(survey.metrics.items(), key=lambda item: (item[0].check, item[0].metric)):
        earlier = None
        for test in sorted(survey.tests[name], reverse=True):
            earlier = before.get((test, name.metric), earlier)
        decided[name] = decide(name, alone, said.of(name), earlier)
    return decided
