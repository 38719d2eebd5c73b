"""A series over its nights: runs, levels, limits, what people said, and where a change begins.

The chart is as wide as its place: places along the nights are per cent, and texts and marks keep their size. The nights
of the inner picture are stretched, so it holds only what may be: lines, and dots that are drawn by the strokes' caps.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence

from reporting.gate.verdict import Kind
from reporting.phrases import spaced
from reporting.report.charts.flags import Flag, flags
from reporting.report.charts.markup import described, joined, path, safe, words
from reporting.report.charts.prose import night_text, number, prose
from reporting.report.charts.scales import (
    LETTER,
    NightScale,
    day,
    exponent_of,
    round_ticks,
    scaled_unit,
    tick_labels,
)
from reporting.report.charts.trend_frame import Frame, frame_of, nights_of
from reporting.report.charts.trend_runs import run_dots, run_marks
from reporting.report.data import Condition, NoteReport, SeriesReport, TestReport

FEW_NIGHTS = 60  # have room for larger dots
HEADING = 24  # px
ROW = 18  # px, of the flags
FLAG_ROWS = 3
NARROW = 300  # px: the width of the nights on a telephone
OUTSIDE = 8  # px, by which a label may stand beyond the nights
WIDE = 580  # px: their least width where the stylesheet shows what is for wide places


def trend(
    test: TestReport,
    series: SeriesReport,
    notes: Sequence[NoteReport],
    *,
    width: int = 960,
    height: int = 300,
    last: str = "",
    listed: int = 0,
) -> str:
    """The whole history of a series as a chart that is as wide as its place.

    Args:
        notes: of the whole report; those on other tests and platforms are left out.
        width: in px, where no stylesheet says how wide it is.
        height: in px.
        last: the last night that is shown, as `2026-11-17`, at least that of the last run; "" for that one.
        listed: how many of the latest flags the page lists below, so that these need no title of their own.
    """
    if not series.points:
        empty = described(_name(test, series), ["No run."]) + words("", "-50", 12, "no run")
        return f'<svg class="chart trend" role="img" width="{width}" height="20">{empty}</svg>'
    flagged = flags(test, series, notes)
    nights = nights_of(series, last)
    rows = _flag_rows(flagged, nights)
    top = HEADING + ROW * (1 + max(rows.values(), default=-1))
    if _begin_number(series, nights) is not None:
        top += ROW
    frame = frame_of(series, nights, top, height)
    key = hashlib.sha256(f"{test.id}\n{series.metric}".encode("utf-8", "replace")).hexdigest()[:6]
    inner = [
        *_grid(frame),
        *_band(series, frame),
        *_flag_lines(flagged, rows, frame),
        *_levels(series, frame),
        *run_dots(series, frame),
    ]
    outer = [
        *_value_labels(series, frame),
        *_night_labels(frame),
        *_begin(series, frame),
        *run_marks(series, frame, key),
        *_flags(flagged, rows, frame, listed),
        *_pin_label(series, frame),
    ]
    classes = "chart trend few" if nights.nights <= FEW_NIGHTS else "chart trend"
    view = f"-.5 0 {nights.nights} {height}"
    return (
        f'<svg class="{classes}" role="img" width="{width}" height="{height}">'
        f"{_described(test, series)}"
        f'<svg width="100%" height="{height}" viewBox="{view}" preserveAspectRatio="none" overflow="visible">'
        f"{''.join(inner)}</svg>{''.join(outer)}</svg>"
    )


def _described(test: TestReport, series: SeriesReport) -> str:
    metric = spaced(series.metric)
    if series.unit:
        metric = f"{metric} in {series.unit}"
    counts = Counter(point.condition for point in series.points)
    runs = ", ".join(f"{counts[condition]} {condition}" for condition in Condition if counts[condition])
    said = [f"{metric}, {series.better} is better."]
    if series.short:
        said.append(f"{prose(series.short)}.")
    said.append(f"{len(series.points)} runs: {runs}.")
    return described(_name(test, series), said)


def _name(test: TestReport, series: SeriesReport) -> str:
    name = " ".join(filter(None, [test.workload, test.layout, test.setting]))
    return f"{name} on {test.platform}: {series.metric.replace('_', ' ')}"


# --- grid and labels -------------------------------------------------------------------------------------------------


def _grid(frame: Frame) -> Iterator[str]:
    width = frame.nights.nights
    if frame.values is not None:
        ticks = round_ticks(frame.values.low, frame.values.high)
        yield path("grid", "".join(f"M-.5 {round(frame.values.y(tick))}h{width}" for tick in ticks))
    yield path("axis", f"M-.5 {frame.baseline}h{width}")


def _value_labels(series: SeriesReport, frame: Frame) -> Iterator[str]:
    """Labels of the ticks, and above them the unit and the direction."""
    unit = series.unit
    if frame.values is not None:
        ticks = round_ticks(frame.values.low, frame.values.high)
        exponent = exponent_of(frame.values.low, frame.values.high)
        unit = scaled_unit(unit, exponent)
        for tick, label in zip(ticks, tick_labels(ticks, exponent), strict=True):
            yield words("end", "-7", round(frame.values.y(tick)) + 4, label)
    yield words("", "-50", 12, ", ".join(filter(None, [unit, f"{series.better} is better"])))


def _night_labels(frame: Frame) -> Iterator[str]:
    """Labels for a telephone, and more of them for all others."""
    few, many = frame.nights.ticks(NARROW), frame.nights.ticks(WIDE)
    for classes, labels in (("narrow ", few), ("wide ", many)):
        for place, label in labels:
            shared = (place, label) in few and (place, label) in many
            if shared and classes == "narrow ":
                continue
            kind = "mid" if shared else f"{classes}mid"
            x, y = frame.nights.percent(place), frame.height - 4
            yield f'<text class="{kind}" x="{x}"{_moved_inside(place, label, frame)} y="{y}">{label}</text>'


def _moved_inside(place: int, label: str, frame: Frame) -> str:
    """The attribute that moves the label of one of the last nights to the left, if it would leave the chart."""
    room = NARROW * (frame.nights.nights - place - 0.5) / frame.nights.nights
    beyond = LETTER * len(label) / 2 - room - OUTSIDE
    return f' dx="-{round(beyond)}"' if beyond > 0 else ""


# --- levels ----------------------------------------------------------------------------------------------------------


def _band(series: SeriesReport, frame: Frame) -> Iterator[str]:
    """How far a value may be from what it is compared with now."""
    if frame.values is None or series.pin is None or not series.limit:
        return
    room = abs(series.pin) * series.limit
    top, bottom = round(frame.values.y(series.pin + room)), round(frame.values.y(series.pin - room))
    current = [level for level in series.levels if level.to_night is None]
    begin = 0
    if current:
        begin = max(frame.nights.number(current[-1].from_night), 0)
    width = frame.nights.nights - begin
    yield path("band", f"M{joined(begin - 0.5, top)}h{width}V{bottom}h-{width}z")


def _levels(series: SeriesReport, frame: Frame) -> Iterator[str]:
    """A line for each level, from its first night to its last one."""
    if frame.values is None:
        return
    for level in series.levels:
        begin = max(frame.nights.number(level.from_night), 0)
        end = frame.nights.nights - 1
        if level.to_night is not None:
            end = min(frame.nights.number(level.to_night), end)
        if end < begin:
            continue
        classes = "level"
        kind = "pin"
        if level.is_accepted:
            classes = "level accepted"
            kind = "accepted"
        said = f"{kind} {number(level.value)} {series.unit} from {night_text(level.from_night)}: {prose(level.said)}"
        line = f"M{joined(begin - 0.5, round(frame.values.y(level.value)))}h{end - begin + 1}"
        yield path(classes, line, f"<title>{safe(said)}</title>")


def _pin_label(series: SeriesReport, frame: Frame) -> Iterator[str]:
    """What the level's line is, and the present level: in the heading, where no run and no flag is."""
    if frame.values is None or series.pin is None:
        return
    is_accepted = any(level.is_accepted for level in series.levels if level.to_night is None)
    value = series.pin / 10.0 ** exponent_of(frame.values.low, frame.values.high)
    name = "╌╌ accepted" if is_accepted else "── pin"
    yield words("ink end", "100%", 12, f"{name} {number(value)}")


def _begin(series: SeriesReport, frame: Frame) -> Iterator[str]:
    """The first night of the change, with its word and date."""
    place = _begin_number(series, frame.nights)
    if place is None or series.since is None:
        return
    x = frame.nights.percent(place - 0.5)
    colour = f"k-{series.condition}"
    yield f'<line class="begin {colour}" x1="{x}" x2="{x}" y1="{frame.top - 14}" y2="{frame.baseline}"/>'
    word = "slower"
    if series.condition is Condition.FASTER:
        word = "faster"
    if series.kind == Kind.LEFT:
        word = "another series"
    side = ""
    shift = "5"
    if place > frame.nights.nights / 2:  # else the text would leave the chart at the right
        side = "end "
        shift = "-5"
    text = safe(f"{word} since {day(series.since, str(frame.nights.last))}")
    yield f'<text class="{side}halo {colour}" x="{x}" dx="{shift}" y="{frame.top - 4}">{text}</text>'


def _begin_number(series: SeriesReport, nights: NightScale) -> int | None:
    """Of the first night of a change, if it is among those that are shown."""
    if series.since is None or not str(nights.first) <= series.since <= str(nights.last):
        return None
    return nights.number(series.since)


# --- flags -----------------------------------------------------------------------------------------------------------


def _flag_rows(flagged: Sequence[Flag], nights: NightScale) -> dict[int, int]:
    """The row of each flag by its number: flags of one row have room beside each other on a telephone, if possible."""
    rows: dict[int, int] = {}
    last = [-math.inf] * FLAG_ROWS
    for flag in flagged:
        place = NARROW * _flag_number(flag, nights) / nights.nights
        row = next((row for row in range(FLAG_ROWS) if place - last[row] >= ROW), None)
        if row is None:
            row = min(range(FLAG_ROWS), key=lambda one: last[one])
        rows[flag.number] = row
        last[row] = place
    return rows


def _flag_lines(flagged: Sequence[Flag], rows: dict[int, int], frame: Frame) -> Iterator[str]:
    """A dotted line down from each flag."""
    lines = ""
    for flag in flagged:
        top = _flag_y(rows[flag.number]) + 8
        lines += f"M{_flag_number(flag, frame.nights)} {top}V{frame.baseline}"
    yield path("flag", lines)


def _flag_number(flag: Flag, nights: NightScale) -> int:
    return min(nights.number(flag.night), nights.nights - 1)


def _flag_y(row: int) -> int:
    return HEADING + ROW * row + 5


def _flags(flagged: Sequence[Flag], rows: dict[int, int], frame: Frame, listed: int) -> Iterator[str]:
    if not flagged:
        return
    yield '<g class="flag-rings">'
    for flag in flagged:
        x = frame.nights.percent(_flag_number(flag, frame.nights))
        y = _flag_y(rows[flag.number])
        is_listed = flag.number > len(flagged) - listed
        said = f"{night_text(flag.night)}: {prose('; '.join(flag.sentences))}"
        title = "" if is_listed else f"<title>{safe(said)}</title>"
        yield f'<circle cx="{x}" cy="{y}" r="8">{title}</circle><text x="{x}" y="{y + 4}">{flag.number}</text>'
    yield "</g>"
