"""After each node was visited: how many of them fit, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from reporting.fleet.nodes import NodeRecord, Standing, percent

NAMED = 20  # nodes that a line names


@dataclass(frozen=True)
class NodeVisit:
    """A visit that has ended. `failure` says why it measured nothing, as in `did not start: node lost`."""

    node: str
    failure: str = ""


@dataclass(frozen=True)
class GoNoGo:
    """The answer after a maintenance.

    Attributes:
        text: the sentence, and lines on what is not known and on what an administrator may type.
        short: the sentence without its numbers.
        fits: every visited node fits.
    """

    text: str
    short: str
    fits: bool


def go_no_go(
    visits: Sequence[NodeVisit],
    records: Mapping[str, NodeRecord],
    postponed: Sequence[str] = (),
    drain_command: Callable[[str, str], str | None] = lambda node, reason: None,
) -> GoNoGo:
    """Say how many nodes fit.

    Args:
        visits: in the order in which they began. The last one of a node says whether it runs.
        records: of these nodes, with these visits.
        postponed: nodes that the budget leaves for another night.
        drain_command: writes the command that takes a node out of service, from the node and the reason. It is printed
            and never run.
    """
    last = {visit.node: visit for visit in visits}
    unfit = []
    for visit in last.values():
        found = _unfit(visit, records[visit.node])
        if found is not None:
            unfit.append(found)
    sentence = f"{len(last) - len(unfit)} of {len(last)} nodes fit"
    lines = ["; ".join([sentence, *(node.long for node in unfit)])]
    unfit_names = {node.name for node in unfit}
    unjudged = [name for name in last if name not in unfit_names and records[name].standing is Standing.UNKNOWN]
    if unjudged:
        lines.append(f"The speed of {_listed(unjudged)} is not judged yet: too few runs of other nodes.")
    if postponed:
        lines.append(f"Left for another night by device_hours_per_night: {_listed(postponed)}.")
    commands = [drain_command(node.name, node.why_drain) for node in unfit if node.why_drain]
    if any(commands):
        lines += ["To take them out of service, an administrator types:", *(f"  {line}" for line in commands if line)]
    short = ", ".join(node.brief for node in unfit)
    return GoNoGo("\n".join(lines), f"{sentence}; {short}" if short else sentence, not unfit)


@dataclass(frozen=True)
class _Unfit:
    """A node that does not fit. `why_drain` is empty for a suspect, which one more run may clear."""

    name: str
    brief: str
    long: str
    why_drain: str


def _unfit(visit: NodeVisit, record: NodeRecord) -> _Unfit | None:
    if visit.failure:
        said = f"{visit.node} {visit.failure}"
        return _Unfit(visit.node, said, said, visit.failure)
    if record.standing is Standing.SLOW:
        change = percent(record.deviation or 0.0)
        return _Unfit(visit.node, f"{visit.node} {change}", record.sentence, f"{change} beside other nodes")
    if record.standing is Standing.SUSPECT:
        brief = f"{visit.node} {percent(record.slow_streak[-1].change or 0.0)} (suspect)"
        return _Unfit(visit.node, brief, record.sentence, "")
    return None


def _listed(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
    return ", ".join(nodes[:NAMED]) + more
