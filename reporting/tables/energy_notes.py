"""Lines below a table on energy: of the devices, for a sample or token; of the nodes, for a job."""

from __future__ import annotations

from collections.abc import Sequence

from platforms.job import Run
from platforms.results import gates
from reporting.history.sample_energy import energy_of
from reporting.tables.row import number, of_run


def energy_notes(runs: Sequence[Run]) -> list[str]:
    """A line on the devices' energy of each run, one on runs of which it is not known, and one on the nodes'."""
    lines: list[str] = []
    reasons: list[str] = []
    for run in runs:
        found = energy_of(run.summary, run.samples, run.wall_s, run.throughput_unit)
        if isinstance(found, str):
            reasons.append(found)
        elif found is not None:
            which = f" ({of_run(run)})" if len(runs) > 1 else ""
            lines.append(f"energy of the devices{which}: {number(found.value)} {found.unit}, by {_sources(run)}")
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
    counter, polled, seconds, devices = (
        _energy(run, name) for name in ("joules", "polled_joules", "seconds", "devices")
    )
    return (
        f"{counter:,.0f} J that the counters of {devices:.0f} device(s) tell in {seconds:.1f} s; the power adds up to "
        f"{polled:,.0f} J"
    )


def _energy(run: Run, name: str) -> float:
    return gates.number(gates.part(run.summary, "energy").get(name)) or 0.0


def _span(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys([number(min(values)), number(max(values))]))
