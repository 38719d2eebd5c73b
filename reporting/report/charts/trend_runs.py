"""The runs of a trend: dots and shapes by condition, ticks for nights without numbers, the median of seven nights."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from reporting.report.charts.markup import SHAPES, dots, joined, path, polyline, safe, short
from reporting.report.charts.prose import night_text, number, prose
from reporting.report.charts.scales import LATEST
from reporting.report.charts.trend_frame import Frame, frame_of, nights_of
from reporting.report.data import Condition, Point, SeriesReport

FULL_NIGHTS = 400
"""A longer history is drawn on a grid as wide as this: places that would lie on each other are drawn once."""
MARKS = 100
"""With more runs that have a shape, only the first one of each stretch and the last one have it; others are dots."""
TITLED = 20  # of the first runs of stretches


def run_dots(series: SeriesReport, frame: Frame) -> Iterator[str]:
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


def runs_beyond(series: SeriesReport, last: str) -> list[Point]:
    """The runs with values that the trend shows at its edge, since they are beyond its scale.

    Args:
        last: the last night that the trend shows, as `2026-11-17`.
    """
    if not series.points:
        return []
    values = frame_of(series, nights_of(series, last), 0, 300).values
    if values is None:
        return []
    return [point for point in series.points if point.value is not None and not values.shows(point.value)]


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
    for position, place in enumerate(places):
        is_end = position in (0, len(places) - 1)
        if is_end or not places[position - 1][1] == place[1] == places[position + 1][1]:
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


def run_marks(series: SeriesReport, frame: Frame, key: str) -> Iterator[str]:
    """The runs with a shape. Those beyond the range stand at its edge, and their titles have their values."""
    if frame.values is None:
        return
    shaped = _shaped(series)
    if not shaped:
        return
    places = {id(point): place for point, place in _placed(series, frame)}
    titled = {id(point) for point in _firsts(series)[-TITLED:]}
    for condition in dict.fromkeys(point.condition for point in shaped):
        name = f"{key}{condition[:2]}"
        yield f'<symbol id="{name}" overflow="visible">{path("shape", SHAPES[condition])}</symbol>'
        for kind in ("mark", "hollow"):
            uses = ""
            for point in shaped:
                if point.condition is condition and bool(point.doubts) == (kind == "hollow"):
                    x, y = places[id(point)]
                    end = "/>"
                    if id(point) in titled:
                        end = f"><title>{safe(_sentence(point, series))}</title></use>"
                    uses += f'<use href="#{name}" x="{frame.nights.percent(x)}" y="{short(y)}"{end}'
            if uses:
                yield f'<g class="{kind} k-{condition}">{uses}</g>'


def _sentence(point: Point, series: SeriesReport) -> str:
    value = f"{number(point.value)} {series.unit}".strip()
    said = [night_text(point.night), value, prose(point.said) or point.condition]
    if point.nodes:
        said.append(f"on {', '.join(point.nodes)}")
    if point.doubts:
        said.append(f"in doubt: {', '.join(point.doubts)}")
    return ", ".join(said)
