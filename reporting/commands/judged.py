"""What the gate says of the last run of each test, as a table and as texts."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from platforms.output import print_errors
from platforms.printable import printable
from reporting.columns import aligned
from reporting.commands.opened_site import OpenedSite
from reporting.gate.judge import judge
from reporting.gate.verdict import Verdict
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.history.reader import read
from reporting.tables.row import number

HEADINGS = ("test", "metric", "last night", "value", "unit", "against pin")


def print_verdicts(site: OpenedSite, tests: Collection[str] | None, *, explain: bool) -> bool:
    """Judge the last run with numbers of each test, and print what the gate says.

    Args:
        tests: ids; None for all tests of the history.
        explain: print for each red metric how it was computed, and what can be answered.

    Returns:
        Whether something is red.
    """
    problems: list[str] = []
    references = site.references()
    by_test = _by_test(read(site.history, tests, problems))
    rows: list[tuple[str, ...]] = [HEADINGS]
    red: list[Verdict] = []
    without_numbers: list[str] = []
    for test, envelopes in sorted(by_test.items()):
        last = _last_with_numbers(envelopes)
        if last is None:
            without_numbers.append(test)
            continue
        for verdict in judge(last, envelopes, references, site.settings.night_ends, options=site.options).values():
            rows.append(_row(last, verdict, site))
            if verdict.red:
                red.append(verdict)
    for line in aligned(rows, (0, 1, 2, 4, 5)) if len(rows) > 1 else ["the history has no numbers of these tests"]:
        print(printable(line))
    if without_numbers:
        print(printable(f"tests that have never recorded a number: {', '.join(without_numbers)}"))
    if red and not explain:
        again = f"python -m reporting judge {site.options}".strip()
        print(f"{len(red)} red. `{again}` says how each was computed, and how to answer it.")
    if explain:
        for verdict in red:
            print()
            print("\n".join(map(printable, verdict.text.splitlines())))
    print_errors([*problems, *references.problems])
    return bool(red)


def _by_test(envelopes: Iterable[Envelope]) -> dict[str, list[Envelope]]:
    found: dict[str, list[Envelope]] = {}
    for envelope in envelopes:
        found.setdefault(envelope.key.test, []).append(envelope)
    return found


def _last_with_numbers(envelopes: Iterable[Envelope]) -> Envelope | None:
    """The history is in order."""
    last = None
    for envelope in envelopes:
        if envelope.sane and envelope.metrics and envelope.role == "measure":
            last = envelope
    return last


def _row(last: Envelope, verdict: Verdict, site: OpenedSite) -> tuple[str, ...]:
    metric = last.metrics[verdict.metric]
    night = night_of(last.time_s, site.settings.night_ends)
    return (verdict.test, verdict.metric, str(night), number(metric.value), metric.unit, verdict.short)
