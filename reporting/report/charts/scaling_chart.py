"""Throughput against devices beside the ideal line: how a test scales over the layouts of one session."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from reporting.compare.scaling import Kind, ScaledLayout, Scaling
from reporting.phrases import size
from reporting.report.charts.markup import described, short, words
from reporting.report.charts.prose import MISSING, number
from reporting.report.charts.scales import ValueScale
from reporting.tables.scaling import title_of

HEIGHT = 240  # px
TOP, BOTTOM = 34, 206  # of the place of the points
INSIDE = 4, 92  # per cent of the width: the first and the last point; labels have room beside them
LABELLED = ((0.7, (1, 1.5, 2, 3, 4, 5, 6, 8)), (2.0, (1, 2, 5)), (math.inf, (1,)))
"""Which multiples of the powers of ten are labelled, up to so many decades."""
BELOW = 17  # px, from a point to its efficiency: the ideal line is above


def scaling_chart(scaling: Scaling) -> str:
    """The layouts of one session. Both axes are logarithmic, so the ideal is a straight line.

    The efficiency stands below each point; a hollow point is in doubt.
    """
    rows = scaling.layouts
    ideal = scaling.base.throughput * rows[-1].devices / scaling.base.devices
    values = [ideal, *(one.throughput for one in rows)]
    y = ValueScale(math.log10(min(values)) - 0.06, math.log10(max(values)) + 0.02, TOP, BOTTOM)
    parts = [*_grid(y), *_devices(scaling), words("", "-50", 12, f"{scaling.unit}, higher is better")]
    parts.append(_line("ideal", (scaling.base.devices, scaling.base.throughput), (rows[-1].devices, ideal), scaling, y))
    parts.append(words("end", f"{INSIDE[1] - 2}%", TOP - 6, "ideal"))
    places = [(one.devices, one.throughput) for one in rows]
    parts += [_line("scaled", *pair, scaling, y) for pair in itertools.pairwise(places)]
    for one in rows:
        x, height = _x(one.devices, scaling), y.y(math.log10(one.throughput))
        classes = "hollow" if one.doubts else "fill"
        parts.append(f'<circle class="{classes}" cx="{x}" cy="{short(height)}" r="4"/>')
        if efficiency_of(one) != MISSING:
            parts.append(words("ink halo mid", x, height + BELOW, efficiency_of(one)))
    said = described(title_of(scaling), map(_said, rows))
    return f'<svg class="chart trend" role="img" width="960" height="{HEIGHT}">{said}{"".join(parts)}</svg>'


def efficiency_of(one: ScaledLayout) -> str:
    """The smallest layout has none, since all others stand beside it."""
    return MISSING if one.efficiency is None or one.kind is Kind.BASE else size(one.efficiency, 1)


def _said(one: ScaledLayout) -> str:
    efficiency = ""
    if efficiency_of(one) != MISSING:
        efficiency = f", efficiency {efficiency_of(one)}, {one.kind} scaling"
    doubt = f", in doubt: {', '.join(one.doubts)}" if one.doubts else ""
    return f"{one.layout}: {number(one.throughput)}{efficiency}{doubt}."


def _x(devices: int, scaling: Scaling) -> str:
    """Where a number of devices stands. If all layouts have the same, they stand in the middle."""
    least, most = scaling.base.devices, scaling.layouts[-1].devices
    share = math.log(devices / least) / math.log(most / least) if most > least else 0.5
    return f"{short(INSIDE[0] + (INSIDE[1] - INSIDE[0]) * share)}%"


def _line(classes: str, begin: tuple[int, float], end: tuple[int, float], scaling: Scaling, y: ValueScale) -> str:
    (x1, y1), (x2, y2) = ((_x(devices, scaling), short(y.y(math.log10(value)))) for devices, value in (begin, end))
    return f'<line class="{classes}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def _grid(y: ValueScale) -> Iterator[str]:
    factors = next(factors for decades, factors in LABELLED if y.high - y.low < decades)
    for power in range(math.floor(y.low), math.ceil(y.high) + 1):
        for value in (factor * 10.0**power for factor in factors):
            if y.shows(math.log10(value)):
                place = round(y.y(math.log10(value)))
                yield f'<line class="grid" x1="0" x2="100%" y1="{place}" y2="{place}"/>'
                yield words("end", "-7", place + 4, number(value))


def _devices(scaling: Scaling) -> Iterator[str]:
    """The axis, with the number of devices below each point, and what it is at its end."""
    yield f'<line class="axis" x1="0" x2="100%" y1="{BOTTOM + 14}" y2="{BOTTOM + 14}"/>'
    for devices in dict.fromkeys(one.devices for one in scaling.layouts):
        label = f"{devices} devices" if devices == scaling.layouts[-1].devices else str(devices)
        yield words("mid", _x(devices, scaling), HEIGHT - 4, label)
