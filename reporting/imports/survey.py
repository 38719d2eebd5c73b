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
        all_tests: the ids of all tests.
        cases: how many test cases there are, by ReFrame's word for their result.
    """

    metrics: dict[MetricName, set[str]] = field(default_factory=dict)
    all_tests: set[str] = field(default_factory=set)
    cases: dict[str, int] = field(default_factory=dict)


def survey_of(cases: Iterable[ReframeCase]) -> Survey:
    """Read all test cases once."""
    survey = Survey()
    for case in cases:
        survey.cases[case.result] = survey.cases.get(case.result, 0) + 1
        survey.all_tests.add(case.test)
        for value in case.values:
            alone = survey.metrics.setdefault(case.metric_name(value), set())
            if (value.lower is None) != (value.upper is None):
                alone.add("lower" if value.upper is None else "upper")
    return survey


def decisions(survey: Survey, said: Said, before: Mapping[tuple[str, str], Direction]) -> dict[MetricName, Decision]:
    """Decide the direction of each metric.

    Args:
        before: the directions in the history, by check and metric.
    """
    metrics = sorted(survey.metrics.items(), key=lambda item: (item[0].check, item[0].metric))
    return {name: decide(name, alone, said.of(name), before.get((name.check, name.metric))) for name, alone in metrics}
