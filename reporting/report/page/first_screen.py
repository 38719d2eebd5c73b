"""The first screen: is anything slower, since when, where, why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reporting.phrases import counted
from reporting.report.data import Condition, Incident, ReportData, TestReport
from reporting.report.page.words import labels_of

SHOWN = 3
NAMED = 3
NOTHING_KNOWN = "It is not known what has changed."
ENDED = "Nothing is recorded but how the jobs ended. Their logs say more."
WITHOUT_VERDICT = (Condition.FAILED, Condition.BLIND, Condition.PAUSED, Condition.LEARNING)


@dataclass(frozen=True)
class Card:
    """An incident, and what the page makes of its tests.

    Attributes:
        why: of the incident, without its tickets, which are links here.
        only: the test, if it is one; its name is in what the incident says then.
        named: the first tests, if there are several; more: how many others there are.
        is_whole_platform: no test of the platform is as it was.
        tickets: of an acknowledged incident.
    """

    incident: Incident
    why: str
    only: TestReport | None
    named: tuple[TestReport, ...]
    more: int
    is_whole_platform: bool
    tickets: tuple[str, ...]


@dataclass(frozen=True)
class Unjudged:
    """The tests of a condition that says nothing of speed. `more` names are left out."""

    condition: Condition
    count: int
    named: tuple[str, ...]
    more: int


@dataclass(frozen=True)
class FirstScreen:
    """What the first screen shows.

    Attributes:
        folded: incidents behind the first three; others: their conditions, as `2 suspect, 1 failed`.
        unjudged: tests of which no number of the last nights can be compared.
    """

    headline: str
    is_slower: bool
    cards: tuple[Card, ...]
    folded: tuple[Card, ...]
    others: str
    unjudged: tuple[Unjudged, ...]


def first_screen(report: ReportData) -> FirstScreen:
    """The first screen of a report."""
    tests = {test.id: test for test in report.tests}
    cards = [_card(incident, tests) for incident in report.incidents]
    is_slower = any(incident.condition is Condition.SLOWER for incident in report.incidents)
    headline = report.headline
    if is_slower:
        headline = f"Yes: {headline}"
    return FirstScreen(
        headline=headline,
        is_slower=is_slower,
        cards=tuple(cards[:SHOWN]),
        folded=tuple(cards[SHOWN:]),
        others=_conditions(cards[SHOWN:]),
        unjudged=tuple(_unjudged(report)),
    )


def _card(incident: Incident, tests: Mapping[str, TestReport]) -> Card:
    known = [tests[name] for name in incident.tests if name in tests]
    only = None
    named = tuple(known[:NAMED])
    if len(incident.tests) == len(known) == 1:
        only = known[0]
        named = ()
    tickets: dict[str, None] = {}
    if incident.condition is Condition.ACKNOWLEDGED:
        tickets = dict.fromkeys(one.ticket for test in known for one in test.series if one.ticket)
    why = _without(incident.why, tickets)
    if not why:
        why = ENDED if incident.condition is Condition.FAILED else NOTHING_KNOWN
    return Card(
        incident=incident,
        why=why,
        only=only,
        named=named,
        more=len(incident.tests[len(named) :]) if named else 0,
        is_whole_platform=len(incident.tests) == incident.of_tests > 1,
        tickets=tuple(tickets),
    )


def _without(why: str, tickets: Iterable[str]) -> str:
    """What is recorded, without the tickets: the card has these as links."""
    known = {f"known: {ticket}" for ticket in tickets}
    return "; ".join(part for part in why.split("; ") if part not in known)


def _conditions(cards: Sequence[Card]) -> str:
    counts = {condition: sum(card.incident.condition is condition for card in cards) for condition in Condition}
    return ", ".join(f"{count} {condition}" for condition, count in counts.items() if count)


def _unjudged(report: ReportData) -> list[Unjudged]:
    found = []
    for condition in WITHOUT_VERDICT:
        tests = [test for test in report.tests if test.condition is condition]
        if tests:
            names = _names(tests, report)
            found.append(Unjudged(condition, len(tests), tuple(names[:NAMED]), len(names[NAMED:])))
    return found


def _names(tests: Sequence[TestReport], report: ReportData) -> list[str]:
    """Names of tests; if all tests of a platform are meant, its name."""
    labels = labels_of(report.tests)
    names = []
    for platform in report.platforms:
        own = [test for test in tests if test.platform == platform.name]
        if len(own) == platform.tests > 1:
            names.append(f"{platform.name} ({counted(len(own), 'test')})")
        else:
            names += [f"{labels[test.id]} on {platform.name}" for test in own]
    return names
