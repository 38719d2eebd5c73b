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
JOIN_S = 5.0  # how long the library may take for its last answer
ABOVE_LIMIT = 0.05  # by how much the mean power may be above the limit, which the device keeps over longer times


class EnergySource(NamedTuple):
    """What a vendor's library says of one whole device. A function returns None where it has no answer."""

    device: str  # an identifier that no other device of the node has
    joules: Callable[[], Optional[float]]  # since some moment before
    watts: Callable[[], Optional[float]]
    limit_w: Optional[float] = None  # of the power; None: unknown
    parts: int = 1  # into which the device is divided, one for each rank that may use it


class EnergyWatch:
    """Observes one rank's device from `begin` to `end`, once.

    source: of an Accelerator's `energy_source`; a text says why there is none; None: the family has no such counters.
    """

    def __init__(
        self,
        source: Union[EnergySource, str, None],
        now: Callable[[], float] = time.monotonic,
        poll_s: float = POLL_S,
        join_s: float = JOIN_S,
    ) -> None:
        self._source = source
        self._now = now
        self._poll_s = poll_s
        self._join_s = join_s
        self._stop = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._counters: List[Tuple[float, Optional[float]]] = []  # time and joules, at begin and at end
        self._powers: List[Tuple[float, float]] = []  # time and watts

    def begin(self) -> None:
        if isinstance(self._source, EnergySource):
            self._counters = [(self._now(), self._source.joules())]
            self._thread = threading.Thread(target=self._poll, args=(self._source,), name="energy", daemon=True)
            self._thread.start()

    def end(self) -> None:
        if self._thread is not None and isinstance(self._source, EnergySource):
            self._stop.set()
            self._thread.join(self._join_s)
            if not self._thread.is_alive():  # else the library does not answer, and would not tell its counter either
                self._counters.append((self._now(), self._source.joules()))
            self._thread = None

    def _poll(self, source: EnergySource) -> None:
        wait_s = 0.0
        is_over = False
        while not is_over:  # one more reading follows the end
            is_over = self._stop.wait(wait_s)
            wait_s = self._poll_s
            watts = source.watts()
            if watts is not None:
                self._powers.append((self._now(), watts))

    def counted(self) -> Optional[Dict[str, Any]]:
        """Return what was observed, or `why` that says nothing; None where nobody expects anything."""
        source = self._source
        if not isinstance(source, EnergySource):
            return None if source is None else {"why": source}
        if len(self._counters) != 2:
            return {"why": "its library did not answer to the end"}
        (began_s, before), (ended_s, after) = self._counters
        seconds = ended_s - began_s
        joules = None if before is None or after is None else after - before
        pairs = zip(self._powers, self._powers[1:])
        polled = sum((end_s - at_s) * (watts + end_w) / 2 for (at_s, watts), (end_s, end_w) in pairs)
        why = doubt(seconds, joules, polled or None, source.limit_w)
        if why is not None:
            return {"why": why}
        device = {"device": f"{source.device} on {platform.node()}", "parts": source.parts}
        return {**device, "joules": joules, "polled_joules": polled, "seconds": seconds}


def doubt(seconds: float, joules: Optional[float], polled: Optional[float], limit_w: Optional[float]) -> Optional[str]:
    """Say why the energy of a device is not known; None: it is.

    joules: by its counter. polled: by its power. None: its library did not answer.
    """
    if seconds < SHORTEST_S:
        return f"{seconds:.1f} s are too short: powers are means of a second, so it takes {SHORTEST_S:g} s"
    if joules is None or polled is None:
        return f"its library tells no {'energy' if joules is None else 'power'}, and one source alone is not believed"
    if joules < 0:
        return "its counter of energy went backwards"
    both = f"its counter says {joules:,.0f} J, and its power adds up to {polled:,.0f} J"
    if abs(joules - polled) > DISAGREE * max(joules, polled):
        return f"{both}: they differ by more than {DISAGREE:.0%}"
    if limit_w is not None and max(joules, polled) > (1 + ABOVE_LIMIT) * limit_w * seconds:
        return f"{both} in {seconds:.1f} s: more than its limit of {limit_w:g} W allows"
    return None


def join(counted: Sequence[Optional[Dict[str, Any]]]) -> Dict[str, Any]:
    """Return `energy` of the wire's summary, a sum over devices, or why it is not known; {} for families without it.

    counted: by each rank, in order of rank.
    """
    devices: Dict[str, List[Dict[str, Any]]] = {}
    for rank, of_rank in enumerate(counted):
        if of_rank is not None and "why" in of_rank:
            return {"energy": {"why": f"{of_rank['why']} (rank {rank})"}}
        if of_rank is not None:
            devices.setdefault(of_rank["device"], []).append(of_rank)
    for device, sharers in devices.items():
        if len(sharers) < sharers[0]["parts"]:
            of_job = f"this job has {len(sharers)} of {sharers[0]['parts']} parts of {device}"
            return {"energy": {"why": f"{of_job}, and the counter is of all of them"}}
    if not devices:
        return {}
    firsts = [sharers[0] for sharers in devices.values()]
    sums = {name: round(sum(first[name] for first in firsts), 1) for name in ("joules", "polled_joules")}
    seconds = round(max(first["seconds"] for first in firsts), 3)
    return {"energy": {**sums, "devices": len(firsts), "seconds": seconds}}


class Watches(NamedTuple):
    """The meter's `watch`: what else used the processors, and what energy the device took."""

    node: NodeWatch
    energy: EnergyWatch

    def begin(self) -> None:
        self.node.begin()
        self.energy.begin()

    def end(self) -> None:
        self.energy.end()
        self.node.end()
