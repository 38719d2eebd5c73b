"""Is it me or the machine? What the runs on some nodes say, in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reporting.fleet.nodes import WHY_NOT_JUDGED, NodeRecord, Standing
from reporting.phrases import listed, percent

NAMED = 5  # nodes of one kind that the sentence names


def answer(records: Sequence[NodeRecord]) -> str:
    """The answer for a user whose job ran on these nodes.

    A slow node is named first, then a suspect one. Nodes that nobody has measured leave the question open.
    """
    slow = [record for record in records if record.standing is Standing.SLOW]
    suspect = [record for record in records if record.standing is Standing.SUSPECT]
    unknown = [record for record in records if record.standing is Standing.UNKNOWN]
    fit = [record for record in records if record.standing is Standing.FIT]
    if slow:
        return f"It may be the machine: {_sentences(slow)}; tell your centre."
    if suspect:
        return f"It may be the machine, and one more run decides: {_sentences(suspect)}."
    if not fit:
        return f"Nothing is known of the machine: {_named(unknown, _why_unknown)}."
    text = f"It is not the machine, as far as our runs say: {_named(fit, _fit)}"
    if unknown:
        text += f"; not known: {_named(unknown, _why_unknown)}"
    return f"{text}."


def _sentences(records: Sequence[NodeRecord]) -> str:
    return "; ".join(record.sentence for record in records)


def _fit(record: NodeRecord) -> str:
    return f"{record.name} {percent(record.deviation or 0.0)} on {record.runs[-1].night}"


def _why_unknown(record: NodeRecord) -> str:
    if not record.runs:
        return f"{record.name} was never measured"
    return f"{record.name} has no run that other nodes can be compared with ({WHY_NOT_JUDGED})"


def _named(records: Sequence[NodeRecord], text: Callable[[NodeRecord], str]) -> str:
    return listed([text(record) for record in records], NAMED)
