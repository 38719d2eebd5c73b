"""The numbered flags of a trend: what people said and what changed, one flag for each night that has something."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reporting.report.data import NoteReport, SeriesReport, TestReport
from reporting.report.episodes import NIGHTS_APART

FREQUENT = 6
"""What changes more often than this, such as the suite's commit, has flags only where a change begins, and at last."""
VERBS = {"note": "", "accept": "accepted: ", "ack": "acknowledged: ", "pause": "paused: "}


@dataclass(frozen=True)
class Flag:
    """What happened in a night: a number in the trend, and the sentences that the page lists under this number."""

    number: int
    night: str
    sentences: tuple[str, ...]


def flags(test: TestReport, series: SeriesReport, notes: Sequence[NoteReport]) -> list[Flag]:
    """The flags of a test's trend, in the order of their nights.

    Args:
        notes: of the whole report. Those on other tests and platforms, and from before the first run, are left out.
    """
    first = min((point.night for point in series.points), default="")
    nights: dict[str, list[str]] = {}
    for note in notes:
        if note.subject in (test.id, test.platform) and first and note.night >= first:
            sentence = f"{VERBS[note.kind]}{note.text}"
            if note.by:
                sentence += f" ({note.by})"
            nights.setdefault(note.night, []).append(sentence)
    for night, change in _changes(series):
        nights.setdefault(night, []).append(f"changed: {change}")
    return [
        Flag(number, night, tuple(dict.fromkeys(nights[night]))) for number, night in enumerate(sorted(nights), start=1)
    ]


def _changes(series: SeriesReport) -> Iterator[tuple[str, str]]:
    """The nights and the texts of what changed. `commit a -> b` is a change of the commit."""
    found = [(point.night, change) for point in series.points for change in point.changes]
    counts = Counter(_subject(change) for _night, change in found)
    last = {_subject(change): place for place, (_night, change) in enumerate(found)}
    for place, (night, change) in enumerate(found):
        count = counts[_subject(change)]
        if count <= FREQUENT or _is_near(night, series.since):
            yield night, change
        elif last[_subject(change)] == place:
            yield night, f"{change} (the last of {count} such changes; the others have no flag)"


def _subject(change: str) -> str:
    return change.partition(" ")[0]


def _is_near(night: str, since: str | None) -> bool:
    if since is None:
        return False
    apart = datetime.date.fromisoformat(night) - datetime.date.fromisoformat(since)
    return abs(apart) <= NIGHTS_APART
