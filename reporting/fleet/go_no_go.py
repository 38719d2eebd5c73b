"""After each node was visited: how many of them fit, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from reporting.fleet.nodes import WHY_NOT_JUDGED, NodeRecord, Standing
from reporting.phrases import listed, percent

NAMED = 20  # nodes that a line names


@dataclass(frozen=True)
class NodeVisit:
    """A visit that has ended.

    Attributes:
        failure: why it measured nothing, as in `did not start: node lost`.
        reached: the job was allowed on the node. If it was not, the visit says nothing of the node, which may not
            even exist.
        drainable: the failure is a reason to take the node out of service.
    """

    node: str
    failure: str = ""
    reached: bool = True
    drainable: bool = True


@dataclass(frozen=True)
class GoNoGo:
    """The answer after a maintenance.

    Attributes:
        text: the sentence, and lines on what is not known and on what an administrator may type.
        short: the sentence without its numbers.
        fits: every visited node was reached, and fits. Nodes that are left for another night do not count.
    """

    text: str
    short: str
    fits: bool


def go_no_go(
    visits: Sequence[NodeVisit],
    records: Mapping[str, NodeRecord],
    postponed: Sequence[str] = (),
    drain_command: Callable[[str, str], str | None] = lambda node, reason: None,
    out_of_service: Callable[[], Mapping[str, str]] = dict,
) -> GoNoGo:
    """Say how many nodes fit.

    Args:
        visits: in the order in which they began. The last one of a node says whether it runs.
        records: of these nodes, with these visits.
        postponed: nodes that the budget leaves for another night.
        drain_command: writes the command that takes a node out of service, from the node and the reason. It is printed
            and never run.
        out_of_service: asks for the nodes that are out of service already, with the scheduler's reasons. They get no
            command, because it would replace the reason. It is called only if there is a node to take out.
    """
    last = {visit.node: visit for visit in visits}
    unreached = [visit for visit in last.values() if visit.failure and not visit.reached]
    for visit in unreached:
        del last[visit.node]
    unfit = []
    for visit in last.values():
        found = _unfit(visit, records[visit.node])
        if found is not None:
            unfit.append(found)
    is_out = out_of_service() if any(node.why_drain for node in unfit) else {}
    unfit = [_without_drain(node, is_out[node.name]) if node.name in is_out else node for node in unfit]
    sentence = f"{len(last) - len(unfit)} of {len(last)} nodes fit"
    lines = ["; ".join([sentence, *(node.long for node in unfit)])]
    if unreached:
        lines.append(f"Not measured: {'; '.join(f'{visit.node} {visit.failure}' for visit in unreached)}.")
    unfit_names = {node.name for node in unfit}
    unjudged = [name for name in last if name not in unfit_names and records[name].standing is Standing.UNKNOWN]
    if unjudged:
        lines.append(f"The speed of {listed(unjudged, NAMED)} is not judged yet: {WHY_NOT_JUDGED}.")
    if postponed:
        lines.append(f"Left for another night by device_hours_per_night: {listed(postponed, NAMED)}.")
    commands = [drain_command(node.name, node.why_drain) for node in unfit if node.why_drain]
    if any(commands):
        lines += ["To take them out of service, an administrator types:", *(f"  {line}" for line in commands if line)]
    brief = [node.brief for node in unfit]
    if unreached:
        brief.append(f"not measured: {listed([visit.node for visit in unreached], NAMED)}")
    short = "; ".join([sentence, ", ".join(brief)]) if brief else sentence
    return GoNoGo("\n".join(lines), short, fits=not brief)


@dataclass(frozen=True)
class _Unfit:
    """A node that does not fit. `why_drain` is empty if nothing says that it must be taken out, as of a suspect, which
    one more run may clear."""

    name: str
    brief: str
    long: str
    why_drain: str


def _unfit(visit: NodeVisit, record: NodeRecord) -> _Unfit | None:
    if visit.failure:
        said = f"{visit.node} {visit.failure}"
        return _Unfit(visit.node, said, said, visit.failure if visit.drainable else "")
    if record.standing is Standing.SLOW:
        change = percent(record.deviation or 0.0)
        return _Unfit(visit.node, f"{visit.node} {change}", record.sentence, f"{change} beside other nodes")
    if record.standing is Standing.SUSPECT:
        brief = f"{visit.node} {percent(record.slow_streak[-1].change or 0.0)} (suspect)"
        return _Unfit(visit.node, brief, record.sentence, "")
    return None


def _without_drain(node: _Unfit, reason: str) -> _Unfit:
    return replace(node, long=f"{node.long} (out of service already: {reason})", why_drain="")
