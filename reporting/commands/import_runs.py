"""`python -m reporting import reframe|runs FILE…`: takes in what others recorded.

Results of ReFrame go into the site's history. Runs of another centre become a site of their own.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from platforms.job import RefusedError
from platforms.output import print_errors
from platforms.printable import printable
from reporting import bundle
from reporting.columns import aligned
from reporting.commands.judged import judged_tests, print_judged
from reporting.commands.opened_site import OpenedSite, open_site
from reporting.commands.tonight import beginning_of, typed_date
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.history.place import refuse_missing
from reporting.history.writer import HistoryWriter
from reporting.imports import reframe
from reporting.imports.directions import Decision, MetricName, Said
from reporting.imports.merge import Count, known_of, missing
from reporting.imports.reframe_files import read_files
from reporting.imports.survey import decisions, survey_of

AT_ONCE = 1000  # envelopes, of about 1 kB each
MOST_CHECKS = 3  # that a row names

EPILOG = (
    "The same files can be imported every night: what the history has is not written again. "
    "Then `python -m reporting judge` ends with 1 if a number is red."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.epilog = EPILOG
    parser.add_argument(
        "program",
        choices=("reframe", "runs"),
        help="what made the files; runs: `export bundle` did",
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="reframe: a results database, a report (JSON), a perflog, or a folder of these two; runs: one tar.gz",
    )
    parser.add_argument(
        "--to", metavar="DIR", type=Path, help="runs: the new folder (default: the file's name, in this folder)"
    )
    parser.add_argument(
        "--better",
        action="append",
        default=[],
        metavar="METRIC=lower|higher",
        help="reframe: which direction of a metric is good, where its references do not say it; CHECK:METRIC=… for one "
        "check alone",
    )
    parser.add_argument(
        "--since",
        metavar="DATE",
        type=typed_date,
        help="only runs since the night of DATE, as 2026-11-17 (default: all of a test that is new to the history; of "
        "others those since its first night there)",
    )


def main(options: argparse.Namespace) -> int:
    """Import, say what was imported, and what the gate says of it. Returns 1 if a part of the files was skipped."""
    if options.program == "runs":
        return _unpack(options)
    if options.to is not None:
        raise RefusedError(
            "--to: only import runs makes a new folder; ReFrame's results go into the history (--history)"
        )
    site = open_site(options)
    refuse_missing(site.history, options.history, site.folder)
    said = Said.parse(options.better)
    for path in options.files:
        if not path.exists():
            raise RefusedError(f"{path}: no such file or folder")
    problems: list[str] = []
    count = _import_reframe(site, options.files, said, options.since, problems)
    print(_summary(count, site))
    for line in _left_out(count, options.since):
        print(line)
    if count.tests:
        print()
        runs = site.read(count.tests, problems)
        last_night = max(night_of(run.time_s, site.settings.night_ends) for run in runs)
        judged = judged_tests(site, runs, beginning_of(last_night, site), problems)
        print_judged(judged, site, explain=False)
    return print_errors(list(dict.fromkeys(problems)))


def _unpack(options: argparse.Namespace) -> int:
    """Unpack one bundle as a site of its own, and say how it is looked at. Returns 0."""
    if options.better or options.since is not None:
        raise RefusedError("import runs takes everything of a bundle: neither --better nor --since")
    if len(options.files) > 1:
        raise RefusedError("import runs: one file at a time, since each becomes a site of its own")
    (path,) = options.files
    if not path.is_file():
        raise RefusedError(f"{path}: there is no such file (`python -m reporting export bundle` writes one)")
    folder = options.to or Path(path.name.removesuffix(".gz").removesuffix(".tgz").removesuffix(".tar"))
    bundle.unpack(path, folder)
    print(f"{folder}: all files are as in {bundle.SUMS}")
    print(f"look at it: python -m reporting table --site={shlex.quote(str(folder))}")
    return 0


def _left_out(count: Count, since: datetime.date | None) -> list[str]:
    """A line for each reason why runs were not imported."""
    lines = []
    if count.in_future:
        lines.append(
            f"left out, since they are dated more than a day in the future: {count.in_future} (was the clock of that "
            "machine wrong?)"
        )
    if count.too_old and since is None:
        lines.append(
            "left out, since they are older than the first night of their test there, and would move its pin: "
            f"{count.too_old} (to take them, type --since=DATE)"
        )
    elif count.too_old:
        lines.append(f"left out, since they are older than {since}: {count.too_old}")
    return lines


def _import_reframe(
    site: OpenedSite, files: Sequence[Path], said: Said, since: datetime.date | None, problems: list[str]
) -> Count:
    survey = survey_of(read_files(files, []))
    known = known_of(site.read(survey.all_tests, problems), site.settings.night_ends)
    decided = decisions(survey, said, known.directions)
    for word in said.unknown(survey.metrics):
        problems.append(f"--better={word}=…: the files have no metric of this name")
    _print_decisions(decided)
    directions = {name: decision.direction for name, decision in decided.items() if decision.direction is not None}
    now_s = time.time()
    envelopes = (
        reframe.envelope_of(case, site.settings.name, directions, now_s)
        for case in read_files(files, problems)
        if case.has_run
    )
    count = Count()
    writer = HistoryWriter(site.history)
    for part in _parts(missing(envelopes, known, count, site.settings.night_ends, since)):
        writer.write_all(part)
    results = ", ".join(f"{number} {result}" for result, number in sorted(survey.cases.items()))
    print(f"test cases of ReFrame by result: {results or 'none'}")
    return count


def _parts(envelopes: Iterator[Envelope]) -> Iterator[list[Envelope]]:
    while part := list(itertools.islice(envelopes, AT_ONCE)):
        yield part


def _print_decisions(decided: dict[MetricName, Decision]) -> None:
    """Say which direction is good, once for all checks whose metric has the same name, unit, direction and reason."""
    if not decided:
        return
    checks: dict[tuple[str, ...], list[str]] = {}
    for name, decision in decided.items():
        better = decision.direction or "NOT IMPORTED"
        checks.setdefault((name.metric, name.unit or "-", better, decision.reason), []).append(name.check)
    rows: list[tuple[str, ...]] = [("metric", "unit", "better", "why", "checks")]
    for row, names in checks.items():
        shown = names[:MOST_CHECKS]
        if len(names) > MOST_CHECKS:
            shown.append(f"and {len(names) - MOST_CHECKS} more")
        rows.append((*row, ", ".join(shown)))
    for line in aligned(rows, range(len(rows[0]))):
        print(printable(line))
    for name, decision in decided.items():
        if decision.direction is None:
            typed = shlex.quote(f"--better={name.check}:{name.metric}=higher")
            print(printable(f"to import it, say what is good: {typed} (or lower)"))
    print()


def _summary(count: Count, site: OpenedSite) -> str:
    nights = "none"
    if count.nights:
        nights = f"{len(count.nights)}, {min(count.nights)} to {max(count.nights)}"
    return (
        f"lines: {count.new} new, {count.changed} changed, {count.already_there} there already; "
        f"tests: {len(count.tests)}; nights: {nights}; in {site.history}"
    )
