"""Sentences of the gate and of people as the page prints them: one minus sign, one form of dates, arrows."""

from __future__ import annotations

import datetime
import re
from functools import lru_cache

from reporting.tables import row

MINUS = "\u2212"
MISSING = "\u2013"  # a dash
NARROW = "\u202f"  # a narrow blank at which no line breaks
COMMAND = "python -m reporting"
_CHANGE = re.compile(r"(?<![\w.-])-(?=\d+(?:\.\d+)? ?%)")
_OF_RUNS = re.compile(r"(?<= %) of (\d+)(?=,|;|\)|$)")
_DATE = re.compile(r"(?<![\w./=-])\d{4}-\d\d-\d\d(?![\w/-]|\.\w)")


def night_text(night: str) -> str:
    """`Tue 17 Nov 2026` of `2026-11-17`. Raises ValueError for what is no date."""
    day = datetime.date.fromisoformat(night)
    return f"{day:%a} {day.day} {day:%b %Y}"


def number(value: float | None) -> str:
    """A value with its significant digits and a true minus sign."""
    return MISSING if value is None else row.number(value).replace("-", MINUS)


@lru_cache(maxsize=1 << 14)  # the same few words are said of most runs
def prose(text: str) -> str:
    """A sentence with true minus signs, the page's dates and arrows, and no line break before a per cent sign.

    `-8.2 % of 20` of a verdict in a few words becomes `-8.2 % from the median of 20 runs`.
    """
    return re.sub(r"(?<=\d) %", f"{NARROW}%", _plain(text))


def whole_verdict(text: str) -> str:
    """The lines of a whole verdict. Those with a command stay as they must be typed."""
    return "\n".join(line if COMMAND in line else _plain(line) for line in text.split("\n"))


def _plain(text: str) -> str:
    said = _OF_RUNS.sub(r" from the median of \1 runs", text.replace(" -> ", " → "))
    return _DATE.sub(_as_night, _CHANGE.sub(MINUS, said))


def _as_night(found: re.Match[str]) -> str:
    try:
        return night_text(found.group())
    except ValueError:  # such as 2026-13-45
        return found.group()
