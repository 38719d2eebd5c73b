"""The same workload on each platform side by side, as bars that begin at zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reporting.report.charts.markup import described, safe, short, words
from reporting.report.charts.prose import number
from reporting.report.charts.scales import day
from reporting.report.data import Condition, SeriesReport, TestReport

GAP = 4  # per cent of the width, between the two columns
HEADING = 34  # px
ROW = 46
BAR = 18
LINE = 15
LETTERS = 48  # of a row's name over the whole width: as many have room on a telephone
LETTERS_OF_COLUMN = 30  # over one of two columns on a desk
LETTERS_OF_NARROW = 20  # and on a telephone
SHORT = 0.3  # of the longest bar: a shorter one has its number beside it
UNMEASURED = (Condition.FAILED, Condition.BLIND, Condition.PAUSED)  # whose last value says nothing of now
SAME_BATCH = "gbs32"
WHAT_SAME_BATCH_SAYS = "shows changes of one machine; compares no hardware"


@dataclass(frozen=True)
class Bar:
    """A number of a test, for the whole of it and for one of its devices; None where that is not known."""

    test: TestReport
    series: SeriesReport
    of_device: float | None
    pin_of_device: float | None

    @property
    def condition(self) -> Condition:
        """A test without numbers of now says so at all of its bars."""
        return self.test.condition if self.test.condition in UNMEASURED else self.series.condition


def bars(tests: Sequence[TestReport], metric: str) -> str:
    """One bar for each test that has the metric; tests of one workload, setting and unit share a scale.

    A second bar shows the number for one device, if that is known for a test of the group. It has a scale of its own.
    A small line in a bar is the pin. A test without a number says so in place of its bar. The bar of a test that has
    no numbers of now is dashed, and says of which night it is.
    """
    groups: dict[tuple[str, str, str], list[Bar]] = {}
    for test in tests:
        for series in test.series:
            if series.metric == metric:
                groups.setdefault((test.workload, test.setting, series.unit), []).append(_bar(test, series))
    y = 0
    parts: list[str] = []
    for (workload, setting, unit), rows in groups.items():
        heading = HEADING
        if setting.split("-")[0] == SAME_BATCH:
            parts.append(words("", "0", y + 15 + LINE, WHAT_SAME_BATCH_SAYS))
            heading += LINE
        parts += _group(" ".join(filter(None, [workload, setting])), unit, rows, y, heading)
        y += heading + ROW * len(rows)
    title = f"{metric.replace('_', ' ')} by platform, tests: {len(tests)}"
    return (
        f'<svg class="chart bars" role="img" width="960" height="{y}">'
        f"{described(title, map(_said, (bar for rows in groups.values() for bar in rows)))}{''.join(parts)}</svg>"
    )


def _bar(test: TestReport, series: SeriesReport) -> Bar:
    """Numbers that grow with the number of devices have a share of each device; times have none."""
    is_rate = series.better == "higher" and series.unit.endswith("/s")
    if not test.devices or not is_rate:
        return Bar(test, series, None, None)
    return Bar(test, series, _part(series.value, test.devices), _part(series.pin, test.devices))


def _part(value: float | None, devices: int) -> float | None:
    return None if value is None else value / devices


def _said(bar: Bar) -> str:
    value = "no number"
    if bar.series.value is not None:
        value = f"{number(bar.series.value)} {bar.series.unit}".strip()
    return f"{bar.test.workload} {bar.test.layout} on {bar.test.platform}: {value}{_night(bar)}, {bar.condition}."


def _night(bar: Bar) -> str:
    """Of a number that is not of now: ` on 20 Nov 2026`."""
    if bar.condition not in UNMEASURED or bar.series.value_night is None:
        return ""
    return f" on {day(bar.series.value_night)}"


def _group(name: str, unit: str, rows: Sequence[Bar], y: int, heading: int) -> Iterator[str]:
    """A heading, and a row for each test: the platform above its bar."""
    has_devices = any(bar.of_device is not None for bar in rows)
    yield words("row-title", "0", y + 15, name)
    better = f"{rows[0].series.better} is better"
    column: float = 100
    second_column = None
    if has_devices:
        column = (100 - GAP) / 2
        second_column = column + GAP
    yield words("", "0", y + heading - 4, ", ".join(filter(None, [unit, better])))
    if second_column is not None:
        yield words("", f"{short(second_column)}%", y + heading - 4, "of each device")
    largest = max(
        (abs(one) for bar in rows for one in (bar.series.value, bar.series.pin) if one is not None), default=0
    )
    largest_of_device = max(
        (abs(one) for bar in rows for one in (bar.of_device, bar.pin_of_device) if one is not None), default=0
    )
    for place, bar in enumerate(rows):
        top = y + heading + ROW * place
        yield from _name(bar, top + 16, second_column)
        yield from _one(bar, bar.series.value, bar.series.pin, largest, (0, column), top + 21)
        if second_column is not None:
            place_of_device = (second_column, column)
            yield from _one(bar, bar.of_device, bar.pin_of_device, largest_of_device, place_of_device, top + 21)


def _name(bar: Bar, y: int, second_column: float | None) -> Iterator[str]:
    """The platform, the test's condition if it is not ok, and what the test ran on: in the second column, if any."""
    state = ""
    if bar.condition is not Condition.OK:
        state = f", {bar.condition}"
    devices = bar.test.device or ""
    if bar.test.devices and devices:
        devices = f"{bar.test.devices} x {devices}"
    beside = bar.test.layout
    if second_column is None and devices:
        beside = ", ".join(filter(None, [bar.test.layout, devices]))
    beside = _cut(beside, LETTERS - len(bar.test.platform) - len(state))
    yield (
        f'<text x="0" y="{y}"><tspan class="ink">{safe(bar.test.platform)}</tspan>'
        f'<tspan class="k-{bar.condition}">{state}</tspan> {safe(beside)}</text>'
    )
    if second_column is None or not devices:
        return
    length = len(f"{bar.test.platform}{state} {beside}")
    for size, letters in (("wide", LETTERS_OF_COLUMN), ("narrow", LETTERS_OF_NARROW)):
        if length <= letters:
            yield words(size, f"{short(second_column)}%", y, _cut(devices, letters))


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: max(letters - 1, 0)].rstrip()}…"


def _one(
    bar: Bar, value: float | None, pin: float | None, largest: float, place: tuple[float, float], y: int
) -> Iterator[str]:
    """A bar on its track, its pin, and its number. `place` is its left end and its width in per cent."""
    left, width = place
    yield f'<rect class="track" x="{short(left)}%" y="{y}" width="{short(width)}%" height="{BAR}"/>'
    if value is None:
        yield words("", f"{short(left + 1)}%", y + 13, "no number")
        return
    if largest and value > 0:
        share = width * value / largest
        classes = "bar past" if bar.condition in UNMEASURED else "bar"
        yield f'<rect class="{classes}" x="{short(left)}%" y="{y}" width="{short(share)}%" height="{BAR}"/>'
    if largest and pin is not None and pin > 0:
        x = short(left + width * pin / largest)
        yield f'<line class="pin" x1="{x}%" x2="{x}%" y1="{y - 2}" y2="{y + BAR + 2}"/>'
    beside = 0.0
    if largest > 0 and value < SHORT * largest:
        beside = max(value, pin or 0.0, 0.0) / largest * width
    yield words("ink", f"{short(left + beside + 1)}%", y + 13, f"{number(value)}{_night(bar)}")
