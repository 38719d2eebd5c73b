"""The nights of one test: each run's value beside its pin, what the gate said, and what changed before it."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reporting.gate.explanation import runs_of
from reporting.gate.judge import judge
from reporting.gate.series import Pin, Series, pin_of, series_of
from reporting.gate.verdict import Verdict
from reporting.history.comparability import differences
from reporting.history.endings import ReadsEnding, by_outcome
from reporting.history.envelope import Envelope, Metric
from reporting.history.nights import night_of
from reporting.history.run_facts import EXCHANGE, FASTEST, STEP_PARTS
from reporting.phrases import percent, spaced
from reporting.references.answers import References
from reporting.tables.grouped import Table
from reporting.tables.history_rows import stored_verdicts
from reporting.tables.row import NO_SPLIT, number

# Nodes of a shared machine change from run to run. A fact that changes before more than this share of the runs says
# nothing of any of them.
RESTLESS = 0.25


def night_tables(
    envelopes: Sequence[Envelope],
    shown: int,
    references: References,
    night_ends: datetime.time,
    metric: str | None = None,
    ending: ReadsEnding = by_outcome,
) -> list[Table]:
    """A table for each metric of one test, with a row for each run; none if no run has numbers.

    Args:
        envelopes: the jobs that this test of one site asked for, in the order of their starts.
        shown: how many runs, from the last one, have a row. All of them count for the pin.
        metric: only this one.
        ending: reads how a job without numbers ended.
    """
    metrics = dict.fromkeys(name for envelope in envelopes if envelope.sane for name in envelope.metrics)
    wanted = [name for name in metrics if metric in (None, name)]
    return [_night_table(name, envelopes, shown, references, night_ends, ending) for name in wanted]


def _night_table(
    metric: str,
    envelopes: Sequence[Envelope],
    shown: int,
    references: References,
    night_ends: datetime.time,
    ending: ReadsEnding,
) -> Table:
    latest = [envelope for envelope in envelopes if envelope.sane and metric in envelope.metrics][-1]
    series = series_of(metric, latest, envelopes, night_ends)
    pin = pin_of(series, references.acceptance(series.test, metric, series.comparability))
    changes, restless = changes_before(envelopes)
    beside = [name for name in latest.beside if name not in (*STEP_PARTS, EXCHANGE, FASTEST)]
    rows = []
    for position in range(max(0, len(envelopes) - shown), len(envelopes)):
        envelope = envelopes[position]
        night = str(night_of(envelope.time_s, night_ends))
        remarks = []
        if envelope.doubts:
            remarks.append(f"in doubt: {', '.join(envelope.doubts)}")
        if envelope.sane:
            verdict = _verdict(metric, envelope, envelopes[: position + 1], envelope is latest, references, night_ends)
            said = _said(verdict)
        else:
            end = ending(envelope)
            remarks.append(end.reason)
            said = f"no numbers: {end.state}"
        rows.append(
            (
                night,
                envelope.key.run_id,
                *_numbers(metric, envelope, series, pin, beside),
                said,
                "; ".join(filter(None, [*remarks, *changes[position]])) or "-",
            )
        )
    notes = [_pin_note(series, pin)]
    if latest.no_split:
        notes.append(f"{NO_SPLIT}: {latest.no_split}")
    if restless:
        notes.append(f"not shown, since it changes from run to run: {', '.join(restless)}")
    shown_nights = [datetime.date.fromisoformat(row[0]) for row in rows]
    for note in references.notes_on(latest.platform, shown_nights[0], shown_nights[-1]):
        notes.append(f"note of {note.at} on {note.platform}: {note.text} ({note.author.by})")
    numbers = [f"value {series.unit}".strip(), "to pin", *(spaced(name) for name in beside)]
    return Table(
        f"{series.test}: {metric}, {series.better} is better",
        ("night", "run", *numbers, "the gate", "doubts and changes"),
        tuple(rows),
        2,
        tuple(notes),
        numbers=numbers,
    )


def _numbers(metric: str, envelope: Envelope, series: Series, pin: Pin | None, beside: Sequence[str]) -> list[str]:
    """The value of a run, its change from the pin, and what stands beside it."""
    if not envelope.sane or metric not in envelope.metrics:
        return ["-"] * (2 + len(beside))
    measured = envelope.metrics[metric]
    is_of_series = (measured.unit, measured.better) == (series.unit, series.better)
    value = number(measured.value)
    if measured.unit != series.unit:
        value += f" {measured.unit}"
    to_pin = "-"
    if pin is not None and pin.level != 0 and is_of_series and envelope.comparability == series.comparability:
        to_pin = percent(series.change(measured.value, pin.level))
    others = [envelope.beside.get(name) for name in beside]
    return [value, to_pin, *(number(other.value if other else None) for other in others)]


def _pin_note(series: Series, pin: Pin | None) -> str:
    if pin is None:
        return "it has no pin yet"
    return f"pin {number(pin.level)} {series.unit}: {runs_of(pin)}"


def _verdict(
    metric: str,
    envelope: Envelope,
    until_then: Sequence[Envelope],
    is_latest: bool,
    references: References,
    night_ends: datetime.time,
) -> Verdict | None:
    """What the gate said then. It is asked now about the latest run, and about lines without a verdict."""
    if not envelope.sane or metric not in envelope.metrics:
        return None
    if metric in envelope.verdicts and not is_latest:
        return stored_verdicts(envelope).get(metric)
    return judge(envelope, until_then, references, night_ends).get(metric)


def _said(verdict: Verdict | None) -> str:
    if verdict is None:
        return "-"
    if verdict.red:
        return f"RED {verdict.short}"
    return verdict.short


def changes_before(envelopes: Sequence[Envelope]) -> tuple[list[list[str]], list[str]]:
    """What is not as it was at the last run before that has numbers: comparable fields, metrics, then provenance.

    Returns:
        The changes before each run, empty for a run without numbers, and the names that change too often to be shown.
    """
    fields: list[list[str]] = [[] for _ in envelopes]
    provenance: list[dict[str, str]] = [{} for _ in envelopes]
    counts: Counter[str] = Counter()
    previous: Envelope | None = None
    for position, envelope in enumerate(envelopes):
        if not envelope.sane:
            continue
        if previous is not None:
            if previous.fields != envelope.fields:
                fields[position] += differences(previous.fields, envelope.fields)
            fields[position] += _metric_changes(previous.metrics, envelope.metrics)
            if previous.provenance is not envelope.provenance:  # the reader gives runs that say the same one object
                provenance[position] = _provenance_changes(previous.provenance, envelope.provenance)
                counts.update(provenance[position].keys())
        previous = envelope
    restless = sorted(name for name, count in counts.items() if count > max(1, RESTLESS * len(envelopes)))
    shown = []
    for differs, changed in zip(fields, provenance, strict=True):
        shown.append(differs + [text for name, text in changed.items() if name not in restless])
    return shown, restless


def _metric_changes(before: Mapping[str, Metric], now: Mapping[str, Metric]) -> Iterator[str]:
    """Which metrics have another unit or direction: their numbers begin a new series."""
    for name in sorted(before.keys() & now.keys()):
        old, new = before[name], now[name]
        if old.unit != new.unit:
            yield f"{name} is in {new.unit or 'no unit'}, was in {old.unit or 'no unit'}"
        if old.better != new.better:
            yield f"{name}: {new.better} is better, was {old.better}"


def _provenance_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """`driver 550.54 -> 570.86`, by the name of what changed."""
    same = {name for name, value in before.items() if isinstance(value, str) and now.get(name) == value}
    old, new = (dict(_flat({name: side[name] for name in side if name not in same})) for side in (before, now))
    changed = {}
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            changed[name] = f"{name} {old.get(name, 'not recorded')} -> {new.get(name, 'not recorded')}"
    return changed


def _flat(provenance: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in provenance.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        elif isinstance(value, list | tuple):
            yield f"{above}{name}", ", ".join(map(str, value))
        else:
            yield f"{above}{name}", value if isinstance(value, str) else json.dumps(value)
