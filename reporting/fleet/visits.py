"""Which nodes are visited next."""

from __future__ import annotations

from collections.abc import Iterable

from reporting.fleet.nodes import NodeRecord, Standing


def in_order(records: Iterable[NodeRecord]) -> list[NodeRecord]:
    """First the suspects, also those of the gate, the slowest one first; then nodes that were never measured; then the
    stalest ones."""
    return sorted(records, key=_urgency)


def _urgency(record: NodeRecord) -> tuple[int, float, str]:
    if record.last_seen_s is None:
        return 1, 0.0, record.name
    last = record.runs[-1]
    if record.standing is Standing.SUSPECT or (last.suspected and record.standing is not Standing.SLOW):
        return 0, last.change or 0.0, record.name
    return 2, record.last_seen_s, record.name
