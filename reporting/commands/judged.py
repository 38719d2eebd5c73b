"""What the gate says of the latest run of each test: first what is red, then what is amber, then how many are ok."""

from __future__ import annotations

import datetime
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from platforms.printable import printable
from reporting.columns import aligned
from reporting.commands.opened_site import OpenedSite
from reporting.gate.changed_metrics import changed_metrics
from reporting.gate.verdict import Kind, Verdict
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.tables.history_rows import by_site_and_test, latest_rows, tried_in_vain
from reporting.tables.row import Row, number

COUNTED = frozenset({Kind.OK, Kind.LEARNING})
"""Verdicts that are only counted, unless all rows are to be shown."""
LEAST_WIDTH = 20  # of what the gate says, beside the value


@dataclass(frozen=True)
class Judged:
    """Tests that were judged.

    Attributes:
        rows: the latest run of each test with numbers.
        remarks: on tests, each a line.
        without_numbers: tests without any numbers that are not paused.
    """

    rows: Sequence[Row]
    remarks: Sequence[str]
    without_numbers: Sequence[str]

    @property
    def verdicts(self) -> list[Verdict]:
        return [verdict for row in self.rows for verdict in row.verdicts.values()]


def judged_tests(
    site: OpenedSite, envelopes: Sequence[Envelope], now: datetime.datetime, problems: list[str]
) -> Judged:
    """Judge the latest run of each test.

    Args:
        envelopes: all runs of these tests, in the order of their starts.
        now: the present time.
        problems: gets a sentence for each answer and each run.json that cannot be read.
    """
    references = site.references()
    problems.extend(references.problems)
    night_ends = site.settings.night_ends
    rows = latest_rows(site.history, envelopes, references, night_ends, now, problems, options=site.options)
    remarks = []
    silent = dict(by_site_and_test(envelopes))
    for row in rows:
        if row.envelope is not None:
            del silent[row.envelope.key.site, row.envelope.key.test]
            changes = changed_metrics(row.envelope, envelopes, night_ends)
            remarks += [f"{row.envelope.key.test}: {remark}" for remark in (*row.remarks, *changes)]
    without_numbers = []
    for (_site, test), runs in sorted(silent.items()):
        pause = references.pause(test, runs[-1].platform, now.date())
        if pause is None:
            without_numbers.append(test)
            remarks.append(f"{test}: no run has numbers, so it is blind")
        else:
            remarks.append(f"{test}: paused until {pause.until}: {pause.reason}")
    remarks += [f"{test}: tried in vain where it cannot run, so it is not judged" for test in tried_in_vain(envelopes)]
    return Judged(rows, remarks, without_numbers)


def print_judged(judged: Judged, site: OpenedSite, *, explain: bool, verbose: bool = False) -> None:
    """Print what the gate says of some tests, and in the last line how many metrics have which verdict.

    Args:
        explain: print for each red metric how it was computed, and what can be answered.
        verbose: show what is ok or learning, too.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    lines = _lines(judged.rows, site.settings.night_ends, width, verbose=verbose)
    for remark in judged.remarks:
        lines += _wrapped(remark, width)
    for line in lines:
        print(printable(line))
    red = [verdict for verdict in judged.verdicts if verdict.red]
    if explain:
        for verdict in red:
            print("\n" + "\n".join(map(printable, verdict.text.splitlines())))
    if lines:
        print()
    print(_summary(judged))
    if red and not explain:
        command = f"python -m reporting judge {site.options}".strip()
        print(f"How each red number was computed, and how it can be answered: {command}")


def _lines(rows: Sequence[Row], night_ends: datetime.time, width: int | None, *, verbose: bool) -> list[str]:
    """The id of each test with the night of its run, the worst tests first, and below it a line for each metric."""
    chosen: list[tuple[Row, Verdict]] = []
    for row in sorted(rows, key=lambda row: min(map(_rank, row.verdicts.values()), default=0)):
        for verdict in sorted(row.verdicts.values(), key=_rank):
            if verbose or verdict.kind not in COUNTED:
                chosen.append((row, verdict))
    if not chosen:
        return []
    numbers = aligned([_cells(row, verdict) for row, verdict in chosen], (0, 1, 3))
    indent = max(map(len, numbers)) + 4
    lines = []
    previous = None
    for (row, verdict), cells in zip(chosen, numbers, strict=True):
        if row is not previous and row.envelope is not None:
            lines += _wrapped(f"{verdict.test}, {night_of(row.envelope.time_s, night_ends)}", width)
            previous = row
        whole = f"  {cells:<{indent - 4}}  {verdict.short}"
        if width is None or len(whole) <= width:
            lines.append(whole)
        elif width - indent >= LEAST_WIDTH:
            first, *more = textwrap.wrap(verdict.short, width - indent)
            lines += [f"  {cells:<{indent - 4}}  {first}", *(" " * indent + text for text in more)]
        else:
            said = textwrap.wrap(verdict.short, width, initial_indent=" " * 4, subsequent_indent=" " * 4)
            lines += [f"  {cells}".rstrip(), *said]
    return lines


def _wrapped(line: str, width: int | None) -> list[str]:
    return [line] if width is None else textwrap.wrap(line, width, subsequent_indent="  ")


def _cells(row: Row, verdict: Verdict) -> tuple[str, str, str, str]:
    mark = "RED" if verdict.red else ""
    if row.envelope is None:
        return mark, verdict.metric, "-", ""
    metric = row.envelope.metrics[verdict.metric]
    return mark, verdict.metric, number(metric.value), metric.unit


def _rank(verdict: Verdict) -> int:
    """Red comes first, then what a person should know, then what is only counted."""
    if verdict.red:
        return 0
    return 2 if verdict.kind in COUNTED else 1


def _summary(judged: Judged) -> str:
    """How many metrics are red, blind, amber and ok: `2 red, 1 blind, 117 ok`."""
    counts: Counter[str] = Counter()
    for verdict in judged.verdicts:
        counts["red" if verdict.red else verdict.kind.value] += 1
    counts["blind"] += len(judged.without_numbers)
    amber = (Kind.BLIND, Kind.SUSPECT, Kind.TRANSIENT, Kind.ACKNOWLEDGED, Kind.PAUSED, Kind.FASTER)
    words = ["red", *(kind.value for kind in amber)]
    parts = [f"{counts[word]} {word}" for word in (*words, Kind.LEARNING.value, Kind.OK.value) if counts[word]]
    return ", ".join(parts) or "nothing is judged"
