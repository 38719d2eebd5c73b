"""Runs as CSV for other programs: one line for each run and metric. docs/report.md lists the columns."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Iterator, Mapping, Sequence

from platforms.job import Metric, Run
from platforms.printable import visible
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.tables.row import Row, part, workload

COLUMNS = (
    "test",
    "workload",
    "platform",
    "layout",
    "variant",
    "size",
    "mode",
    "configuration",
    "dtype",
    "global_batch_size",
    "device",
    "ranks",
    "data_from",
    "metric",
    "value",
    "unit",
    "better",
    "is_judged",
    "verdict",
    "is_red",
    "change_fraction",
    "since",
    "against_pin",
    "pin",
    "is_eligible",
    "doubts",
    "spread_within_job_fraction",
    "site",
    "run_id",
    "attempt",
    "job_id",
    "night",
    "started",
    "ended",
    "nodes",
    "comparability",
    "source",
    "no_split",
)
SETTINGS = ("variant", "size", "mode", "configuration", "dtype")  # of what the job was asked to do
ALL_WINDOWS = "effective_throughput_of_all_windows"  # as in the tables; the gate judges the fastest stretch
FORMULA = ("=", "+", "-", "@")
NEVER_A_FORMULA = frozenset({"against_pin"})  # begins with a sign, and holds no text of anybody else
PROVENANCE = "provenance_"  # begins the names of the columns that say what may explain a change


def tidy(rows: Sequence[Row], night_ends: datetime.time | None) -> str:
    """The text of the file. What is not known is empty. Times are in UTC; numbers have all their digits.

    Args:
        night_ends: the hour at which the site's nights end, by this machine's clock; None leaves `night` empty.
    """
    provenances = sorted({name for row in rows if row.envelope for name in row.envelope.provenance})
    text = io.StringIO()
    columns = [*COLUMNS, *(PROVENANCE + name for name in provenances)]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        if row.envelope is None:
            continue
        shared = {**_of_run(row.run, row.envelope), **_of_envelope(row.envelope, night_ends)}
        for name, metric, is_judged in _metrics(row, row.envelope):
            line = {**shared, **_of_metric(name, metric), **_of_verdict(row, name), "is_judged": is_judged}
            writer.writerow({column: _cell(column, value) for column, value in line.items()})
    return text.getvalue()


def _metrics(row: Row, envelope: Envelope) -> Iterator[tuple[str, Metric, bool]]:
    """Every number of a run, by name, and whether it is judged."""
    for name, metric in envelope.metrics.items():
        yield name, metric, True
    for name, metric in envelope.beside.items():
        yield name, metric, False
    if row.run.windows and row.run.effective_throughput is not None:
        yield ALL_WINDOWS, row.run.throughput_unit.metric(row.run.effective_throughput), False


def _of_run(run: Run, envelope: Envelope) -> dict[str, object]:
    """What the run.json says of the job; where that is gone or silent, what the line of the history says."""
    request = part(run, "request")
    fields = envelope.fields
    cells: dict[str, object] = {name: request.get(name) or fields.get(name) for name in SETTINGS}
    return {
        **cells,
        "test": run.test,
        "workload": workload(run),
        "platform": run.platform,
        "layout": run.layout,
        "global_batch_size": request.get("global_batch_size"),
        "device": part(run, "device").get("name") or envelope.provenance.get("device") or fields.get("device"),
        "ranks": part(run, "world").get("size"),
        "data_from": run.summary.get("data_from") or fields.get("data_from"),
        "spread_within_job_fraction": run.spread,
        "nodes": run.status.nodes or envelope.nodes,
    }


def _of_envelope(envelope: Envelope, night_ends: datetime.time | None) -> dict[str, object]:
    return {
        "site": envelope.key.site,
        "run_id": envelope.key.run_id,
        "attempt": envelope.key.attempt,
        "job_id": envelope.key.job_id,
        "night": None if night_ends is None else night_of(envelope.time_s, night_ends),
        "started": _time(envelope.started_s),
        "ended": _time(envelope.ended_s),
        "is_eligible": envelope.eligible,
        "doubts": "; ".join(envelope.doubts),
        "comparability": envelope.comparability,
        "source": envelope.source,
        "no_split": envelope.no_split,
        **{PROVENANCE + name: value for name, value in envelope.provenance.items()},
    }


def _of_metric(name: str, metric: Metric) -> dict[str, object]:
    return {"metric": name, "value": metric.value, "unit": metric.unit, "better": metric.better}


def _of_verdict(row: Row, metric: str) -> dict[str, object]:
    verdict = row.verdicts.get(metric)
    if verdict is None:
        return {}
    return {
        "verdict": verdict.kind.value,
        "is_red": verdict.red,
        "change_fraction": verdict.change,
        "since": verdict.since,
        "against_pin": verdict.short,
        "pin": verdict.level,
    }


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def _cell(column: str, value: object) -> object:
    """A list becomes words, and a mapping pairs, since a cell is one text.

    A text that a spreadsheet would run as a formula begins with an apostrophe. Numbers stay as they are.
    """
    if isinstance(value, Mapping):
        value = " ".join(f"{name}={part_of_it}" for name, part_of_it in value.items())
    elif isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    if not isinstance(value, str):
        return value
    text = visible(value)
    if text.startswith(FORMULA) and column not in NEVER_A_FORMULA:
        return f"'{text}"
    return text
