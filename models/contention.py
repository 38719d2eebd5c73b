"""What else used the processors while the windows were measured: why a rate is lower than the node could give.

Each rank reads the kernel's counters before the first window and after the last one, and never in between, so that the
windows lose nothing. What all ranks of a node used together is subtracted from what the node's cores did; the rest was
others. What the kernel does not report is None. Sources: proc(5), and the kernel's accounting/psi.rst and
scheduler/sched-stats.rst.
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
import platform
import re
import signal
import sys
import threading
import time
from typing import Any, Callable, Collection, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from models import cgroups
from models.host import physical_cores, read_text
from models.meter import BOOT_ID

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# Others are named in a warning if they used at least this many cores, this share of the cores that are compared, and
# this much time, of which the kernel counts only whole ticks.
OTHERS_CORES = 0.25
OTHERS_SHARE = 0.01
ELSEWHERE_SHARE = 0.25  # on cores that are not the job's, compared with how many the job has
OTHERS_S = 0.3
IDLE_SHARE = 0.25  # of the job's cores without a thread that computes, from which on it is a warning
THROTTLED_SHARE = 0.02  # of a quota's periods, from which on it is a warning
STOLEN_SHARE = 0.02  # of the processor time of a node, from which on it is a warning
PRESSURES = ("cpu", "memory", "io")
LOADER = "loader-"  # begins the names of threads that load data (models/data/thread_loader.py)


class Counters(NamedTuple):
    """What the kernel had counted at one moment, in seconds."""

    at_s: float
    used_s: Optional[float]  # processor time of this rank: its process and the loader's processes
    waited_s: Optional[float]  # for how long their threads could have run and waited for a core
    waited_of_s: Dict[str, float]  # the same of each thread of this process that does not load data
    cores: FrozenSet[int]  # on which its threads may run
    busy_s: Dict[int, float]  # of each core of the node, whichever process used it
    stolen_s: Optional[float]  # of all cores, by the hypervisor for other machines
    pressure_s: Dict[str, float]  # for how long a process of the node lacked processor, memory or disk
    quota: Optional[float]
    throttling: Dict[str, cgroups.Throttling]


Counted = Mapping[str, Any]  # what one rank's counters changed by, as ContentionWatch.counted returns it


class ContentionWatch:
    """Reads one rank's counters twice. The meter calls `begin` before the first window and `end` after the last one."""

    def __init__(self, root: str = "/", now: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._now = now
        self._before: Optional[Counters] = None
        self._after: Optional[Counters] = None
        self._continued = 0  # how often this process was continued, as after `scontrol suspend`

    def begin(self) -> None:
        self._after, self._continued = None, 0
        with contextlib.suppress(ValueError):  # only the main thread may
            signal.signal(signal.SIGCONT, self._on_continued)
        self._before = read_counters(self._root, self._now)

    def end(self) -> None:
        self._after = read_counters(self._root, self._now)

    def _on_continued(self, *_: object) -> None:
        self._continued += self._after is None

    def counted(self, threads: int, of_node: bool) -> Optional[Dict[str, Any]]:
        """Return by how much the counters changed, for `join`; None if they were not read twice.

        threads: in how many this rank computes. of_node: include the times of all cores of the node, as one rank of
        each node must.
        """
        before, after = self._before, self._after
        if before is None or after is None or after.at_s <= before.at_s:
            return None
        boot_id = read_text(self._root, BOOT_ID.lstrip("/")).partition("\n")[0]
        return {
            "host": platform.node(),
            "node": boot_id or platform.node(),
            "elapsed_s": after.at_s - before.at_s,
            "used_s": _difference(before.used_s, after.used_s),
            "waited_s": _difference(before.waited_s, after.waited_s),
            "continued": self._continued,
            "waited_most_s": max(_differences(before.waited_of_s, after.waited_of_s).values(), default=None),
            "threads": threads,
            "cores": [before.cores, after.cores],
            "physical_cores": physical_cores(after.cores, self._root),
            "busy_s": _differences(before.busy_s, after.busy_s) if of_node else {},
            "stolen_s": _difference(before.stolen_s, after.stolen_s),
            "pressure_s": _differences(before.pressure_s, after.pressure_s),
            "quotas": [before.quota, after.quota],
            "throttling": _worst_throttling(before.throttling, after.throttling),
        }


# --- reading the counters ---------------------------------------------------------------------------------------------


def read_counters(root: str = "/", now: Callable[[], float] = time.monotonic) -> Counters:
    """Read everything once."""
    multiprocessing = sys.modules.get("multiprocessing")  # without which there are no workers
    workers = multiprocessing.active_children() if multiprocessing is not None else []
    processes = [os.getpid(), *(worker.pid or 0 for worker in workers)]
    busy_s: Dict[int, float] = {}
    stolen_s = None
    for core, *ticks in re.findall(r"^cpu(\d*)" + r" +(\d+)" * 8, read_text(root, "proc/stat"), re.MULTILINE):
        user, nice, system, _idle, _disk, interrupts, soft_interrupts, stolen = (int(tick) * TICK_S for tick in ticks)
        if core:
            busy_s[int(core)] = user + nice + system + interrupts + soft_interrupts
        else:  # the first line, of all cores together
            stolen_s = stolen
    return Counters(
        at_s=now(),
        used_s=_sum([_used_s(root, process) for process in processes]),
        waited_s=_sum([_waited_s(root, process) for process in processes]),
        waited_of_s=_waits(root, os.getpid(), without=_loading_threads()),
        cores=_allowed_cores(root),
        busy_s=busy_s,
        stolen_s=stolen_s,
        pressure_s=_pressure_s(root),
        quota=cgroups.cpu_quota(root),
        throttling=cgroups.throttling(root),
    )


def _used_s(root: str, process: int) -> Optional[float]:
    """Return the processor time of a process, all its threads and its children that have ended."""
    fields = (
        read_text(root, f"proc/{process}/stat").rpartition(")")[2].split()
    )  # behind its name, which may hold blanks
    if len(fields) <= 14:
        return None
    return sum(int(ticks) for ticks in fields[11:15]) * TICK_S


def _waited_s(root: str, process: int) -> Optional[float]:
    """Return for how long the present threads of a process could have run and waited for a core."""
    waits = _waits(root, process)
    return sum(waits.values()) if waits else None


def _waits(root: str, process: int, without: Collection[str] = ()) -> Dict[str, float]:
    """Return the same of each thread, by its number."""
    waits = {}
    for thread in _threads(root, process):
        fields = read_text(root, f"proc/{process}/task/{thread}/schedstat").split()
        if len(fields) == 3 and thread not in without:
            waits[thread] = int(fields[1]) / 1e9
    return waits


def _loading_threads() -> List[str]:
    return [str(thread.native_id) for thread in threading.enumerate() if thread.name.startswith(LOADER)]


def _allowed_cores(root: str) -> FrozenSet[int]:
    """Return the cores that the threads of this process may run on together: OpenMP may bind each thread to one."""
    cores = set()
    if hasattr(os, "sched_getaffinity"):
        for thread in _threads(root, os.getpid()):
            with contextlib.suppress(OSError):  # the thread has ended
                cores.update(os.sched_getaffinity(int(thread)))
    return frozenset(cores)


def _threads(root: str, process: int) -> List[str]:
    try:
        return os.listdir(os.path.join(root, f"proc/{process}/task"))
    except OSError:
        return []


def _pressure_s(root: str) -> Dict[str, float]:
    pressures = {}
    for resource in PRESSURES:
        total = re.search(r"^some .*\btotal=(\d+)", read_text(root, f"proc/pressure/{resource}"), re.MULTILINE)
        if total:
            pressures[resource] = int(total[1]) / 1e6
    return pressures


def _sum(values: Sequence[Optional[float]]) -> Optional[float]:
    """Return the sum; None if the first value, this process's own, is None. A loader's process may have ended."""
    if values[0] is None:
        return None
    return sum(value for value in values if value is not None)


def _difference(before: Optional[float], after: Optional[float]) -> Optional[float]:
    if before is None or after is None:
        return None
    return max(0.0, after - before)


def _differences(before: Mapping[Any, float], after: Mapping[Any, float]) -> Dict[Any, float]:
    return {key: max(0.0, after[key] - before[key]) for key in after if key in before}


def _worst_throttling(
    before: Mapping[str, cgroups.Throttling], after: Mapping[str, cgroups.Throttling]
) -> Optional[cgroups.Throttling]:
    """Return the change in the control group that stopped this process longest; None where no group counts it."""
    folders = before.keys() & after.keys()
    changes = [cgroups.Throttling(*map(operator.sub, after[folder], before[folder])) for folder in folders]
    return max(changes, key=lambda change: change.throttled_s, default=None)


# --- all ranks together -----------------------------------------------------------------------------------------------


class KernelNode(NamedTuple):
    """The ranks that share one kernel. Pods and containers on one node have different host names."""

    host: str
    ranks: Dict[int, Counted]  # by number
    cores: FrozenSet[int]  # of all its ranks
    on_ours: Optional[float]  # how many cores' time others used on these cores
    elsewhere: Optional[float]  # and on the node's other cores
    other_cores: int


class Contention(NamedTuple):
    value: Optional[Dict[str, Any]]  # `contention` of the wire's summary
    warnings: List[str]


def join(counted: Sequence[Optional[Counted]], on_cpu: bool) -> Contention:
    """Combine what the ranks counted, in order of rank, into one value of the wire and into warnings.

    on_cpu: the processor computes, so that work on cores that are not the job's slows it down as well.
    """
    ranks = {number: of_rank for number, of_rank in enumerate(counted) if of_rank is not None}
    if not ranks:
        return Contention(None, [])
    nodes = []
    for name in dict.fromkeys(of_rank["node"] for of_rank in ranks.values()):
        nodes.append(_node({number: of_rank for number, of_rank in ranks.items() if of_rank["node"] == name}))
    worst = max(nodes, key=lambda node: node.on_ours or 0.0)
    throttlings = {number: of_rank["throttling"] for number, of_rank in ranks.items() if of_rank["throttling"]}
    stopped = max(throttlings, key=lambda number: throttlings[number].throttled_s, default=None)
    most = None if stopped is None else throttlings[stopped]
    value = {
        "neighbours_cores": worst.on_ours,
        "elsewhere_cores": max(_not_none([node.elsewhere for node in nodes]), default=None),
        "host": worst.host,
        "used_cores": _spread([_in_cores(of_rank, "used_s") for of_rank in ranks.values()]),
        "waited_cores": _spread([_in_cores(of_rank, "waited_s") for of_rank in ranks.values()]),
        "stolen_cores": max(_not_none([_in_cores(of_rank, "stolen_s") for of_rank in ranks.values()]), default=None),
        "pressure": {resource: _pressure(nodes, resource) for resource in PRESSURES},
        "throttled_periods": most.throttled if most else None,
        "periods": most.periods if most else None,
        "throttled_s": most.throttled_s if most else None,
    }
    warnings = [
        *_on_neighbours(nodes, on_cpu),
        *_on_crowds(nodes, on_cpu),
        *_on_idle_cores(nodes, on_cpu),
        *_on_quotas(ranks, stopped),
        *_on_stops(ranks),
        *(_on_hypervisors(ranks) if on_cpu else ()),
    ]
    return Contention(_rounded(value), warnings)


def _node(ranks: Dict[int, Counted]) -> KernelNode:
    # One rank of each node counted the time of all its cores.
    observer = next((of_rank for of_rank in ranks.values() if of_rank["busy_s"]), next(iter(ranks.values())))
    busy = {core: busy_s / observer["elapsed_s"] for core, busy_s in observer["busy_s"].items()}
    used = [_in_cores(of_rank, "used_s") for of_rank in ranks.values()]
    cores: FrozenSet[int] = frozenset().union(*(cores for of_rank in ranks.values() for cores in of_rank["cores"]))
    others = [core for core in busy if core not in cores]
    on_ours = None
    elsewhere = None
    if busy:
        elsewhere = sum(busy[core] for core in others)
        if None not in used:
            on_ours = max(0.0, sum(busy[core] for core in busy if core in cores) - sum(used))
    return KernelNode(observer["host"], ranks, cores, on_ours, elsewhere, len(others))


def _in_cores(counted: Counted, key: str) -> Any:
    """Return a time as a number of cores: its seconds per second that passed."""
    if counted[key] is None:
        return None
    return counted[key] / counted["elapsed_s"]


def _not_none(values: Sequence[Optional[float]]) -> List[float]:
    return [value for value in values if value is not None]


def _spread(values: Sequence[Optional[float]]) -> Optional[List[float]]:
    """Return [min, mean, max] over the ranks that have a value."""
    numbers = _not_none(values)
    if not numbers:
        return None
    return [min(numbers), sum(numbers) / len(numbers), max(numbers)]


def _pressure(nodes: Sequence[KernelNode], resource: str) -> Optional[float]:
    """Return the share of the time in which a process lacked the resource, on the node where it was most."""
    of_nodes = [next(iter(node.ranks.values())) for node in nodes]
    shares = [
        counted["pressure_s"][resource] / counted["elapsed_s"]
        for counted in of_nodes
        if resource in counted["pressure_s"]
    ]
    return max(shares, default=None)


def _rounded(value: Any) -> Any:
    """Round to thousandths, which is finer than the kernel's ticks, so that the line of the wire is short."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value


# --- the warnings -----------------------------------------------------------------------------------------------------


def _on_neighbours(nodes: Sequence[KernelNode], on_cpu: bool) -> Iterator[str]:
    """Warn of the node where others used most of the job's cores, and of the one where they used most of the rest."""
    node = max(nodes, key=lambda node: node.on_ours or 0.0)
    if node.on_ours is not None and _is_much(node, node.on_ours, OTHERS_SHARE):
        text = f"not alone: others used {node.on_ours:.1f} of the {len(node.cores)} core(s) of this job on {node.host}"
        waited = _not_none([counted["waited_s"] for counted in node.ranks.values()])
        held_up = f", and its threads waited {sum(waited):.1f} s for a core" if waited else ""
        yield f"{text} while it was measured{held_up}"
    node = max(nodes, key=lambda node: node.elsewhere or 0.0)
    if on_cpu and node.elsewhere is not None and _is_much(node, node.elsewhere, ELSEWHERE_SHARE):
        text = f"others used {node.elsewhere:.1f} of the {node.other_cores} other core(s) of {node.host}"
        yield f"not alone: {text} while this job was measured: they share its memory and clock"


def _is_much(node: KernelNode, cores: float, share: float) -> bool:
    elapsed_s = next(iter(node.ranks.values()))["elapsed_s"]
    return cores >= max(OTHERS_CORES, share * len(node.cores)) and cores * elapsed_s >= OTHERS_S


def _on_crowds(nodes: Sequence[KernelNode], on_cpu: bool) -> Iterator[str]:
    """Warn once of ranks that have more threads than cores to run on."""
    for node in nodes:
        for moment in (0, 1):  # before the windows and after them
            crowd = _crowd(node, moment, on_cpu)
            if crowd:
                yield crowd
                return


def _crowd(node: KernelNode, moment: int, on_cpu: bool) -> Optional[str]:
    """Describe the worst crowd of a node, among the ranks that run within the cores of one of them."""
    worst = 1.0
    text = None
    for cores in {counted["cores"][moment] for counted in node.ranks.values()}:
        if not cores:
            continue
        inside = {number: counted for number, counted in node.ranks.items() if counted["cores"][moment] <= cores}
        threads = sum(counted["threads"] if on_cpu else 1 for counted in inside.values())
        if threads / len(cores) > worst:
            worst = threads / len(cores)
            noun = "rank" if len(inside) == 1 else "ranks"
            text = (
                f"crowded: {noun} {_listed(list(inside))} on {node.host}: {threads} thread(s) on {len(cores)} core(s) "
                f"({_listed(cores)})"
            )
    return text


def _on_idle_cores(nodes: Sequence[KernelNode], on_cpu: bool) -> Iterator[str]:
    """Warn once of a node whose ranks have fewer threads than physical cores. A quota explains that by itself."""
    for node in nodes:
        counted = list(node.ranks.values())
        sets = {of_rank["cores"][1]: of_rank.get("physical_cores") for of_rank in counted}
        is_limited = any(quota is not None and quota < math.inf for of_rank in counted for quota in of_rank["quotas"])
        is_partly_shared = len(sets) > 1 and sum(map(len, sets)) > len(frozenset().union(*sets))
        if not on_cpu or is_limited or is_partly_shared or None in sets.values():
            continue
        threads = sum(of_rank["threads"] for of_rank in counted)
        cores = sum(of_set or 0 for of_set in sets.values())
        if threads <= (1 - IDLE_SHARE) * cores:
            text = f"idle cores: {threads} thread(s) compute on {node.host}, and the job may use {cores} core(s) there"
            yield f"{text}; OMP_NUM_THREADS sets the threads of a rank"
            return


def _on_quotas(ranks: Mapping[int, Counted], stopped: Optional[int]) -> Iterator[str]:
    """Warn of the rank that its CPU quota stopped most, and of a quota that has changed."""
    counted = {} if stopped is None else ranks[stopped]
    if counted and counted["throttling"].throttled > THROTTLED_SHARE * counted["throttling"].periods:
        quota = counted["quotas"][1]
        allowed = "a CPU quota" if quota is None or quota == math.inf else f"a CPU quota of {quota:.2g}"
        text = f"throttled: {allowed} of {len(counted['cores'][1])} core(s) stopped rank {stopped} on {counted['host']}"
        times = f"{counted['throttling'].throttled} of {counted['throttling'].periods} periods"
        yield f"{text} in {times} while it was measured"
    for before, after in (counted["quotas"] for counted in ranks.values()):
        if before is not None and after is not None and before != after:
            yield (
                f"the CPU quota changed while this job was measured: from {_quota_text(before)} to {_quota_text(after)}"
            )
            return


def _on_stops(ranks: Mapping[int, Counted]) -> Iterator[str]:
    """Warn of a job that its scheduler, or a person, has stopped for a while: the clock on the wall went on."""
    for number, counted in ranks.items():
        if counted.get("continued"):
            times = f"{counted['continued']} time(s)"
            yield f"suspended: rank {number} on {counted['host']} was stopped and continued {times} in the windows"
            return


def _on_hypervisors(ranks: Mapping[int, Counted]) -> Iterator[str]:
    """Warn of the processor time of a node that a hypervisor gave to other machines."""
    observers = [counted for counted in ranks.values() if counted["busy_s"] and counted["stolen_s"]]
    share = max((_in_cores(counted, "stolen_s") / len(counted["busy_s"]) for counted in observers), default=0.0)
    if share >= STOLEN_SHARE:
        yield f"a virtual machine: {share:.0%} of its processor time went to others while it ran"


def _quota_text(quota: float) -> str:
    return "none" if quota == math.inf else f"{quota:.2g} core(s)"


def _listed(numbers: Any) -> str:
    """List numbers in a sentence; only the first eight of many."""
    ordered = sorted(numbers)
    more = f" and {len(ordered) - 8} more" if len(ordered) > 8 else ""
    return ", ".join(str(number) for number in ordered[:8]) + more
