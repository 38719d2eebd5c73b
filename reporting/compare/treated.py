"""The effect of an upgrade of some nodes, beside nodes without it: difference in differences.

What a day does to all nodes is in both groups, and cancels. What a node is by itself is in both its runs before and
after, and cancels, too. So the nodes' own changes are compared, and a node is the unit. docs/compare.md has an example.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Literal

from reporting.compare import interval
from reporting.compare.causes import shown
from reporting.compare.contrast import Contrast, Side, values_by_session
from reporting.compare.interval import Interval, change_of
from reporting.compare.run_selection import on_nodes
from reporting.compare.split import Split, split_of
from reporting.history.envelope import Envelope
from reporting.phrases import spaced

SESSIONS = 3
"""From so many sessions a side on, the groups' difference in each session has an interval of its own.

With two, t is up to 12.7, so that such an interval would hide every effect. If the treated nodes alone vary by 1 % from
day to day, 39 of 100 verdicts are false without it, and 3 with it (benchmarks/compare_coverage.py).
"""


@dataclass(frozen=True)
class NodeChange:
    """One node, or the nodes of one job, before and after.

    Attributes:
        before, after: the geometric mean of its sessions, each the median of its jobs.
        split: where its change is, by the parts of a step; None where they are not known.
    """

    node: str
    before: float
    after: float
    split: Split | None

    @property
    def log(self) -> float:
        """The logarithm of after over before."""
        return math.log(self.after / self.before)


@dataclass(frozen=True)
class Group:
    """The treated nodes, or the control nodes.

    Attributes:
        runs_before, runs_after: of the nodes that count.
    """

    word: Literal["treated", "control"]
    nodes: tuple[NodeChange, ...]
    runs_before: tuple[Envelope, ...]
    runs_after: tuple[Envelope, ...]
    better: Literal["higher", "lower"] = "higher"

    @property
    def change(self) -> float:
        """The geometric mean of the nodes' changes, as a fraction; negative is worse."""
        return change_of(self.log, self.better)

    @property
    def log(self) -> float:
        """The mean of the logarithms of after over before."""
        return fmean(node.log for node in self.nodes)

    def split(self) -> Split | None:
        """The mean of the nodes' parts of a step; None if they are not known of all nodes."""
        splits = [node.split for node in self.nodes if node.split is not None]
        if len(splits) < len(self.nodes) or any(split.before.keys() != splits[0].before.keys() for split in splits):
            return None
        names = list(splits[0].before)
        before = {name: fmean(split.before[name] for split in splits) for name in names}
        after = {name: fmean(split.after[name] for split in splits) for name in names}
        return Split(before, after)

    def changes(self, part: str) -> list[float]:
        """By how much a part of a step has changed on each node, in ms."""
        return [node.split.change[part] for node in self.nodes if node.split is not None]


@dataclass(frozen=True)
class TreatedEffect:
    """What has changed on the treated nodes beyond the control nodes.

    Attributes:
        contrast: what both groups are part of.
        by_session_before, by_session_after: how far the treated nodes are from the control nodes in each session, as
            a logarithm, by run id.
        of_nodes: the interval of the effect by the scatter of the nodes; None with one node in a group.
        of_sessions: the same by the scatter of the sessions; None with fewer than three a side.
        why_none: why there is no interval; empty if there is one.
    """

    contrast: Contrast
    treated: Group
    control: Group
    by_session_before: Mapping[str, float]
    by_session_after: Mapping[str, float]
    of_nodes: Interval | None
    of_sessions: Interval | None
    why_none: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def effect(self) -> float:
        """The change of the treated nodes beyond that of the control nodes, as a fraction; negative is worse."""
        return change_of(self.treated.log - self.control.log, self.contrast.better)

    @property
    def interval(self) -> Interval | None:
        """The wider one of both: groups that drift apart from day to day make that of the sessions the wider one."""
        found = [one for one in (self.of_nodes, self.of_sessions) if one is not None]
        return max(found, key=lambda one: one.quantile * one.error, default=None)

    @property
    def verdict(self) -> Literal["slower", "faster", "unclear", "no verdict"]:
        """What the interval says. `unclear`: it has 0 in it."""
        return "no verdict" if self.interval is None else self.interval.verdict

    def split(self) -> Split | None:
        """Where the effect is: by how much more a part of a step has changed on the treated nodes, in ms.

        A part has moved if the interval of its difference does not have 0 in it.
        """
        treated = self.treated.split()
        control = self.control.split()
        if treated is None or control is None or treated.before.keys() != control.before.keys():
            return None
        after = {}
        limits = {}
        for name, value in treated.after.items():
            after[name] = value - control.change[name]
            if self.of_nodes is not None:
                of_part = interval.of_two_groups(self.control.changes(name), self.treated.changes(name))
                limits[name] = of_part.quantile * of_part.error
        return Split(treated.before, after, limits)


def effect_of(contrast: Contrast, treated: frozenset[str], control: frozenset[str]) -> TreatedEffect | str:
    """The effect of a treatment in the runs of a contrast, or a sentence that says why there is none.

    Sessions count that have at least half of the nodes of each group. Of the nodes those count that have a run in each
    of these sessions: then all sessions have the same nodes, and neither a day nor a node is a part of the effect.

    Args:
        treated, control: names of nodes. A job of several nodes counts where all of them are in one group.
    """
    groups = {"treated": treated, "control": control}
    name = f"{contrast.subject}: {spaced(contrast.metric)} is not compared:"
    remarks = list(contrast.remarks)
    units: dict[str, set[str]] = {word: set() for word in groups}
    for run in (*contrast.before.runs, *contrast.after.runs):
        for word, nodes in groups.items():
            if on_nodes(run, nodes):
                units[word].add(_unit(run))
    seen = {node for run in (*contrast.before.runs, *contrast.after.runs) for node in run.nodes}
    for word in units:
        if not units[word]:
            return f"{name} no comparable run was on the {word} nodes alone; there are: {shown(seen)}"
    sessions = {}
    for side in (contrast.before, contrast.after):
        whole, partial = _whole_sessions(side, units)
        sessions[side.word] = whole
        if not whole:
            return (
                f"{name} {side.word}, no session has at least half of the treated nodes and half of the control nodes"
            )
        if partial:
            remarks.append(
                f"{side.word}, left out are sessions that miss more than half of a group's nodes: {shown(partial)}"
            )
    found = {}
    for word in units:
        complete = _in_all_sessions(contrast, sessions, units[word])
        missing = sorted(units[word] - complete)
        if missing:
            remarks.append(f"left out are {word} nodes without a run in each session: {shown(missing)}")
        if not complete:
            return f"{name} none of the {word} nodes has a run in each session"
        found[word] = _group(word, contrast, sessions, complete)
    return _effect(contrast, found["treated"], found["control"], sessions, remarks)


def _unit(run: Envelope) -> str:
    """What is treated as a whole: the node, or the nodes, of a job."""
    return ",".join(run.nodes)


def _whole_sessions(side: Side, units: Mapping[str, set[str]]) -> tuple[list[str], list[str]]:
    """The sessions with at least half of the nodes of each group, and the others."""
    seen: dict[str, set[str]] = {}
    for run in side.runs:
        seen.setdefault(run.key.run_id, set()).add(_unit(run))
    whole = [run_id for run_id, nodes in seen.items() if all(2 * len(nodes & of) >= len(of) for of in units.values())]
    return whole, [run_id for run_id in seen if run_id not in whole]


def _in_all_sessions(contrast: Contrast, sessions: Mapping[str, Collection[str]], units: set[str]) -> set[str]:
    nodes = set(units)
    for side in (contrast.before, contrast.after):
        for run_id in sessions[side.word]:
            nodes &= {_unit(run) for run in side.runs if run.key.run_id == run_id}
    return nodes


def _group(word: str, contrast: Contrast, sessions: Mapping[str, Collection[str]], nodes: Collection[str]) -> Group:
    before = _runs_of(contrast.before, sessions, nodes)
    after = _runs_of(contrast.after, sessions, nodes)
    changes = []
    for node in sorted(nodes):
        old = [run for run in before if _unit(run) == node]
        new = [run for run in after if _unit(run) == node]
        split = split_of([run.beside for run in old], [run.beside for run in new])
        changes.append(NodeChange(node, _level(old, contrast.metric), _level(new, contrast.metric), split))
    return Group("treated" if word == "treated" else "control", tuple(changes), before, after, contrast.better)


def _runs_of(side: Side, sessions: Mapping[str, Collection[str]], nodes: Collection[str]) -> tuple[Envelope, ...]:
    return tuple(run for run in side.runs if run.key.run_id in sessions[side.word] and _unit(run) in nodes)


def _level(runs: Sequence[Envelope], metric: str) -> float:
    """The geometric mean of the sessions, each the median of its jobs."""
    return math.exp(fmean(math.log(median(values)) for values in values_by_session(runs, metric).values()))


def _effect(
    contrast: Contrast, treated: Group, control: Group, sessions: Mapping[str, Sequence[str]], remarks: Sequence[str]
) -> TreatedEffect:
    metric = contrast.metric
    before = {
        run_id: _distance(run_id, treated.runs_before, control.runs_before, metric) for run_id in sessions["before"]
    }
    after = {run_id: _distance(run_id, treated.runs_after, control.runs_after, metric) for run_id in sessions["after"]}
    of_nodes = None
    of_sessions = None
    why_none = ""
    if min(len(treated.nodes), len(control.nodes)) >= interval.LEAST:
        of_nodes = interval.of_two_groups([node.log for node in control.nodes], [node.log for node in treated.nodes])
        of_nodes = replace(of_nodes, better=contrast.better)
        if min(len(before), len(after)) >= SESSIONS:
            of_sessions = interval.of_two_groups(list(before.values()), list(after.values()))
            of_sessions = replace(of_sessions, better=contrast.better)
    else:
        word = "treated" if len(treated.nodes) < interval.LEAST else "control"
        why_none = f"one {word} node alone does not say how much the change varies from node to node"
    return TreatedEffect(contrast, treated, control, before, after, of_nodes, of_sessions, why_none, tuple(remarks))


def _distance(run_id: str, treated: Sequence[Envelope], control: Sequence[Envelope], metric: str) -> float:
    """How far the treated nodes are from the control nodes in a session, as a logarithm."""
    means = []
    for runs in (treated, control):
        values: dict[str, list[float]] = {}
        for run in runs:
            if run.key.run_id == run_id:
                values.setdefault(_unit(run), []).append(run.metrics[metric].value)
        means.append(fmean(math.log(median(of_node)) for of_node in values.values()))
    return means[0] - means[1]
