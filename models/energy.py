"""How much energy the devices take while the windows are measured, where their vendor's library says it.

Each rank reads its device's counter of energy before the first window and after the last one. Between them a thread
reads the power and adds it up. Only if the two agree is there a number, because each of them alone has been wrong: a
counter said 187 J where the power added up to 327 J, others go backwards. Both are of the whole device, whoever uses
it.
"""

from __future__ import annotations

import platform
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from models.node import NodeWatch

POLL_S = 0.25  # to wake up is most of what a reading costs
# NVML's power is a mean over the last second. If the device did nothing before the first window, half a second's worth
# of energy is missing from its sum: 5 % of ten seconds, half of what is allowed. Counters step every 0.1 s.
SHORTEST_S = 10.0
DISAGREE = 0.10  # of the larger one: by how much counter and power may differ
ABOVE_LIMIT = 0.05  # by how much the mean power may be above the limit, which the device keeps over longer times
JOIN_S = 5.0  # how long to wait for a library that does not return


class EnergySource(NamedTuple):
    """What a vendor's library says of one whole device. A function returns None where it has no answer."""

    device: str  # an identifier that no other device of the node has
    joules: Callable[[], Optional[float]]  # since some moment before
    watts: Callable[[], Optional[float]]
    limit_w: Optional[float] = None  # of the power; None: unknown
    parts: int = 1  # into which the device is divided, one for each rank that may use it


class Counted(NamedTuple):
    """What one rank observed of its device, whose name, parts and limit are those of its EnergySource."""

    host: str
    device: str = ""
    parts: int = 1
    limit_w: Optional[float] = None
    seconds: float = 0.0
    joules: Optional[float] = None  # by the counter; None: it did not answer
    polled_joules: Optional[float] = None  # by the power; None: it did not answer
    why: Optional[str] = None  # why there is nothing to observe


class EnergyWatch:
    """Observes one rank's device from `begin` to `end`.

    source: of an Accelerator's `energy_source`; a text says why there is none; None: the family has no such counters.
    """

    def __init__(
        self, source: Union[EnergySource, str, None], now: Callable[[], float] = time.monotonic, poll_s: float = POLL_S
    ) -> None:
        self._source = source
        self._now = now
        self._poll_s = poll_s
        self._stop = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._counter_before: Optional[float] = None
        self._counter_after: Optional[float] = None
        self._began_s = self._ended_s = 0.0
        self._last: Optional[Tuple[float, float]] = None  # time and power of the last reading
        self._polled_j = 0.0

    def begin(self) -> None:
        if not isinstance(self._source, EnergySource):
            return
        self.end()
        self._last = None
        self._polled_j = 0.0
        self._counter_before = self._source.joules()
        self._began_s = self._now()
        self._read_power(self._source)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, args=(self._source, self._stop), name="energy", daemon=True)
        self._thread.start()

    def end(self) -> None:
        if self._thread is None or not isinstance(self._source, EnergySource):
            return
        self._stop.set()
        self._thread.join(JOIN_S)
        self._thread = None
        self._read_power(self._source)
        self._ended_s = self._now()
        self._counter_after = self._source.joules()

    def counted(self) -> Optional[Counted]:
        """Return what was observed; None where there is nothing to say."""
        source = self._source
        if not isinstance(source, EnergySource):
            return None if source is None else Counted(platform.node(), why=source)
        joules = None
        if self._counter_before is not None and self._counter_after is not None:
            joules = self._counter_after - self._counter_before
        return Counted(
            platform.node(),
            source.device,
            source.parts,
            source.limit_w,
            seconds=self._ended_s - self._began_s,
            joules=joules,
            polled_joules=self._polled_j or None,
        )

    def _poll(self, source: EnergySource, stop: threading.Event) -> None:
        while not stop.wait(self._poll_s):
            self._read_power(source)

    def _read_power(self, source: EnergySource) -> None:
        watts = source.watts()
        if watts is None:
            return
        at_s = self._now()
        if self._last is not None:
            before_s, before_w = self._last
            self._polled_j += (at_s - before_s) * (before_w + watts) / 2
        self._last = (at_s, watts)


class Watches:
    """The meter's `watch`: what else used the processors, and what energy the device took."""

    def __init__(self, node: NodeWatch, energy: EnergyWatch) -> None:
        self.node = node
        self.energy = energy

    def begin(self) -> None:
        self.node.begin()
        self.energy.begin()

    def end(self) -> None:
        self.energy.end()
        self.node.end()


def join(counted: Sequence[Optional[Counted]]) -> Dict[str, Any]:
    """Return `energy` of the wire's summary, a sum over devices, or why it is not known; {} for families without it.

    counted: of each rank, in order of rank.
    """
    devices: Dict[Tuple[str, str], List[Counted]] = {}
    for rank, of_rank in enumerate(counted):
        if of_rank is None:
            continue
        why = doubt(of_rank)
        if why is not None:
            return {"energy": {"why": f"{why} (rank {rank} on {of_rank.host})"}}
        devices.setdefault((of_rank.host, of_rank.device), []).append(of_rank)
    for (host, device), ranks in devices.items():
        if len(ranks) < ranks[0].parts:
            of_job = f"this job has {len(ranks)} of the {ranks[0].parts} parts of {device} on {host}"
            return {"energy": {"why": f"{of_job}, and its counter is of all of them"}}
    if not devices:
        return {}
    firsts = [ranks[0] for ranks in devices.values()]
    return {
        "energy": {
            "joules": round(sum(of_device.joules or 0.0 for of_device in firsts), 1),
            "polled_joules": round(sum(of_device.polled_joules or 0.0 for of_device in firsts), 1),
            "devices": len(firsts),
            "seconds": round(max(of_device.seconds for of_device in firsts), 3),
        }
    }


def doubt(counted: Counted) -> Optional[str]:
    """Say why the energy of a device is not known; None: it is."""
    if counted.why is not None:
        return counted.why
    seconds = counted.seconds
    if seconds < SHORTEST_S:
        return f"{max(0.0, seconds):.1f} s are too short: powers are means of a second, so it takes {SHORTEST_S:g} s"
    joules = counted.joules
    polled = counted.polled_joules
    if joules is None or polled is None:
        return f"its library tells no {'energy' if joules is None else 'power'}, and one source alone is not believed"
    if joules < 0:
        return "its counter of energy went backwards"
    both = f"its counter says {joules:,.0f} J, and its power adds up to {polled:,.0f} J"
    if abs(joules - polled) > DISAGREE * max(joules, polled):
        return f"{both}: they differ by more than {DISAGREE:.0%}"
    limit_w = counted.limit_w
    if limit_w is not None and max(joules, polled) > (1 + ABOVE_LIMIT) * limit_w * seconds:
        return f"{both} in {seconds:.1f} s: more than its limit of {limit_w:g} W allows"
    return None
