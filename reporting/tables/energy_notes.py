"""Lines below a table on energy: of the devices, for a sample or token; of the nodes, for a whole job."""

from __future__ import annotations

from collections.abc import Sequence

from platforms.job import Run
from platforms.results.gates import number as known
from platforms.results.gates import part
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
    lines = []
    for item, of_item in values.items():
        span = _span(number(min(of_item)), number(max(of_item)))
        lines.append(f"energy of the devices: {span} J a {item}{sources}")
    if reasons:
        which = f" in {len(reasons)} of {len(runs)} rows" if len(runs) > 1 else ""
        more = ", or another reason" if len(set(reasons)) > 1 else ""
        lines.append(f"energy of the devices not known{which}: {reasons[0]}{more}")
    return lines + nodes_energy(runs)


def nodes_energy(runs: Sequence[Run]) -> list[str]:
    """A line on jobs whose scheduler has an account of their nodes' energy."""
    joules = {run.name: run.status.nodes_energy_j for run in runs if run.status.nodes_energy_j}
    if not joules:
        return []
    span = _span(_amount(min(joules.values())), _amount(max(joules.values())))
    line = f"energy of the nodes by the scheduler: {span} a job, with its start and whatever else ran there"
    devices = {run.name: known(part(run.summary, "energy").get("joules")) or 0.0 for run in runs}
    if any(of_nodes < devices[name] for name, of_nodes in joules.items()):
        line += "; less than their devices took in the windows, so it does not count these"
    return [line]


def _sources(run: Run) -> str:
    energy = part(run.summary, "energy")
    counter, polled = (known(energy.get(name)) or 0.0 for name in ("joules", "polled_joules"))
    return f"counter {counter:,.0f} J, polled power {polled:,.0f} J, {energy.get('devices')} device(s)"


def _amount(joules: float) -> str:
    return f"{joules:,.0f} J" if joules < 10_000 else f"{joules / 1000:,.0f} kJ"


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"
