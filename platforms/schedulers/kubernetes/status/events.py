"""What the cluster reported beside the objects' states, in the order in which it happened."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from platforms.schedulers.kubernetes.objects.fields import Object, number, one_line, text, timestamp_s

TOLD = 10  # how many a person is shown
_NAMES = re.compile(r'pods? "[^"]*"')  # a kind that cannot create its pod gives it another name each time


@dataclass(frozen=True)
class ClusterEvent:
    """One event, of either API. `about` is the uid of the object that it is about, `field` a part of that, `count` how
    often it came, from `first_s` to `last_s`."""

    reason: str
    message: str
    about: str
    field: str
    count: int
    first_s: float
    last_s: float
    stored: int

    def __str__(self) -> str:
        words = one_line(f"{self.reason}: {self.message}" if self.message else self.reason)
        return f"{words} (x{self.count})" if self.count > 1 else words


def read(listed: Iterable[Object]) -> list[ClusterEvent]:
    """Oldest first: a list of events comes by their names, which mean nothing. Most are dated to the second; within one
    they are in the order in which the cluster stored them."""
    return sorted((_event(each) for each in listed), key=lambda event: (int(event.last_s), event.stored))


def told(events: Sequence[ClusterEvent]) -> tuple[str, ...]:
    """The last distinct ones for people, each with how often it came."""
    found: dict[tuple[str, str], ClusterEvent] = {}
    for event in events:
        key = (event.reason, _NAMES.sub("", event.message))
        before = found.pop(key, None)
        found[key] = replace(event, count=event.count + (before.count if before else 0))
    return tuple(str(event) for event in list(found.values())[-TOLD:] if event.reason)


def about(events: Sequence[ClusterEvent], uid: str) -> list[ClusterEvent]:
    """Those of one object; all of them where it has no uid."""
    return [event for event in events if not uid or not event.about or event.about == uid]


def _event(each: Object) -> ClusterEvent:
    times = (
        timestamp_s(each, "series", "lastObservedTime"),
        timestamp_s(each, "lastTimestamp"),
        timestamp_s(each, "deprecatedLastTimestamp"),
        timestamp_s(each, "eventTime"),
        timestamp_s(each, "metadata", "creationTimestamp"),
    )
    last_s = next((time for time in times if time is not None), 0.0)
    first_s = timestamp_s(each, "firstTimestamp")
    counts = (number(each, "series", "count"), number(each, "count"), number(each, "deprecatedCount"))
    version = text(each, "metadata", "resourceVersion")
    return ClusterEvent(
        reason=text(each, "reason"),
        message=text(each, "message") or text(each, "note"),
        about=text(each, "involvedObject", "uid") or text(each, "regarding", "uid"),
        field=text(each, "involvedObject", "fieldPath") or text(each, "regarding", "fieldPath"),
        count=next((count for count in counts if count), 1),
        first_s=last_s if first_s is None else min(first_s, last_s),
        last_s=last_s,
        stored=int(version) if version.isdecimal() else 0,
    )
