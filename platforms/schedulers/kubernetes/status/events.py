"""Events of the cluster, in the order in which they happened."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from platforms.schedulers.kubernetes.objects.fields import Object, number, one_line, text, timestamp_s

MOST_SHOWN = 10
_POD_NAME = re.compile(r'pods? "[^"]*"')  # a controller that cannot create its pod gives it a new name each time


@dataclass(frozen=True)
class ClusterEvent:
    """One event, of either API of Kubernetes.

    `about` is the uid of the object that it is about, `field` the path of a part of that object. It happened `count`
    times from `first_s` to `last_s`, in Unix seconds. `stored` grows with the order in which the cluster stored events.
    """

    reason: str
    message: str
    about: str
    field: str
    count: int
    first_s: float
    last_s: float
    stored: int

    def __str__(self) -> str:
        line = one_line(f"{self.reason}: {self.message}" if self.message else self.reason)
        return f"{line} (x{self.count})" if self.count > 1 else line


def read_events(listed: Iterable[Object]) -> list[ClusterEvent]:
    """Read a list of events and sort it, oldest first; the API server sorts by names, which mean nothing."""
    # Most events are dated to the second. Within one second the order in which the cluster stored them counts.
    return sorted((_event(tree) for tree in listed), key=lambda event: (int(event.last_s), event.stored))


def latest_distinct(events: Sequence[ClusterEvent]) -> tuple[str, ...]:
    """The last events for people, equal ones once with their total count."""
    distinct: dict[tuple[str, str], ClusterEvent] = {}
    for event in events:
        key = (event.reason, _POD_NAME.sub("", event.message))
        earlier = distinct.pop(key, None)  # removed and added again, so that it moves to the end
        if earlier is not None:
            event = replace(event, count=event.count + earlier.count)
        distinct[key] = event
    latest = list(distinct.values())[-MOST_SHOWN:]
    return tuple(str(event) for event in latest if event.reason)


def about(events: Sequence[ClusterEvent], uid: str) -> list[ClusterEvent]:
    """The events of one object, and those that do not say what they are about; all events if `uid` is empty."""
    return [event for event in events if not uid or not event.about or event.about == uid]


def _event(tree: Object) -> ClusterEvent:
    last_times = (
        timestamp_s(tree, "series", "lastObservedTime"),
        timestamp_s(tree, "lastTimestamp"),
        timestamp_s(tree, "deprecatedLastTimestamp"),
        timestamp_s(tree, "eventTime"),
        timestamp_s(tree, "metadata", "creationTimestamp"),
    )
    last_s = next((time for time in last_times if time is not None), 0.0)
    first_s = timestamp_s(tree, "firstTimestamp")
    counts = (number(tree, "series", "count"), number(tree, "count"), number(tree, "deprecatedCount"))
    version = text(tree, "metadata", "resourceVersion")
    return ClusterEvent(
        reason=text(tree, "reason"),
        message=text(tree, "message") or text(tree, "note"),
        about=text(tree, "involvedObject", "uid") or text(tree, "regarding", "uid"),
        field=text(tree, "involvedObject", "fieldPath") or text(tree, "regarding", "fieldPath"),
        count=next((count for count in counts if count), 1),
        first_s=last_s if first_s is None else min(first_s, last_s),
        last_s=last_s,
        stored=int(version) if version.isdecimal() else 0,
    )
