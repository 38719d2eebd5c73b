"""Why a number is lower than the node could give: what else took its processors while the windows were measured.

Each rank looks at the kernel's counters before the first window and after the last one, never in between, so that
looking costs the windows nothing. What the ranks of a node used themselves is subtracted as a whole. What the kernel
does not tell is None. Sources: proc(5), and the kernel's accounting/psi.rst and scheduler/sched-stats.rst.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import platform
import re
import time
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from models import cgroups
from models.meter import BOOT_ID

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
OTHERS_CORES = 0.25  # what others must use to be named: this many cores, and this share of the cores looked at
OTHERS_SHARE = 0.01
ELSEWHERE_SHARE = 0.25  # on cores that are not the job's: compared with how many are
OTHERS_S = 0.3  # and this much time, of which the kernel counts only whole ticks
THROTTLED_SHARE = 0.02
PRESSURES = ("cpu", "memory", "io")


class Look(NamedTuple):
    """What the kernel had counted at one moment, in seconds."""

    at_s: float
    used_s: Optional[float]  # processor time of this rank: its process and the loader's processes
    waited_s: Optional[float]  # their threads could have run and waited for a core
    cores: FrozenSet[int]  # where its threads may run
    busy_s: Dict[int, float]  # of each core of the node, by whomever
    stolen_s: Optional[float]  # of all of them, by the hypervisor for other machines
    pressure_s: Dict[str, float]  # some process of the node was held up for want of processor, memory, disk
    quota: Optional[float]
    throttling: Dict[str, cgroups.Throttling]


class Watch:
    """One rank's two looks. The meter calls `begin` before the first window and `end` after the last one."""

    def __init__(self, root: str = "/", now: Callable[[], float] = time.monotonic) -> None:
        self._root, self._now = root, now
        self._before: Optional[Look] = None
        self._after: Optional[Look] = None

    def begin(self) -> None:
        self._before = look(self._root, self._now)

    def end(self) -> None:
        self._after = look(self._root, self._now)

    def seen(self, threads: int, of_node: bool) -> Optional[Dict[str, Any]]:
        """What happened between the looks, for `join`; None when there were not two.

        threads: how many this rank computes in. of_node: this rank tells of all cores of the node, as one has to.
        """
        before, after = self._before, self._after
        if before is None or after is None or after.at_s <= before.at_s:
            return None
        return {
            "host": platform.node(),
            "node": _first_line(self._root, BOOT_ID.lstrip("/")) or platform.node(),
            "elapsed_s": after.at_s - before.at_s,
            "used_s": _difference(before.used_s, after.used_s),
            "waited_s": _difference(before.waited_s, after.waited_s),
            "threads": threads,
            "cores": [before.cores, after.cores],
            "busy_s": _differences(before.busy_s, after.busy_s) if of_node else {},
            "stolen_s": _difference(before.stolen_s, after.stolen_s),
            "pressure_s": _differences(before.pressure_s, after.pressure_s),
            "quotas": [before.quota, after.quota],
            "throttling": _worst_throttling(before.throttling, after.throttling),
        }


# --- one look ---------------------------------------------------------------------------------------------------------


def look(root: str = "/", now: Callable[[], float] = time.monotonic) -> Look:
    """Read everything once."""
    processes = [os.getpid(), *(worker.pid or 0 for worker in multiprocessing.active_children())]
    node = _text(root, "proc/stat")
    busy_s, stolen_s = {}, None
    for core, *ticks in re.findall(r"^cpu(\d*)" + r" +(\d+)" * 8, node, re.MULTILINE):
        user, nice, system, _idle, _disk, interrupts, soft_interrupts, stolen = (int(tick) * TICK_S for tick in ticks)
        if core:
            busy_s[int(core)] = user + nice + system + interrupts + soft_interrupts
        else:
            stolen_s = stolen
    return Look(
        at_s=now(),
        used_s=_sum([_used_s(root, process) for process in processes]),
        waited_s=_sum([_waited_s(root, process) for process in processes]),
        cores=_allowed(root),
        busy_s=busy_s,
        stolen_s=stolen_s,
        pressure_s=dict(_pressures(root)),
        quota=cgroups.cpu_quota(root),
        throttling=cgroups.throttling(root),
    )


def _used_s(root: str, process: int) -> Optional[float]:
    """Processor time of a process, all its threads and its children that have ended."""
    fields = _text(root, f"proc/{process}/stat").rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) * TICK_S if len(fields) > 14 else None


def _waited_s(root: str, process: int) -> Optional[float]:
    """For how long the threads that a process has now could have run and waited for a core."""
    waits = []
    for thread in _threads(root, process):
        fields = _text(root, f"proc/{process}/task/{thread}/schedstat").split()
        if len(fields) == 3:
            waits.append(int(fields[1]) / 1e9)
    return sum(waits) if waits else None


def _allowed(root: str) -> FrozenSet[int]:
    """The cores that the threads of this process may run on, all together: OpenMP may bind each to one of its own."""
    cores = set()
    if hasattr(os, "sched_getaffinity"):
        for thread in _threads(root, os.getpid()):
            with contextlib.suppress(OSError):  # it has ended
                cores |= os.sched_getaffinity(int(thread))
    return frozenset(cores)


def _threads(root: str, process: int) -> List[str]:
    try:
        return os.listdir(os.path.join(root, f"proc/{process}/task"))
    except OSError:
        return []


def _pressures(root: str) -> Iterator[Any]:
    for what in PRESSURES:
        total = re.search(r"^some .*\btotal=(\d+)", _text(root, f"proc/pressure/{what}"), re.MULTILINE)
        if total:
            yield what, int(total[1]) / 1e6


def _text(root: str, path: str) -> str:
    try:
        with open(os.path.join(root, path), encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _first_line(root: str, path: str) -> str:
    return _text(root, path).partition("\n")[0]


def _sum(values: Sequence[Optional[float]]) -> Optional[float]:
    """None where the first, this process's own, is not known; a loader's process may have ended meanwhile."""
    return None if values[0] is None else sum(value for value in values if value is not None)


def _difference(before: Optional[float], after: Optional[float]) -> Optional[float]:
    return None if before is None or after is None else max(0.0, after - before)


def _differences(before: Mapping[Any, float], after: Mapping[Any, float]) -> Dict[Any, float]:
    return {key: max(0.0, after[key] - before[key]) for key in after if key in before}


def _worst_throttling(
    before: Mapping[str, cgroups.Throttling], after: Mapping[str, cgroups.Throttling]
) -> Optional[cgroups.Throttling]:
    """Between the looks, by the group that stopped this process most; None where no group counts it."""
    found = []
    for folder in before.keys() & after.keys():
        early, late = before[folder], after[folder]
        periods, throttled = late.periods - early.periods, late.throttled - early.throttled
        found.append(cgroups.Throttling(periods, throttled, late.throttled_s - early.throttled_s))
    return max(found, key=lambda counted: counted.throttled_s, default=None)


# --- all ranks together -----------------------------------------------------------------------------------------------


class Node(NamedTuple):
    """The ranks of one kernel: pods and containers that share it have different host names."""

    host: str
    ranks: Dict[int, Mapping[str, Any]]  # what they have seen, by number
    cores: FrozenSet[int]  # of all its ranks
    on_ours: Optional[float]  # cores' worth of time that others used there
    elsewhere: Optional[float]  # and on the node's other cores
    other_cores: int


def join(seen: Sequence[Optional[Mapping[str, Any]]], on_cpu: bool) -> Joined:
    """What the ranks have seen, in order of rank, as one value of the wire and as warnings.

    on_cpu: the processor is what computes, so that work on cores that are not the job's slows it as well.
    """
    ranks = {number: one for number, one in enumerate(seen) if one is not None}
    if not ranks:
        return Joined(None, [])
    names = dict.fromkeys(one["node"] for one in ranks.values())
    nodes = [_node({number: one for number, one in ranks.items() if one["node"] == name}) for name in names]
    worst = max(nodes, key=lambda node: node.on_ours or 0.0)
    throttled = [one["throttling"] for one in ranks.values() if one["throttling"] is not None]
    most = max(throttled, key=lambda counted: counted.throttled_s, default=None)
    value = {
        "neighbours_cores": worst.on_ours,
        "elsewhere_cores": max(_known([node.elsewhere for node in nodes]), default=None),
        "host": worst.host,
        "used_cores": _spread([_per_s(one, "used_s") for one in ranks.values()]),
        "waited_cores": _spread([_per_s(one, "waited_s") for one in ranks.values()]),
        "stolen_cores": max(_known([_per_s(one, "stolen_s") for one in ranks.values()]), default=None),
        "pressure": {what: _pressure(nodes, what) for what in PRESSURES},
        "throttled_periods": most and most.throttled,
        "periods": most and most.periods,
        "throttled_s": most and most.throttled_s,
    }
    warnings = [*_neighbours(nodes, on_cpu), *_crowds(nodes, on_cpu), *_quotas(ranks)]
    return Joined(_rounded(value), warnings)


class Joined(NamedTuple):
    value: Optional[Dict[str, Any]]
    warnings: List[str]


def _node(ranks: Dict[int, Mapping[str, Any]]) -> Node:
    first = next((one for one in ranks.values() if one["busy_s"]), next(iter(ranks.values())))
    cores = frozenset().union(*(cores for one in ranks.values() for cores in one["cores"]))
    used = [_per_s(one, "used_s") for one in ranks.values()]
    busy = {core: busy_s / first["elapsed_s"] for core, busy_s in first["busy_s"].items()}
    others = [core for core in busy if core not in cores]
    on_ours, elsewhere = None, None
    if busy:
        elsewhere = sum(busy[core] for core in others)
        if None not in used:
            on_ours = max(0.0, sum(busy[core] for core in busy if core in cores) - sum(used))
    return Node(first["host"], ranks, cores, on_ours, elsewhere, len(others))


def _per_s(one: Mapping[str, Any], key: str) -> Any:
    """A time in cores: seconds for each second between the looks."""
    return None if one[key] is None else one[key] / one["elapsed_s"]


def _known(values: Sequence[Optional[float]]) -> List[float]:
    return [value for value in values if value is not None]


def _spread(values: Sequence[Optional[float]]) -> Optional[List[float]]:
    """[min, mean, max] over the ranks that know."""
    known = _known(values)
    return [min(known), sum(known) / len(known), max(known)] if known else None


def _pressure(nodes: Sequence[Node], what: str) -> Optional[float]:
    """The share of the time in which some process was held up, on the node where it was most."""
    firsts = [next(iter(node.ranks.values())) for node in nodes]
    shares = [one["pressure_s"][what] / one["elapsed_s"] for one in firsts if what in one["pressure_s"]]
    return max(shares, default=None)


def _rounded(value: Any) -> Any:
    """To thousandths, which is more than the kernel's ticks allow: a line of the wire is short."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


# --- what is said -----------------------------------------------------------------------------------------------------


def _neighbours(nodes: Sequence[Node], on_cpu: bool) -> Iterator[str]:
    """The node on which others used most of the job's cores, and the one on which they used most of the rest."""
    node = max(nodes, key=lambda node: node.on_ours or 0.0)
    if node.on_ours is not None and _is_much(node, node.on_ours, OTHERS_SHARE):
        text = f"not alone: others used {node.on_ours:.1f} of the {len(node.cores)} core(s) of this job on {node.host}"
        waited = _known([one["waited_s"] for one in node.ranks.values()])
        held_up = f", and its threads waited {sum(waited):.1f} s for a core" if waited else ""
        yield f"{text} while it was measured{held_up}"
    node = max(nodes, key=lambda node: node.elsewhere or 0.0)
    if on_cpu and node.elsewhere is not None and _is_much(node, node.elsewhere, ELSEWHERE_SHARE):
        text = f"others used {node.elsewhere:.1f} of the {node.other_cores} other core(s) of {node.host}"
        yield f"not alone: {text} while this job was measured: they share its memory and clock"


def _is_much(node: Node, cores: float, share: float) -> bool:
    elapsed_s = next(iter(node.ranks.values()))["elapsed_s"]
    return cores >= max(OTHERS_CORES, share * len(node.cores)) and cores * elapsed_s >= OTHERS_S


def _crowds(nodes: Sequence[Node], on_cpu: bool) -> Iterator[str]:
    """Ranks whose threads are more than the cores that they may run on."""
    for node in nodes:
        for moment in (0, 1):
            crowd = _crowd(node, moment, on_cpu)
            if crowd:
                yield crowd
                return


def _crowd(node: Node, moment: int, on_cpu: bool) -> Optional[str]:
    """The worst crowd of a node at its first or second look: of all ranks that fit into the cores of one of them."""
    worst, text = 1.0, None
    for cores in {one["cores"][moment] for one in node.ranks.values()}:
        inside = {number: one for number, one in node.ranks.items() if cores and one["cores"][moment] <= cores}
        threads = sum(one["threads"] if on_cpu else 1 for one in inside.values())
        if cores and threads / len(cores) > worst:
            worst = threads / len(cores)
            who = f"rank {_listed(list(inside))}" if len(inside) == 1 else f"ranks {_listed(list(inside))}"
            text = f"crowded: {who} on {node.host}: {threads} thread(s) on {len(cores)} core(s) ({_listed(cores)})"
    return text


def _quotas(ranks: Mapping[int, Mapping[str, Any]]) -> Iterator[str]:
    """The rank that its quota stopped most, and a quota that has changed."""
    counted = {number: one["throttling"] for number, one in ranks.items() if one["throttling"] is not None}
    number = max(counted, key=lambda number: counted[number].throttled_s, default=None)
    if number is not None and counted[number].throttled > THROTTLED_SHARE * counted[number].periods:
        one, stopped = ranks[number], counted[number]
        quota = one["quotas"][1]
        allowed = "a CPU quota" if quota is None or quota == math.inf else f"a CPU quota of {quota:.2g}"
        text = f"throttled: {allowed} of {len(one['cores'][1])} core(s) stopped rank {number} on {one['host']}"
        yield f"{text} in {stopped.throttled} of {stopped.periods} periods while it was measured"
    for before, after in (one["quotas"] for one in ranks.values()):
        if before is not None and after is not None and before != after:
            yield f"the CPU quota changed while this job was measured: from {_cores(before)} to {_cores(after)}"
            return


def _cores(quota: float) -> str:
    return "none" if quota == math.inf else f"{quota:.2g} core(s)"


def _listed(numbers: Any) -> str:
    """A few numbers in words."""
    ordered = sorted(numbers)
    more = f" and {len(ordered) - 8} more" if len(ordered) > 8 else ""
    return ", ".join(str(number) for number in ordered[:8]) + more
