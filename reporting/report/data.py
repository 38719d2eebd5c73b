"""What a report says, as plain data: the page, the exports and a merge request's comment are made of this alone.

`python -m reporting data` writes it as JSON, with a schema (report_json.py). Fractions are 0.084 for 8.4 %, and a
negative change is worse whatever the metric's direction. Nights are ISO dates, as `2026-11-17`.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from reporting.compare.scaling import Scaling

SCHEMA = 1


def iso(night: datetime.date | None) -> str | None:
    """A night as reports have it: JSON and the page's script know no dates."""
    return None if night is None else str(night)


def date_of(night: str | None) -> datetime.date | None:
    """What `iso` was made of."""
    return None if night is None else datetime.date.fromisoformat(night)


class Condition(StrEnum):
    """How a series, or one of its runs, stands. The order is that of urgency."""

    SLOWER = "slower"
    """The gate is red: it is slower than its pin, or has left its series."""
    FAILED = "failed"
    """The last runs have no numbers."""
    SUSPECT = "suspect"
    """One run was far from the pin: its node is slow, it was chance, or no repeat says which."""
    ACKNOWLEDGED = "acknowledged"
    """It is slower than its pin. A person has said so and given a ticket."""
    BLIND = "blind"
    """No run without doubt for three nights."""
    PAUSED = "paused"
    FASTER = "faster"
    LEARNING = "learning"
    """It has no pin yet."""
    OK = "ok"


@dataclass(frozen=True)
class Point:
    """One run of a series.

    Attributes:
        started_s: Unix seconds.
        value: in the metric's unit; None for a job that failed or could not be run. Pending jobs are no points.
        condition: what the gate said when the run was recorded; FAILED without a value.
        said: the gate's short sentence; for a run without a value how it ended, as in `error`.
        comparable: the run belongs to the series of the last run. Others are shown, and compared with nothing.
        doubts: why it fills no pin, as in `throttled`.
        changes: what is not as it was at the run before, as in `driver 570.124 -> 580.65`.
    """

    night: str
    started_s: float
    run_id: str
    value: float | None
    condition: Condition
    said: str = ""
    comparable: bool = True
    nodes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Level:
    """What a series was compared with in some of its nights.

    Attributes:
        value: in the metric's unit.
        from_night: of the first run that it was made of, or from which on it was accepted.
        to_night: the last night before the next level; None of the present one.
        said: `median of 20 runs`, or the reason of an acceptance and who gave it.
        is_accepted: people have accepted it.
    """

    value: float
    from_night: str
    to_night: str | None
    said: str
    is_accepted: bool = False


@dataclass(frozen=True)
class Part:
    """One part of a step, in ms per step: `wait_ms`, `h2d_ms`, `stall_ms`, `step_ms` or `other_ms`.

    Attributes:
        before: the median before the change; of a series without a change that of the runs at its level. None if the
            runs did not say it.
        now: the median since the change; without a change of the last run.
    """

    name: str
    before: float | None
    now: float


@dataclass(frozen=True)
class SeriesReport:
    """One metric of a test.

    Attributes:
        value: of the last run with numbers, in `unit`.
        value_night: its night.
        pin: what it is compared with now; None while it learns.
        compared: what stands beside the pin, in `unit`: of a series that has changed the median of all runs since then,
            else what the gate compares: the last run, or the median of the last nights. None without a pin.
        compared_nights: of how many nights together it is the median; 1 for one run.
        change: of what was compared, relative to the pin; None without a pin.
        limit: the change beyond which it is red, positive.
        since: the first night of the change.
        since_run: the run with which it began, if earlier runs of that night are without it.
        kind: the gate's own word, which says more than `condition`: `drifted`, `left its series`, `node`.
        short: the verdict in a few words; text: the whole verdict, by which a person can recompute it.
        where: where in a step the change is, as in `all of it in the device step; input unchanged`; "" if not known.
        why: what has changed at the same time: provenance and people's notes; "" without a change.
        ticket: of an acknowledgement that holds.
        parts: of a step; empty where they are not known.
        no_split: why the device does not tell waiting from computing; "" if it does, or if that is not known.
    """

    metric: str
    unit: str
    better: Literal["higher", "lower"]
    condition: Condition
    kind: str
    value: float | None
    value_night: str | None
    pin: float | None
    change: float | None
    limit: float | None
    since: str | None
    since_run: str | None
    short: str
    text: str
    compared: float | None = None
    compared_nights: int = 1
    where: str = ""
    why: str = ""
    ticket: str = ""
    levels: tuple[Level, ...] = ()
    points: tuple[Point, ...] = ()
    parts: tuple[Part, ...] = ()
    no_split: str = ""

    def points_of_change(self) -> tuple[Point, ...]:
        """The points from the first run of the change on; none without a change."""
        if self.since is None:
            return ()
        points = [point for point in self.points if point.night >= self.since]
        began = next((place for place, point in enumerate(points) if point.run_id == self.since_run), 0)
        return tuple(points[began:])

    def level_in(self, night: str) -> float | None:
        """What it was compared with in a night; None if there was no level."""
        found = [one for one in self.levels if one.from_night <= night <= (one.to_night or night)]
        return found[-1].value if found else None


@dataclass(frozen=True)
class TestReport:
    """One test on one platform.

    Attributes:
        id: the test's id, the key of its history.
        workload: the benchmark, or the name of a test of another program: `resnet50`.
        setting: what the id says after the layout: `tuned`, `gbs32-smoke`; "" for nothing.
        device: the name of what it ran on; devices: how many. None if no run says it.
        condition: the most urgent one of its series.
        series: by metric; the first one is the effective throughput, where the test has one.
        folder: of its evidence, below runs/<run id>/.
        last_run: the run id of its last job, with numbers or not; "" if it has none.
        last_outcome: of that job: `passed`, `failed`, `error`, `skipped`, `pending`.
        failed_since: the first night without numbers in which a job failed, if none has had numbers since.
        failed_nights: how many nights have had such a job since.
        failed_as: how the last of these jobs ended, as in `node lost`; "" if none has failed since the last numbers.
        failed_why: why it ended so, in one line; "" if it is not known.
        failed_on: the names of its nodes.
        device_hours: that its jobs took in the nights of the report, repeats and visits included.
    """

    __test__ = False  # for pytest, which takes it for a test class

    id: str
    platform: str
    workload: str
    layout: str
    setting: str
    device: str | None
    devices: int | None
    condition: Condition
    series: tuple[SeriesReport, ...]
    folder: str
    last_run: str
    last_outcome: str
    failed_since: str | None = None
    failed_nights: int = 0
    failed_as: str = ""
    failed_why: str = ""
    failed_on: tuple[str, ...] = ()
    device_hours: float = 0.0


class Cause(StrEnum):
    """Why tests were slower or had no numbers, as far as the history says it. The first one that fits counts."""

    NODE = "node"
    """Repeats have named it."""
    CHANGE = "change of software or machine"
    INPUT = "input or storage"
    FAILED = "failed jobs"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Incident:
    """Tests of one platform that changed in the same way about the same night, or a slow node: one line of the answer.

    Attributes:
        condition: SLOWER, FAILED, SUSPECT or ACKNOWLEDGED; of an incident that is over as it was in its last night.
        since: the first night; None if it is not known.
        until: the first night in which all of its tests were well again; None while it lasts.
        nights: for how many nights it has lasted, the last night of the report included.
        tests: their ids, the worst first; none for a node that only its visits show as slow.
        of_tests: how many tests the platform has.
        worst, mildest: the changes of these tests, or of the node; None if they have no numbers.
        what: `3 of 6 tests are 6.1 to 8.4 % slower`, `resnet50 1x4gpu tuned is 8.4 % slower`.
        where: in which part of a step, and on which nodes.
        why: what changed at the same time, and what people noted; says so if nothing that is recorded has changed.
        answered: what people have done about it, as `accepted by ada on 2026-11-20`; "" for nothing.
    """

    condition: Condition
    platform: str
    since: str | None
    nights: int
    tests: tuple[str, ...]
    of_tests: int
    worst: float | None
    mildest: float | None
    what: str
    where: str
    why: str
    until: str | None = None
    cause: Cause = Cause.UNEXPLAINED
    answered: str = ""


@dataclass(frozen=True)
class PlatformReport:
    """A platform. `tests` is how many tests the report has of it, `paused` the reason and the day of a pause."""

    name: str
    tests: int
    conditions: dict[str, int]
    device: str | None
    device_hours: float
    last_night: str
    paused: str = ""


@dataclass(frozen=True)
class NodeReport:
    """A node beside the other nodes of its platform (docs/nodes.md).

    Attributes:
        standing: `slow`, `suspect`, `fit` or `not judged`.
        deviation, error: from the other nodes and its standard error, as fractions; None if not judged.
        slow_since: the night of the first of its last runs that were all slow; None if its last run was not.
        said: what is wrong with it, with its numbers; "" for a fit node.
    """

    platform: str
    name: str
    runs: int
    standing: str
    deviation: float | None
    error: float | None
    last_night: str
    suspicions: int
    slow_since: str | None = None
    said: str = ""


@dataclass(frozen=True)
class NoteReport:
    """What a person noted of a platform, accepted, acknowledged or paused: a mark in the trends."""

    night: str
    """Since when it counts: of an acceptance the first night of its level."""
    kind: Literal["note", "accept", "ack", "pause"]
    subject: str
    """A platform's name or a test's id."""
    text: str
    by: str
    given: str = ""
    """The day on which it was said."""


class NightState(StrEnum):
    """What a platform delivered in a night."""

    ALL = "all"
    """Every test that was asked for has numbers."""
    SOME = "some"
    NONE = "none"
    PAUSED = "paused"
    NOTHING = "nothing asked"
    AHEAD = "to come"


@dataclass(frozen=True)
class NightOfPlatform:
    """How many tests were asked of a platform in a night, and how many of them have numbers."""

    night: datetime.date
    state: NightState
    asked: int = 0
    with_numbers: int = 0


@dataclass(frozen=True)
class MonthTest:
    """Where a test that has numbers in a month stands at its end. All changes are those of `SeriesReport`.

    Attributes:
        metric, value, unit, pin, change: of the series that stands for the test.
        is_accepted: people have accepted the level that `pin` is.
    """

    id: str
    name: str
    condition: Condition
    metric: str
    value: float | None
    unit: str
    pin: float | None
    is_accepted: bool
    change: float | None


@dataclass(frozen=True)
class DeviceHours:
    """What the jobs of a month took, in device-hours.

    Attributes:
        measured: jobs that the tests asked for.
        repeats: of suspect runs.
        visits: of single nodes (`--each-node`), and jobs of users who checked their nodes (`--check`).
        comparisons: jobs of campaigns (`--label`) and A/B runs.
        not_counted: how many jobs have no times, or no known number of devices.
    """

    measured: float = 0.0
    repeats: float = 0.0
    visits: float = 0.0
    comparisons: float = 0.0
    not_counted: int = 0

    @property
    def total(self) -> float:
        return self.measured + self.repeats + self.visits + self.comparisons


@dataclass(frozen=True)
class PlatformMonth:
    """One platform in a month: all nights of it, its tests, and what its jobs took."""

    name: str
    nights: tuple[NightOfPlatform, ...]
    tests: tuple[MonthTest, ...]
    hours: DeviceHours

    @property
    def asked(self) -> int:
        """The sum of all nights, as `with_numbers`."""
        return sum(night.asked for night in self.nights)

    @property
    def with_numbers(self) -> int:
        return sum(night.with_numbers for night in self.nights)

    def count(self, state: NightState) -> int:
        return sum(night.state is state for night in self.nights)


@dataclass(frozen=True)
class MonthReport:
    """A month of a site.

    Attributes:
        first, last: its nights; `last` is tonight in a month that is not over.
        is_over: no night of it is to come.
        headline: it in one sentence.
        incidents: those of which a night lies in the month, in the order of their begin.
    """

    site: str
    first: datetime.date
    last: datetime.date
    is_over: bool
    headline: str
    platforms: tuple[PlatformMonth, ...]
    incidents: tuple[Incident, ...]


@dataclass(frozen=True)
class ReportData:
    """A whole report.

    Attributes:
        made_at: ISO time with its offset.
        night: the night that is taken for tonight; first_night: of the first run.
        headline: the answer in one sentence: `3 of 60 tests are slower, on eidf_a100 and archer2`.
        incidents: the most urgent first.
        conditions: how many tests have which condition.
        problems: what could not be read of the history and the answers, each a sentence.
        month: the month that was asked for.
        scalings: of each test that has run in several layouts in one session, the last such session.
    """

    schema: int
    site: str
    made_at: str
    night: str
    first_night: str
    headline: str
    incidents: tuple[Incident, ...]
    conditions: dict[str, int]
    platforms: tuple[PlatformReport, ...]
    tests: tuple[TestReport, ...]
    nodes: tuple[NodeReport, ...] = ()
    notes: tuple[NoteReport, ...] = ()
    problems: tuple[str, ...] = ()
    month: MonthReport | None = None
    scalings: tuple[Scaling, ...] = ()
