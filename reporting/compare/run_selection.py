"""Which runs a person means by `label=before,platform=a100`.

The conditions of a selection stand between commas, and a run must meet all of them.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from platforms.config.loading import nearest
from platforms.job import RefusedError, Role
from platforms.nodes import node_names
from reporting.compare.causes import provenance_values
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.phrases import listed

MOST_KNOWN = 12  # values that a message names
NODES = "nodes"
NIGHT_WORDS = ("2026-11-17", "2026-11-17..2026-11-20", "2026-11-17..", "..2026-11-20")


@dataclass(frozen=True)
class RunCondition:
    """What one word of a selection asks of a run.

    Attributes:
        word: as it was typed, such as `driver=570.124`.
        known: what the runs have in its place, for a message.
    """

    word: str
    name: str
    holds: Callable[[Envelope], bool]
    known: Callable[[Envelope], str]


@dataclass(frozen=True)
class RunSelection:
    """The runs that meet all conditions. `text` has the words of all conditions."""

    text: str
    conditions: Sequence[RunCondition]

    def chosen(self, envelopes: Sequence[Envelope]) -> list[Envelope]:
        """The jobs that their tests asked for and that meet all conditions, whatever has become of them.

        Raises RefusedError where there is none. Its message names the first condition that none of them meets.
        """
        left = [envelope for envelope in envelopes if envelope.trial.role is Role.MEASURE]
        for number, condition in enumerate(self.conditions):
            found = [envelope for envelope in left if condition.holds(envelope)]
            if not found:
                known = sorted({condition.known(envelope) for envelope in left} - {""})
                earlier = " and ".join(other.word for other in self.conditions[:number])
                among = f" among those with {earlier}" if earlier else ""
                raise RefusedError(
                    f"{self.text}: no run has {condition.word}{among}; {condition.name} of these tests: "
                    f"{listed(known, MOST_KNOWN) or 'not recorded'}"
                )
            left = found
        return left


def parsed(text: str, envelopes: Sequence[Envelope], night_ends: datetime.time) -> RunSelection:
    """What a person has typed.

    Args:
        envelopes: runs whose provenance gives the names that a selection may have.
        night_ends: the hour at which the site's nights end.

    Raises RefusedError.
    """
    conditions = []
    for word in _words(text):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not equals:
            name = "label"
            value = word
        if not value:
            raise RefusedError(f"{text!r}: {word!r} has no value: write {name or 'label'}=VALUE")
        conditions.append(_condition(text, word, name, value, envelopes, night_ends))
    return RunSelection(",".join(condition.word for condition in conditions), tuple(conditions))


def _words(text: str) -> list[str]:
    """The words between the commas. A list of nodes has commas of its own: `nodes=n01,n03,label=before`."""
    words: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        in_list = bool(words) and words[-1].partition("=")[0].strip() in ("node", NODES)
        if words and "=" not in part and in_list:
            words[-1] += f",{part}"
        elif words and "=" not in part:
            raise RefusedError(
                f"{text!r}: {part!r} is no condition; write NAME=VALUE with commas between, as in "
                "label=before,platform=a100"
            )
        else:
            words.append(part)
    if not all(words):
        raise RefusedError(f"{text!r} is no selection: write a label, or NAME=VALUE as in date=2026-11-17")
    return words


def _condition(
    text: str, word: str, name: str, value: str, envelopes: Sequence[Envelope], night_ends: datetime.time
) -> RunCondition:
    if name in ("node", NODES):
        wanted = _nodes(text, value)

        def was_there(run: Envelope) -> bool:
            """`node=` takes each job that used the node; `nodes=` takes those that used no others."""
            return wanted <= set(run.nodes) if name == "node" else on_nodes(run, wanted)

        return RunCondition(word, NODES, was_there, lambda run: ", ".join(run.nodes))
    if name == "date":
        first, last = _nights(text, value)

        def in_nights(run: Envelope) -> bool:
            return first <= night_of(run.time_s, night_ends) <= last

        return RunCondition(word, "nights", in_nights, lambda run: str(night_of(run.time_s, night_ends)))
    if name in _OF_ENVELOPE:
        found = _OF_ENVELOPE[name]
        return RunCondition(word, name, lambda run: found(run) == value, found)
    names = provenance_values(envelopes)
    if name not in names:
        words = ("label", "date", "node", NODES, *_OF_ENVELOPE, *names)
        raise RefusedError(f"{text!r}: no run has a {name!r} {nearest(name, sorted(set(words)))}")
    begins = _commit_begins if name == "commit" else _version_begins
    return RunCondition(
        word, name, lambda run: begins(_provenance(run, name), value), lambda run: _provenance(run, name)
    )


def _version_begins(recorded: str, typed: str) -> bool:
    """Whether a version is the typed one, or a longer one of it: 570.124 means 570.124.06, too, and not 570.1240."""
    return recorded.startswith(typed) and not recorded[len(typed) :][:1].isalnum()


def _commit_begins(recorded: str, typed: str) -> bool:
    return recorded.startswith(typed)


_OF_ENVELOPE: Mapping[str, Callable[[Envelope], str]] = MappingProxyType(
    {
        "label": lambda run: run.trial.label or "",
        "platform": lambda run: run.platform,
        "run": lambda run: run.key.run_id,
    }
)


def on_nodes(envelope: Envelope, wanted: frozenset[str]) -> bool:
    """Whether all nodes of a job are among some. A job whose nodes are not recorded is on none of them."""
    found = envelope.nodes
    return bool(found) and wanted.issuperset(found)


def _provenance(run: Envelope, name: str) -> str:
    return ",".join(sorted(provenance_values([run]).get(name, ())))


def _nodes(text: str, value: str) -> frozenset[str]:
    try:
        return frozenset(node_names(value))
    except ValueError as error:
        raise RefusedError(f"{text!r}: {error}") from None


def _nights(text: str, value: str) -> tuple[datetime.date, datetime.date]:
    first, dots, last = value.partition("..")
    try:
        begin = datetime.date.fromisoformat(first) if first else datetime.date.min
        end = datetime.date.max
        if last or not dots:
            end = datetime.date.fromisoformat(last or first)
    except ValueError:
        raise RefusedError(f"{text!r}: {value!r} is no night: write {', '.join(NIGHT_WORDS[:2])}") from None
    if not (first or last) or begin > end:
        raise RefusedError(f"{text!r}: {value!r} has no night in it: write {', '.join(NIGHT_WORDS)}")
    return begin, end
