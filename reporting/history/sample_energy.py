"""The energy of a sample, or of a token: what the devices took in the windows, if their job knows it."""

from __future__ import annotations

from collections.abc import Mapping

from platforms.job import Metric, ThroughputUnit
from platforms.results.gates import number, part
from platforms.results.wire import readable

OTHER_TIME = 0.1  # of the windows' time: by how much the observed time may differ from it


def energy_of(summary: Mapping[str, object], samples: int, wall_s: float, unit: ThroughputUnit) -> Metric | str | None:
    """Joules of one sample or token: the devices' mean power, times the windows' time for it.

    A text says why that is not known. None: nothing was looked at, as on processors.

    Args:
        summary: of the job; its `energy` is in docs/wire.md.
        samples, wall_s: of all windows.
    """
    energy = part(summary, "energy")
    joules = number(energy.get("joules"))
    seconds = number(energy.get("seconds"))
    if energy.get("why"):
        return readable(str(energy["why"]))
    if not joules or not seconds or not samples:
        return None
    if abs(seconds - wall_s) > OTHER_TIME * wall_s:
        return f"it was counted for {seconds:.1f} s, and the windows took {wall_s:.1f} s"
    return Metric(joules / seconds * wall_s / (samples * unit.per_sample), f"J/{unit.item}", "lower")
