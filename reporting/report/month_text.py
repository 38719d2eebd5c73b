"""A month as tables of text: every number of its section of the page."""

from __future__ import annotations

import calendar
from collections.abc import Iterator, Sequence

from reporting.columns import aligned
from reporting.phrases import percent
from reporting.report.data import Incident, MonthReport, MonthTest, NightState, PlatformMonth
from reporting.report.month import hours_said, share
from reporting.tables.row import number

COUNTED = (NightState.ALL, NightState.SOME, NightState.NONE, NightState.PAUSED, NightState.NOTHING)


def month_name(month: MonthReport) -> str:
    """`November 2026`."""
    return f"{calendar.month_name[month.first.month]} {month.first.year}"


def month_lines(month: MonthReport) -> list[str]:
    """A month as lines."""
    ending = "" if month.is_over else "; the month is not over"
    return [
        f"{month_name(month)} at {month.site}, the nights of {month.first} to {month.last}{ending}",
        f"{month.headline}.",
        "",
        "Availability: tests that were asked for, and those of them that have numbers, summed over the nights",
        *_availability(month.platforms),
        "",
        "Tests: the change from the accepted level, or from the first pin",
        *_tests(month.platforms),
        "",
        "Incidents",
        *_incidents(month.incidents),
        "",
        "Device-hours",
        *_hours(month.platforms),
    ]


def _availability(platforms: Sequence[PlatformMonth]) -> list[str]:
    rows = [("platform", "asked", "with numbers", "share", *(f"nights: {state}" for state in COUNTED))]
    for platform in platforms:
        of_asked = share(platform.with_numbers, platform.asked)
        nights = [str(platform.count(state)) for state in COUNTED]
        rows.append((platform.name, str(platform.asked), str(platform.with_numbers), of_asked, *nights))
    return aligned(rows, (0,))


def _tests(platforms: Sequence[PlatformMonth]) -> list[str]:
    rows: list[tuple[str, ...]] = [("platform", "test", "state", "change", "last value", "level", "unit", "against")]
    rows += [_row(platform.name, test) for platform in platforms for test in platform.tests]
    return aligned(rows, (0, 1, 2, 6, 7)) if len(rows) > 1 else ["no test has numbers"]


def _row(platform: str, test: MonthTest) -> tuple[str, ...]:
    against = "accepted" if test.is_accepted else "first pin"
    if test.pin is None:
        against = "no level yet"
    change = percent(test.change)
    return platform, test.name, test.condition, change, number(test.value), number(test.pin), test.unit or "-", against


def _incidents(incidents: Sequence[Incident]) -> Iterator[str]:
    if not incidents:
        yield "no test was slower, and none was without numbers"
    for incident in incidents:
        yield f"{incident.platform}: {incident.what}, {dates_of(incident)}"
        yield f"  cause     {': '.join(filter(None, [incident.cause, incident.why]))}"
        if incident.where:
            yield f"  where     {incident.where}"
        yield f"  answer    {incident.answered or 'none'}"
        for place, test in enumerate(incident.tests):
            yield f"  {'tests' if place == 0 else '':8}  {test}"


def dates_of(incident: Incident) -> str:
    """`2026-11-12 until 2026-11-17`: the first night of it, and the first one that was well again."""
    if incident.until is None:
        return f"since {incident.since}, open"
    return f"{incident.since} until {incident.until}"


def _hours(platforms: Sequence[PlatformMonth]) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("platform", "measured", "repeats", "visits", "comparisons", "all", "jobs not counted")
    ]
    for platform in platforms:
        hours = platform.hours
        parts = (hours.measured, hours.repeats, hours.visits, hours.comparisons, hours.total)
        rows.append((platform.name, *map(hours_said, parts), str(hours.not_counted)))
    return aligned(rows, (0,))
