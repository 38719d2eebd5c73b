"""The nights of a month, a row for each platform: which had numbers, and below them the incidents as bars."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

from reporting.report.charts.markup import described, path, safe, words
from reporting.report.charts.prose import prose
from reporting.report.data import Condition, Incident, MonthReport, NightOfPlatform, NightState, PlatformMonth

WIDTH = 960
NIGHTS_AT = 190  # px, where the nights begin; the names of platforms stand before them
PITCH = 24  # px, of a night: 31 of them fit
CELL = 20
ROW = 30
BAR = 10  # of an incident, with the gap below it
LETTERS = 24  # of a platform's name
LEAST_FILLED = 3  # px: a night with few numbers is none without any
# Colours have one meaning on the whole page: those of conditions, and never one of their own.
CONDITIONS = {
    NightState.ALL: Condition.OK,
    NightState.SOME: Condition.SUSPECT,
    NightState.NONE: Condition.FAILED,
    NightState.PAUSED: Condition.PAUSED,
    NightState.NOTHING: Condition.BLIND,
}


def month_nights(month: MonthReport) -> str:
    """The picture of a month."""
    y = 24
    parts = list(_days(month))
    for platform in month.platforms:
        incidents = [one for one in month.incidents if one.platform == platform.name]
        parts += _row(platform, y)
        y += ROW
        for incident in incidents:
            parts.append(_bar(incident, month, y))
            y += BAR
        y += 4
    said = [f"{platform.name}: {platform.with_numbers} of {platform.asked}." for platform in month.platforms]
    title = f"The nights of {month.first} to {month.last}"
    return (
        f'<svg class="chart month-nights" role="img" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}">'
        f"{described(title, said)}{''.join(parts)}</svg>"
    )


def night_key(state: NightState) -> str:
    """How a night of this kind is drawn, as a small picture for a legend."""
    night = NightOfPlatform(datetime.date.min, state, 2, 1)
    return f'<svg class="chart key" width="{CELL}" height="{CELL}" aria-hidden="true">{_night(night, 0, 0)}</svg>'


def _x(night: datetime.date) -> int:
    return NIGHTS_AT + PITCH * (night.day - 1)


def _days(month: MonthReport) -> Iterator[str]:
    nights: Sequence[NightOfPlatform] = month.platforms[0].nights if month.platforms else ()
    for one in nights:
        if one.night.day == 1 or one.night.day % 5 == 0:
            yield words("mid", str(_x(one.night) + CELL // 2), 14, str(one.night.day))


def _row(platform: PlatformMonth, y: int) -> Iterator[str]:
    name = platform.name
    if len(name) > LETTERS:
        name = f"{name[: LETTERS - 1]}…"
    yield words("ink", "0", y + 15, name)
    for night in platform.nights:
        yield _night(night, _x(night.night), y)


def _night(night: NightOfPlatform, x: int, y: int) -> str:
    """A filled field for all, a part of it for some, a cross for none, bars for a pause, a dot for nothing asked."""
    if night.state is NightState.AHEAD:
        return ""
    if night.state is NightState.ALL:
        drawn = f'<rect class="fill" x="{x}" y="{y}" width="{CELL}" height="{CELL}" rx="2"/>'
    elif night.state is NightState.SOME:
        filled = max(LEAST_FILLED, round(CELL * night.with_numbers / night.asked))
        frame = f'<rect class="hollow" x="{x + 1}" y="{y + 1}" width="{CELL - 2}" height="{CELL - 2}"/>'
        top = y + CELL - filled
        drawn = f'{frame}<rect class="fill" x="{x}" y="{top}" width="{CELL}" height="{filled}"/>'
    elif night.state is NightState.NONE:
        drawn = path("beyond", f"M{x + 5} {y + 5}l10 10m0-10l-10 10")
    elif night.state is NightState.PAUSED:
        drawn = path("beyond", f"M{x + 7} {y + 4}v12m6-12v12")
    else:
        drawn = f'<circle class="fill" cx="{x + CELL // 2}" cy="{y + CELL // 2}" r="2.5"/>'
    title = f"<title>{night.night}: {night.state}, {night.with_numbers} of {night.asked}</title>"
    return f'<g class="k-{CONDITIONS[night.state]}">{title}{drawn}</g>'


def _bar(incident: Incident, month: MonthReport, y: int) -> str:
    """From the first to the last night of an incident; pointed at the side where it lies beyond the month."""
    first, last = month.first, month.last
    begin, end = "l-6 3l6 3", "l6-3l-6-3"  # points, as if it began before the month, and goes on
    if incident.since is not None and incident.since >= str(month.first):
        first = datetime.date.fromisoformat(incident.since)
        begin = "v6"
    if incident.until is not None:
        last = datetime.date.fromisoformat(incident.until) - datetime.timedelta(days=1)
        end = "v-6"
    outline = f"M{_x(first)} {y}{begin}H{_x(max(first, last)) + CELL}{end}z"
    title = f"<title>{safe(prose(incident.what))}</title>"
    return f'<g class="k-{incident.condition}"><path class="fill" d="{outline}">{title}</path></g>'
