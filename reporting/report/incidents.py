"""Which tests changed in the same way at the same time: the answer to "is it slower, since when, where, why?"."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from reporting.compare.causes import Causes, ProvenanceChange
from reporting.compare.split import PARTS
from reporting.fleet.nodes import Standing
from reporting.gate.verdict import Kind
from reporting.phrases import counted
from reporting.report.data import Condition, Incident, NodeReport, SeriesReport
from reporting.report.one_test import URGENCY, WHY_NODE, Asked, BuiltTest, explained

TOLD = (Condition.SLOWER, Condition.FAILED, Condition.SUSPECT, Condition.ACKNOWLEDGED)
MOST_NODES = 4
NIGHTS_APART = 2
"""The first night of a change is an estimate, exact within two nights nine times of ten (docs/gate.md)."""


@dataclass(frozen=True)
class _Finding:
    """A test that is to be told of, by its most urgent series; `series` is None if it has only failed."""

    condition: Condition
    test: BuiltTest
    series: SeriesReport | None
    since: datetime.date | None

    @property
    def name(self) -> str:
        """`resnet50 1x4gpu tuned`, and the metric if it is not the throughput."""
        report = self.test.report
        words = [report.workload, report.layout, report.setting]
        if self.series is not None and self.series is not report.series[0]:
            words.append(f"({self.series.metric.replace('_', ' ')})")
        return " ".join(filter(None, words))

    @property
    def left_series(self) -> bool:
        """Something that was measured is not what it was, so its numbers are not slower than anything."""
        return self.series is not None and self.series.kind == Kind.LEFT

    @property
    def slow_nodes(self) -> tuple[str, ...]:
        """The nodes of the last run, if repeats have shown that only they are slow."""
        if self.series is None or self.series.kind != Kind.NODE:
            return ()
        return self.series.points[-1].nodes

    @property
    def change(self) -> float | None:
        return None if self.series is None else self.series.change

    @property
    def causes(self) -> Causes | None:
        return None if self.series is None else self.test.causes.get(self.series.metric)


def incidents_of(tests: Sequence[BuiltTest], nodes: Sequence[NodeReport], asked: Asked) -> tuple[Incident, ...]:
    """The incidents of a report, the most urgent first: by condition, then by loss."""
    findings = [finding for test in tests if (finding := _finding(test, asked)) is not None]
    of_platform = Counter(test.report.platform for test in tests)
    slow_nodes = {(node.platform, node.name): node for node in nodes if node.standing == Standing.SLOW}
    found = []
    for group in _groups(findings):
        platform = group[0].test.report.platform
        for name in group[0].slow_nodes:
            slow_nodes.pop((platform, name), None)
        found.append(_incident(group, of_platform[platform], asked))
    found += [_node_incident(node, of_platform[node.platform], asked) for node in slow_nodes.values()]
    return tuple(sorted(found, key=_urgency))


def _urgency(incident: Incident) -> tuple[int, float, str]:
    """Of two incidents with the same condition the one that costs more comes first: its tests times their loss."""
    loss = ((incident.worst or 0.0) + (incident.mildest or 0.0)) / 2
    return URGENCY.index(incident.condition), max(len(incident.tests), 1) * loss, incident.platform


def _finding(test: BuiltTest, asked: Asked) -> _Finding | None:
    report = test.report
    if report.condition not in TOLD:
        return None
    if report.condition is Condition.FAILED:
        return _Finding(Condition.FAILED, test, None, _date(report.failed_since))
    series = next(one for one in report.series if one.condition is report.condition)
    return _Finding(report.condition, test, series, _date(series.since or series.value_night))


def _date(night: str | None) -> datetime.date | None:
    return None if night is None else datetime.date.fromisoformat(night)


def _groups(findings: Sequence[_Finding]) -> list[list[_Finding]]:
    """Findings of one platform and condition whose first nights follow each other closely."""
    groups: list[list[_Finding]] = []

    def place(finding: _Finding) -> tuple[str, str, bool, tuple[str, ...], datetime.date]:
        since = finding.since or datetime.date.min
        return finding.test.report.platform, finding.condition, finding.left_series, finding.slow_nodes, since

    for finding in sorted(findings, key=place):
        last = groups[-1][-1] if groups else None
        if last is not None and place(last)[:-1] == place(finding)[:-1]:
            apart = place(finding)[-1] - place(last)[-1]
            if apart <= datetime.timedelta(days=NIGHTS_APART):
                groups[-1].append(finding)
                continue
        groups.append([finding])
    return groups


def _incident(group: Sequence[_Finding], of_tests: int, asked: Asked) -> Incident:
    """One incident of findings that began at about the same time. The one with the largest loss dates it best."""
    ordered = sorted(group, key=lambda finding: finding.change or 0.0)
    first = ordered[0]
    changes = [finding.change for finding in ordered if finding.change is not None]
    platform = first.test.report.platform
    since = first.since
    return Incident(
        condition=first.condition,
        platform=platform,
        since=None if since is None else str(since),
        nights=_nights(since, asked),
        tests=tuple(finding.test.report.id for finding in ordered),
        of_tests=of_tests,
        worst=min(changes, default=None),
        mildest=max(changes, default=None),
        what=_what(ordered, of_tests, changes),
        where=_where(ordered),
        why=_why(ordered, platform, asked),
    )


def _node_incident(node: NodeReport, of_tests: int, asked: Asked) -> Incident:
    """A node that is slow beside the other ones, although no test is red by it tonight."""
    loss = "" if node.deviation is None else f"{100 * abs(node.deviation):.1f} % "
    return Incident(
        condition=Condition.SLOWER,
        platform=node.platform,
        since=node.slow_since,
        nights=_nights(_date(node.slow_since), asked),
        tests=(),
        of_tests=of_tests,
        worst=node.deviation,
        mildest=node.deviation,
        what=f"node {node.name} is {loss}slower than the other nodes",
        where=f"node {node.said}",
        why=WHY_NODE,
    )


def _nights(since: datetime.date | None, asked: Asked) -> int:
    return 0 if since is None else (asked.tonight - since).days + 1


# --- sentences --------------------------------------------------------------------------------------------------------


def _what(group: Sequence[_Finding], of_tests: int, changes: Sequence[float]) -> str:
    """`3 of 6 tests are 6.1 to 8.4 % slower`, `resnet50 1x4gpu tuned is 8.4 % slower`."""
    first = group[0]
    if first.condition is Condition.FAILED:
        return _failed(group, of_tests)
    if first.left_series and first.series is not None:
        if len(group) > 1:
            return f"{_count(group, of_tests)} left their series"
        return f"{first.name} {first.series.short}"
    subject = f"{first.name} is" if len(group) == 1 else f"{_count(group, of_tests)} are"
    losses = sorted({f"{100 * abs(change):.1f}" for change in changes}, key=float)
    if not losses:
        return f"{subject} slower"
    size = losses[0] if len(losses) == 1 else f"{losses[0]} to {losses[-1]}"
    ending = " in one run" if first.condition is Condition.SUSPECT else ""
    return f"{subject} {size} % slower{ending}"


def _count(group: Sequence[_Finding], of_tests: int) -> str:
    return f"{len(group)} of {of_tests} tests"


def _failed(group: Sequence[_Finding], of_tests: int) -> str:
    """`resnet50 tuned has no numbers: node lost`, `3 of 6 tests have no numbers: node lost (2), time limit (1)`."""
    counts = Counter(finding.test.report.failed_as for finding in group)
    if len(group) == 1:
        return f"{group[0].name} has no numbers: {group[0].test.report.failed_as}"
    ends = ", ".join(f"{state} ({count})" if len(counts) > 1 else state for state, count in counts.most_common())
    return f"{_count(group, of_tests)} have no numbers: {ends}"


def _where(group: Sequence[_Finding]) -> str:
    """`all of it in the device step; input unchanged`; of tests that differ: how many have most of it in which part."""
    if group[0].condition is Condition.FAILED:
        return _where_failed(group)
    if len(group) == 1 or len({_series_where(finding) for finding in group}) == 1:
        return _series_where(group[0])
    counts: Counter[str] = Counter()
    for finding in group:
        split = finding.causes.split if finding.causes else None
        shares = split.shares if split else {}
        counts[PARTS[max(shares, key=lambda name: shares[name])] if shares else ""] += 1
    unclear = counts.pop("", 0)
    if not counts:
        return ""
    if len(counts) == 1 and not unclear:
        return f"most of it in {next(iter(counts))}"
    parts = [f"{name} ({counted(count, 'test')})" for name, count in counts.most_common()]
    if unclear:
        parts.append(f"no clear part ({counted(unclear, 'test')})")
    return f"most of it in {', '.join(parts)}"


def _where_failed(group: Sequence[_Finding]) -> str:
    """The nodes on which the last jobs of all of these tests failed."""
    of_all = set.intersection(*(set(finding.test.report.failed_on) for finding in group))
    if not of_all or len(of_all) > MOST_NODES:
        return ""
    return f"{'node' if len(of_all) == 1 else 'nodes'} {', '.join(sorted(of_all))}"


def _series_where(finding: _Finding) -> str:
    return "" if finding.series is None else finding.series.where


def _why(group: Sequence[_Finding], platform: str, asked: Asked) -> str:
    """What changed for at least half of the tests at that time, and what people have said."""
    first = group[0]
    tickets = list(
        dict.fromkeys(finding.series.ticket for finding in group if finding.series and finding.series.ticket)
    )
    said = [f"known: {ticket}" for ticket in tickets]
    if first.condition is Condition.FAILED:
        return "; ".join([*_why_failed(group), *said])
    if first.slow_nodes:
        return "; ".join([WHY_NODE, *said])
    causes = [finding.causes for finding in group if finding.causes is not None]
    if causes and first.since is not None:
        said.insert(0, explained(_common(causes), platform, first.since, asked.references))
    return "; ".join(said)


def _why_failed(group: Sequence[_Finding]) -> list[str]:
    """The reason that most of these jobs gave, and how many did if there are others."""
    counts = Counter(finding.test.report.failed_why for finding in group if finding.test.report.failed_why)
    if not counts:
        return []
    (reason, count) = counts.most_common(1)[0]
    return [reason if count == len(group) else f"{reason} ({counted(count, 'test')})"]


def _common(causes: Sequence[Causes]) -> Causes:
    """What at least half of some changes have in common."""
    counts: Counter[ProvenanceChange] = Counter(change for one in causes for change in one.changed)
    changed = tuple(change for change, count in counts.items() if 2 * count >= len(causes))
    return Causes(None, changed, causes[0].same, none_in_common=bool(counts) and not changed)
