"""Numbers, nights and conditions as the page says them."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup, escape

from reporting import phrases
from reporting.phrases import counted
from reporting.report.charts.prose import MINUS, MISSING, NARROW, night_text
from reporting.report.data import Condition, SeriesReport, TestReport

KEPT = "\n" + NARROW  # what `visible` leaves as it is, although Python does not call it printable
_WITHOUT_KEPT = str.maketrans("", "", KEPT)

MEANINGS = {
    Condition.SLOWER: "The gate is red: it is slower than its pin, or what it measures is not what it was.",
    Condition.FAILED: "Its last jobs failed or could not be run, so they have no numbers.",
    Condition.SUSPECT: "One run was slow. Its node or chance was the cause, or no repeat says which.",
    Condition.ACKNOWLEDGED: "It is slower. A person knows that and has given a ticket.",
    Condition.BLIND: "It has had no run without doubt for three nights.",
    Condition.PAUSED: "A person has paused it.",
    Condition.FASTER: "It is faster than its pin, and has been for some nights.",
    Condition.LEARNING: "It has no pin yet: its first 20 runs without doubt become the pin.",
    Condition.OK: "It is as fast as its pin.",
}


def visible(value: object) -> object:
    """What a template prints. Characters that cannot be seen, such as those that turn the direction, become `?`."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.translate(_WITHOUT_KEPT).isprintable():
        return value
    return "".join(letter if letter.isprintable() or letter in KEPT else "?" for letter in value)


def percent(fraction: float | None) -> str:
    """A change: `-8.4 %`, with a true minus."""
    if fraction is None:
        return MISSING
    return phrases.percent(fraction).replace("-", MINUS).replace(" ", NARROW)


def size(fraction: float | None) -> str:
    """A limit or an error: `1.38 %`."""
    return MISSING if fraction is None else f"{100 * fraction:.2f}{NARROW}%"


def hours(value: float) -> str:
    """Device-hours with two significant digits, and from 10 on whole ones: `0.046`, `1.4`, `773`."""
    if value >= 10 or value <= 0:
        return f"{value:.0f}"
    return "under 0.001" if value < 0.001 else f"{value:#.2g}".removesuffix(".")


def moment(iso: str) -> str:
    """A time with its zone: `Mon 23 Nov 2026, 06:12 (UTC+01:00)`."""
    at = datetime.datetime.fromisoformat(iso)
    return f"{night_text(str(at.date()))}, {at:%H:%M} ({at.tzname() or 'local time'})"


def nights_between(night: str, last: str) -> int:
    """How many nights before the last one a night is."""
    return (datetime.date.fromisoformat(last) - datetime.date.fromisoformat(night)).days


def ago(night: str, last: str) -> str:
    """How long before the last night of the report a night is, in words."""
    nights = nights_between(night, last)
    return "the last night" if nights <= 0 else f"{counted(nights, 'night')} ago"


def name_of(test: TestReport) -> str:
    """A test within its platform: `resnet50 1x4gpu tuned`."""
    return " ".join(filter(None, (test.workload, test.layout, test.setting)))


def labels_of(tests: Sequence[TestReport]) -> dict[str, str]:
    """The name of each test within its platform, by its id. Tests that share a name have the rest of their ids too."""
    shared = Counter((test.platform, name_of(test)) for test in tests)
    labels = {}
    for test in tests:
        name = name_of(test)
        if shared[test.platform, name] > 1:
            name = f"{name} ({test.id.replace(f'{test.platform}-', '')})"
        labels[test.id] = name
    return labels


def leading(test: TestReport) -> SeriesReport | None:
    """The series that stands for a test: the first one of those that are as urgent as the test."""
    for one in test.series:
        if one.condition is test.condition:
            return one
    return test.series[0] if test.series else None


def breakable(name: str) -> Markup:
    """A name that may be broken after its underscores and hyphens."""
    pieces = [escape(piece) for piece in re.split(r"(?<=[_-])", str(visible(name)))]
    return Markup("<wbr>").join(pieces)
