"""What the gate says of the latest run of each test: first what is red, then what is amber, then how many are ok."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from platforms.printable import printable
from reporting.columns import aligned
from reporting.commands.opened_site import OpenedSite
from reporting.commands.selection import of_each_test
from reporting.gate.changed_metrics import changed_metrics
from reporting.gate.verdict import Kind, Verdict
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.imports import reframe
from reporting.tables.history_rows import by_test, latest_rows, tried_in_vain
from reporting.tables.row import Row, number

COUNTED = frozenset({Kind.OK, Kind.LEARNING})
"""Verdicts that are only counted, unless all rows are to be shown."""
IN_ORDER = (
    Kind.BLIND,
    Kind.SUSPECT,
    Kind.TRANSIENT,
    Kind.ACKNOWLEDGED,
    Kind.PAUSED,
    Kind.FASTER,
    Kind.LEARNING,
    Kind.OK,
)
"""Verdicts that are not red, in the order in which the last line counts them."""


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
    silent = by_test(envelopes)
    runs_of = of_each_test(envelopes)
    for row in rows:
        assert row.envelope is not None
        test = row.envelope.key.test
        del silent[test]
        changes = changed_metrics(row.envelope, runs_of[test], night_ends)
        remarks += [f"{test}: {remark}" for remark in (*row.remarks, *changes)]
    without_numbers = []
    for test, runs in sorted(silent.items()):
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
    lines = [*_lines(judged.rows, site.settings.night_ends, verbose=verbose), *judged.remarks]
    for line in lines:
        print(printable(line))
    red = [verdict for verdict in judged.verdicts if verdict.red]
    if explain:
        for verdict in red:
            print("\n" + "\n".join(map(printable, verdict.text.splitlines())))
        for line in _repeats(judged.rows):
            print(printable(line))
    if lines:
        print()
    print(_summary(judged))
    if red and not explain:
        command = f"python -m reporting judge {site.options}".strip()
        print(f"How each red number was computed, and how it can be answered: {command}")


def _repeats(rows: Sequence[Row]) -> list[str]:
    """What is typed to repeat in ReFrame the imported tests that are red or suspect."""
    commands = [
        f"  {reframe.repeat_command(row.envelope)}"
        for row in rows
        if row.envelope is not None
        and row.envelope.source == reframe.SOURCE
        and any(verdict.red or verdict.kind is Kind.SUSPECT for verdict in row.verdicts.values())
    ]
    return ["", "To repeat in ReFrame, with the -c and -C of your other runs:", *commands] if commands else []


def _lines(rows: Sequence[Row], night_ends: datetime.time, *, verbose: bool) -> list[str]:
    """The id of each test with the night of its run, the worst tests first, and below it a line for each metric."""
    heads = []
    cells = []
    for row in sorted(rows, key=lambda row: min(map(_rank, row.verdicts.values()), default=0)):
        assert row.envelope is not None
        head = f"{row.envelope.key.test}, {night_of(row.envelope.time_s, night_ends)}"
        for verdict in sorted(row.verdicts.values(), key=_rank):
            if verbose or verdict.kind not in COUNTED:
                mark = "RED" if verdict.red else ""
                metric = row.envelope.metrics[verdict.metric]
                value = verdict.extent.value if verdict.extent else metric.value  # of which `short` says the change
                heads.append(head)
                cells.append((mark, verdict.metric, number(value), metric.unit, verdict.short))
    lines: list[str] = []
    for head, line in zip(heads, aligned(cells, (0, 1, 3, 4)), strict=True):
        if head not in lines:
            lines.append(head)
        lines.append(f"  {line}")
    return lines


def _rank(verdict: Verdict) -> int:
    """Red comes first, then what a person should know, then what is only counted."""
    if verdict.red:
        return 0
    if verdict.kind not in COUNTED:
        return 1
    return 2


def _summary(judged: Judged) -> str:
    """How many metrics are red, blind, amber and ok: `2 red, 1 blind, 117 ok`."""
    counts: Counter[str] = Counter()
    for verdict in judged.verdicts:
        if verdict.red:
            counts["red"] += 1
        else:
            counts[verdict.kind.value] += 1
    counts["blind"] += len(judged.without_numbers)
    parts = [f"{counts[word]} {word}" for word in ("red", *IN_ORDER) if counts[word]]
    return ", ".join(parts) or "nothing is judged"
