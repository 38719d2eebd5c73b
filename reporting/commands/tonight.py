"""`--tonight`: which night a command takes for the present one, and the runs until its end."""

from __future__ import annotations

import argparse
import datetime
import math
from collections.abc import Sequence

from platforms.job import RefusedError
from reporting.commands import answering
from reporting.commands.opened_site import OpenedSite
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of


def add_tonight(parser: argparse.ArgumentParser) -> None:
    """Declare `--tonight`, which `now_of` and `until_tonight` read."""
    parser.add_argument(
        "--tonight",
        metavar="DATE",
        help="what would have been said in the night of DATE, without later runs (default: the present night)",
    )


def typed_date(word: str) -> datetime.date:
    """The date that an option has. Raises ArgumentTypeError."""
    try:
        return datetime.date.fromisoformat(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is no date: write it as in 2026-11-17") from None


def now_of(options: argparse.Namespace, site: OpenedSite) -> datetime.datetime:
    """The present time, or the beginning of the night that is typed. Raises RefusedError."""
    if options.tonight is None:
        return answering.now()
    return beginning_of(answering.day_of("--tonight", options.tonight), site)


def beginning_of(night: datetime.date, site: OpenedSite) -> datetime.datetime:
    """The time at which a night of the site begins."""
    return datetime.datetime.combine(night, site.settings.night_ends)


def until_tonight(envelopes: Sequence[Envelope], options: argparse.Namespace, site: OpenedSite) -> list[Envelope]:
    """The runs until the end of the night that is typed; all of them without --tonight.

    Raises:
        RefusedError: all of them are later.
    """
    if options.tonight is None or not envelopes:
        return list(envelopes)
    end_s = end_of_tonight(options, site)
    until = [envelope for envelope in envelopes if envelope.time_s < end_s]
    if not until:
        first = night_of(envelopes[0].time_s, site.settings.night_ends)
        night = answering.day_of("--tonight", options.tonight)
        raise RefusedError(f"--tonight {night}: the first run of these tests is of the night of {first}")
    return until


def end_of_tonight(options: argparse.Namespace, site: OpenedSite) -> float:
    """When the night that is typed ends, in Unix seconds; infinity without --tonight. Raises RefusedError."""
    if options.tonight is None:
        return math.inf
    night = answering.day_of("--tonight", options.tonight)
    return beginning_of(night + datetime.timedelta(days=1), site).timestamp()
