"""What happened: people's notes, and what runs reported that was not as before. Grafana draws it as annotations."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from reporting.report.data import ReportData
from reporting.report.exports.exposition import shortened
from reporting.report.exports.times import noon_s

LONGEST = 120  # characters of a text, since it is a label


@dataclass(frozen=True)
class ReportEvent:
    """One thing that happened.

    Attributes:
        time_s: Unix seconds.
        platform: "" if an answer names a test that the report does not have.
        test: the id of a test, if only that one is concerned; else "".
        kind: `note`, `accept`, `ack`, `pause`, or `change` for what runs report.
    """

    time_s: float
    platform: str
    test: str
    kind: str
    text: str


def events(report: ReportData) -> list[ReportEvent]:
    """All events, the earliest first. A change that several tests of a platform report in one night is one event."""
    return sorted([*_answers(report), *_changes(report)], key=lambda event: event.time_s)


def event_labels(report: ReportData, event: ReportEvent) -> dict[str, str]:
    return {
        "site": report.site,
        "platform": event.platform,
        "test": event.test,
        "kind": event.kind,
        "text": event.text,
    }


def _answers(report: ReportData) -> list[ReportEvent]:
    platforms = {test.id: test.platform for test in report.tests}
    found = []
    for note in report.notes:
        test = note.subject if note.subject in platforms else ""
        platform = platforms.get(note.subject, note.subject)
        text = f"{note.text} ({note.by})" if note.by else note.text
        found.append(ReportEvent(noon_s(report, note.night), platform, test, note.kind, shortened(text, LONGEST)))
    return found


def _changes(report: ReportData) -> Collection[ReportEvent]:
    first: dict[tuple[str, str, str], ReportEvent] = {}
    for test in report.tests:
        for series in test.series:
            for point in series.points:
                for change in point.changes:
                    text = shortened(change, LONGEST)
                    key = (test.platform, point.night, text)
                    if key not in first or point.started_s < first[key].time_s:
                        first[key] = ReportEvent(point.started_s, test.platform, "", "change", text)
    return first.values()
