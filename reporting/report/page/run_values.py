"""The runs of all series as compact JSON: what the page's script reads out of a trend."""

from __future__ import annotations

import datetime
import json
import math
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from reporting.report.charts.prose import number, prose
from reporting.report.data import Condition, Level, Point, ReportData, SeriesReport
from reporting.report.page.words import visible

DIGITS = 5
DIGITS_36 = string.digits + string.ascii_lowercase
CONDITIONS = tuple(Condition)
UNSAFE = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"})


class Texts:
    """Texts that occur many times; each is named by its place."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        return self._places.setdefault(str(visible(text)), len(self._places))

    def all(self) -> list[str]:
        return list(self._places)


def run_values(report: ReportData, names: Mapping[tuple[str, str], str]) -> Markup:
    """A JSON object for a `<script type="application/json">`.

    Each series has columns with one entry a run. `v` has the values in units of `q`, less `l`; `c` is a text with a
    letter a run, the place of its condition in `conditions`. `m` is a text with the place of its nodes in `n`, in base
    36 with `w` letters a run; `n` has places in `texts`. `d` says how many days lie between a run and the one before,
    and `r` the same for the place of its run id in `runs`; both have only the numbers of runs where that is not 1. `s`
    has what the gate said and `x` what changed and the doubts, by the numbers of the runs that have them. `o` are the
    runs that are compared with nothing, `p` the levels as first day, last day, value. `u` is the unit, `b` is -1 if
    lower is better. Days count from `first`.

    Args:
        names: of a test's id and a metric, the name that the page gives to the series.
    """
    texts, runs = Texts(), Texts()
    first = datetime.date.fromisoformat(report.first_night)
    series = {
        names[test.id, one.metric]: _columns(one, first, texts, runs) for test in report.tests for one in test.series
    }
    content = {
        "first": report.first_night,
        "last": _days(report.night, first),
        "conditions": [condition.value for condition in CONDITIONS],
        "series": series,
        "texts": texts.all(),
        "runs": runs.all(),
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.translate(UNSAFE))


def _columns(series: SeriesReport, first: datetime.date, texts: Texts, runs: Texts) -> dict[str, Any]:
    points = series.points
    unit = _unit([point.value for point in points if point.value])
    values = [None if point.value is None else _in_units(point.value, unit) for point in points]
    level = next((value for value in values if value is not None), 0)
    nodes = [texts.place(", ".join(point.nodes)) for point in points]
    known = {place: number for number, place in enumerate(dict.fromkeys(nodes))}
    width = len(_base36(len(known)))
    return {
        "u": visible(series.unit),
        "b": -1 if series.better == "lower" else 1,
        "d": _steps([_days(point.night, first) for point in points]),
        "q": unit,
        "l": level,
        "v": [None if value is None else value - level for value in values],
        "c": "".join(str(CONDITIONS.index(point.condition)) for point in points),
        "r": _steps([runs.place(point.run_id) for point in points]),
        "n": list(known),
        "w": width,
        "m": "".join(_base36(known[place]).rjust(width, "0") for place in nodes),
        "s": _told(points, lambda point: "" if point.said == point.condition else prose(point.said), texts),
        "x": _told(points, _remark, texts),
        "o": [at for at, point in enumerate(points) if not point.comparable],
        "p": [_level(level, first) for level in series.levels],
    }


def _base36(number: int) -> str:
    letters = ""
    while number or not letters:
        number, rest = divmod(number, 36)
        letters = DIGITS_36[rest] + letters
    return letters


def _steps(values: Sequence[int]) -> dict[str, int]:
    """How far each value is from the one before, where that is not 1. The one before the first is -1."""
    before = [-1, *values]
    return {str(at): value - before[at] for at, value in enumerate(values) if value - before[at] != 1}


def _told(points: Sequence[Point], text_of: Callable[[Point], str], texts: Texts) -> dict[str, int]:
    """The places of the texts of those runs that have one."""
    return {str(at): texts.place(text) for at, point in enumerate(points) if (text := text_of(point))}


def _days(night: str, first: datetime.date) -> int:
    return (datetime.date.fromisoformat(night) - first).days


def _unit(values: Sequence[float]) -> float:
    """The last one of the significant digits of a series' values: .1 for 9207.6."""
    largest = max(map(abs, values), default=1.0)
    return float(f"1e{math.floor(math.log10(largest)) - DIGITS + 1}")


def _in_units(value: float, unit: float) -> int:
    """A value in whole units: the nearest one that is printed as the value is, and not between two printed ones."""
    whole = round(value / unit)
    printed = number(value)
    for near in (whole, whole + 1, whole - 1):
        if number((near - 0.01) * unit) == printed == number((near + 0.01) * unit):
            return near
    return whole


def _short(value: float) -> float | int:
    """A value in the fewest letters that JSON has for its significant digits."""
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def _level(level: Level, first: datetime.date) -> list[float | int | None]:
    until = None if level.to_night is None else _days(level.to_night, first)
    return [_days(level.from_night, first), until, _short(level.value)]


def _remark(point: Point) -> str:
    changed = f"changed: {', '.join(point.changes)}" if point.changes else ""
    doubts = f"in doubt: {', '.join(point.doubts)}" if point.doubts else ""
    return prose("; ".join(filter(None, (changed, doubts))))
