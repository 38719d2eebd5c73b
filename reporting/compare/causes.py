"""What may explain a change between two groups of runs: where it is, what is recorded as different, what was noted.

The gate and `reporting compare` say it with the same sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reporting.compare.network import far_counts
from reporting.compare.placement import LEVELS, placement, places_of, sides_of
from reporting.compare.split import Split, in_exchange, no_split_of, split_of, where
from reporting.history.envelope import Envelope
from reporting.history.run_facts import THROUGHPUT
from reporting.phrases import listed
from reporting.references.answers import Note

MOST_IN_SENTENCE = 4
FIRST_IN_SENTENCE = ("driver", "image", "kernel", *LEVELS.values(), "nodes", "program", "libraries", "torch", "cuda")
"""What explains most changes. The others follow in the order of their names."""
MOST_VALUES = 3
# Of runs with no more provenance than this, the sentence names it: a driver of which nothing is recorded may differ.
LITTLE = 6
GROUP = "group"
"""Provenance that says whether a session measured the nodes as treated or as control nodes. It is no cause."""
HASH = re.compile(r"(?=\d*[a-f])([0-9a-f]{8})[0-9a-f]{4,}(-dirty)?")  # a date has no letter


@dataclass(frozen=True)
class ProvenanceChange:
    """A name of provenance of which the runs before and after a change have no value in common.

    Attributes:
        before, after: all values of the runs; empty where none is recorded.
    """

    name: str
    before: frozenset[str]
    after: frozenset[str]

    @property
    def text(self) -> str:
        """`driver 570.124 -> 580.65`."""
        return f"{self.name} {shown(self.before)} -> {shown(self.after)}"


@dataclass(frozen=True)
class Causes:
    """What may explain a change.

    Attributes:
        split: where it is; None if the runs do not say it.
        changed: the provenance that differs, by name.
        same: the names of provenance that do not differ.
        notes: of people, near the change.
        no_split: why the device does not say where it is; "" if it does, or if the runs do not say why.
        none_in_common: of several tests: something has changed for some of them, and nothing for at least half.
        in_exchange: how much of the device step's change is in the exchange of gradients; "" if little is.
        seen: sentences on where the slow runs were placed, and on what their network cards counted.
    """

    split: Split | None
    changed: tuple[ProvenanceChange, ...]
    same: tuple[str, ...]
    notes: tuple[Note, ...] = ()
    no_split: str = ""
    none_in_common: bool = False
    seen: tuple[str, ...] = ()
    in_exchange: str = ""

    @property
    def in_step(self) -> str:
        """Where in a step it is, or why that is not known; "" if the runs say neither."""
        return "; ".join(filter(None, [where(self.split, self.no_split), self.in_exchange]))

    def sentence(self, also: str = "") -> str:
        """What follows the change in percent: `all of it in the device step; input unchanged; changed: driver …`.

        Args:
            also: what has changed in some of the runs alone. Then it is not said that nothing has changed.
        """
        said = [self.in_step]
        if self.changed or self.seen or not also:
            said.append(self.provenance())
        said.append(also)
        said += [f"noted on {note.at}: {note.text}" for note in self.notes]
        return "; ".join(filter(None, said))

    def provenance(self, changed: str = "changed") -> str:
        """What is recorded as different, after this word: `changed: driver 570.124 -> 580.65`."""
        if not self.changed:
            return "; ".join(self.seen) or self._unchanged()
        ordered = sorted(self.changed, key=_importance)
        texts = [with_short_hashes(change.text) for change in ordered]
        return "; ".join([*self.seen, f"{changed}: {listed(texts, MOST_IN_SENTENCE)}"])

    def _unchanged(self) -> str:
        if self.none_in_common:
            return "nothing that is recorded has changed for half of these tests"
        if not self.same:
            return "no provenance is recorded"
        if len(self.same) <= LITTLE:
            return f"nothing that is recorded has changed (recorded: {', '.join(self.same)})"
        return "nothing that is recorded has changed"


def with_short_hashes(text: str) -> str:
    """A text in which eight characters of each commit or digest are left."""
    return HASH.sub(r"\1\2", text)


def causes_of(
    before: Sequence[Envelope],
    after: Sequence[Envelope],
    notes: Sequence[Note] = (),
    metric: str = THROUGHPUT,
    others: Sequence[Envelope] = (),
) -> Causes:
    """What may explain why the runs after a change differ from those before it.

    Args:
        notes: of the platform, near the change.
        metric: what has changed. The parts of a step explain the effective throughput and no other metric.
        others: more runs of the same series, which say where runs are slow.
    """
    split = None
    no_split = exchange = ""
    if metric == THROUGHPUT:
        sides = [run.beside for run in before], [run.beside for run in after]
        split = split_of(*sides)
        if split is not None and "step_ms" in split.shares:
            exchange = in_exchange(*sides)
        if split is None:
            no_split = no_split_of([*after, *before])
    changed, same = [], []
    if before and after:
        old, new = provenance_values(before), provenance_values(after)
        for name in sorted({*old, *new} - {GROUP}):
            was, is_now = old.get(name, set()), new.get(name, set())
            if was & is_now or was == is_now:
                same.append(name)
            else:
                changed.append(ProvenanceChange(name, frozenset(was), frozenset(is_now)))
    seen = _seen(before, after, others, metric)
    return Causes(split, tuple(changed), tuple(same), tuple(notes), no_split, seen=seen, in_exchange=exchange)


def _seen(
    before: Sequence[Envelope], after: Sequence[Envelope], others: Sequence[Envelope], metric: str
) -> tuple[str, ...]:
    if not all(any(metric in run.metrics for run in group) for group in (before, after)):
        return ()
    sides = sides_of(before, after, others, metric)
    counts = far_counts([run.network for run in sides.late], [run.network for run in sides.fast])
    return tuple(filter(None, [placement(sides, metric), *counts]))


def provenance_values(runs: Iterable[Envelope]) -> dict[str, set[str]]:
    """All values of each name of provenance in some runs. Each of a job's nodes is a value, and each of its switches.

    `switches` and `blocks` say over how many a job of several nodes lay.
    """
    found: dict[str, set[str]] = {}
    for run in runs:
        for name, value in run.provenance.items():
            values = value if isinstance(value, list | tuple) else [value]
            if name == "nodes" and isinstance(value, str):
                values = value.split(",")
            if name in LEVELS:
                values = places_of(run, name)
                if len(run.nodes) > 1:
                    found.setdefault(LEVELS[name], set()).add(str(len(values)))
            found.setdefault(name, set()).update(map(str, values))
    return found


def shown(values: Iterable[str]) -> str:
    """Some values in a line: `n01, n02, n03 and 5 more`."""
    return listed(sorted(values), MOST_VALUES) or "not recorded"


def _importance(change: ProvenanceChange) -> tuple[bool, int, str]:
    """What is only recorded on one side comes last: a newer suite records more."""
    name = change.name
    place = FIRST_IN_SENTENCE.index(name) if name in FIRST_IN_SENTENCE else len(FIRST_IN_SENTENCE)
    return not (change.before and change.after), place, name
