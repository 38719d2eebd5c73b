"""Which night a run belongs to."""

from __future__ import annotations

import datetime

NOON = datetime.time(12)
DAY = datetime.timedelta(days=1)


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
