"""Adds to the history what it does not have yet, so that the same results can be imported every night."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from reporting.history.envelope import Envelope, Key
from reporting.history.nights import night_of
from reporting.history.reader import CLOCKS_DIFFER_S
from reporting.imports.directions import Direction

Identity = tuple[object, ...]

_ROUNDED_S = 1.0  # some files have times to the second


def identity(envelope: Envelope) -> Identity:
    """What is the same for one job in every file that records it.

    A results database, a report and a perflog of ReFrame name the session differently. Their times of a job with an id
    overlap: those of an old report are its session's.
    """
    key = envelope.key
    if envelope.ended_s is None:
        return tuple(key)
    return key.site, key.test, key.job_id or int(envelope.ended_s)


@dataclass
class Known:
    """What the history has of some tests.

    Attributes:
        jobs: those of each identity: a scheduler gives its ids again.
        directions: by check and metric. All tests that a check is parametrised into share them.
        first_nights: the first night of each test, by site and test. Older runs would move its pin.
    """

    jobs: dict[Identity, dict[Key, Envelope]] = field(default_factory=dict)
    directions: dict[tuple[str, str], Direction] = field(default_factory=dict)
    first_nights: dict[tuple[str, str], datetime.date] = field(default_factory=dict)

    def add(self, envelope: Envelope) -> None:
        self.jobs.setdefault(identity(envelope), {})[envelope.key] = envelope
        for name, metric in envelope.metrics.items():
            self.directions[envelope.benchmark or "", name] = metric.better

    def find(self, envelope: Envelope) -> Envelope | None:
        """The same job, if the history has it."""
        for job in self.jobs.get(identity(envelope), {}).values():
            end_s = min(job.ended_s or job.time_s, envelope.ended_s or envelope.time_s)
            if max(job.time_s, envelope.time_s) < end_s + _ROUNDED_S:
                return job
        return None


def known_of(history: Iterable[Envelope], night_ends: datetime.time) -> Known:
    """What the history has. It is in the order of its runs."""
    known = Known()
    for envelope in history:
        known.add(envelope)
        series = envelope.key.site, envelope.key.test
        known.first_nights.setdefault(series, night_of(envelope.time_s, night_ends))
    return known


@dataclass
class Count:
    """What an import has done, in envelopes. Runs that are too old or in the future are left out."""

    new: int = 0
    changed: int = 0
    already_there: int = 0
    too_old: int = 0
    in_future: int = 0
    tests: set[str] = field(default_factory=set)
    nights: set[datetime.date] = field(default_factory=set)


def missing(
    envelopes: Iterable[Envelope],
    known: Known,
    count: Count,
    night_ends: datetime.time,
    since: datetime.date | None = None,
) -> Iterator[Envelope]:
    """The envelopes to write: those of jobs that the history does not have, or has with other numbers.

    An envelope with other numbers has the key of the one that it replaces.

    Args:
        known: it also gets what is given out, so that no job is given out twice.
        count: it is kept up to date.
        since: the first night that is taken; None for the first one that the history has of a test.
    """
    for envelope in envelopes:
        if envelope.time_s > envelope.written_s + CLOCKS_DIFFER_S:
            count.in_future += 1
            continue
        night = night_of(envelope.time_s, night_ends)
        first = since or known.first_nights.get((envelope.key.site, envelope.key.test), night)
        if night < first:
            count.too_old += 1
            continue
        count.tests.add(envelope.key.test)
        count.nights.add(night)
        found = known.find(envelope)
        if found is None:
            count.new += 1
        elif found.metrics == envelope.metrics:
            count.already_there += 1
            continue
        else:
            envelope = replace(envelope, key=found.key)
            count.changed += 1
        known.add(envelope)
        yield envelope
