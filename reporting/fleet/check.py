"""What a user's own run on a node says: is the node as fast as the fleet?"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace

from platforms.job import ONLY
from reporting.fleet.node_runs import node_runs, workload_of
from reporting.fleet.nodes import RUNS_TO_NAME, WHY_NOT_JUDGED, NodeRecord, Standing, records_of
from reporting.gate.comparison import compare
from reporting.gate.series import pin_of, series_of
from reporting.history.envelope import Envelope
from reporting.phrases import percent, size, spaced
from reporting.references.answers import References


@dataclass(frozen=True)
class NodeAnswer:
    """Whether a node is as fast as it should be. `as_fast` is None if there is nothing to compare it with."""

    text: str
    as_fast: bool | None


def check_answer(
    node: str, own: Sequence[Envelope], past: Sequence[Envelope], references: References, night_ends: datetime.time
) -> NodeAnswer:
    """Compare a node with the other nodes of its platform, or with the pins of the test if these have too few runs.

    Args:
        node: its name, as it was asked for.
        own: the user's runs on it, one or two, in the order of their starts.
        past: the runs of the test in the centre's history.
        references: people's answers, which may have moved a pin.
    """
    last = own[-1]
    workload = workload_of(last)
    record = records_of(node_runs([*past, *own], night_ends))[node]
    if record.standing is not Standing.UNKNOWN and record.runs[-1].judged:
        return _beside_fleet(record, workload)
    return _beside_pins(node, workload, last, past, references, night_ends)


def _beside_fleet(record: NodeRecord, workload: str) -> NodeAnswer:
    run = record.runs[-1]
    change = f"{workload} {percent(run.change or 0.0)} (limit {size(run.limit or 0.0, 1)})"
    if not run.slow:
        return NodeAnswer(f"{record.name} is as fast as the fleet: {change}", as_fast=True)
    if record.standing is Standing.SLOW:
        return NodeAnswer(f"{record.sentence} ({workload}): tell your centre", as_fast=False)
    if len(record.slow_streak) < RUNS_TO_NAME:
        return NodeAnswer(f"{record.name} was slow once: {change}; one more run decides", as_fast=False)
    return NodeAnswer(f"{record.sentence} ({workload}); one more run decides", as_fast=False)


def _beside_pins(
    node: str,
    workload: str,
    last: Envelope,
    past: Sequence[Envelope],
    references: References,
    night_ends: datetime.time,
) -> NodeAnswer:
    """Each metric beside the pin of its series."""
    measured = replace(last, trial=ONLY, key=last.key._replace(trial=""))  # as if the test had asked for it
    said = []
    as_fast = True
    for metric in measured.metrics:
        series = series_of(metric, measured, [*past, measured], night_ends)
        acceptance = references.acceptance(series.test, metric, series.comparability)
        pin = pin_of(series, acceptance)
        if pin is None or pin.level == 0:  # nothing is a fraction of 0
            continue
        found = compare(series, pin)
        said.append(f"{spaced(metric)} {percent(found.change)} (limit {size(found.step_limit, 1)})")
        as_fast = as_fast and found.change >= -found.step_limit
    if not said:
        why = f"the centre has too few runs to compare it with: {WHY_NOT_JUDGED}, or a pin of the test"
        return NodeAnswer(f"{node} ran {workload}, and {why}", as_fast=None)
    compared = ", ".join(said)
    if workload not in measured.metrics:
        compared = f"{workload}, {compared}"
    if as_fast:
        return NodeAnswer(f"{node} is as fast as the centre's pins: {compared}", as_fast=True)
    return NodeAnswer(f"{node} is slower than the centre's pins: {compared}: tell your centre", as_fast=False)
