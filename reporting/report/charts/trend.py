"""A series over its nights: runs, levels, limits, what people said, and where a change begins.

The chart is as wide as its place: places along the nights are per cent, and texts and marks keep their size. The nights
of the inner picture are stretched, so it holds only what may be: lines, and dots that are drawn by the strokes' caps.
"""

from __future__ import annotations

import datetime
import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from reporting.gate.verdict import Kind
from reporting.report.charts.flags import Flag, flags
from reporting.report.charts.markup import SHAPES, described, dots, joined, path, polyline, safe, short, words
from reporting.report.charts.scales import (
    NightScale,
    ValueScale,
    day,
    exponent_of,
    round_ticks,
    scaled_unit,
    tick_labels,
    value_range,
)
from reporting.report.data import Condition, Level, NoteReport, Point, SeriesReport, TestReport
from reporting.tables.row import number

LEAST_NIGHTS = 7
FULL_NIGHTS = 400
"""A longer history is drawn on a grid as wide as this: places that would lie on each other are drawn once."""
LATEST = 7  # runs that are always within the range; the gate compares the last seven nights together
MARKS = 100
"""With more runs that have a shape, only the first one of each stretch and the last one have it; others are dots."""
TITLED = 20  # of the first runs of stretches
HEADING = 24  # px
ROW = 18  # px, of the flags
FLAG_ROWS = 3
NARROW = 300  # px: the width of the nights on a telephone
WIDE = 580  # px: their least width where the stylesheet shows what is for wide places


@dataclass(frozen=True)
class Frame:
    """Where things stand in a trend."""

    nights: NightScale
    values: ValueScale | None
    top: int
    height: int

    @property
    def bottom(self) -> int:
        """Of the values; ticks for nights without numbers stand below it."""
        return self.height - 36

    @property
    def baseline(self) -> int:
        return self.height - 20


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
    """
    if not series.points:
        empty = described(_name(test, series), ["No run."]) + words("", "-50", 12, "no run")
        return f'<svg class="chart trend" role="img" width="{width}" height="20">{empty}</svg>'
    flagged = flags(test, series, notes)
    nights = _nights(series, last)
    rows = _flag_rows(flagged, nights)
    begin_room = ROW if _begin_number(series, nights) is not None else 0
    top = HEADING + ROW * (1 + max(rows.values(), default=-1)) + begin_room
    frame = Frame(nights, None, top, height)
    frame = Frame(nights, _value_scale(series, frame), top, height)
    key = hashlib.sha256(f"{test.id}\n{series.metric}".encode("utf-8", "replace")).hexdigest()[:6]
    inner = [
        *_grid(frame),
        *_band(series, frame),
        *_flag_lines(flagged, rows, frame),
        *_levels(series, frame),
        *_runs(series, frame),
    ]
    outer = [
        *_value_labels(series, frame),
        *_night_labels(frame),
        *_begin(series, frame),
        *_marks(series, frame, key),
        *_flags(flagged, rows, frame, listed),
        *_pin_label(series, frame),
    ]
    view = f"-.5 0 {nights.nights} {height}"
    return (
        f'<svg class="chart trend" role="img" width="{width}" height="{height}">'
        f"{_described(test, series)}"
        f'<svg width="100%" height="{height}" viewBox="{view}" preserveAspectRatio="none" overflow="visible">'
        f"{''.join(inner)}</svg>{''.join(outer)}</svg>"
    )


def _described(test: TestReport, series: SeriesReport) -> str:
    metric = series.metric.replace("_", " ")
    unit = f" in {series.unit}" if series.unit else ""
    counts = Counter(point.condition for point in series.points)
    runs = ", ".join(f"{counts[condition]} {condition}" for condition in Condition if counts[condition])
    said = [f"{metric}{unit}, {series.better} is better.", f"{series.short}." if series.short else ""]
    said.append(f"{len(series.points)} runs: {runs}.")
    return described(_name(test, series), said)


def _name(test: TestReport, series: SeriesReport) -> str:
    name = " ".join(filter(None, [test.workload, test.layout, test.setting]))
    return f"{name} on {test.platform}: {series.metric.replace('_', ' ')}"


# --- the frame -------------------------------------------------------------------------------------------------------


def _nights(series: SeriesReport, last: str) -> NightScale:
    known = [point.night for point in series.points]
    end = datetime.date.fromisoformat(max(*known, last))
    first = min(datetime.date.fromisoformat(min(known)), end - datetime.timedelta(days=LEAST_NIGHTS - 1))
    return NightScale(first, end)


def _value_scale(series: SeriesReport, frame: Frame) -> ValueScale | None:
    """None if no run has a value."""
    values = [point.value for point in series.points if point.value is not None and point.comparable]
    values = values or [point.value for point in series.points if point.value is not None]
    if not values:
        return None
    always = [] if series.pin is None else [series.pin]
    always += [level.value for level in series.levels if _is_seen(level, frame.nights)]
    low, high = value_range(values, [*always, *values[-LATEST:]])
    return ValueScale(low, high, frame.top + 4, frame.bottom - 4)


def _is_seen(level: Level, nights: NightScale) -> bool:
    return level.to_night is None or level.to_night >= str(nights.first)


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
            side = "end" if place > 0.96 * frame.nights.nights else "mid"
            shared = (place, label) in few and (place, label) in many
            if not shared or classes == "wide ":
                yield words(side if shared else classes + side, frame.nights.percent(place), frame.height - 4, label)


# --- levels ----------------------------------------------------------------------------------------------------------


def _band(series: SeriesReport, frame: Frame) -> Iterator[str]:
    """How far a value may be from what it is compared with now."""
    if frame.values is None or series.pin is None or not series.limit:
        return
    room = abs(series.pin) * series.limit
    top, bottom = round(frame.values.y(series.pin + room)), round(frame.values.y(series.pin - room))
    current = [level for level in series.levels if level.to_night is None]
    begin = max(frame.nights.number(current[-1].from_night), 0) if current else 0
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
        classes = "level accepted" if level.is_accepted else "level"
        kind = "accepted" if level.is_accepted else "pin"
        said = f"{kind} {number(level.value)} {series.unit} from {level.from_night}: {level.said}"
        line = f"M{joined(begin - 0.5, round(frame.values.y(level.value)))}h{end - begin + 1}"
        yield path(classes, line, f"<title>{safe(said)}</title>")


def _pin_label(series: SeriesReport, frame: Frame) -> Iterator[str]:
    """The present level at its line's end, on the side where the last runs are not."""
    if frame.values is None or series.pin is None:
        return
    is_accepted = any(level.is_accepted for level in series.levels if level.to_night is None)
    recent = [point.value for point in series.points if point.value is not None and point.comparable][-LATEST:]
    runs_are_above = bool(recent) and median(recent) > series.pin
    y = round(frame.values.y(series.pin)) + (15 if runs_are_above else -6)
    value = series.pin / 10.0 ** exponent_of(frame.values.low, frame.values.high)
    yield words("ink halo end", "100%", y, f"{'accepted' if is_accepted else 'pin'} {number(value)}")


# --- runs ------------------------------------------------------------------------------------------------------------


def _runs(series: SeriesReport, frame: Frame) -> Iterator[str]:
    """All runs as dots, the ticks of those without numbers, and the median of the last seven nights."""
    placed = _placed(series, frame)
    nights = {frame.nights.number(point.night) for point in series.points if point.value is None}
    failed = sorted(nights)
    ticks = "".join(f"M{night} {frame.baseline - 11}v11" for night in failed)
    yield path(f"failures k-{Condition.FAILED}", ticks)
    others = [(point, place) for point, place in placed if not point.comparable]
    yield path("dots pale", dots(_thinned([place for _point, place in others], frame)))
    yield path("beyond pale", "".join(_stubs(others, frame)))
    shaped = {id(point) for point in _shaped(series)}
    dotted = [(point, place) for point, place in placed if point.comparable and id(point) not in shaped]
    for condition in reversed(Condition):
        same = [(point, place) for point, place in dotted if point.condition is condition]
        kind = "squares" if condition is Condition.LEARNING else "dots"
        sure = _thinned([place for point, place in same if not point.doubts], frame)
        yield path(f"{kind} k-{condition}", dots(sure))
        doubted = dots(_thinned([place for point, place in same if point.doubts], frame))
        if doubted:
            yield path(f"rings k-{condition}", doubted)
            yield path("holes", doubted)
        yield path(f"beyond k-{condition}", "".join(_stubs(same, frame)))
    yield path("recent", _recent(series, frame))


def _stubs(dotted: Sequence[tuple[Point, tuple[float, float]]], frame: Frame) -> Iterator[str]:
    """A short line at the edge for each run that is beyond the range."""
    for point, (x, y) in dotted:
        if frame.values is not None and point.value is not None and not frame.values.shows(point.value):
            yield f"M{joined(x, y)}v{-9 if point.value < frame.values.low else 9}"


def _placed(series: SeriesReport, frame: Frame) -> list[tuple[Point, tuple[float, float]]]:
    """The runs with values and their places. The runs of one night stand side by side."""
    if frame.values is None:
        return []
    of_night = Counter(point.night for point in series.points if point.value is not None)
    seen: Counter[str] = Counter()
    placed: list[tuple[Point, tuple[float, float]]] = []
    for point in series.points:
        if point.value is None:
            continue
        several = of_night[point.night]
        aside = round((seen[point.night] - (several - 1) / 2) / several, 1)
        seen[point.night] += 1
        placed.append((point, (frame.nights.number(point.night) + aside, round(frame.values.y(point.value)))))
    return placed


def _thinned(places: Sequence[tuple[float, float]], frame: Frame) -> list[tuple[float, float]]:
    """The same dots, without those that would be drawn on others of a long history."""
    if frame.nights.nights <= FULL_NIGHTS:
        return list(places)
    step = frame.nights.nights / FULL_NIGHTS
    found = {(round(x / step), round(y / 2)): (round(x), y) for x, y in places}
    return list(found.values())


def _recent(series: SeriesReport, frame: Frame) -> str:
    """The path of the median of the last seven nights that have runs without doubt; missing nights interrupt it."""
    if frame.values is None:
        return ""
    of_night: dict[int, list[float]] = {}
    for point in series.points:
        if point.value is not None and point.comparable and not point.doubts:
            of_night.setdefault(frame.nights.number(point.night), []).append(point.value)
    step = math.ceil(frame.nights.nights / FULL_NIGHTS)
    known: list[int] = []
    stretches: list[list[tuple[float, float]]] = [[]]
    for night in sorted(of_night):
        if known and night - known[-1] > 1:
            stretches.append([])
        known.append(night)
        if len(known) >= 4 and night % step == 0:
            values = [value for one in known[-LATEST:] for value in of_night[one]]
            stretches[-1].append((night, round(frame.values.y(median(values)))))
    return "".join(polyline(_without_middles(stretch)) for stretch in stretches if len(stretch) > 1)


def _without_middles(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same line without the places that lie in the middle of a level stretch."""
    kept = []
    for number_, place in enumerate(places):
        neighbours = places[max(number_ - 1, 0) : number_ + 2]
        if len(neighbours) < 3 or any(one[1] != place[1] for one in neighbours):
            kept.append(place)
    return kept


def _shaped(series: SeriesReport) -> list[Point]:
    """The runs that have a shape in place of a dot."""
    chosen = [point for point in series.points if _has_shape(point)]
    if len(chosen) <= MARKS:
        return chosen
    return [*_firsts(series)[-MARKS:], chosen[-1]]


def _firsts(series: SeriesReport) -> list[Point]:
    """The first run of each stretch of runs with one shape."""
    found = []
    before = None
    for point in series.points:
        if point.value is not None and point.comparable:
            if _has_shape(point) and point.condition is not before:
                found.append(point)
            before = point.condition
    return found


def _has_shape(point: Point) -> bool:
    return point.value is not None and point.comparable and point.condition in SHAPES


def _marks(series: SeriesReport, frame: Frame, key: str) -> Iterator[str]:
    """The runs with a shape. Those beyond the range stand at its edge, and their titles have their values."""
    if frame.values is None:
        return
    places = {id(point): place for point, place in _placed(series, frame)}
    shaped = _shaped(series)
    titled = {id(point) for point in _firsts(series)[-TITLED:]}
    for condition in dict.fromkeys(point.condition for point in shaped):
        name = f"{key}{condition[:2]}"
        yield f'<symbol id="{name}" overflow="visible">{path("shape", SHAPES[condition])}</symbol>'
        for kind in ("mark", "hollow"):
            uses = ""
            for point in shaped:
                if point.condition is condition and bool(point.doubts) == (kind == "hollow"):
                    x, y = places[id(point)]
                    title = f"<title>{safe(_sentence(point, series))}</title>" if id(point) in titled else ""
                    end = f">{title}</use>" if title else "/>"
                    uses += f'<use href="#{name}" x="{frame.nights.percent(x)}" y="{short(y)}"{end}'
            if uses:
                yield f'<g class="{kind} k-{condition}">{uses}</g>'


def _sentence(point: Point, series: SeriesReport) -> str:
    value = f"{number(point.value)} {series.unit}".strip()
    doubts = f"in doubt: {', '.join(point.doubts)}" if point.doubts else ""
    nodes = f"on {', '.join(point.nodes)}" if point.nodes else ""
    return ", ".join(filter(None, [point.night, value, point.said or point.condition, nodes, doubts]))


def _begin(series: SeriesReport, frame: Frame) -> Iterator[str]:
    """The first night of the change, with its word and date."""
    place = _begin_number(series, frame.nights)
    if place is None or series.since is None:
        return
    x = frame.nights.percent(place - 0.5)
    colour = f"k-{series.condition}"
    yield f'<line class="begin {colour}" x1="{x}" x2="{x}" y1="{frame.top - 14}" y2="{frame.baseline}"/>'
    word = "faster" if series.condition is Condition.FASTER else "slower"
    if series.kind == Kind.LEFT:
        word = "another series"
    side = "end " if place > frame.nights.nights / 2 else ""
    shift = "-5" if side else "5"
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
        place = NARROW * nights.number(flag.night) / nights.nights
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
        title = "" if is_listed else f"<title>{safe(flag.night + ': ' + '; '.join(flag.sentences))}</title>"
        yield f'<circle cx="{x}" cy="{y}" r="8">{title}</circle><text x="{x}" y="{y + 4}">{flag.number}</text>'
    yield "</g>"
