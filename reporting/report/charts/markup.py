"""The pieces that all charts are written with: safe text, short coordinates, paths, and the colours by condition."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from functools import lru_cache

from platforms.printable import printable
from reporting.report.data import Condition

STYLE = """
.chart{display:block;overflow:visible;box-sizing:border-box;font:12px/1.2 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums}
.chart text{fill:var(--muted);stroke:none}
.chart .ink{fill:var(--ink)}
.chart .halo{paint-order:stroke;stroke:var(--surface);stroke-width:4px;stroke-linejoin:round}
.chart .end{text-anchor:end}
.chart .mid{text-anchor:middle}
.chart path{vector-effect:non-scaling-stroke}
.chart path,.chart line{fill:none;stroke-width:1;stroke:currentColor}
.chart .shape{fill:inherit;stroke:inherit;stroke-width:inherit;stroke-linejoin:round}
.chart .grid{stroke:var(--line)}
.chart .axis{stroke:var(--muted)}
.chart .band{fill:var(--muted);stroke:none;opacity:.1}
.chart .level{stroke:var(--ink);stroke-width:1.25}
.chart .accepted{stroke-dasharray:7 3}
.chart .recent{stroke:var(--muted);stroke-width:1.5;stroke-linecap:round;stroke-linejoin:round}
.chart .dots{stroke-width:4;stroke-linecap:round}
.chart .squares{stroke-width:3.5;stroke-linecap:square}
.chart .rings{stroke-width:6;stroke-linecap:round}
.chart .holes{stroke-width:3.5;stroke-linecap:round;stroke:var(--surface)}
.chart.few .dots{stroke-width:6}.chart.few .squares{stroke-width:5}
.chart.few .rings{stroke-width:8}.chart.few .holes{stroke-width:5}
.chart .pale{stroke:var(--muted);opacity:.4}
.chart .failures{stroke-width:2}
.chart .fill{fill:currentColor;stroke:none}
.chart .mark{fill:currentColor;stroke:var(--surface);stroke-width:1}
.chart .hollow{fill:var(--surface);stroke:currentColor;stroke-width:1.75}
.chart .beyond{stroke-width:3;stroke-linecap:round}
.chart .begin{stroke-width:1.25}
.chart .flag{stroke:var(--muted);stroke-dasharray:1 3}
.chart .flag-rings circle{fill:var(--surface);stroke:var(--muted)}
.chart .flag-rings text{text-anchor:middle;fill:var(--ink);pointer-events:none}
.chart .spark-line{stroke-width:1.25;stroke-linecap:round;stroke-linejoin:round;stroke:var(--muted)}
.chart .last{stroke-width:5.5;stroke-linecap:round}
.chart .track{fill:var(--line);opacity:.55}
.chart .bar{fill:var(--ink);opacity:.22}
.chart .bar.past{fill:none;stroke:var(--ink);stroke-dasharray:3 3;opacity:.6}
.chart .ideal{stroke:var(--muted);stroke-dasharray:7 3}
.chart .scaled{stroke:var(--ink);stroke-width:1.5}
.chart .pin{stroke:var(--ink);stroke-width:2}
.chart .part-wait{fill:color-mix(in srgb,var(--ink) 85%,var(--surface))}
.chart .part-copies{fill:color-mix(in srgb,var(--ink) 55%,var(--surface))}
.chart .part-step{fill:color-mix(in srgb,var(--ink) 25%,var(--surface))}
.chart .part-rest{fill:color-mix(in srgb,var(--ink) 10%,var(--surface));stroke:var(--muted);stroke-width:1}
.chart .row-title{font-size:13px;fill:var(--ink)}
.chart .k-slower{color:var(--slower)}.chart .k-failed{color:var(--failed)}.chart .k-suspect{color:var(--suspect)}
.chart .k-acknowledged{color:var(--acknowledged)}
.chart .k-blind{color:var(--blind)}.chart .k-paused{color:var(--paused)}
.chart .k-faster{color:var(--faster)}.chart .k-learning{color:var(--learning)}.chart .k-ok{color:var(--ok)}
.chart text[class*="k-"],.chart tspan[class*="k-"]{fill:currentColor}
.trend{width:100%;padding-left:50px;padding-right:6px}
.bars{width:100%}
.month-nights{max-width:none}
.chart.key{display:inline-block;vertical-align:-1px}
.chart .narrow{display:none}
@media (max-width:640px){.chart .wide{display:none}.chart .narrow{display:inline}}
@media print{.chart{break-inside:avoid}}
"""
"""What the charts look like; a page has it once. The colours are its own variables: --slower, --ink, --surface, …"""

SHAPES = {
    Condition.SLOWER: "M-5-4h10l-5 9z",
    Condition.FASTER: "M-5 4h10l-5-9z",
    Condition.SUSPECT: "M-4-4h8v8h-8z",
    Condition.ACKNOWLEDGED: "M0-5.5l5.5 5.5l-5.5 5.5l-5.5-5.5z",
}
"""Around (0, 0), in px. All other conditions are dots."""


def safe(text: str) -> str:
    """A text from anywhere as the content or the attribute of an element."""
    return html.escape(printable(text))


@lru_cache(maxsize=1 << 14)
def short(value: float) -> str:
    """A coordinate with two decimals at most, as short as it can be: `12`, `.5`, `-3.25`."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    if text in ("-0", ""):
        return "0"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def joined(*values: float) -> str:
    """Coordinates in a row; a minus needs no blank before it."""
    text = ""
    for value in values:
        number = short(value)
        text += number if not text or number.startswith("-") else f" {number}"
    return text


def dots(places: Sequence[tuple[float, float]]) -> str:
    """The path of one dot at each place; the stroke's round or square caps draw it."""
    text = ""
    last = (0.0, 0.0)
    for place in places:
        if not text:
            text = f"M{joined(*place)}h0"
        else:
            text += f"m{joined(place[0] - last[0], place[1] - last[1])}h0"
        last = place
    return text


def polyline(places: Sequence[tuple[float, float]]) -> str:
    """The path of a line through all places; of one place it is a dot."""
    if len(places) == 1:
        return dots(places)
    text = f"M{joined(*places[0])}l"
    last = places[0]
    steps = []
    for place in places[1:]:
        steps.append(joined(place[0] - last[0], place[1] - last[1]))
        last = place
    for number, step in enumerate(steps):
        text += step if number == 0 or step.startswith("-") else f" {step}"
    return text


def path(classes: str, d: str, inside: str = "") -> str:
    """A path; nothing if it has no points."""
    if not d:
        return ""
    end = f">{inside}</path>" if inside else "/>"
    return f'<path class="{classes}" d="{d}"{end}'


def words(classes: str, x: str, y: float, text: str) -> str:
    """A line of text. `x` is in px, or in per cent of the chart's width."""
    kind = f' class="{classes}"' if classes else ""
    return f'<text{kind} x="{x}" y="{short(y)}">{safe(text)}</text>'


def mark(condition: Condition) -> str:
    """The shape of a condition in the charts, as a small picture for a legend."""
    shape = f'<path class="shape" d="{SHAPES.get(condition, "M-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0")}"/>'
    if condition is Condition.LEARNING:
        shape = '<path class="shape" d="M-2-2h4v4h-4z"/>'
    if condition is Condition.FAILED:
        shape = '<path class="failures" d="M0-5.5v11"/>'
    return (
        f'<svg class="chart key k-{condition}" width="12" height="12" viewBox="-6 -6 12 12" aria-hidden="true">'
        f'<g class="mark">{shape}</g></svg>'
    )


def described(title: str, description: Iterable[str] = ()) -> str:
    """What a screen reader says of a chart."""
    text = " ".join(filter(None, description))
    return f"<title>{safe(title)}</title>" + (f"<desc>{safe(text)}</desc>" if text else "")
