"""Which tests changed in the same way at the same time: the answer to "is it slower, since when, where, why?"."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from reporting.compare.causes import Causes, ProvenanceChange
from reporting.compare.split import PARTS
from reporting.fleet.nodes import Standing
from reporting.phrases import counted
from reporting.report.data import Cause, Condition, Incident, NodeReport, date_of, iso
from reporting.report.episodes import NIGHTS_APART, Episode, open_episode
from reporting.report.one_test import URGENCY, WHY_NODE, Asked, BuiltTest, explained

MOST_NODES = 4  # jobs that have more nodes in common failed together, and not through these nodes


def incidents_of(tests: Sequence[BuiltTest], nodes: Sequence[NodeReport], asked: Asked) -> tuple[Incident, ...]:
    """The incidents of a report: the episodes that last until tonight. The most urgent first, then by loss."""
    episodes = [episode for test in tests if (episode := open_episode(test)) is not None]
    of_platform = Counter(test.report.platform for test in tests)
    found = together(episodes, of_platform, asked)
    told = {(episode.test.report.platform, name) for episode in episodes for name in episode.nodes}
    for node in nodes:
        if node.standing == Standing.SLOW and (node.platform, node.name) not in told:
            found.append(_node_incident(node, of_platform[node.platform], asked))
    return tuple(sorted(found, key=_urgency))


def together(episodes: Sequence[Episode], of_platform: Mapping[str, int], asked: Asked) -> list[Incident]:
    """The incidents of some episodes.

    Args:
        of_platform: how many tests each platform has.
    """
    return [_incident(group, of_platform[_platform(group)], asked) for group in _groups(episodes)]


def _urgency(incident: Incident) -> tuple[int, float, str]:
    """Of two incidents with the same condition the one that costs more comes first: its tests times their loss."""
    loss = ((incident.worst or 0.0) + (incident.mildest or 0.0)) / 2
    return URGENCY.index(incident.condition), max(len(incident.tests), 1) * loss, incident.platform


def _groups(episodes: Sequence[Episode]) -> list[list[Episode]]:
    """Episodes of one platform and condition whose first nights follow each other closely.

    All episodes of a node are one incident: it is slow whenever a test happens to run there.
    """
    groups: list[list[Episode]] = []
    for episode in sorted(episodes, key=lambda episode: (_kind(episode), _first_night(episode))):
        if groups and _kind(groups[-1][-1]) == _kind(episode):
            apart = _first_night(episode) - _first_night(groups[-1][-1])
            if apart <= NIGHTS_APART or episode.nodes:
                groups[-1].append(episode)
                continue
        groups.append([episode])
    return groups


def _kind(episode: Episode) -> tuple[str, str, bool, tuple[str, ...]]:
    return episode.test.report.platform, episode.condition, episode.has_left, episode.nodes


def _first_night(episode: Episode) -> datetime.date:
    return episode.since or datetime.date.min


def _platform(group: Sequence[Episode]) -> str:
    return group[0].test.report.platform


def _incident(group: Sequence[Episode], of_tests: int, asked: Asked) -> Incident:
    """One incident of episodes that began at about the same time. The one with the largest loss dates it best."""
    ordered = sorted(group, key=lambda episode: episode.change or 0.0)
    first = ordered[0]
    changes = [episode.change for episode in ordered if episode.change is not None]
    since = first.since
    if first.nodes:  # it was slow whenever a test ran there, so the first time counts and not the largest loss
        since = min(map(_first_night, group))
    ends = [episode.until for episode in group if episode.until is not None]
    until = None
    if len(ends) == len(group):
        until = max(ends)
    return Incident(
        condition=first.condition,
        platform=_platform(group),
        since=iso(since),
        nights=_nights(since, until, asked),
        tests=tuple(dict.fromkeys(episode.test.report.id for episode in ordered)),
        of_tests=of_tests,
        worst=min(changes, default=None),
        mildest=max(changes, default=None),
        what=_what(ordered, of_tests, changes, is_over=until is not None),
        where=_where(ordered),
        why=_why(ordered, asked),
        until=iso(until),
        cause=Counter(episode.cause(asked) for episode in ordered).most_common(1)[0][0],
        answered=_answered(ordered, since, until, asked),
    )


def _node_incident(node: NodeReport, of_tests: int, asked: Asked) -> Incident:
    """A node that is slow beside the other ones, although no test is red by it tonight."""
    loss = ""
    if node.deviation is not None:
        loss = f"{100 * abs(node.deviation):.1f} % "
    return Incident(
        condition=Condition.SLOWER,
        platform=node.platform,
        since=node.slow_since,
        nights=_nights(date_of(node.slow_since), None, asked),
        tests=(),
        of_tests=of_tests,
        worst=node.deviation,
        mildest=node.deviation,
        what=f"node {node.name} is {loss}slower than the other nodes",
        where=f"node {node.said}",
        why=WHY_NODE,
        cause=Cause.NODE,
    )


def _nights(since: datetime.date | None, until: datetime.date | None, asked: Asked) -> int:
    if since is None:
        return 0
    end = until or asked.tonight + datetime.timedelta(days=1)
    return (end - since).days


# --- sentences --------------------------------------------------------------------------------------------------------


def _what(group: Sequence[Episode], of_tests: int, changes: Sequence[float], *, is_over: bool) -> str:
    """`3 of 6 tests are 6.1 to 8.4 % slower`, `resnet50 1x4gpu tuned was 8.4 % slower`."""
    first = group[0]
    count = len({episode.test.report.id for episode in group})
    subject = first.name if count == 1 else f"{count} of {of_tests} tests"
    if first.condition is Condition.FAILED:
        return f"{subject} {_verb('have', count, is_over)} no numbers: {_endings(group)}"
    if first.has_left:
        return f"{subject} {first.short}" if count == 1 else f"{subject} left their series"
    subject = f"{subject} {_verb('are', count, is_over)}"
    losses = sorted({f"{100 * abs(change):.1f}" for change in changes}, key=float)
    if not losses:
        return f"{subject} slower"
    size = " to ".join(dict.fromkeys([losses[0], losses[-1]]))
    if first.condition is Condition.SUSPECT:
        return f"{subject} {size} % slower in one run"
    return f"{subject} {size} % slower"


_VERBS = {"are": ("is", "are", "was", "were"), "have": ("has", "have", "had", "had")}


def _verb(verb: str, count: int, is_over: bool) -> str:
    of_one, of_several, of_one_then, of_several_then = _VERBS[verb]
    if is_over:
        of_one, of_several = of_one_then, of_several_then
    return of_one if count == 1 else of_several


def _endings(group: Sequence[Episode]) -> str:
    """`node lost`, `node lost (2), time limit (1)`: how the last jobs of the tests ended."""
    counts = Counter(episode.ending.state for episode in group)
    if len(counts) == 1:
        return group[0].ending.state
    return ", ".join(f"{state} ({count})" for state, count in counts.most_common())


def _where(group: Sequence[Episode]) -> str:
    """`all of it in the device step; input unchanged`; of tests that differ: how many have most of it in which part."""
    if group[0].condition is Condition.FAILED:
        return _where_failed(group)
    if len({episode.where for episode in group}) == 1:
        return group[0].where
    counts: Counter[str] = Counter()
    for episode in group:
        counts[_part(episode.causes)] += 1
    unclear = counts.pop("", 0)
    if not counts:
        return ""
    if len(counts) == 1 and not unclear:
        return f"most of it in {next(iter(counts))}"
    parts = [f"{name} ({counted(count, 'test')})" for name, count in counts.most_common()]
    if unclear:
        parts.append(f"no clear part ({counted(unclear, 'test')})")
    return f"most of it in {', '.join(parts)}"


def _part(causes: Causes | None) -> str:
    """The part of a step that lost most; "" if that is not known."""
    if causes is None or causes.split is None or not causes.split.shares:
        return ""
    shares = causes.split.shares
    return PARTS[max(shares, key=lambda name: shares[name])]


def _where_failed(group: Sequence[Episode]) -> str:
    """The nodes on which the last jobs of all of these tests failed."""
    of_all = set.intersection(*(set(episode.failed_on) for episode in group))
    if not of_all or len(of_all) > MOST_NODES:
        return ""
    names = ", ".join(sorted(of_all))
    return f"node {names}" if len(of_all) == 1 else f"nodes {names}"


def _why(group: Sequence[Episode], asked: Asked) -> str:
    """What changed for at least half of the tests at that time, and what people have said."""
    first = group[0]
    said = [f"known: {ticket}" for ticket in dict.fromkeys(episode.ticket for episode in group) if ticket]
    if first.condition is Condition.FAILED:
        return "; ".join([*_why_failed(group), *said])
    if first.nodes:
        return "; ".join([WHY_NODE, *said])
    causes = [episode.causes for episode in group if episode.causes is not None]
    if causes and first.since is not None:
        said.insert(0, explained(_common(causes), _platform(group), first.since, asked.references))
    return "; ".join(said)


def _why_failed(group: Sequence[Episode]) -> list[str]:
    """The reason that most of these jobs gave, and how many did if there are others."""
    counts = Counter(episode.ending.reason for episode in group if episode.ending.reason)
    if not counts:
        return []
    (reason, count) = counts.most_common(1)[0]
    if count < len(group):
        reason = f"{reason} ({counted(count, 'test')})"
    return [reason]


def _common(causes: Sequence[Causes]) -> Causes:
    """What at least half of some changes have in common."""
    counts: Counter[ProvenanceChange] = Counter(change for one in causes for change in one.changed)
    changed = tuple(change for change, count in counts.items() if 2 * count >= len(causes))
    seen = [one.seen for one in causes if one.seen]
    return replace(
        causes[0],
        split=None,
        in_exchange="",
        changed=changed,
        none_in_common=bool(counts or seen) and not changed,
        seen=seen[0] if 2 * len(seen) >= len(causes) else (),
    )


def _answered(group: Sequence[Episode], since: datetime.date | None, until: datetime.date | None, asked: Asked) -> str:
    """What people have done about an incident: accepted levels, tickets and pauses that fall into it."""
    if since is None:
        return ""
    tests = {episode.test.report.id for episode in group}
    first, last = since - NIGHTS_APART, until or asked.tonight
    references = asked.references
    said: dict[str, set[str]] = {}
    for answer in references.acceptances:
        if answer.test in tests and first <= answer.since <= last:
            text = f"accepted by {answer.author.by} on {answer.author.at.date()}"
            said.setdefault(text, set()).add(answer.test)
    for known in references.acknowledgements:
        if known.test in tests and first <= known.author.at.date() <= last:
            said.setdefault(f"acknowledged until {known.until}: {known.ticket}", set()).add(known.test)
    for pause in references.pauses:
        if pause.name in (_platform(group), *tests) and first <= pause.author.at.date() <= last:
            said.setdefault(f"paused until {pause.until}: {pause.reason}", set()).update(tests)
    sentences = []
    for text, of_tests in said.items():
        if len(of_tests) < len(tests):
            text += f" ({len(of_tests)} of {len(tests)} tests)"
        sentences.append(text)
    return "; ".join(sentences)
