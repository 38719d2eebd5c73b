"""A month of a site: availability, performance against the accepted levels, incidents, and what the runs have cost.

docs/month.md defines every number. Nothing here reads a file: a month is made of envelopes and of people's answers.
"""

from __future__ import annotations

import calendar
import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from platforms.job import Outcome, Role
from reporting.gate.course import window_of
from reporting.gate.series import Pin, RunValue, Series, learned, pin_of, series_of
from reporting.history.endings import ReadsEnding, by_outcome
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.history.run_facts import THROUGHPUT
from reporting.references.answers import References
from reporting.report.data import Condition
from reporting.report.month_incidents import MonthIncident, Period, incidents_in, spoken_name
from reporting.report.one_test import Asked, built_test, device_hours_of

RECENT = datetime.timedelta(days=31)
"""A platform whose last job is older than this before the month has no row, if nothing was asked of it in the month."""
REPEATS = (Role.CONFIRM, Role.PINNED)


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
class Standing:
    """Where a test stands at the month's end. Changes are fractions, negative is worse; None: not known.

    Attributes:
        metric: the effective throughput; of a test without it the first metric by name.
        level: what it is compared with, in `unit`: the accepted level, else the first pin. None while it learns.
        learned: how many runs it has learned from, while it has no level.
        value: the median of the last seven nights that have runs without doubt, in `unit`.
        change: of this value from the level; from_first_pin: from the first pin, of an accepted level.
        lowest, highest: the changes of the month's worst and best run without doubt, each from the level of its night.
        runs: how many runs without doubt the month has.
        condition: of the test at the month's end, with all answers that people have given until now.
    """

    test: str
    name: str
    metric: str
    unit: str
    level: float | None
    is_accepted: bool
    learned: int
    value: float | None
    change: float | None
    from_first_pin: float | None
    lowest: float | None
    highest: float | None
    runs: int
    condition: Condition


@dataclass(frozen=True)
class DeviceHours:
    """What the jobs of a month took, in device-hours.

    Attributes:
        measured: jobs that the tests asked for.
        repeats: of suspect runs.
        visits: of single nodes (`--each-node`), and jobs of users who checked their nodes (`--check`).
        comparisons: jobs of campaigns (`--label`) and A/B runs.
        jobs: how many jobs these are; not_counted: how many more have no times, or no known number of devices.
    """

    measured: float = 0.0
    repeats: float = 0.0
    visits: float = 0.0
    comparisons: float = 0.0
    jobs: int = 0
    not_counted: int = 0

    @property
    def total(self) -> float:
        return self.measured + self.repeats + self.visits + self.comparisons


@dataclass(frozen=True)
class PlatformMonth:
    """One platform in the month.

    Attributes:
        nights: all nights of the month.
        share: of the machine's device-hours in the nights until now; None if its number of devices is not known.
    """

    name: str
    nights: tuple[NightOfPlatform, ...]
    standings: tuple[Standing, ...]
    hours: DeviceHours
    share: float | None = None

    @property
    def asked(self) -> int:
        """The sum of all nights, as `with_numbers`."""
        return sum(night.asked for night in self.nights)

    @property
    def with_numbers(self) -> int:
        return sum(night.with_numbers for night in self.nights)

    @property
    def availability(self) -> float | None:
        """The share of what was asked for that has numbers; None if nothing was asked for."""
        return self.with_numbers / self.asked if self.asked else None

    def count(self, state: NightState) -> int:
        return sum(night.state is state for night in self.nights)


@dataclass(frozen=True)
class MonthData:
    """A month of a site.

    Attributes:
        first, last: its nights; `last` is tonight in a month that is not over.
        is_over: no night of it is to come.
        short_losses: losses that may be chance; they are no incidents.
    """

    site: str
    first: datetime.date
    last: datetime.date
    is_over: bool
    platforms: tuple[PlatformMonth, ...]
    incidents: tuple[MonthIncident, ...]
    made_at: datetime.datetime
    short_losses: tuple[MonthIncident, ...] = ()

    @property
    def hours(self) -> float:
        return sum(platform.hours.total for platform in self.platforms)

    @property
    def availability(self) -> float | None:
        asked = sum(platform.asked for platform in self.platforms)
        return sum(platform.with_numbers for platform in self.platforms) / asked if asked else None


def month_data(
    envelopes: Sequence[Envelope],
    references: References,
    site: str,
    month: datetime.date,
    night_ends: datetime.time,
    now: datetime.datetime,
    *,
    devices: Mapping[str, int] | None = None,
    ending: ReadsEnding = by_outcome,
) -> MonthData:
    """What a month of a site was.

    Args:
        envelopes: all jobs of the site, in the order of their starts.
        references: what people have answered until now. An answer that was given after the month counts, too.
        month: any day of it.
        night_ends: the hour at which the site's nights end.
        now: the present time. Nights after it are to come.
        devices: how many devices each platform has, as far as that is known.
        ending: reads how a job without numbers ended.
    """
    tonight = night_of(now.timestamp(), night_ends)
    end = month.replace(day=calendar.monthrange(month.year, month.month)[1])
    period = Period(month.replace(day=1), min(end, tonight), tonight, night_ends)
    until_then = [job for job in envelopes if period.night(job) <= period.last]
    of_platform: dict[str, list[Envelope]] = {}
    for job in until_then:
        of_platform.setdefault(job.platform, []).append(job)
    # A month that is over is judged as in its last night.
    at = now if tonight <= end else datetime.datetime.combine(end, night_ends)
    at_end = Asked(references, night_ends, at, with_sight=False)
    platforms = []
    for name, jobs in sorted(of_platform.items()):
        nights = tuple(_nights(name, jobs, references, period, end))
        in_month = [job for job in jobs if period.night(job) >= period.first]
        was_paused = any(night.state is NightState.PAUSED for night in nights)
        if in_month or was_paused or period.night(jobs[-1]) >= period.first - RECENT:
            hours = _device_hours(in_month)
            share = _share(hours, (devices or {}).get(name), period)
            platforms.append(PlatformMonth(name, nights, tuple(_standings(jobs, at_end, period)), hours, share))
    conditions = {standing.test: standing.condition for platform in platforms for standing in platform.standings}
    incidents = incidents_in(period, until_then, references, conditions, ending)
    return MonthData(
        site=site,
        first=period.first,
        last=period.last,
        is_over=tonight > end,
        platforms=tuple(platforms),
        incidents=tuple(incident for incident in incidents if not incident.may_be_chance),
        made_at=now.astimezone(),
        short_losses=tuple(incident for incident in incidents if incident.may_be_chance),
    )


def has_runs(envelopes: Iterable[Envelope], month: datetime.date, night_ends: datetime.time) -> bool:
    """Whether a night of the month has a job."""
    nights = (night_of(job.time_s, night_ends) for job in envelopes)
    return any((night.year, night.month) == (month.year, month.month) for night in nights)


# --- availability ----------------------------------------------------------------------------------------------------


def _nights(
    platform: str, jobs: Sequence[Envelope], references: References, period: Period, end: datetime.date
) -> list[NightOfPlatform]:
    of_night: dict[datetime.date, list[Envelope]] = {}
    tests = set()
    for job in jobs:
        if job.trial.in_series and job.outcome is not Outcome.SKIPPED and not job.is_vain_try:
            of_night.setdefault(period.night(job), []).append(job)
            tests.add(job.key.test)
    nights = []
    for day in range(1, end.day + 1):
        night = end.replace(day=day)
        asked = {job.key.test for job in of_night.get(night, []) if not _may_still_end(job, night, period)}
        having = {job.key.test for job in of_night.get(night, []) if job.has_numbers}
        if night > period.last:
            state = NightState.AHEAD
        elif asked:
            state = _state(len(asked), len(having))
        elif is_paused(platform, tests, references, night):
            state = NightState.PAUSED
        else:
            state = NightState.NOTHING
        nights.append(NightOfPlatform(night, state, len(asked), len(having)))
    return nights


def _may_still_end(job: Envelope, night: datetime.date, period: Period) -> bool:
    return job.outcome is Outcome.PENDING and night == period.tonight and not job.has_numbers


def _state(asked: int, with_numbers: int) -> NightState:
    if with_numbers == asked:
        return NightState.ALL
    return NightState.SOME if with_numbers else NightState.NONE


def is_paused(platform: str, tests: Iterable[str], references: References, night: datetime.date) -> bool:
    """Whether a platform, or all of its tests, were paused in a night by what people had said until then."""
    last = {pause.name: pause for pause in references.pauses if pause.author.at.date() <= night}
    names = {name for name, pause in last.items() if night <= pause.until}
    of_platform = set(tests)
    return platform in names or (bool(of_platform) and of_platform <= names)


# --- performance -----------------------------------------------------------------------------------------------------


def _standings(jobs: Sequence[Envelope], at_end: Asked, period: Period) -> list[Standing]:
    """The standings of a platform's tests that have numbers in the month, by name."""
    of_test: dict[str, list[Envelope]] = {}
    for job in jobs:
        if job.trial.in_series:
            of_test.setdefault(job.key.test, []).append(job)
    standings = []
    for of_this in of_test.values():
        with_numbers = [job for job in of_this if job.has_numbers]
        if with_numbers and period.night(with_numbers[-1]) >= period.first:
            condition = built_test(of_this, 0.0, {}, at_end).report.condition
            standings.append(_standing(with_numbers, condition, at_end.references, period))
    return sorted(standings, key=lambda standing: (standing.name, standing.test))


def _standing(jobs: Sequence[Envelope], condition: Condition, references: References, period: Period) -> Standing:
    """The standing of one test, from its jobs with numbers."""
    latest = jobs[-1]
    metric = THROUGHPUT if THROUGHPUT in latest.metrics else min(latest.metrics)
    series = series_of(metric, latest, jobs, period.night_ends)
    acceptance = references.acceptance(series.test, metric, series.comparability, period.last)
    pin = pin_of(series, acceptance)
    in_month = [run for run in series.runs if run.eligible and run.night >= period.first]
    value = None
    changes: list[float] = []
    if pin is not None and pin.level != 0 and in_month:
        recent = window_of(series, pin)
        value = median([run.value for run in recent]) if recent else None
        changes = [_change_then(run, series, pin, references) for run in in_month]
    is_accepted = pin is not None and pin.acceptance is not None
    anchor = acceptance.anchor if acceptance is not None and is_accepted else None
    return Standing(
        test=series.test,
        name=spoken_name(latest),
        metric=metric,
        unit=series.unit,
        level=None if pin is None else pin.level,
        is_accepted=is_accepted,
        learned=0 if pin is not None else len(learned(series)),
        value=value,
        change=None if value is None or pin is None else series.change(value, pin.level),
        from_first_pin=series.change(value, anchor) if value is not None and anchor else None,
        lowest=min(changes, default=None),
        highest=max(changes, default=None),
        runs=len(in_month),
        condition=condition,
    )


def _change_then(run: RunValue, series: Series, pin: Pin, references: References) -> float:
    """The change of a run from the level that counted in its night."""
    acceptance = references.acceptance(series.test, series.metric, series.comparability, run.night)
    then = pin_of(series, acceptance)
    level = pin.level if then is None or then.level == 0 else then.level
    return series.change(run.value, level)


# --- cost ------------------------------------------------------------------------------------------------------------


def _device_hours(jobs: Iterable[Envelope]) -> DeviceHours:
    hours = {"measured": 0.0, "repeats": 0.0, "visits": 0.0, "comparisons": 0.0}
    counted = not_counted = 0
    for job in jobs:
        taken = device_hours_of(job)
        if taken is None:
            not_counted += 1
            continue
        counted += 1
        hours[_purpose(job)] += taken
    return DeviceHours(**hours, jobs=counted, not_counted=not_counted)


def _purpose(job: Envelope) -> str:
    if job.trial.label is not None or job.trial.role is Role.AB:
        return "comparisons"
    if job.trial.role in REPEATS:
        return "repeats"
    return "measured" if job.trial.role is Role.MEASURE else "visits"


def _share(hours: DeviceHours, devices: int | None, period: Period) -> float | None:
    if not devices:
        return None
    nights = (period.last - period.first).days + 1
    return hours.total / (devices * 24 * nights)
