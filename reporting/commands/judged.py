"""What the gate says of the latest run of each test, as a table and as texts."""

from __future__ import annotations

from collections.abc import Sequence

from platforms.output import print_errors
from platforms.printable import printable
from reporting.columns import aligned
from reporting.commands.opened_site import OpenedSite
from reporting.gate.changed_metrics import changed_metrics
from reporting.gate.verdict import Verdict
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.tables.history_rows import latest_rows
from reporting.tables.row import number

HEADINGS = ("test", "metric", "last night", "value", "unit", "against pin")
TEXT_COLUMNS = (0, 1, 2, 4, 5)


def print_verdicts(site: OpenedSite, envelopes: Sequence[Envelope], *, explain: bool) -> bool:
    """Judge the latest run of each test, and print what the gate says.

    Args:
        envelopes: all runs of these tests, in the order of their starts.
        explain: print for each red metric how it was computed, and what can be answered.

    Returns:
        Whether something is red.
    """
    references = site.references()
    problems = list(references.problems)
    night_ends = site.settings.night_ends
    table: list[Sequence[str]] = [HEADINGS]
    remarks: list[str] = []
    red: list[Verdict] = []
    without_numbers = {envelope.key.test for envelope in envelopes}
    for row in latest_rows(site.history, envelopes, references, night_ends, problems, options=site.options):
        if row.envelope is None:
            continue
        without_numbers.discard(row.envelope.key.test)
        changes = changed_metrics(row.envelope, envelopes, night_ends)
        remarks += [f"{row.envelope.key.test}: {remark}" for remark in (*row.remarks, *changes)]
        for verdict in row.verdicts.values():
            metric = row.envelope.metrics[verdict.metric]
            night = str(night_of(row.envelope.time_s, night_ends))
            table.append((verdict.test, verdict.metric, night, number(metric.value), metric.unit, verdict.short))
            if verdict.red:
                red.append(verdict)
    remarks += [f"{test}: no run has numbers" for test in sorted(without_numbers)]
    for line in [*aligned(table, TEXT_COLUMNS), *remarks]:
        print(printable(line))
    if red and explain:
        for verdict in red:
            print("\n" + "\n".join(map(printable, verdict.text.splitlines())))
    elif red:
        command = f"python -m reporting judge {site.options}".strip()
        print(f"{len(red)} red. How each was computed, and how it can be answered: {command}")
    print_errors(problems)
    return bool(red)
