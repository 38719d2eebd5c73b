"""A month of a site: availability, where its tests stand, incidents, and what the runs have cost.

docs/report.md defines the numbers. A month that is over is judged as in its last night, with all answers that people
have given until now: what they accept later was no loss.
"""

from __future__ import annotations

import calendar
import datetime
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from platforms.job import Outcome, Role
from reporting.history.envelope import Envelope
from reporting.report.data import (
    Condition,
    DeviceHours,
    Incident,
    MonthReport,
    MonthTest,
    NightOfPlatform,
    NightState,
    PlatformMonth,
)
from reporting.report.episodes import episodes_since
from reporting.report.incidents import together
from reporting.report.one_test import Asked, BuiltTest, device_hours_of, devices_of

RECENT = datetime.timedelta(days=31)
"""A platform whose last job is older than this before the month has no row, if nothing was asked of it in the month."""
# What confirms a suspect run is no measurement that a test asked for, so its cost is told apart.
REPEATS = (Role.CONFIRM, Role.PINNED)


@dataclass(frozen=True)
class Period:
    """A month until now: `last` is tonight in a month that is not over, and `end` its last day in any case."""

    first: datetime.date
    last: datetime.date
    end: datetime.date

    @property
    def is_over(self) -> bool:
        return self.last == self.end


def period_of(month: datetime.date, asked: Asked) -> tuple[Period, Asked]:
    """A month by any day of it, and what is asked at its end."""
    end = month.replace(day=calendar.monthrange(month.year, month.month)[1])
    now = asked.now
    if asked.tonight > end:
        now = datetime.datetime.combine(end, asked.night_ends)
    last = min(end, asked.tonight)
    return Period(month.replace(day=1), last, end), replace(asked, now=now)


def month_report(
    site: str, period: Period, tests: Sequence[BuiltTest], envelopes: Sequence[Envelope], asked: Asked
) -> MonthReport:
    """What a month of a site was.

    Args:
        tests: of the site, as they stood in its last night.
        envelopes: all jobs until then, in the order of their starts.
        asked: what was asked at that time.
    """
    platforms = tuple(_platforms(period, tests, envelopes, asked))
    shown = {platform.name for platform in platforms}
    episodes = [
        episode
        for test in tests
        if test.report.platform in shown
        for episode in episodes_since(test, period.first, asked)
    ]
    of_platform = Counter(test.report.platform for test in tests)
    incidents = sorted(together(episodes, of_platform, asked), key=lambda one: (one.since or "", one.platform))
    return MonthReport(
        site=site,
        first=period.first,
        last=period.last,
        is_over=period.is_over,
        headline=_headline(platforms, incidents, is_over=period.is_over),
        platforms=platforms,
        incidents=tuple(incidents),
    )


def share(part: int, whole: int) -> str:
    """`98.3 %`. What is not all is never shown as 100 %, and what is not nothing never as 0 %."""
    if not whole:
        return "-"
    rounded = round(100 * part / whole, 1)
    if part < whole:
        rounded = min(rounded, 99.9)
    if part > 0:
        rounded = max(rounded, 0.1)
    return f"{rounded:.1f} %"


def hours_said(hours: float) -> str:
    """`412`, `4.12`: three significant figures, and whole hours from 100 on."""
    return f"{hours:.0f}" if hours >= 100 else f"{hours:.3g}"


def _headline(platforms: Sequence[PlatformMonth], incidents: Sequence[Incident], *, is_over: bool) -> str:
    """The month in one sentence."""
    tests = [test for platform in platforms for test in platform.tests]
    slower = sum(test.condition is Condition.SLOWER for test in tests)
    verb = "is" if slower == 1 else "are"
    when = "at the end" if is_over else "now"
    still_open = sum(incident.until is None for incident in incidents)
    told = "no incident"
    if incidents:
        noun = "incident" if len(incidents) == 1 else "incidents"
        told = f"{len(incidents)} {noun}, {still_open or 'none'} open"
    with_numbers = sum(platform.with_numbers for platform in platforms)
    asked = sum(platform.asked for platform in platforms)
    hours = sum(platform.hours.total for platform in platforms)
    return (
        f"{share(with_numbers, asked)} of what was asked for has numbers; "
        f"{slower} of {len(tests)} tests {verb} slower {when}; {told}; {hours_said(hours)} device-hours"
    )


def _platforms(
    period: Period, tests: Sequence[BuiltTest], envelopes: Sequence[Envelope], asked: Asked
) -> Iterator[PlatformMonth]:
    of_platform: dict[str, list[Envelope]] = {}
    for job in envelopes:
        of_platform.setdefault(job.platform, []).append(job)
    for name, jobs in sorted(of_platform.items()):
        nights = tuple(_nights(name, jobs, period, asked))
        in_month = [job for job in jobs if asked.night(job) >= period.first]
        was_paused = any(night.state is NightState.PAUSED for night in nights)
        if in_month or was_paused or asked.night(jobs[-1]) >= period.first - RECENT:
            own = [test for test in tests if test.report.platform == name]
            yield PlatformMonth(name, nights, tuple(_tests(own, period)), _device_hours(in_month))


def _nights(platform: str, jobs: Sequence[Envelope], period: Period, asked: Asked) -> Iterator[NightOfPlatform]:
    """All nights of the month. A test is asked for in a night that has a job of it in its series."""
    of_night: dict[datetime.date, list[Envelope]] = {}
    tests = set()
    for job in jobs:
        if job.trial.in_series and job.outcome is not Outcome.SKIPPED and not job.is_vain_try:
            of_night.setdefault(asked.night(job), []).append(job)
            tests.add(job.key.test)
    for day in range(1, period.end.day + 1):
        night = period.end.replace(day=day)
        # A job that still runs tonight is not missing yet; after its night it is one without numbers.
        judged = [job for job in of_night.get(night, []) if not _may_still_end(job, asked)]
        wanted = {job.key.test for job in judged}
        having = {job.key.test for job in judged if job.has_numbers}
        if night > period.last:
            state = NightState.AHEAD
        elif wanted == having:
            state = NightState.ALL if wanted else _without_jobs(platform, tests, night, asked)
        else:
            state = NightState.SOME if having else NightState.NONE
        yield NightOfPlatform(night, state, len(wanted), len(having))


def _may_still_end(job: Envelope, asked: Asked) -> bool:
    return job.outcome is Outcome.PENDING and asked.night(job) == asked.tonight and not job.has_numbers


def _without_jobs(platform: str, tests: Iterable[str], night: datetime.date, asked: Asked) -> NightState:
    """Whether a platform, or each of its tests, was paused in a night in which nothing was asked for."""
    pauses = [asked.references.pause(test, platform, night) for test in tests]
    pauses = pauses or [asked.references.pause("", platform, night)]
    return NightState.NOTHING if None in pauses else NightState.PAUSED


def _tests(tests: Sequence[BuiltTest], period: Period) -> Iterator[MonthTest]:
    """Where the tests stand that have numbers in the month."""
    for test in tests:
        report = test.report
        if not report.series or (report.series[0].value_night or "") < str(period.first):
            continue
        series = next((one for one in report.series if one.condition is report.condition), report.series[0])
        yield MonthTest(
            id=report.id,
            name=test.named(series.metric),
            condition=report.condition,
            metric=series.metric,
            value=series.value,
            unit=series.unit,
            pin=series.pin,
            is_accepted=any(level.is_accepted and level.value == series.pin for level in series.levels),
            change=series.change,
        )


def _device_hours(jobs: Iterable[Envelope]) -> DeviceHours:
    """Devices x (end - start) of all jobs, also of those that failed, by why they were begun."""
    hours = {"measured": 0.0, "repeats": 0.0, "visits": 0.0, "comparisons": 0.0}
    not_counted = 0
    for job in jobs:
        taken = device_hours_of(devices_of(job), job.started_s, job.ended_s)
        if taken is None:
            not_counted += 1
        else:
            hours[_purpose(job)] += taken
    return DeviceHours(**hours, not_counted=not_counted)


def _purpose(job: Envelope) -> str:
    if job.trial.label is not None or job.trial.role is Role.AB:
        return "comparisons"
    if job.trial.role in REPEATS:
        return "repeats"
    if job.trial.role is Role.MEASURE:
        return "measured"
    return "visits"
