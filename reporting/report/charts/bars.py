"""The same workload on each platform side by side, as bars that begin at zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reporting.report.charts.markup import described, safe, short, words
from reporting.report.data import Condition, SeriesReport, TestReport
from reporting.tables.row import number

GAP = 4  # per cent of the width, between the two columns
HEADING = 34  # px
ROW = 46
BAR = 18
LETTERS = 48  # of a row's name: as many have room on a telephone
SHORT = 0.3  # of the longest bar: a shorter one has its number beside it


@dataclass(frozen=True)
class Bar:
    """A number of a test, for the whole of it and for one of its devices; None where that is not known."""

    test: TestReport
    series: SeriesReport
    of_device: float | None
    pin_of_device: float | None


def bars(tests: Sequence[TestReport], metric: str) -> str:
    """One bar for each test that has the metric; tests of one workload, setting and unit share a scale.

    A second bar shows the number for one device, if that is known for a test of the group. It has a scale of its own.
    A small line in a bar is the pin. A test without a number says so in place of its bar.
    """
    groups: dict[tuple[str, str, str], list[Bar]] = {}
    for test in tests:
        for series in test.series:
            if series.metric == metric:
                groups.setdefault((test.workload, test.setting, series.unit), []).append(_bar(test, series))
    y = 0
    parts: list[str] = []
    for (workload, setting, unit), rows in groups.items():
        parts += _group(" ".join(filter(None, [workload, setting])), unit, rows, y)
        y += HEADING + ROW * len(rows)
    title = f"{metric.replace('_', ' ')} of {len(tests)} {'test' if len(tests) == 1 else 'tests'} by platform"
    return (
        f'<svg class="chart bars" role="img" width="960" height="{y}">'
        f"{described(title, map(_said, (bar for rows in groups.values() for bar in rows)))}{''.join(parts)}</svg>"
    )


def _bar(test: TestReport, series: SeriesReport) -> Bar:
    """Numbers that grow with the number of devices have a share of each device; times have none."""
    devices = test.devices if series.better == "higher" and series.unit.endswith("/s") else None
    if not devices:
        return Bar(test, series, None, None)
    return Bar(
        test,
        series,
        None if series.value is None else series.value / devices,
        None if series.pin is None else series.pin / devices,
    )


def _said(bar: Bar) -> str:
    value = "no number" if bar.series.value is None else f"{number(bar.series.value)} {bar.series.unit}".strip()
    return f"{bar.test.workload} {bar.test.layout} on {bar.test.platform}: {value}, {bar.test.condition}."


def _group(name: str, unit: str, rows: Sequence[Bar], y: int) -> Iterator[str]:
    """A heading, and a row for each test: the platform above its bar."""
    has_devices = any(bar.of_device is not None for bar in rows)
    yield words("row-title", "0", y + 15, name)
    better = f"{rows[0].series.better} is better"
    column = (100 - GAP) / 2 if has_devices else 100
    yield words("", "0", y + 30, ", ".join(filter(None, [unit, better])))
    if has_devices:
        yield words("", f"{short(column + GAP)}%", y + 30, "of each device")
    largest = max(
        (abs(one) for bar in rows for one in (bar.series.value, bar.series.pin) if one is not None), default=0
    )
    largest_of_device = max(
        (abs(one) for bar in rows for one in (bar.of_device, bar.pin_of_device) if one is not None), default=0
    )
    for place, bar in enumerate(rows):
        top = y + HEADING + ROW * place
        yield _name(bar, top + 16)
        yield from _one(bar.series.value, bar.series.pin, largest, 0, column, top + 21)
        if has_devices:
            yield from _one(bar.of_device, bar.pin_of_device, largest_of_device, column + GAP, column, top + 21)


def _name(bar: Bar, y: int) -> str:
    """The platform, what the test ran on, and its condition if it is not ok."""
    devices = bar.test.device
    if bar.test.devices and bar.test.device:
        devices = f"{bar.test.devices} x {bar.test.device}"
    state = "" if bar.series.condition is Condition.OK else f", {bar.series.condition}"
    beside = ", ".join(filter(None, [bar.test.layout, devices]))
    room = max(LETTERS - len(bar.test.platform) - len(state), 0)
    if len(beside) > room:
        beside = f"{beside[: max(room - 1, 0)].rstrip()}…"
    return (
        f'<text x="0" y="{y}"><tspan class="ink">{safe(bar.test.platform)}</tspan>'
        f'<tspan class="k-{bar.series.condition}">{state}</tspan> {safe(beside)}</text>'
    )


def _one(value: float | None, pin: float | None, largest: float, left: float, width: float, y: int) -> Iterator[str]:
    """A bar on its track, its pin, and its number."""
    yield f'<rect class="track" x="{short(left)}%" y="{y}" width="{short(width)}%" height="{BAR}"/>'
    if value is None:
        yield words("", f"{short(left + 1)}%", y + 13, "no number")
        return
    if largest and value > 0:
        share = width * value / largest
        yield f'<rect class="bar" x="{short(left)}%" y="{y}" width="{short(share)}%" height="{BAR}"/>'
    if largest and pin is not None and pin > 0:
        x = short(left + width * pin / largest)
        yield f'<line class="pin" x1="{x}%" x2="{x}%" y1="{y - 2}" y2="{y + BAR + 2}"/>'
    is_short = largest > 0 and value < SHORT * largest
    beside = max(value, pin or 0.0, 0.0) / largest * width if is_short else 0.0
    yield words("ink", f"{short(left + beside + 1)}%", y + 13, number(value))
