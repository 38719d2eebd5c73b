"""`python -m reporting month [YYYY-MM]`: a month of the site as tables, and in one picture."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

from platforms import atomic_file
from platforms.config.loading import nearest
from platforms.job import RefusedError
from platforms.printable import printable
from reporting.commands import answering
from reporting.commands.opened_site import OpenedSite, open_site
from reporting.commands.output_file import refuse_place
from reporting.commands.tonight import add_tonight, now_of, until_tonight
from reporting.history.endings import endings_in
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.report.month import has_runs, month_data
from reporting.report.month_picture import FONTS, WIDTH, month_svg
from reporting.report.month_text import month_lines
from reporting.report.png import png_of

SUFFIXES = (".svg", ".png")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "month",
        metavar="YYYY-MM",
        nargs="?",
        type=_month,
        help="default: the last whole month with runs, else the present one",
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="also draw it into FILE, an .svg or a .png")
    parser.add_argument(
        "--devices",
        metavar="PLATFORM=N",
        action="append",
        default=[],
        help="how many devices a platform has, for the share of it that the runs took (may be repeated)",
    )
    add_tonight(parser)


def _month(word: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(f"{word}-01")
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is no month: write it as in 2026-11") from None


def main(options: argparse.Namespace) -> int:
    """Print a month, and draw it if a file is named. Returns 0."""
    output: Path | None = options.output
    if output is not None and output.suffix.lower() not in SUFFIXES:
        raise RefusedError(f"-o {output}: the name of a picture ends with .svg or .png")
    refuse_place(output, "month.svg")
    site = open_site(options)
    problems: list[str] = []
    envelopes = site.read(problems=problems)
    if not envelopes:
        raise RefusedError(site.why_empty())
    envelopes = until_tonight(envelopes, options, site)
    devices = _devices(options.devices, {job.platform for job in envelopes})
    now = now_of(options, site)
    references = site.references()
    problems.extend(references.problems)
    month = month_data(
        envelopes,
        references,
        site.settings.name,
        _chosen(options.month, envelopes, site, now),
        site.settings.night_ends,
        now,
        devices=devices,
        ending=endings_in(site.history, problems),
    )
    if output is not None:
        _write(output, month_svg(month))
    print("\n".join(map(printable, month_lines(month))))
    sys.stdout.flush()
    if output is not None:
        print(f"the picture is written to {output}", file=sys.stderr)
    answering.warn(problems)
    return 0


def _write(output: Path, picture: str) -> None:
    """Write the picture in the format that the file's name says. Raises RefusedError and OSError."""
    content = picture.encode() if output.suffix.lower() == ".svg" else png_of(picture, WIDTH, FONTS)
    atomic_file.write_bytes(output, content)


def _chosen(
    typed: datetime.date | None, envelopes: Sequence[Envelope], site: OpenedSite, now: datetime.datetime
) -> datetime.date:
    """The month that is typed, else the last whole one with runs, else the present one. Raises RefusedError."""
    night_ends = site.settings.night_ends
    months = sorted({night_of(job.time_s, night_ends).replace(day=1) for job in envelopes})
    present = night_of(now.timestamp(), night_ends).replace(day=1)
    if typed is None:
        known = [month for month in months if month <= present]
        whole = [month for month in known if month < present]
        if not known:
            raise RefusedError(f"{site.history}: no run until now; the first one is of {months[0]:%Y-%m}")
        return (whole or known)[-1]
    if typed > present or not has_runs(envelopes, typed, night_ends):
        there_are = f"the history has runs from {months[0]:%Y-%m} to {months[-1]:%Y-%m}"
        raise RefusedError(f"{site.history}: no run in {typed:%Y-%m}; {there_are}")
    return typed


def _devices(typed: Sequence[str], platforms: set[str]) -> dict[str, int]:
    """How many devices each platform has. Raises RefusedError."""
    found = {}
    for word in typed:
        name, _equals, number = word.rpartition("=")
        if not name or not number.isdecimal() or int(number) < 1:
            raise RefusedError(f"--devices {word}: write a platform and its number of devices, as in a100=32")
        if name not in platforms:
            raise RefusedError(f"--devices {word}: the history has no run of {name!r} {nearest(name, platforms)}")
        found[name] = int(number)
    return found
