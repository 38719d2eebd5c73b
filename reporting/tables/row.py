"""One run as a row of a table: what it ran on, with which setting, and its numbers, each as a cell's text."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from platforms.job import Layout, Run, setting_of
from platforms.results.gates import trained_on
from reporting.gate.verdict import Verdict
from reporting.history import node_facts
from reporting.history.envelope import Envelope

NO_SPLIT = "no compute throughput and no compute fraction"
"""Begins the sentence on a run whose device does not tell waiting from computing (docs/measuring.md)."""


@dataclass(frozen=True)
class Row:
    """A run, and what is said of it.

    Attributes:
        verdicts: of the gate, by metric.
        envelope: the run's line in the history; None for a run of this session.
        remarks: what a reader must know beside the run's own warnings, and why numbers are missing.
        zone: in which times are shown; None for this machine's.
    """

    run: Run
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    envelope: Envelope | None = None
    remarks: tuple[str, ...] = ()
    zone: datetime.tzinfo | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        warnings = list(self.run.warnings)
        if self.run.no_split:
            warnings.append(f"{NO_SPLIT}: {self.run.no_split}")
        return (*warnings, *self.remarks)


def part(run: Run, name: str) -> Mapping[str, Any]:
    """A section of what the job reported at its start; empty if it reported none."""
    section = run.start.get(name)
    return section if isinstance(section, Mapping) else {}


def workload(run: Run) -> str:
    """The benchmark, or the name of a test of the user's own program."""
    return run.benchmark or run.test.partition("::")[2].partition("[")[0] or run.test


def of_run(run: Run) -> str:
    """Which run of a table a line below it is about: `resnet50 on a100, 2x4gpu`."""
    return ", ".join([f"{workload(run)} on {run.platform}", devices(run)])


def started(row: Row) -> str:
    """When the run started, in the row's zone: `2026-11-17 03:12`; "-" where that is not known."""
    if row.envelope is None:
        return "-"
    return datetime.datetime.fromtimestamp(row.envelope.time_s, row.zone).strftime("%Y-%m-%d %H:%M")


def hardware(run: Run) -> str:
    """The device, by its own name; the nodes where neither the program nor they have named it."""
    name = part(run, "device").get("name")
    name = name or node_facts.devices_of({"layout": run.layout, "node_facts": run.nodes}).name
    if name:
        return str(name)
    nodes = run.status.nodes
    if not nodes:
        return "unknown"
    if len(nodes) == 1:
        return f"on {nodes[0]}"
    return f"on {nodes[0]} and {len(nodes) - 1} more"


def devices(run: Run) -> str:
    """The layout, with the cores of a processor, the number of ranks, and the copies that have several devices."""
    parts = [run.layout]
    cores = part(run, "host").get("cores")
    if part(run, "device").get("type") == "cpu" and cores:
        quota = part(run, "host").get("cpu_quota")  # "max" where none is set
        of_cores = f"{cores} cores"
        if isinstance(quota, int | float) and quota < cores:
            of_cores = f"{quota:.2g} of {of_cores}"
        parts.append(of_cores)
    ranks = part(run, "world").get("size", 1)
    if ranks != 1:
        parts.append(f"{ranks} ranks")
    trained = trained_on(run.start)
    if trained is not None and trained[1] != 1:
        parts.append(f"{trained[0]} replicas of {trained[1]}")
    return ", ".join(filter(None, parts)) or "-"


def device_count(run: Run) -> int | None:
    """How many devices a run had; None if its layout is not known."""
    try:
        return Layout.parse(re.sub(r"[a-z]+$", "", run.layout), "").devices
    except ValueError:
        return None


def setting(run: Run) -> str:
    """The number format and the batch; of a program that reports none, what its test's id says after the layout."""
    request = part(run, "request")
    parts = []
    if request.get("dtype"):
        parts.append(str(request["dtype"]))
    if request.get("global_batch_size"):
        parts.append(f"batch {request['global_batch_size']}")
    return " ".join(parts) or setting_of(run.test) or _parameters(run) or "-"


def _parameters(run: Run) -> str:
    """What an imported id, as `stream %size=small@daint:gpu+gnu`, says beside its workload and its platform."""
    if run.layout or run.benchmark is None:  # only imported runs have no layout
        return ""
    check, _, place = run.test.partition("@")
    return " ".join(filter(None, [check.partition(" ")[2], place.partition("+")[2]]))


def data_from(run: Run) -> str:
    return str(run.summary.get("data_from") or "unknown")


def number(value: float | None) -> str:
    """Three to four significant figures: more would claim a precision that no run has."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:#.3g}"


def percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{fraction:.1%}"
