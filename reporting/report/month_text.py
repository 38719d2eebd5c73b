"""A month as tables of text: every number of its picture, and what the numbers are made of."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

from reporting.columns import aligned
from reporting.history.run_facts import THROUGHPUT
from reporting.phrases import counted, percent
from reporting.report.data import Condition
from reporting.report.month import MonthData, NightState, PlatformMonth, Standing
from reporting.report.month_incidents import MonthIncident
from reporting.tables.row import number

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
PERFORMANCE_HEADINGS: tuple[str, ...] = (
    "platform",
    "test",
    "against",
    "level",
    "now",
    "unit",
    "change",
    "lowest",
    "highest",
    "from first pin",
    "runs",
    "state",
)
HOURS_HEADINGS: tuple[str, ...] = (
    "platform",
    "measured",
    "repeats",
    "visits",
    "comparisons",
    "all",
    "of the machine",
    "jobs",
    "jobs not counted",
)
COUNTED = (NightState.ALL, NightState.SOME, NightState.NONE, NightState.PAUSED, NightState.NOTHING)


def month_name(day: datetime.date) -> str:
    """`November 2026`."""
    return f"{MONTHS[day.month - 1]} {day.year}"


def share(fraction: float | None) -> str:
    """`98.3 %`. What is not all is never shown as 100 %, and what is not nothing never as 0 %."""
    if fraction is None:
        return "-"
    rounded = round(100 * fraction, 1)
    if fraction < 1:
        rounded = min(rounded, 99.9)
    if fraction > 0:
        rounded = max(rounded, 0.1)
    return f"{rounded:.1f} %"


def hours_said(hours: float) -> str:
    """`412`, `4.12`: three significant figures, and whole hours from 100 on."""
    return f"{hours:.0f}" if hours >= 100 else f"{hours:.3g}"


def headline(month: MonthData) -> str:
    """The month in one sentence."""
    standings = [standing for platform in month.platforms for standing in platform.standings]
    slower = sum(standing.condition is Condition.SLOWER for standing in standings)
    still_open = sum(incident.end is None for incident in month.incidents)
    said = [f"{share(month.availability)} of what was asked for has numbers"]
    verb = "is" if slower == 1 else "are"
    ending = "at the end" if month.is_over else "now"
    said.append(f"{slower} of {len(standings)} tests {verb} slower {ending}")
    incidents = counted(len(month.incidents), "incident")
    said.append(f"{incidents}, {still_open or 'none'} open" if month.incidents else "no incident")
    said.append(f"{hours_said(month.hours)} device-hours")
    return "; ".join(said)


def month_lines(month: MonthData) -> list[str]:
    """Everything that the picture shows, as lines."""
    ending = "" if month.is_over else "; the month is not over"
    return [
        f"{month_name(month.first)} at {month.site}, the nights of {month.first} to {month.last}{ending}",
        f"{headline(month)}.",
        "",
        "Availability: tests that were asked for, and those of them that have numbers, summed over the nights",
        *_availability(month.platforms),
        "",
        "Performance: the median of the last seven nights from the accepted level, or the first pin",
        *_performance(month.platforms),
        "",
        "Incidents",
        *_incidents(month),
        "",
        "Device-hours",
        *_hours(month.platforms),
    ]


def _availability(platforms: Sequence[PlatformMonth]) -> list[str]:
    rows = [("platform", "asked", "with numbers", "share", *(f"nights: {state}" for state in COUNTED))]
    for platform in platforms:
        nights = [str(platform.count(state)) for state in COUNTED]
        rows.append(
            (platform.name, str(platform.asked), str(platform.with_numbers), share(platform.availability), *nights)
        )
    return aligned(rows, (0,))


def _performance(platforms: Sequence[PlatformMonth]) -> list[str]:
    rows = [PERFORMANCE_HEADINGS]
    for platform in platforms:
        rows += [_performance_row(platform.name, standing) for standing in platform.standings]
    return aligned(rows, (0, 1, 2, 5, 11)) if len(rows) > 1 else ["no test has numbers"]


def _performance_row(platform: str, standing: Standing) -> tuple[str, ...]:
    against = "accepted" if standing.is_accepted else "first pin"
    if standing.level is None:
        against = f"learning {standing.learned} of 20"
    changes = (standing.change, standing.lowest, standing.highest, standing.from_first_pin)
    return (
        platform,
        standing.name if standing.metric == THROUGHPUT else f"{standing.name} ({standing.metric.replace('_', ' ')})",
        against,
        number(standing.level),
        number(standing.value),
        standing.unit or "-",
        *("-" if change is None else percent(change) for change in changes),
        str(standing.runs),
        standing.condition.value,
    )


def _incidents(month: MonthData) -> list[str]:
    if not month.incidents and not month.short_losses:
        return ["no test was slower, and none was without numbers"]
    lines = []
    for incident in month.incidents:
        lines += [f"{incident.platform}: {incident.what}, {dates_of(incident)}", *_reasons(incident)]
    if month.short_losses:
        lines.append(f"{short_losses_said(month.short_losses)}:")
    for loss in month.short_losses:
        lines.append(f"  {loss.platform}: {loss.what}, {dates_of(loss)}; {loss.why}")
    return lines


def _reasons(incident: MonthIncident) -> Iterator[str]:
    yield f"  cause     {incident.cause}: {incident.why}" if incident.why else f"  cause     {incident.cause}"
    yield f"  answer    {incident.answered or 'none'}"
    yield f"  nights    {counted(len(incident.nights), 'night')}: {ranges_of(incident.nights)}"
    for place, test in enumerate(incident.tests):
        yield f"  {'tests' if place == 0 else '':8}  {test}"


def ranges_of(nights: Sequence[datetime.date]) -> str:
    """The nights of one month, in their order: `2026-11-01 to 11-16, 11-18`."""
    runs: list[list[datetime.date]] = []
    for night in nights:
        if runs and night - runs[-1][-1] == datetime.timedelta(days=1):
            runs[-1].append(night)
        else:
            runs.append([night])
    said = [f"{run[0]:%m-%d} to {run[-1]:%m-%d}" if len(run) > 1 else f"{run[0]:%m-%d}" for run in runs]
    return f"{nights[0]:%Y-}{', '.join(said)}"


def short_losses_said(losses: Sequence[MonthIncident]) -> str:
    """`3 short losses of at most 1.3 % went away by themselves, which may be chance`."""
    largest = f"{100 * max(-(loss.worst or 0.0) for loss in losses):.1f} %"
    if len(losses) == 1:
        return f"1 short loss of {largest} went away by itself, which may be chance"
    return f"{len(losses)} short losses of at most {largest} went away by themselves, which may be chance"


def dates_of(incident: MonthIncident) -> str:
    """`2026-11-12 until 2026-11-17`: the first night of it, and the first one that was well again."""
    if incident.end is None:
        return f"since {incident.begin}, open"
    return f"{incident.begin} until {incident.end}"


def _hours(platforms: Sequence[PlatformMonth]) -> list[str]:
    rows = [HOURS_HEADINGS]
    for platform in platforms:
        hours = platform.hours
        parts = (hours.measured, hours.repeats, hours.visits, hours.comparisons, hours.total)
        rows.append(
            (
                platform.name,
                *map(hours_said, parts),
                "-" if platform.share is None else f"{100 * platform.share:.2g} %",
                str(hours.jobs),
                str(hours.not_counted),
            )
        )
    return aligned(rows, (0,))
