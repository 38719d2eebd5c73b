"""Which night a run belongs to."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

NOON = datetime.time(12)
DAY = datetime.timedelta(days=1)


def nights_of(starts_s: Iterable[float], ends: datetime.time = NOON) -> list[datetime.date]:
    """The night of each of many runs. A night ends with a full minute, so each minute is looked up once."""
    of_minute: dict[int, datetime.date] = {}
    nights = []
    for started_s in starts_s:
        minute = round(started_s * 1e6) // 60_000_000  # of the microsecond that `night_of` sees
        night = of_minute.get(minute)
        if night is None:
            night = of_minute[minute] = night_of(started_s, ends)
        nights.append(night)
    return nights


def night_of(started_s: float, ends: datetime.time = NOON) -> datetime.date:
    """The date of the evening before a run, by this machine's time zone.

    With nights that end at noon, a run that starts on Tuesday at 03:00 and one that started on Monday at 22:00 belong
    to Monday.

    Args:
        started_s: Unix seconds.
        ends: the hour at which the site's nights end.
    """
    started = datetime.datetime.fromtimestamp(started_s)
    if (started.hour, started.minute) >= (ends.hour, ends.minute):
        return started.date()
    return started.date() - DAY
