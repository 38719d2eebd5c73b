"""Draws a month as one picture, 1600 px wide, for a centre's own report. It needs nothing but a font."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from reporting.phrases import percent
from reporting.report.charts.markup import described, safe, short
from reporting.report.charts.scales import day, round_ticks
from reporting.report.data import Condition
from reporting.report.month import MonthData, NightOfPlatform, NightState, PlatformMonth, Standing
from reporting.report.month_incidents import Cause, MonthIncident
from reporting.report.month_text import headline, hours_said, month_name, share, short_losses_said

FONTS = (
    "'DejaVu Sans','Liberation Sans','Noto Sans','Open Sans',Arial,Helvetica,Roboto,Ubuntu,Cantarell,'Nimbus Sans',"
    "FreeSans,Verdana,Tahoma,'Segoe UI',sans-serif"
)
WIDTH = 1600
LEFT = 40
RIGHT = 1560
NIGHTS_AT = 226  # px, where the nights begin; the names of platforms stand before them
PITCH = 15  # px, of a night
SHARE_AT = 780
CHANGES_AT = 830
CHANGES_WIDTH = 400
HOURS_AT = 1280
HOURS_WIDTH = 150
ROW = 58
LANE = 5  # px, of a test in the row of its platform
MOST_LANES = 7
INCIDENT_ROW = 54
MOST_INCIDENTS = 14
INCIDENT_TEXT_AT = 726
LETTER = 0.54
"""The width of a mean letter, as a share of its size. Texts that are longer than their place are cut."""
LEAST_CHANGE, MOST_CHANGE = -0.25, 0.15
"""Changes beyond these stand at the edge."""
NAMED_LOSS = -0.01  # the worst test of a platform is named if it has lost so much

STYLE = f"""
text{{font-family:{FONTS};font-size:16px;fill:#1c2024}}
.title{{font-size:36px;font-weight:bold}}
.said{{font-size:20px}}
.head{{font-size:18px;font-weight:bold}}
.name{{font-size:18px}}
.muted{{fill:#5b636c}}
.small{{font-size:15px;fill:#5b636c}}
.end{{text-anchor:end}}
.mid{{text-anchor:middle}}
.line{{stroke:#dfe3e8;stroke-width:1}}
.zero{{stroke:#1c2024;stroke-width:1.5}}
"""
NIGHT_COLOURS: Mapping[NightState, str] = MappingProxyType(
    {
        NightState.ALL: "#8cc5aa",
        NightState.SOME: "#d98e04",
        NightState.NONE: "#c62828",
        NightState.PAUSED: "#7d8590",
        NightState.NOTHING: "#aab2ba",
    }
)
CAUSE_COLOURS: Mapping[Cause, str] = MappingProxyType(
    {
        Cause.NODE: "#a15c00",
        Cause.CHANGE: "#1565c0",
        Cause.INPUT: "#00796b",
        Cause.FAILED: "#7b1fa2",
        Cause.UNEXPLAINED: "#c62828",
    }
)
HOUR_COLOURS = ("#5b7fa6", "#d98e04", "#8d6bb0", "#7d8590")
HOUR_PARTS = ("measured", "repeats", "visits", "comparisons")


@dataclass(frozen=True)
class ChangeScale:
    """Changes from `low` to `high` over the width of their column."""

    low: float
    high: float

    def x(self, change: float) -> float:
        inside = min(max(change, self.low), self.high)
        return CHANGES_AT + CHANGES_WIDTH * (inside - self.low) / (self.high - self.low)


def month_svg(month: MonthData) -> str:
    """The picture of a month."""
    y = 150
    parts = [*_heading(month), *_columns(month, y)]
    scale = _change_scale(month)
    top = y + 44
    parts += _change_axis(scale, top, ROW * len(month.platforms))
    largest = max((platform.hours.total for platform in month.platforms), default=0.0)
    for place, platform in enumerate(month.platforms):
        parts += _platform(platform, scale, largest, top + ROW * place)
    y = top + ROW * len(month.platforms) + 30
    parts += _legend(month, y)
    y += 66
    incidents, y = _incidents(month, y)
    parts += incidents
    made = f"{month.site}, made {month.made_at:%Y-%m-%d %H:%M} by python -m reporting month {month.first:%Y-%m}"
    parts.append(_text("small", LEFT, y + 20, f"{made}; docs/month.md defines the numbers"))
    height = y + 44
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img">{described(f"{month_name(month.first)} at {month.site}", [headline(month)])}'
        f'<style>{STYLE}</style><rect width="{WIDTH}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _text(classes: str, x: float, y: float, text: str) -> str:
    return f'<text class="{classes}" x="{short(x)}" y="{short(y)}">{safe(text)}</text>'


def _cut(text: str, width: float, size: float) -> str:
    """A text that fits into so many px, with an ellipsis if it had to be cut."""
    most = max(int(width / (LETTER * size)), 1)
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _heading(month: MonthData) -> Iterator[str]:
    yield _text("title", LEFT, 58, _cut(f"{month_name(month.first)}, {month.site}", RIGHT - LEFT - 300, 36))
    nights = "the whole month" if month.is_over else f"until the night of {day(str(month.last), str(month.last))}"
    yield _text("said muted end", RIGHT, 58, nights)
    yield _text("said", LEFT, 98, _cut(f"{headline(month)}.", RIGHT - LEFT, 20))
    yield f'<path class="line" d="M{LEFT} 118H{RIGHT}"/>'


def _columns(month: MonthData, y: int) -> Iterator[str]:
    """The headings of the columns, and the days above the nights."""
    yield _text("head", NIGHTS_AT, y, "Availability by night")
    yield _text("head", CHANGES_AT, y, "Change from accepted level or first pin")
    yield _text("head", HOURS_AT, y, "Device-hours of the runs")
    yield from _days(month, y + 30)


def _days(month: MonthData, y: int) -> Iterator[str]:
    for number in range(1, _days_of(month) + 1):
        if number == 1 or number % 5 == 0:
            yield _text("small mid", NIGHTS_AT + PITCH * (number - 0.5), y, str(number))


def _days_of(month: MonthData) -> int:
    following = (month.first + datetime.timedelta(days=31)).replace(day=1)
    return (following - month.first).days


# --- one platform ----------------------------------------------------------------------------------------------------


def _platform(platform: PlatformMonth, scale: ChangeScale, largest: float, y: int) -> Iterator[str]:
    """The row of a platform: its nights, its tests, its cost."""
    yield f'<path class="line" d="M{LEFT} {y + ROW - 1}H{RIGHT}"/>'
    yield _text("name", LEFT, y + 33, _cut(platform.name, NIGHTS_AT - LEFT - 10, 18))
    for place, night in enumerate(platform.nights):
        yield _night(night, NIGHTS_AT + PITCH * place, y + 14)
    yield _text("name end", SHARE_AT, y + 26, share(platform.availability))
    yield _text("small end", SHARE_AT, y + 44, f"{platform.with_numbers}/{platform.asked}")
    yield from _changes(platform.standings, scale, y)
    yield from _hours(platform, largest, y)


def _night(night: NightOfPlatform, x: int, y: int) -> str:
    """A filled field for all, a part of it for some, a cross for none, bars for a pause, a dot for nothing asked."""
    colour = NIGHT_COLOURS.get(night.state, "")
    title = f"<title>{night.night}: {night.state}, {night.with_numbers} of {night.asked}</title>"
    if night.state is NightState.ALL:
        return f'<rect x="{x}" y="{y}" width="{PITCH - 2}" height="26" rx="2" fill="{colour}">{title}</rect>'
    if night.state is NightState.SOME:
        filled = max(4, min(22, round(26 * night.with_numbers / night.asked)))
        frame = f'<rect x="{x + 1}" y="{y + 1}" width="{PITCH - 4}" height="24" rx="1" fill="#fff" stroke="{colour}" '
        part = f'<rect x="{x + 1}" y="{y + 25 - filled}" width="{PITCH - 4}" height="{filled}" fill="{colour}"/>'
        return f'<g>{title}{frame}stroke-width="2"/>{part}</g>'
    if night.state is NightState.NONE:
        cross = f"M{x + 1.5} {y + 7.5}l10 11m0-11l-10 11"
        return f'<g>{title}<path d="{cross}" stroke="{colour}" stroke-width="3" stroke-linecap="round"/></g>'
    if night.state is NightState.PAUSED:
        return f'<path d="M{x + 4.5} {y + 6}v14m4-14v14" stroke="{colour}" stroke-width="2.5">{title}</path>'
    if night.state is NightState.NOTHING:
        return f'<circle cx="{x + 6.5}" cy="{y + 13}" r="2" fill="{colour}">{title}</circle>'
    return ""


def _change_scale(month: MonthData) -> ChangeScale:
    changes = [-0.03, 0.02]
    for platform in month.platforms:
        for standing in platform.standings:
            known = (standing.change, standing.lowest, standing.highest, standing.from_first_pin)
            changes += [change for change in known if change is not None]
    return ChangeScale(max(min(changes) - 0.005, LEAST_CHANGE), min(max(changes) + 0.005, MOST_CHANGE))


def _change_axis(scale: ChangeScale, y: int, height: int) -> Iterator[str]:
    for tick in round_ticks(scale.low, scale.high, 6):
        x = short(round(scale.x(tick), 1))
        kind = "zero" if abs(tick) < 1e-9 else "line"
        yield f'<path class="{kind}" d="M{x} {y - 6}v{height + 6}"/>'
        label = "0" if abs(tick) < 1e-9 else f"{100 * tick:+g} %"
        yield f'<text class="small mid" x="{x}" y="{y - 14}">{label}</text>'


def _changes(standings: Sequence[Standing], scale: ChangeScale, y: int) -> Iterator[str]:
    """A line for the range of each test in the month, and a mark where it stands; the worst one is named."""
    known = [standing for standing in standings if standing.change is not None]
    if not known:
        text = "no numbers" if not standings else f"no level yet: {_learning(standings)}"
        yield _text("small", CHANGES_AT + 8, y + 33, text)
        return
    lanes = min(len(known), MOST_LANES)
    first = y + 20 - LANE * (lanes - 1) / 2
    for place, standing in enumerate(known):
        yield from _change(standing, scale, first + LANE * (place % MOST_LANES))
    worst = min(known, key=lambda standing: standing.change or 0.0)
    if worst.change is not None and worst.change <= NAMED_LOSS:
        text = f"{worst.name} {percent(worst.change)}"
        yield _text("small", CHANGES_AT + 4, y + 51, _cut(text, CHANGES_WIDTH, 15))


def _learning(standings: Sequence[Standing]) -> str:
    return "1 test learns" if len(standings) == 1 else f"{len(standings)} tests learn"


def _change(standing: Standing, scale: ChangeScale, y: float) -> Iterator[str]:
    place = standing.change or 0.0
    title = f"<title>{safe(f'{standing.test}: {percent(place)}')}</title>"
    if standing.lowest is not None and standing.highest is not None:
        begin, end = scale.x(standing.lowest), scale.x(standing.highest)
        line = f"M{short(begin)} {short(y)}H{short(end)}"
        yield f'<path d="{line}" stroke="#b4bcc4" stroke-width="2.5" stroke-linecap="round"/>'
    if standing.from_first_pin is not None:
        x = scale.x(standing.from_first_pin)
        shape = f"M{short(x)} {short(y - 5)}l5 5l-5 5l-5-5z"
        yield f'<path d="{shape}" fill="#fff" stroke="#5b636c" stroke-width="1.5"/>'
    x = scale.x(place)
    if standing.condition is Condition.SLOWER:
        yield f'<path d="M{short(x - 6)} {short(y - 5)}h12l-6 11z" fill="#c62828" stroke="#fff">{title}</path>'
    elif standing.condition is Condition.ACKNOWLEDGED:
        yield f'<path d="M{short(x)} {short(y - 6)}l6 6l-6 6l-6-6z" fill="#d98e04" stroke="#fff">{title}</path>'
    else:
        yield f'<circle cx="{short(x)}" cy="{short(y)}" r="4.5" fill="#2e6f4f" stroke="#fff">{title}</circle>'


def _hours(platform: PlatformMonth, largest: float, y: int) -> Iterator[str]:
    """What was measured, repeated, visited and compared, as one bar; the sum, and its share of the machine."""
    hours = platform.hours
    x = float(HOURS_AT)
    for part, colour in zip(HOUR_PARTS, HOUR_COLOURS, strict=True):
        width = HOURS_WIDTH * getattr(hours, part) / largest if largest else 0.0
        if width > 0:
            yield f'<rect x="{short(x)}" y="{y + 17}" width="{short(width)}" height="20" fill="{colour}"/>'
        x += width
    said = hours_said(hours.total) if hours.jobs or not hours.not_counted else "not known"
    yield _text("name end", RIGHT, y + 33, said)
    if platform.share is not None:
        yield _text("small end", RIGHT, y + 52, f"{100 * platform.share:.2g} % of the machine")
    elif hours.not_counted:
        yield _text(
            "small end", RIGHT, y + 52, f"{hours.not_counted} {'job' if hours.not_counted == 1 else 'jobs'} not counted"
        )


def _legend(month: MonthData, y: int) -> Iterator[str]:
    """What the marks of each column mean."""
    x = NIGHTS_AT
    night = month.first
    for state in (NightState.ALL, NightState.SOME, NightState.NONE, NightState.PAUSED, NightState.NOTHING):
        yield f"<g>{_night(NightOfPlatform(night, state, 2, 1), x, y - 18)}</g>"
        yield _text("small", x + 19, y, state.value)
        x += 30 + round(LETTER * 15 * len(state.value)) + 8
    yield _text("small", NIGHTS_AT, y + 24, "tests with numbers / tests asked for, summed over the nights")
    yield f'<circle cx="{CHANGES_AT + 5}" cy="{y - 5}" r="4.5" fill="#2e6f4f"/>'
    yield _text("small", CHANGES_AT + 16, y, "now")
    yield f'<path d="M{CHANGES_AT + 62} {y - 10}h12l-6 11z" fill="#c62828"/>'
    yield _text("small", CHANGES_AT + 79, y, "slower")
    yield f'<path d="M{CHANGES_AT + 150} {y - 11}l6 6l-6 6l-6-6z" fill="#d98e04"/>'
    yield _text("small", CHANGES_AT + 161, y, "acknowledged")
    yield f'<path d="M{CHANGES_AT + 285} {y - 5}h24" stroke="#b4bcc4" stroke-width="2.5"/>'
    yield _text("small", CHANGES_AT + 316, y, "month's range")
    shape = f"M{CHANGES_AT + 5} {y + 14}l5 5l-5 5l-5-5z"
    yield f'<path d="{shape}" fill="#fff" stroke="#5b636c" stroke-width="1.5"/>'
    yield _text("small", CHANGES_AT + 16, y + 24, "from the first pin, where a level was accepted")
    places = ((HOURS_AT, y), (HOURS_AT + 120, y), (HOURS_AT, y + 24), (HOURS_AT + 120, y + 24))
    for (left, top), part, colour in zip(places, HOUR_PARTS, HOUR_COLOURS, strict=True):
        yield f'<rect x="{left}" y="{top - 11}" width="12" height="12" fill="{colour}"/>'
        yield _text("small", left + 18, top, part)


# --- incidents -------------------------------------------------------------------------------------------------------


def _incidents(month: MonthData, y: int) -> tuple[list[str], int]:
    """The incidents below the nights of the platforms. Returns also where they end."""
    still_open = sum(incident.end is None for incident in month.incidents)
    heading = f"Incidents: {len(month.incidents)}" + (f", {still_open} open" if still_open else "")
    parts = [_text("head", LEFT, y, heading)]
    if not month.incidents and not month.short_losses:
        parts.append(_text("name", LEFT, y + 34, "No test was slower, and none was without numbers."))
        return parts, y + 50
    if month.incidents:
        y += 26
        parts += _days(month, y)
        y += 12
    for incident in month.incidents[:MOST_INCIDENTS]:
        parts += _incident(incident, month, y)
        y += INCIDENT_ROW
    more = len(month.incidents) - MOST_INCIDENTS
    if more > 0:
        command = f"python -m reporting month {month.first:%Y-%m}"
        parts.append(_text("name", LEFT, y + 24, f"and {more} more, which `{command}` lists"))
        y += 34
    if month.short_losses:
        said = f"{short_losses_said(month.short_losses)}; `python -m reporting month {month.first:%Y-%m}` says more"
        parts.append(_text("small", LEFT, y + 22, said))
        y += 32
    return parts, y


def _incident(incident: MonthIncident, month: MonthData, y: int) -> Iterator[str]:
    """When it was, beside what it was and why, and what people answered."""
    colour = CAUSE_COLOURS[incident.cause]
    nights = _days_of(month)
    yield f'<path class="line" d="M{LEFT} {y}H{RIGHT}"/>'
    yield _text("name", LEFT, y + 24, _cut(incident.platform, NIGHTS_AT - LEFT - 10, 18))
    yield f'<text class="small" x="{LEFT}" y="{y + 44}" style="fill:{colour}">{_cause_said(incident.cause)}</text>'
    for number in range(nights):
        yield f'<circle cx="{NIGHTS_AT + PITCH * number + 6.5}" cy="{y + 27}" r="1.2" fill="#c9d0d7"/>'
    # A thin bar from its begin to its end, and a thick field for each night that had such a run.
    begin = max((incident.begin - month.first).days, 0)
    end = (month.last - month.first).days + 1
    if incident.end is not None:
        end = max(min((incident.end - month.first).days, end), begin + 1)
    x, width = NIGHTS_AT + PITCH * begin, PITCH * (end - begin) - 2
    yield f'<rect x="{x}" y="{y + 25}" width="{width}" height="4" fill="{colour}"/>'
    for night in incident.nights:
        left = NIGHTS_AT + PITCH * (night - month.first).days
        yield f'<rect x="{left}" y="{y + 19}" width="{PITCH - 2}" height="16" rx="2" fill="{colour}"/>'
    if incident.begin < month.first:
        yield f'<path d="M{x - 2} {y + 20}l-8 7l8 7z" fill="{colour}"/>'
    if incident.end is None:
        yield f'<path d="M{x + width + 2} {y + 20}l8 7l-8 7z" fill="{colour}"/>'
    room = RIGHT - INCIDENT_TEXT_AT
    said = f"{incident.what}, {_dates(incident, month)}"
    answered = _cut(incident.answered or "no answer", max(room / 3, room - LETTER * 18 * len(said) - 16), 15)
    yield _text("name", INCIDENT_TEXT_AT, y + 24, _cut(said, room - LETTER * 15 * len(answered) - 16, 18))
    yield _text("small end", RIGHT, y + 24, answered)
    yield _text("small", INCIDENT_TEXT_AT, y + 44, _cut(incident.why, room, 15))


def _cause_said(cause: Cause) -> str:
    return "change" if cause is Cause.CHANGE else cause.value


def _dates(incident: MonthIncident, month: MonthData) -> str:
    """`12 to 16 Nov`, `since 12 Nov`; the last night of it, not the first good one."""
    begin = day(str(incident.begin), str(month.last))
    if incident.end is None:
        return f"since {begin}"
    last = incident.end - datetime.timedelta(days=1)
    if last <= incident.begin:
        return begin
    return f"{begin} to {day(str(last), str(month.last))}"
