"""Histories of many nodes: one run of each node in a night, at 22:00 and a minute later for each next node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from platforms.job import Role, Trial
from reporting.history.envelope import Envelope
from tests.reporting.gate_nights import run

NODES = tuple(f"n{number:02}" for number in range(1, 13))
WOBBLE = (0.0, 1.0, -1.0, 0.5, -0.5)
"""Per cent. Runs of neighbouring nodes and nights differ by this."""


def visit(number: int, node: str, value: float, **changes: Any) -> Envelope:
    """The visit of a node in a night."""
    changes.setdefault("trial", Trial(Role.VISIT, node=node))
    changes.setdefault("provenance", {"nodes": node})
    changes.setdefault("layout", "1x4gpu")
    return run(number, value, run_id=changes.pop("run_id", f"each-{number}"), **changes)


def fleet_nights(
    count: int, nodes: Sequence[str] = NODES, slow: Mapping[str, float] | None = None, **changes: Any
) -> list[Envelope]:
    """All nodes are visited in each night.

    Args:
        slow: by how much some nodes are slower, as a fraction.
    """
    runs = []
    for number in range(count):
        for place, node in enumerate(nodes):
            value = (100 + WOBBLE[(number + place) % 5]) * (1 - (slow or {}).get(node, 0.0))
            runs.append(visit(number, node, value, hour=22 + place / 60, **changes))
    return runs
