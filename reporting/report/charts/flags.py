"""The numbered flags of a trend: what people said and what changed, one flag for each night that has something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reporting.report.data import NoteReport, SeriesReport, TestReport

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
            by = f" ({note.by})" if note.by else ""
            nights.setdefault(note.night, []).append(f"{VERBS[note.kind]}{note.text}{by}")
    for point in series.points:
        for change in point.changes:
            nights.setdefault(point.night, []).append(f"changed: {change}")
    return [
        Flag(number, night, tuple(dict.fromkeys(nights[night]))) for number, night in enumerate(sorted(nights), start=1)
    ]
