"""`--tonight`: which night a command takes for the present one."""

from __future__ import annotations

import argparse
import datetime

from reporting.commands import answering
from reporting.commands.opened_site import OpenedSite


def add_tonight(parser: argparse.ArgumentParser) -> None:
    """Declare `--tonight`, which `now_of` reads."""
    parser.add_argument(
        "--tonight",
        metavar="DATE",
        help="the night that is taken for tonight, such as the last one of an old history (default: the present night)",
    )


def now_of(options: argparse.Namespace, site: OpenedSite) -> datetime.datetime:
    """The present time, or the beginning of the night that is typed. Raises RefusedError."""
    if options.tonight is None:
        return answering.now()
    return beginning_of(answering.day_of("--tonight", options.tonight), site)


def beginning_of(night: datetime.date, site: OpenedSite) -> datetime.datetime:
    """The time at which a night of the site begins."""
    return datetime.datetime.combine(night, site.settings.night_ends)
