"""Committed values as tables: of each the last runs that count, and what the machine was."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence

from reporting.gate.committed import Commitment, Counted, counted, standing
from reporting.history.envelope import Envelope
from reporting.phrases import listed, plain
from reporting.tables.grouped import Table

FACTS = ("device", "cpu", "driver", "kernel")
NODES = 4  # that a row names


def committed_tables(commitments: Iterable[Commitment], envelopes: Sequence[Envelope]) -> Iterator[Table]:
    """A table for each committed value."""
    for commitment in commitments:
        runs = counted(commitment, envelopes)
        keys = commitment.keys
        shown = _last(runs, keys.runs)
        value = f"value {keys.value.unit}"
        yield Table(
            f"{keys.test}: {commitment} ({keys.source}): {standing(commitment, runs)}",
            ("started", "run", "nodes", value, "verdict"),
            tuple(_row(run) for run in shown),
            2,
            (_machine(shown),),
            numbers=(value,),
        )


def _last(runs: Sequence[Counted], wanted: int) -> Sequence[Counted]:
    """The last runs, until so many of them count."""
    counting = [place for place, run in enumerate(runs) if run.is_met is not None]
    return runs[counting[-wanted] :] if len(counting) >= wanted else runs


def _row(run: Counted) -> tuple[str, ...]:
    started = datetime.datetime.fromtimestamp(run.job.time_s).strftime("%Y-%m-%d %H:%M")
    value = "-" if run.value is None else plain(run.value, 6)
    return started, run.job.key.run_id, listed(run.job.nodes, NODES) or "-", value, run.said


def _machine(runs: Sequence[Counted]) -> str:
    """What the jobs say of their devices; several values if these differ."""
    facts = []
    for name in FACTS:
        values = dict.fromkeys(str(run.job.provenance[name]) for run in runs if name in run.job.provenance)
        facts.append(f"{name}: {', '.join(values) or 'not recorded'}")
    return "; ".join(facts)
