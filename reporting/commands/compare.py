"""`python -m reporting compare BEFORE AFTER [WORD…]`: two selections of runs; exit code 1: something is slower."""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import sys
import textwrap
from collections.abc import Sequence

from platforms.job import RefusedError
from platforms.nodes import node_names
from platforms.printable import printable
from reporting.commands import answering, compared
from reporting.commands.compared import Report
from reporting.commands.opened_site import open_site
from reporting.commands.selection import add_words, selected
from reporting.compare.causes import GROUP, shown
from reporting.compare.contrast import contrasts, side_by_side
from reporting.compare.run_selection import RunSelection, on_nodes, parsed
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.phrases import counted
from reporting.tables.text import text

EPILOG = (
    "A selection is a label of --label (before), or conditions with commas between: label=before,platform=a100. "
    "Conditions: label, date (2026-11-17..2026-11-20, nights), platform, node, nodes (n01..n20), run, commit, and each "
    "name of provenance, such as driver=570.124. docs/compare.md has examples."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("before", metavar="BEFORE", help="the runs that are compared with, such as a label")
    parser.add_argument("after", metavar="AFTER", help="the runs whose change is asked for")
    add_words(parser)
    parser.add_argument(
        "--treated", metavar="LIST", help="nodes with the change, as n01..n20: their change beyond that of --control"
    )
    parser.add_argument("--control", metavar="LIST", help="nodes without the change, with runs in the same sessions")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def main(options: argparse.Namespace) -> int:
    """Print what has changed. Returns 1 if a test is slower by more than chance explains."""
    groups = _groups(options)
    site = open_site(options)
    problems: list[str] = []
    envelopes = selected(site, options.selection, problems)
    night_ends = site.settings.night_ends
    sides = [parsed(typed, envelopes, night_ends) for typed in (options.before, options.after)]
    before = sides[0].chosen(envelopes)
    after = sides[1].chosen(envelopes)
    _refuse_overlap(sides, before, after)
    references = site.references()
    problems.extend(references.problems)
    title = f"before: {_named(sides[0], before, night_ends)}; after: {_named(sides[1], after, night_ends)}"
    if groups is None:
        report = compared.report(contrasts(before, after), title, references, night_ends)
    else:
        problems.extend(_swapped_groups([*before, *after], *groups))
        both = side_by_side(before, after)
        report = compared.report_of_groups(both, *groups, title, references, night_ends)
    if options.format == "json":
        print(json.dumps({"rows": report.contents, "not_compared": report.not_compared}, indent=2))
    else:
        _print(report)
    sys.stdout.flush()
    answering.warn(problems)
    return int(report.slower)


def _groups(options: argparse.Namespace) -> tuple[frozenset[str], frozenset[str]] | None:
    """The names of the treated nodes and of the control nodes; None if none are named."""
    found = []
    for option, typed in (("--treated", options.treated), ("--control", options.control)):
        if typed is None:
            continue
        try:
            found.append(frozenset(node_names(typed)))
        except ValueError as error:
            raise RefusedError(f"{option}: {error}") from None
    if not found:
        return None
    if len(found) == 1:
        raise RefusedError(
            "--treated and --control belong together: name the nodes with the change, and those without it, as in "
            "--treated n01..n20 --control n21..n40"
        )
    both = found[0] & found[1]
    if both:
        raise RefusedError(f"--treated and --control: {shown(both)} cannot be in both")
    return found[0], found[1]


def _print(report: Report) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    said = [*report.sentences, *report.not_compared]
    lines = [*_wrapped(said, width, "    "), "", *text([report.table], width), ""]
    lines.append("How each row was computed (docs/compare.md):")
    for numbers in report.numbers:
        lines += ["", *_wrapped(numbers, width, compared.line("", ""))]
    for line in lines:
        print(printable(line))


def _wrapped(lines: Sequence[str], width: int | None, indent: str) -> list[str]:
    """Lines that are no longer than the terminal; all of them as they are where there is none."""
    if width is None:
        return list(lines)
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent=indent)]


def _refuse_overlap(sides: Sequence[RunSelection], before: Sequence[Envelope], after: Sequence[Envelope]) -> None:
    both = {run.key for run in before} & {run.key for run in after}
    if not both:
        return
    first = next(run for run in before if run.key in both)
    runs = counted(len(both), "run is", "runs are")
    raise RefusedError(
        f"{runs} in both {sides[0].text!r} and {sides[1].text!r}, such as {first.key.test} of run {first.key.run_id}: "
        "add a condition that tells them apart (label=…, date=…, driver=…)"
    )


def _swapped_groups(runs: Sequence[Envelope], treated: frozenset[str], control: frozenset[str]) -> list[str]:
    """Sentences on nodes that sessions have measured as those of the other group: the effect has the wrong sign."""
    problems = []
    for word, nodes in (("treated", treated), ("control", control)):
        contrary = [run for run in runs if run.provenance.get(GROUP, word) != word and on_nodes(run, nodes)]
        if contrary:
            names = shown({node for run in contrary for node in run.nodes})
            declared = contrary[0].provenance[GROUP]
            sessions = ", ".join(sorted({run.key.run_id for run in contrary}))
            problems.append(
                f"--{word} names {names}, and sessions have measured them as {declared} nodes ({sessions}): "
                "are the two lists swapped?"
            )
    return problems


def _named(side: RunSelection, runs: Sequence[Envelope], night_ends: datetime.time) -> str:
    """A selection with its size: `label=before (24 jobs of 3 sessions, 2026-11-14 to 2026-11-16)`."""
    sessions = len({run.key.run_id for run in runs})
    nights = [night_of(run.time_s, night_ends) for run in runs]
    first = min(nights)
    last = max(nights)
    when = str(first) if first == last else f"{first} to {last}"
    return f"{side.text} ({counted(len(runs), 'job')} of {counted(sessions, 'session')}, {when})"
