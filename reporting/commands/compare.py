"""`python -m reporting compare BEFORE AFTER [WORD…]`: two selections of runs; exit code 1: something is slower."""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import json
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from platforms import atomic_file
from platforms.job import RefusedError
from platforms.nodes import node_names
from platforms.printable import printable
from reporting.commands import answering, compared, compared_groups
from reporting.commands.compared import Report
from reporting.commands.opened_site import open_site
from reporting.commands.output_file import refuse_place
from reporting.commands.selection import selected
from reporting.compare.causes import GROUP, shown
from reporting.compare.contrast import contrasts, side_by_side
from reporting.compare.run_selection import RunSelection, on_nodes, parsed
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.phrases import counted
from reporting.tables.markdown import markdown
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
    parser.add_argument(
        "selection",
        metavar="WORD",
        nargs="*",
        help="only tests whose ids have all these words in them (default: all tests of the history)",
    )
    parser.add_argument(
        "--treated", metavar="LIST", help="nodes with the change, as n01..n20: their change beyond that of --control"
    )
    parser.add_argument("--control", metavar="LIST", help="nodes without the change, with runs in the same sessions")
    parser.add_argument("--format", choices=("text", "markdown", "csv", "json"), default="text")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write it to FILE (default: to the terminal)")


def main(options: argparse.Namespace) -> int:
    """Print what has changed. Returns 1 if a test is slower by more than chance explains."""
    refuse_place(options.output, "compared.txt")
    groups = _groups(options)
    site = open_site(options)
    problems: list[str] = []
    envelopes = selected(site, options.selection, problems)
    night_ends = site.settings.night_ends
    sides = [parsed(typed, envelopes, night_ends) for typed in (options.before, options.after)]
    before = sides[0].chosen(envelopes)
    after = sides[1].chosen(envelopes)
    _refuse_overlap(sides, before, after)
    problems.extend(_mixed_times(sides, before, after))
    references = site.references()
    problems.extend(references.problems)
    title = f"before: {_named(sides[0], before, night_ends)}; after: {_named(sides[1], after, night_ends)}"
    if groups is None:
        report = compared.report(contrasts(before, after), title, references, night_ends)
    else:
        problems.extend(_doubtful_groups(before, after, *groups))
        report = compared_groups.report(side_by_side(before, after), *groups, title, references, night_ends)
    if not report.contents:
        raise RefusedError("\n".join(["nothing can be compared:", *(f"  {one}" for one in report.not_compared)]))
    width = None
    if options.output is None and sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    written = _content(report, options.format, width)
    if options.output is None:
        print(written, end="")
        sys.stdout.flush()
    else:
        atomic_file.write_text(options.output, written)
        rows = len(report.contents)
        print(f"{counted(rows, 'row')} written to {options.output}", file=sys.stderr)
    if options.format == "csv":
        problems.extend(report.not_compared)
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


def _content(report: Report, form: str, width: int | None) -> str:
    if form == "csv":
        return _csv(report.contents)
    if form == "json":
        whole = {"rows": list(report.contents), "not_compared": list(report.not_compared)}
        return json.dumps(whole, indent=2) + "\n"
    said = [*report.sentences, *report.not_compared]
    if form == "markdown":
        return "\n".join([*(f"- {one}" for one in said), "", *markdown([report.table]), ""])
    lines = [*_wrapped(said, width, "    "), "", *text([report.table], width), ""]
    lines.append("How each row was computed (docs/compare.md):")
    for numbers in report.numbers:
        lines += ["", *_wrapped(numbers, width, compared.line("", ""))]
    return "\n".join([*map(printable, lines), ""])


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


def _mixed_times(sides: Sequence[RunSelection], before: Sequence[Envelope], after: Sequence[Envelope]) -> list[str]:
    """A sentence if one label is used before and after the first run with the other label."""
    if not all(any(condition.name == "label" for condition in side.conditions) for side in sides):
        return []
    first = min(run.time_s for run in after)
    late = [run for run in before if run.time_s > first]
    if not late:
        return []
    of_sessions = ", ".join(sorted({run.key.run_id for run in late}))
    runs = counted(len(late), "run")
    return [
        f"{runs} of {sides[0].text!r} started after the first run of {sides[1].text!r} (sessions {of_sessions}): "
        "if the label was typed again by mistake, add a condition that leaves them out (date=…, driver=…)"
    ]


def _doubtful_groups(
    before: Sequence[Envelope], after: Sequence[Envelope], treated: frozenset[str], control: frozenset[str]
) -> list[str]:
    """What does not fit to the nodes that were typed as treated and as control nodes, a sentence each."""
    runs = [*before, *after]
    problems = []
    for word, nodes in (("treated", treated), ("control", control)):
        never = nodes - {node for run in runs for node in run.nodes}
        if never:
            problems.append(f"--{word}: no run of the two selections was on {shown(never)}: is the name right?")
        contrary = [run for run in runs if run.provenance.get(GROUP, word) != word and on_nodes(run, nodes)]
        if contrary:
            names = {node for run in contrary for node in run.nodes}
            of_sessions = ", ".join(sorted({run.key.run_id for run in contrary}))
            declared = contrary[0].provenance[GROUP]
            problems.append(
                f"--{word} names {shown(names)}, and sessions have measured them as {declared} nodes ({of_sessions}): "
                "are the two lists swapped?"
            )
        problems += _failed(word, nodes, runs)
    return problems


def _failed(word: str, nodes: frozenset[str], runs: Sequence[Envelope]) -> list[str]:
    """A sentence if jobs of a group have no numbers. Where a job never began, its session has recorded its group."""
    failed = [run for run in runs if not run.sane and (on_nodes(run, nodes) or run.provenance.get(GROUP) == word)]
    if not failed:
        return []
    names = {node for run in failed for node in run.nodes}
    where = f" ({shown(names)})" if names else ""
    what = counted(len(failed), f"job of the {word} nodes has", f"jobs of the {word} nodes have")
    outcomes = ", ".join(sorted({run.outcome.value for run in failed}))
    return [f"{what} no numbers{where}: {outcomes}"]


def _named(side: RunSelection, runs: Sequence[Envelope], night_ends: datetime.time) -> str:
    """A selection with its size: `label=before (24 jobs of 3 sessions, 2026-11-14 to 2026-11-16)`."""
    sessions = len({run.key.run_id for run in runs})
    nights = [night_of(run.time_s, night_ends) for run in runs]
    first = min(nights)
    last = max(nights)
    when = str(first) if first == last else f"{first} to {last}"
    return f"{side.text} ({counted(len(runs), 'job')} of {counted(sessions, 'session')}, {when})"


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    written = io.StringIO()
    if rows:
        writer = csv.DictWriter(written, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return written.getvalue()
