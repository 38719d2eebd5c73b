"""Lengths of time, as people write them in files and on command lines, and as we write them."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")
_UNITS = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


def seconds_of(text: str) -> float:
    """Read `1:30:00`, `1-12:00:00`, `90m`, `1h30m`, `45s`. Raises ValueError with what to write."""
    duration = _DURATION.fullmatch(text)
    if duration:
        days, hours, minutes, seconds = (float(part or 0) for part in duration.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    units = _UNITS.fullmatch(text)
    if units and any(units.groups()):
        hours, minutes, seconds = (float(part or 0) for part in units.groups())
        return hours * 3600 + minutes * 60 + seconds
    if re.fullmatch(r"\d+:\d\d", text):
        raise ValueError(f"{text!r} may be hours or minutes (write {text}:00 or 0:{text.zfill(5)})")
    raise ValueError(f"{text!r} is no time (write H:MM:SS as in 1:30:00, or 90m, 2h, 45s)")


def clock(seconds: float) -> str:
    """Format seconds as seconds_of reads them: `1:30:00`. Drops a part of a second."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def short_clock(seconds: float) -> str:
    """Format seconds for people: `0:05`, `12:05`, `3:00:00`. Drops a part of a second."""
    whole = int(seconds)
    return clock(whole) if whole >= 3600 else f"{whole // 60}:{whole % 60:02d}"
