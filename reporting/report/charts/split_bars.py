"""Where the time of a step goes: waiting, copies, the device step and the rest as one stacked bar, before and now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from reporting.report.charts.markup import described, short, words
from reporting.report.charts.prose import number
from reporting.report.data import Part, SeriesReport, TestReport

PARTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "wait_ms": ("wait", "wait"),
        "stall_ms": ("wait", "wait and copies"),
        "h2d_ms": ("copies", "copies"),
        "step_ms": ("step", "device step"),
        "other_ms": ("rest", "rest"),
    }
)
"""The column and the name of each part, in the order of the stack."""
COLUMNS = ("wait", "copies", "step", "rest")
PLACES = (0, 28, 50, 82)
"""Of the columns, in per cent of the width: `265.6 → 263.8` has room on a telephone."""
LEGEND = 24  # px
LINE = 18
BAR = 14
THIN = 7  # of the bar of what was before a change


def split_bars(tests: Sequence[TestReport]) -> str:
    """The parts of a step in ms for each test that knows them; two bars where there is a change: before and now.

    The longest bar of a test takes the whole width: tests with steps of different lengths have different scales.
    """
    rows = [(test, series) for test in tests for series in test.series[:1] if series.parts]
    parts = list(_legend())
    y = LEGEND
    if any(_has_change(series) for _test, series in rows):
        parts.append(words("", "0", y + 7, "thin bar, and the number before →: before the change"))
        y += LINE
    said = []
    for test, series in rows:
        parts += _row(test, series, y)
        y += _height(series)
        said.append(f"{_name(test)}: {_sentence(series.parts)}.")
        doubts = doubts_of_last_run(series)
        if doubts:
            said.append(f"The last run is in doubt: {', '.join(doubts)}.")
    title = "the parts of a step in ms"
    return f'<svg class="chart bars" role="img" width="960" height="{y}">{described(title, said)}{"".join(parts)}</svg>'


def doubts_of_last_run(series: SeriesReport) -> tuple[str, ...]:
    """Why the last run with numbers fills no pin; empty if nothing is wrong with it."""
    last = next((point for point in reversed(series.points) if point.value is not None), None)
    return () if last is None else last.doubts


def _has_change(series: SeriesReport) -> bool:
    return series.since is not None and any(part.before is not None for part in series.parts)


def _height(series: SeriesReport) -> int:
    height = LINE * 2 + 10 + BAR
    if doubts_of_last_run(series):
        height += LINE
    if _has_change(series):
        height += THIN + 2
    return height


def _name(test: TestReport) -> str:
    return " ".join(filter(None, [test.platform, test.workload, test.layout, test.setting]))


def _sentence(parts: Sequence[Part]) -> str:
    return ", ".join(f"{PARTS[part.name][1]} {_change(part)}" for part in parts if part.name in PARTS)


def _change(part: Part) -> str:
    if part.before is None or number(part.before) == number(part.now):
        return number(part.now)
    return f"{number(part.before)} → {number(part.now)}"


def _legend() -> Iterator[str]:
    """The names of the parts; each stands above the column of its numbers."""
    for place, column in zip(PLACES, COLUMNS, strict=True):
        name = "device step" if column == "step" else column
        yield f'<rect class="part-{column}" x="{place}%" y="2" width="10" height="10"/>'
        yield f'<svg x="{place}%" overflow="visible">{words("", "14", 11, name)}</svg>'


def _row(test: TestReport, series: SeriesReport, y: int) -> Iterator[str]:
    """The name and the length of a step, the bars, and the numbers of the parts below them."""
    now = {PARTS[part.name][0]: part.now for part in series.parts if part.name in PARTS}
    before = {PARTS[part.name][0]: part.before or 0.0 for part in series.parts if part.name in PARTS}
    longest = _positive(now)
    yield words("ink", "0", y + 13, _name(test))
    length = number(sum(now.values()))
    if _has_change(series):
        longest = max(longest, _positive(before))
        length = f"{number(sum(before.values()))} → {length}"
    yield words("end", "100%", y + 13, f"{length} ms")
    top = y + LINE
    doubts = doubts_of_last_run(series)
    if doubts:
        yield words("", "0", top + 11, f"○ last run in doubt: {', '.join(doubts)}")
        top += LINE
    if _has_change(series):
        yield from _stack(before, longest, top, THIN)
        top += THIN + 2
    yield from _stack(now, longest, top, BAR)
    for part in series.parts:
        if part.name in PARTS:
            place = PLACES[COLUMNS.index(PARTS[part.name][0])]
            text = _change(part) if _has_change(series) else number(part.now)
            if part.name == "stall_ms":
                text += " with copies"
            yield words("", f"{place}%", top + BAR + 13, text)


def _positive(lengths: Mapping[str, float]) -> float:
    return sum(length for length in lengths.values() if length > 0)


def _stack(lengths: Mapping[str, float], longest: float, y: int, height: int) -> Iterator[str]:
    """Parts beside each other. The rest may be a little below 0 and has no length then."""
    left = 0.0
    for column in COLUMNS:
        length = lengths.get(column, 0.0)
        if longest > 0 and length > 0:
            width = 100 * length / longest
            yield f'<rect class="part-{column}" x="{short(left)}%" y="{y}" width="{short(width)}%" height="{height}"/>'
            left += width
