"""Lines below a table on energy: of the devices, for a sample or token; of the nodes, for a job."""

from __future__ import annotations

from collections.abc import Sequence

from platforms.job import Run
from platforms.results import gates
from reporting.history.sample_energy import energy_of
from reporting.tables.row import number


def energy_notes(runs: Sequence[Run]) -> list[str]:
    """A line on the devices' energy for each unit, one on runs of which it is not known, and one on the nodes'."""
    values: dict[str, list[float]] = {}
    reasons: list[str] = []
    for run in runs:
        found = energy_of(run.summary, run.samples, run.wall_s, run.throughput_unit)
        if isinstance(found, str):
            reasons.append(found)
        elif found is not None:
            values.setdefault(run.throughput_unit.item, []).append(found.value)
    sources = f" ({_sources(runs[0])})" if len(runs) == 1 else ""
    lines = [f"energy of the devices: {_span(of_item)} J a {item}{sources}" for item, of_item in values.items()]
    if reasons:
        which = f" in {len(reasons)} of {len(runs)} rows" if len(runs) > 1 else ""
        lines.append(f"energy of the devices not known{which}: {reasons[0]}")
    return lines + nodes_energy(runs)


def nodes_energy(runs: Sequence[Run]) -> list[str]:
    """A line on jobs whose scheduler has an account of their nodes' energy."""
    counted = [(run.status.nodes_energy_j, _energy(run, "joules")) for run in runs if run.status.nodes_energy_j]
    if not counted:
        return []
    span = _span([joules / 1000 for joules, _ in counted])
    line = f"energy of the nodes by the scheduler: {span} kJ in a job's largest step, with all else that ran there"
    if any(joules < of_devices for joules, of_devices in counted):
        line += "; less than their devices took in the windows, so it does not count these"
    return [line]


def _sources(run: Run) -> str:
    counter, polled, devices = (_energy(run, name) for name in ("joules", "polled_joules", "devices"))
    return f"counter {counter:,.0f} J, polled power {polled:,.0f} J, {devices:.0f} device(s)"


def _energy(run: Run, name: str) -> float:
    return gates.number(gates.part(run.summary, "energy").get(name)) or 0.0


def _span(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys([number(min(values)), number(max(values))]))
