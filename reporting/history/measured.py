"""What a job has measured, as far as questions to millions of jobs need it: an envelope of each would take too long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from reporting.history.envelope import Envelope


class JobNumbers(NamedTuple):
    """What a job has measured.

    Attributes:
        like: an envelope of the job's kind; times, values, nodes, provenance and ids of the job are not in it.
        time_s: `Envelope.time_s`.
        values: of `like.metrics`, in their order.
        facts: the provenance, which many jobs share, and the names of the nodes.
    """

    like: Envelope
    time_s: float
    started_s: float | None
    ended_s: float | None
    run_id: str
    job_id: str | None
    values: tuple[float, ...]
    verdicts: Mapping[str, Mapping[str, Any]]
    facts: Facts
    network: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Facts:
    """Where jobs ran: the names of the nodes, a visited one's as it was asked for, and the provenance."""

    nodes: tuple[str, ...]
    provenance: Mapping[str, Any]


def measured_by(run: Envelope) -> JobNumbers:
    """What the job of an envelope has measured."""
    nodes = run.nodes if run.trial.node is None else (run.trial.node,)
    values = tuple([metric.value for metric in run.metrics.values()])
    facts = Facts(nodes, run.provenance)
    times = run.time_s, run.started_s, run.ended_s
    return JobNumbers(run, *times, run.key.run_id, run.key.job_id, values, run.verdicts, facts, run.network)
