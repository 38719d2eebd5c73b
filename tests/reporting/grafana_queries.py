"""The expressions of a dashboard as Grafana sends them, with every variable at its default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

DEFAULTS = {"$site": ".*", "$platform": ".*", "$test": ".*", "${hours}": "36", "$hours": "36"}


@dataclass(frozen=True)
class Query:
    """One expression of a panel or of the annotations, for now or for a stretch of time."""

    title: str
    expression: str
    is_range: bool
    is_annotation: bool = False


def queries_of(dashboard: Mapping[str, Any]) -> Iterator[Query]:
    """Every expression of a dashboard."""
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield Query(panel["title"], filled(target["expr"]), bool(target["range"]))
    for marks in dashboard["annotations"]["list"]:
        if "target" in marks:
            yield Query(marks["name"], filled(marks["target"]["expr"]), True, is_annotation=True)


def filled(expression: str) -> str:
    """An expression without variables."""
    for name, value in DEFAULTS.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression
