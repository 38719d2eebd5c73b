"""Throughput against devices beside the ideal line: how a test scales over the layouts of one session."""

from __future__ import annotations

import itertools
import math

from reporting.compare.scaling import ScaledLayout, Scaling
from reporting.phrases import size
from reporting.report.charts.markup import described, short, words
from reporting.report.charts.prose import number
from reporting.report.charts.scales import ValueScale
from reporting.tables.scaling import title_of

HEIGHT = 240  # px
TOP, BOTTOM = 34, 206  # of the place of the points
INSIDE = 4, 92  # per cent of the width: the first and the last point; labels have room beside them
IDEAL = "90%"  # where its name ends
BELOW = 17  # px, from a point to its efficiency: the ideal line is above


def scaling_chart(scaling: Scaling) -> str:
    """The layouts of one session. Both axes are logarithmic, so the ideal is a straight line.

    The efficiency stands below each point; a hollow point is in doubt. The horizontal lines are where the ideal has a
    layout's number of devices.
    """
    base, last = scaling.base, scaling.layouts[-1]
    values = [base.of_device * last.devices, *(one.throughput for one in scaling.layouts)]
    y = ValueScale(math.log10(min(values)) - 0.06, math.log10(max(values)) + 0.02, TOP, BOTTOM)

    def place(devices: int, value: float) -> tuple[str, int]:
        return _x(devices, scaling), round(y.y(math.log10(value)))

    parts = [words("", "-50", 12, f"{scaling.unit}, higher is better"), words("end", IDEAL, TOP - 6, "ideal")]
    parts.append(_line("axis", ("0", BOTTOM + 14), ("100%", BOTTOM + 14)))
    for devices in dict.fromkeys(one.devices for one in scaling.layouts):
        x, ideal = place(devices, base.of_device * devices)
        parts.append(_line("grid", ("0", ideal), ("100%", ideal)))
        parts.append(words("end", "-7", ideal + 4, number(base.of_device * devices)))
        parts.append(words("mid", x, HEIGHT - 4, f"{devices} devices" if devices == last.devices else str(devices)))
    parts.append(_line("ideal", place(base.devices, base.throughput), place(last.devices, values[0])))
    places = [place(one.devices, one.throughput) for one in scaling.layouts]
    parts += [_line("scaled", *pair) for pair in itertools.pairwise(places)]
    for one, (x, height) in zip(scaling.layouts, places, strict=True):
        parts.append(f'<circle class="{"hollow" if one.doubts else "fill"}" cx="{x}" cy="{height}" r="4"/>')
        if one.efficiency is not None:
            parts.append(words("ink halo mid", x, height + BELOW, size(one.efficiency, 1)))
    said = described(title_of(scaling), map(_said, scaling.layouts))
    return f'<svg class="chart trend" role="img" width="960" height="{HEIGHT}">{said}{"".join(parts)}</svg>'


def _said(one: ScaledLayout) -> str:
    efficiency = "" if one.efficiency is None else f", efficiency {size(one.efficiency, 1)}, {one.kind} scaling"
    doubt = f", in doubt: {', '.join(one.doubts)}" if one.doubts else ""
    return f"{one.layout}: {number(one.throughput)}{efficiency}{doubt}."


def _x(devices: int, scaling: Scaling) -> str:
    """Where a number of devices stands. If all layouts have the same, they stand in the middle."""
    least, most = scaling.base.devices, scaling.layouts[-1].devices
    share = math.log(devices / least) / math.log(most / least) if most > least else 0.5
    return f"{short(INSIDE[0] + (INSIDE[1] - INSIDE[0]) * share)}%"


def _line(classes: str, begin: tuple[str, int], end: tuple[str, int]) -> str:
    return f'<line class="{classes}" x1="{begin[0]}" y1="{begin[1]}" x2="{end[0]}" y2="{end[1]}"/>'
