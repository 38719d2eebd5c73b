"""The runs of all series as compact JSON: what the page's script reads out of a trend."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from reporting.report.charts.prose import prose
from reporting.report.data import Condition, Level, Point, ReportData, SeriesReport
from reporting.report.page.words import visible

DIGITS = 8  # of a value: with fewer, one that is rounded twice is printed otherwise than in the report
CONDITIONS = tuple(Condition)
LETTERS = {condition: str(at) for at, condition in enumerate(CONDITIONS)}
# No text of a history may end the script element that it stands in.
UNSAFE = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"})


class Texts:
    """Texts that occur many times; each is named by its place."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._known: dict[str, int] = {}  # by the texts before they were made visible

    def place(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = self._places.setdefault(str(visible(text)), len(self._places))
        return self._known[text]

    def all(self) -> list[str]:
        return list(self._places)


def run_values(report: ReportData, names: Mapping[tuple[str, str], str]) -> Markup:
    """A JSON object for a `<script type="application/json">`.

    Each series has columns with one entry a run: `days` since `first`, `values`, `conditions` (a text with a letter a
    run, its place in the list of all conditions), and the places of run ids in `runs` and of nodes in `texts`. `said`
    has what the gate said and `remarks` what changed and the doubts, by the numbers of the runs that have them. `apart`
    are the runs that are compared with nothing, `levels` the levels as first day, last day, value. `sign` is -1 if
    lower is better.

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
    return {
        "unit": visible(series.unit),
        "sign": -1 if series.better == "lower" else 1,
        "days": [_days(point.night, first) for point in points],
        "values": [_short(point.value) for point in points],
        "conditions": "".join(LETTERS[point.condition] for point in points),
        "runs": [runs.place(point.run_id) for point in points],
        "nodes": [texts.place(", ".join(point.nodes)) for point in points],
        "said": _told(points, _said, texts),
        "remarks": _told(points, _remark, texts),
        "apart": [at for at, point in enumerate(points) if not point.comparable],
        "levels": [_level(level, first) for level in series.levels],
    }


def _said(point: Point) -> str:
    """What the gate said, if that is more than the condition."""
    return "" if point.said == point.condition else prose(point.said)


def _told(points: Sequence[Point], text_of: Callable[[Point], str], texts: Texts) -> dict[str, int]:
    """The places of the texts of those runs that have one."""
    return {str(at): texts.place(text) for at, point in enumerate(points) if (text := text_of(point))}


def _days(night: str, first: datetime.date) -> int:
    return (datetime.date.fromisoformat(night) - first).days


def _short(value: float | None) -> float | int | None:
    """A value in the fewest letters that JSON has for its significant digits."""
    if value is None:
        return None
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def _level(level: Level, first: datetime.date) -> list[float | int | None]:
    until = None if level.to_night is None else _days(level.to_night, first)
    return [_days(level.from_night, first), until, _short(level.value)]


def _remark(point: Point) -> str:
    said = []
    if point.changes:
        said.append(f"changed: {', '.join(point.changes)}")
    if point.doubts:
        said.append(f"in doubt: {', '.join(point.doubts)}")
    return prose("; ".join(said))
