"""Which nodes are visited next, and how many of them a night may cost."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from platforms.job import Role
from reporting.fleet.nodes import NodeRecord, Standing
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of

KNOWN_RUNS = 20  # the last ones, of whose costs the median is what a visit costs
FEWEST_WITH_RESERVE = 4
RESERVE = 10  # one visit in ten is kept


@dataclass(frozen=True)
class VisitList:
    """The nodes that are visited, in order, and those that are left for another night.

    Attributes:
        cost_h: device-hours of one visit.
        left_h: device-hours that remain once all these nodes have been visited; None without a budget.
    """

    nodes: tuple[str, ...]
    postponed: tuple[str, ...]
    cost_h: float
    left_h: float | None


def in_order(records: Iterable[NodeRecord]) -> list[NodeRecord]:
    """First the suspects, also those of the gate, the slowest one first; then nodes that were never measured; then the
    stalest ones."""
    return sorted(records, key=_urgency)


def visit_list(records: Sequence[NodeRecord], cost_h: float, budget_h: float | None, most: int | None) -> VisitList:
    """The nodes to visit in a night.

    A tenth of the budget, at least one visit, is kept for second visits of nodes that turn out to be slow.

    Args:
        records: of the nodes that may be visited.
        cost_h: device-hours of a visit.
        budget_h: device-hours that the night has left; None for no limit.
        most: so many nodes at most; None for all.
    """
    names = [record.name for record in in_order(records)][:most]
    if budget_h is None:
        return VisitList(tuple(names), (), cost_h, None)
    count = affordable(budget_h, cost_h)
    if count >= FEWEST_WITH_RESERVE:
        count -= max(1, count // RESERVE)
    chosen = tuple(names[:count])
    return VisitList(chosen, tuple(names[count:]), cost_h, budget_h - len(chosen) * cost_h)


def affordable(budget_h: float, cost_h: float) -> int:
    """How many visits a budget allows."""
    return max(0, int(budget_h / cost_h + 1e-9))


def spent_h(envelopes: Iterable[Envelope], night: datetime.date, night_ends: datetime.time) -> float:
    """The device-hours of a night's visits, of all tests of a platform."""
    hours = 0.0
    for envelope in envelopes:
        if envelope.trial.role is Role.VISIT and night_of(envelope.time_s, night_ends) == night:
            hours += device_hours(envelope) or 0.0
    return hours


def cost_of_visit_h(envelopes: Iterable[Envelope], test: str, most_h: float) -> float:
    """The device-hours of a visit: the median of the test's last visits, else of its last other runs.

    Args:
        most_h: the most that its job may cost, which counts for a test without runs.
    """
    visits: list[float] = []
    others: list[float] = []
    for envelope in envelopes:
        hours = device_hours(envelope)
        if envelope.key.test != test or not hours or not envelope.sane:
            continue
        if envelope.trial.role is Role.VISIT:
            visits.append(hours)
        else:
            others.append(hours)
    known = visits or others
    return median(known[-KNOWN_RUNS:]) if known else most_h


def device_hours(envelope: Envelope) -> float | None:
    """What a job has cost; None if its times or its layout are not known."""
    layout = re.match(r"(\d+)x(\d+)", envelope.layout)
    if layout is None or envelope.started_s is None or envelope.ended_s is None:
        return None
    return int(layout[1]) * int(layout[2]) * (envelope.ended_s - envelope.started_s) / 3600


def _urgency(record: NodeRecord) -> tuple[int, float, str]:
    if record.last_seen_s is None:
        return 1, 0.0, record.name
    last = record.runs[-1]
    if record.standing is Standing.SUSPECT or (last.suspected and record.standing is not Standing.SLOW):
        return 0, last.change or 0.0, record.name
    return 2, record.last_seen_s, record.name
