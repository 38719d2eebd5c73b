"""A step is confirmed: what is run next, and what the repeats say in the end. docs/gate.md describes the rules.

Everything is derived from the suspect and its repeats so far, so a session that is resumed decides alike.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from platforms.job import Role, Trial
from reporting.gate import estimates
from reporting.gate.estimates import LARGE
from reporting.gate.explanation import NEXT_RUN, RIGHT, WRONG, without_answers
from reporting.gate.verdict import Confirmation, Kind, Suspect, Verdict
from reporting.history.comparability import differences
from reporting.history.envelope import Envelope
from reporting.phrases import number, percent, size

WITHOUT = {Kind.NODE: (RIGHT,), Kind.TRANSIENT: (RIGHT, WRONG)}
"""What is no answer to a verdict: a broken node is no new level, and a run that passes is not acknowledged."""
# This run and two repeats on its nodes. If chance made one run in 20 so slow, it would do it thrice once in 8,000.
OF_THREE = 3
NOT_REPEATED = "nothing was repeated"
FIRST = Trial(Role.CONFIRM, repeat=1)
"""The repeat with which each confirmation begins."""


@dataclass(frozen=True)
class Repeat:
    """A repeat of a suspect run.

    Attributes:
        trial: role `confirm` or `pinned`.
        asked: the nodes that it had to run on; () if the scheduler chose them.
        envelope: what it has measured; None while it is live, or if it has failed.
        live: it has not ended.
        failure: why it has no numbers: `node lost`.
        refused: the scheduler does not take it, perhaps since it avoids all nodes that there are.
    """

    trial: Trial
    asked: tuple[str, ...] = ()
    envelope: Envelope | None = None
    live: bool = False
    failure: str = "it failed"
    refused: bool = False


@dataclass(frozen=True)
class NextRepeat:
    """A repeat that is to be run: on these nodes, or on others than these."""

    trial: Trial
    nodes: tuple[str, ...] = ()
    avoid_nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where a suspect runs.

    Attributes:
        has_one_node: the platform has one node only, as the machine does on which pytest runs.
        drain: the command that takes a node out of service for a reason. A person types it. None: there is none.
    """

    has_one_node: bool = False
    drain: Callable[[str, str], str | None] = lambda node, reason: None


@dataclass(frozen=True)
class NextSteps:
    """What follows from the repeats so far.

    Attributes:
        next: what is to be run now.
        confirmations: by metric, of the suspects of which enough is known.
        waits: something is live, or to be run, that decides the others.
    """

    next: tuple[NextRepeat, ...] = ()
    confirmations: Mapping[str, Confirmation] = dataclasses.field(default_factory=dict)
    waits: bool = False


def decide(suspects: Mapping[str, Suspect], repeats: Sequence[Repeat], place: Place) -> NextSteps:
    """What follows for the suspect metrics of one run. Its repeats serve all of them.

    Args:
        suspects: by metric.
        repeats: in the order in which they were begun.
    """
    wanted: dict[str, NextRepeat] = {}
    confirmations = {}
    waits = False
    for metric, suspect in suspects.items():
        if suspect.known is not None and not repeats:
            lines = (*suspect.known.lines, *_drain_lines(place, suspect.run.nodes, suspect.change))
            confirmations[metric] = dataclasses.replace(suspect.known, lines=lines)
            continue
        answer = _Case(suspect, repeats, place).answer()
        if isinstance(answer, Confirmation):
            confirmations[metric] = answer
            continue
        waits = True
        if answer is not None:
            wanted.setdefault(answer.trial.key, answer)
    return NextSteps(tuple(wanted.values()), confirmations, waits)


def first_repeat(suspect: Suspect, place: Place) -> NextRepeat:
    """The repeat with which a confirmation begins: on other nodes."""
    avoid = () if place.has_one_node else suspect.run.nodes
    return NextRepeat(FIRST, avoid_nodes=avoid)


def second_repeat(repeats: Sequence[Repeat]) -> NextRepeat | None:
    """The repeat that follows a refused first one: on any node. None if there is no need of it."""
    elsewhere = [repeat for repeat in repeats if repeat.trial.role is Role.CONFIRM]
    if len(elsewhere) == 1 and elsewhere[0].refused:
        return NextRepeat(Trial(Role.CONFIRM, repeat=2))
    return None


def confirmed(verdict: Verdict, confirmation: Confirmation) -> Verdict:
    """The verdict on a suspect once its repeats have ended. One that is no suspect (any more) stays as it is."""
    if verdict.suspect is None:
        return verdict
    if confirmation.kind is Kind.NODE:
        verdict = _since_on_nodes(verdict, verdict.suspect)
    short = confirmation.short
    if confirmation.kind is Kind.SLOWER:
        short = f"{verdict.short}; {short}"
    first, *rest = without_answers(verdict.text.split("\n"), WITHOUT.get(confirmation.kind, ()))
    if confirmation.kind is not Kind.SLOWER:  # it is no red of the platform, which such a run would end
        rest = [line for line in rest if not line.startswith(NEXT_RUN)]
    return dataclasses.replace(
        verdict,
        kind=confirmation.kind,
        red=confirmation.red,
        short=short,
        text="\n".join([first, *confirmation.lines, *rest]),
        suspect=None,
        confirmation=confirmation,
    )


def _since_on_nodes(verdict: Verdict, suspect: Suspect) -> Verdict:
    """The same verdict, dated by the runs on the suspect's own nodes.

    The series may have been slow before, through something else. What changed then explains nothing here.
    """
    if suspect.since is None:
        return verdict
    first, *rest = verdict.text.split("\n")
    nodes = ", ".join(suspect.run.nodes)
    first = first.replace(f"slower since {verdict.since}", f"slower on {nodes} since {suspect.since}")
    if suspect.since != verdict.since:
        rest = _without_causes(rest, f"{percent(suspect.change)}, ")
    text = "\n".join([first, *rest])
    return dataclasses.replace(verdict, since=suspect.since, since_run=None, text=text)


def _without_causes(lines: Sequence[str], begin: str) -> list[str]:
    """The lines of a verdict without those on what explains the change: from this beginning to the answers."""
    starts = [place for place, line in enumerate(lines) if line.startswith(begin)]
    ends = [place for place, line in enumerate(lines) if line.startswith((RIGHT, WRONG))]
    return [*lines[: starts[0]], *lines[ends[0] :]] if starts and ends else list(lines)


def stored_confirmation(stored: Mapping[str, Any]) -> Confirmation | None:
    """What repeats have said of a run, from the verdict that is stored in its envelope."""
    said = stored.get("confirmation")
    if not said or stored.get("kind") not in set(Kind):
        return None
    return Confirmation(Kind(stored["kind"]), bool(stored["red"]), said["short"], tuple(said["text"].split("\n")))


def settled(verdict: Verdict) -> Verdict:
    """The verdict where nothing is repeated (any more).

    What is known of the nodes counts. Else a second run that is as far away confirms the first one, and a large loss
    needs none.
    """
    suspect = verdict.suspect
    if suspect is None:
        return verdict
    if suspect.known is not None:
        return confirmed(verdict, suspect.known)
    if suspect.again or suspect.change <= -LARGE:
        return verdict
    return confirmed(verdict, unknown(suspect, NOT_REPEATED, ()))


def repeats_named(stored: Mapping[str, Any]) -> bool:
    """Whether a stored verdict names a node, and repeats have shown it then."""
    text = (stored.get("confirmation") or {}).get("text", "")
    return stored.get("kind") == Kind.NODE and NOT_REPEATED not in text


def known_node(suspect: Suspect, named: Mapping[str, Any], then: float, night: datetime.date) -> Confirmation | None:
    """What is said of a run on nodes that repeats have named before; None if its loss is another one.

    Args:
        named: the stored verdict on the run of that night, on which `repeats_named` agrees.
        then: the change of that run from the level of the suspect.
        night: of that run. No run on the nodes has been good since.
    """
    if abs(suspect.change - then) > suspect.limit:
        return None
    nodes = ", ".join(suspect.run.nodes)
    who = (named.get("confirmation") or {}).get("short", "").partition(":")[0] or f"node {nodes}"
    loss = percent(suspect.change)
    sentence = (
        f"{loss} on {nodes} is as large as when repeats named {who} in the night of {night} ({percent(then)}); "
        f"{NOT_REPEATED}."
    )
    short = f"{who}: {loss}, as when repeats named it in the night of {night}"
    return Confirmation(Kind.NODE, True, short, (sentence,))


def is_alike(suspect: Suspect, other: Suspect) -> bool:
    """Whether a suspect ran where another one of its session did, at a loss like its."""
    return suspect.run.nodes == other.run.nodes and abs(suspect.change - other.change) <= suspect.limit


def named_in_session(suspect: Suspect, other: Suspect) -> Confirmation:
    """What is said of a suspect whose node the repeats of another test have named in the same session."""
    node = ", ".join(suspect.run.nodes)
    loss = percent(suspect.change)
    test = other.run.key.test
    sentence = (
        f"Repeats of {test} have named {node} in this session ({percent(other.change)}), and {loss} is a loss like "
        f"that; {NOT_REPEATED}."
    )
    return Confirmation(Kind.NODE, True, f"node {node}: {loss}, as repeats of {test} say", (sentence,))


# --- one suspect -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """What one run of a confirmation has measured.

    Attributes:
        name: `this run`, `confirm-1`.
        change: from the level of the suspect.
        slow: the change is beyond the limit of one run.
    """

    name: str
    nodes: tuple[str, ...]
    value: float
    change: float
    slow: bool
    doubts: tuple[str, ...] = ()


def measured(suspect: Suspect, repeat: Repeat) -> Measured | str:
    """What a repeat that has ended says of a suspect; a sentence if it says nothing."""
    name = repeat.trial.key
    run = repeat.envelope
    if run is None:
        return f"{name} has no numbers: {repeat.failure}"
    found = run.metrics.get(suspect.metric)
    if found is None:
        return f"{name} has not measured {suspect.metric}"
    if different := differences(suspect.run.fields, run.fields):
        return f"{name} cannot be compared: {'; '.join(different)}"
    change = estimates.change_from(suspect.level, found.value, suspect.measured.better)
    return Measured(name, run.nodes, found.value, change, change < -suspect.limit, run.doubts)


class _Case:
    """One suspect, and what its repeats say of it."""

    def __init__(self, suspect: Suspect, repeats: Sequence[Repeat], place: Place) -> None:
        self._suspect = suspect
        self._place = place
        self._nodes = suspect.run.nodes
        self._elsewhere = [repeat for repeat in repeats if repeat.trial.role is Role.CONFIRM]
        self._pinned = [repeat for repeat in repeats if repeat.trial.role is Role.PINNED]
        self._runs = [
            Measured("this run", self._nodes, suspect.measured.value, suspect.change, True, suspect.run.doubts)
        ]

    def answer(self) -> NextRepeat | Confirmation | None:
        """What is to be run next, or what the repeats say. None: one of them is live."""
        if not self._elsewhere:
            return first_repeat(self._suspect, self._place)
        second = second_repeat(self._elsewhere)
        if second is not None:
            return second
        if self._elsewhere[-1].live:
            return None
        other = measured(self._suspect, self._elsewhere[-1])
        if isinstance(other, str):
            return self._unknown(other)
        self._runs.append(other)
        alone = not other.nodes or not self._nodes or bool(set(other.nodes) & set(self._nodes))
        if other.slow:
            return self._regression(other, alone=alone)
        if alone:
            return self._transient(alone=True)
        return self._pinned_answer(other)

    def _pinned_answer(self, other: Measured) -> NextRepeat | Confirmation | None:
        """The repeat was normal on other nodes, so runs on the first ones decide."""
        for repeat in self._pinned:
            if repeat.live:
                return None
            again = measured(self._suspect, repeat)
            if isinstance(again, str):
                return self._unknown(again)
            self._runs.append(again)
            if not again.slow:
                return self._transient(alone=False)
            if again.change <= -LARGE:
                return self._named(other)
        if len(self._pinned) + 1 < OF_THREE:
            return NextRepeat(Trial(Role.PINNED, repeat=len(self._pinned) + 1), nodes=self._nodes)
        return self._named(other)

    # --- what is said ------------------------------------------------------------------------------------------------

    def _named(self, other: Measured) -> Confirmation:
        """The nodes are slow. Of several it is not known which one is."""
        nodes = self._nodes
        slow = sum(run.slow for run in self._runs)
        who = f"node {nodes[0]}" if len(nodes) == 1 else f"one of the nodes {', '.join(nodes)}"
        short = f"{who}: {percent(self._suspect.change)} in {slow} of {slow}, {', '.join(other.nodes)} normal"
        lines = [f"It is {short}. The platform and the change that was made are not the cause."]
        lines += self._table()
        lines += _drain_lines(self._place, nodes, self._suspect.change)
        return Confirmation(Kind.NODE, True, short, tuple(lines))

    def _regression(self, other: Measured, *, alone: bool) -> Confirmation:
        if alone:
            sentence = f"It is slow again, {percent(other.change)}, in a repeat{_on_nodes(other)}. {self._why_alone()}"
            short = f"{percent(other.change)} again"
        else:
            where = ", ".join(other.nodes)
            sentence = f"It is slow again, {percent(other.change)}, on {where}, so it is not one slow node."
            short = f"{percent(other.change)} again on {where}"
        return Confirmation(Kind.SLOWER, True, short, (sentence, *self._table()))

    def _transient(self, *, alone: bool) -> Confirmation:
        again = self._runs[-1]
        short = f"transient: {percent(self._suspect.change)}, then {percent(again.change)}{_on_nodes(again)}"
        if alone:
            sentence = f"A repeat{_on_nodes(again)} is normal, so the test passes. {self._why_alone()}"
        else:
            sentence = f"Repeats on other nodes and{_on_nodes(again)} are normal, so the test passes."
        return Confirmation(Kind.TRANSIENT, False, short, (sentence, *self._table()))

    def _why_alone(self) -> str:
        if self._place.has_one_node or (self._nodes and self._runs[-1].nodes):
            return "There was no other node for it, so a slow node cannot be told from a slow platform."
        return "The nodes are not known, so a slow node cannot be told from a slow platform."

    def _unknown(self, why: str) -> Confirmation:
        return unknown(self._suspect, why, self._table())

    def _table(self) -> list[str]:
        return table(self._suspect, self._runs)


def unknown(suspect: Suspect, why: str, shown: Sequence[str]) -> Confirmation:
    """What is said of a suspect that nothing has confirmed or cleared. A large loss is red, and the second in a row."""
    large = size(LARGE, 0)
    red = suspect.again or suspect.change <= -LARGE
    then = f"passes, since it is less than {large}"
    if suspect.again:
        then = "is red, since the run before it was as far away"
    elif red:
        then = f"is red, since it is {large} or more"
    sentence = f"No repeat confirms or clears this run: {why}. It {then}."
    return Confirmation(Kind.SUSPECT, red, f"suspect: {percent(suspect.change)}; {why}", (sentence, *shown))


def table(suspect: Suspect, runs: Sequence[Measured]) -> list[str]:
    """The runs of a confirmation, a line each, by which a person can decide, too."""
    unit = suspect.measured.unit
    rows = [f"Its runs (slow is below {percent(-suspect.limit)} of {number(suspect.level, suspect.level)} {unit}):"]
    for run in runs:
        value = number(run.value, suspect.level)
        nodes = ", ".join(run.nodes) or "not known"
        doubts = f" (in doubt: {', '.join(run.doubts)})" if run.doubts else ""
        word = "slow" if run.slow else "normal"
        rows.append(f"  {run.name:<10} {value} {unit}, {percent(run.change)}, {word}, on {nodes}{doubts}")
    return rows


def _drain_lines(place: Place, nodes: Sequence[str], change: float) -> list[str]:
    """How one slow node is taken out of service; nothing for several, or where there is no such command."""
    if len(nodes) != 1:
        return []
    command = place.drain(nodes[0], f"slow: {percent(change)}")
    if command is None:
        return []
    return ["To take it out of service until it is repaired:", f"  {command}"]


def _on_nodes(run: Measured) -> str:
    return f" on {', '.join(run.nodes)}" if run.nodes else ""
