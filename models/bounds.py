"""Says what bounds a training run, from its windows and the phases that --decompose adds (docs/measuring.md).

Each millisecond of a step belongs to one part, so that the parts add up to the step. What is not the device's own
computing is lost, and a cause is named only if it explains most of the loss. Nothing is measured here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from models.data.pagecache import WARM

LITTLE = 0.15  # of a step: if less than this is lost, the device's own computing bounds the run
EXPLAINED = 0.8  # of the loss: a cause that explains less is not named
AGREES = 0.05  # of a step, by which phases and windows may differ
QUOTA_PERIODS = 0.1  # of a quota's periods in which it was used up: a thread that waits, waits for the quota
BUSY_WORKERS = 0.5  # of the loader's workers: with fewer at work it is not they that the loop waits for
FASTER = 1.1  # times as fast: from this on it is worth while to ask for more workers or threads
CAUSES = ("threads", "slow rank", "communication", "quota", "neighbours", "copy", "storage", "decoding")
UNKNOWN = frozenset({"other", "unexplained"})  # parts of a step that are no causes
PLATFORM = "PLATFORM"  # stands for the name of the platform, which the job does not know
MARGIN = 1.2  # more workers than the phases need, because computing takes cores, too


@dataclass(frozen=True)
class Loading:
    """The loader without computing, on the rank where it takes longest. Times are per step, in ms."""

    workers: int
    step_ms: float
    processor: float  # share of the time in which a worker reads: it runs,
    blocked: float  # it waits for storage, or for a lock,
    queued: float  # it waits for a core
    occupied: float  # share of the workers that read at a moment
    processor_ms: float  # of all workers together
    resident: Optional[float] = None  # share of the files' bytes that was in memory before; None: not known


@dataclass(frozen=True)
class Rank:
    """One rank's share of the evidence. Times are per step, in ms."""

    place: str  # "rank 3 on n07, cuda:1"
    alone_ms: Optional[float]  # computing on a batch that stays on the device, without the other ranks
    core_wait: float  # share of the windows in which its busiest thread could have run and had no core


@dataclass(frozen=True)
class Evidence:
    """What windows and phases have measured. Times are per step, in ms.

    step_ms, wait_ms, copy_ms, busy_ms   of the windows: the whole step, and its parts at the pace of the slowest rank
    computing_ms     on a batch that stays on the device, with the exchange of gradients
    ranks            in the order of their numbers
    exchange_ms      of gradients, as the ranks mark it in the windows; None: they do not
    straggler        the rank that does its own work last in the windows, and how much later than the others' median
    loading          the loader alone; None: it could not be measured
    again            the same samples once more, when they are in memory as far as the file system keeps them there
    more             the loader alone with more workers
    more_threads, more_threads_ms   computing in so many threads; None: there are no more cores
    threads          in which each rank computes, where a processor computes
    throttled        share of a CPU quota's periods in which it was used up
    quota            in cores; None: there is none
    neighbours       how many of the job's cores' time others used
    elsewhere        and how many of the node's other cores, where that slows the job down
    on_device        the ranks compute on devices of their own, so only their loaders wait for a core
    """

    step_ms: float
    wait_ms: float
    copy_ms: float
    busy_ms: float
    computing_ms: float
    ranks: Sequence[Rank]
    exchange_ms: Optional[float] = None
    straggler: Optional[Tuple[int, float]] = None
    loading: Optional[Loading] = None
    again: Optional[Loading] = None
    more: Optional[Loading] = None
    threads: int = 1
    more_threads: Optional[int] = None
    more_threads_ms: Optional[float] = None
    throttled: float = 0.0
    quota: Optional[float] = None
    neighbours: float = 0.0
    elsewhere: float = 0.0
    on_device: bool = False

    @property
    def is_split(self) -> bool:
        """Whether each rank has a part of the model, and none can train alone."""
        return len(self.ranks) > 1 and self.ranks[0].alone_ms is None


def decomposition(evidence: Evidence) -> Dict[str, Any]:
    """Return the value of `hpcml_decomposition` (docs/wire.md), without its phases."""
    parts = parts_of(evidence)
    step_ms = evidence.step_ms
    lost = {name: ms for name, ms in parts.items() if name != "device" and ms > 0}
    lost_ms = math.fsum(lost.values())
    largest = max(lost, key=lambda name: lost[name], default="unexplained")
    bound: Optional[str] = None
    explains = 0.0
    if lost_ms < LITTLE * step_ms:
        explains = min(1.0, parts["device"] / step_ms)
        if not evidence.is_split:
            bound = "device"
    elif largest not in UNKNOWN and lost[largest] >= EXPLAINED * lost_ms:
        bound = largest
        explains = lost[largest] / lost_ms
    gap = (evidence.computing_ms - evidence.busy_ms) / step_ms
    return {
        "bound": bound,
        "explains": explains if bound else None,
        "step_ms": step_ms,
        "parts_ms": parts,
        "gap": gap,
        "text": _sentence(bound, explains, parts, lost, evidence) + _disagreements(gap, parts, evidence),
        "next": _next(bound or largest, evidence) if bound or lost_ms >= LITTLE * step_ms else "",
    }


def parts_of(evidence: Evidence) -> Dict[str, float]:
    """Return where each ms of a step goes. They add up to the step."""
    # Computing by itself cannot take longer than beside everything else: then the phases say how it is divided.
    scale = min(1.0, evidence.busy_ms / evidence.computing_ms)
    parts = _parts_of_computing(evidence, scale)
    parts["other"] = max(0.0, evidence.step_ms - evidence.wait_ms - evidence.copy_ms - evidence.busy_ms)

    # What computing takes longer in the windows than by itself: a slow rank, others on the cores, or the loader.
    beside_ms = evidence.busy_ms - scale * evidence.computing_ms
    if evidence.straggler is not None and evidence.straggler[0] == slowest_rank(evidence):
        beside_ms -= _give_to_slow_rank(parts, evidence.straggler[1], beside_ms, evidence.exchange_ms or 0.0)
    waits = _computing_waits(evidence)
    if waits:
        parts[waits] += beside_ms
        beside_ms = 0.0
    for name, ms in _parts_of_input(evidence, beside_ms).items():
        parts[name] += ms
    parts["unexplained"] = max(0.0, evidence.step_ms - math.fsum(parts.values()))
    return parts


def _parts_of_computing(evidence: Evidence, scale: float) -> Dict[str, float]:
    """Divide the phase of computing: a rank's own work, what it waits for a core in it, the exchange with the others.

    scale: of the phase's times.
    """
    parts = dict.fromkeys(("device", *CAUSES), 0.0)
    slowest = slowest_rank(evidence)
    alone_ms = evidence.ranks[slowest].alone_ms
    own = _own_work(evidence)
    waits = _computing_waits(evidence)
    if waits:
        core_wait_ms = evidence.ranks[slowest].core_wait * evidence.step_ms
        core_wait_ms = min(core_wait_ms, scale * evidence.computing_ms)
        own_share = _share_of_own_loader(evidence) if waits == "neighbours" else 0.0
        parts["decoding"] = own_share * core_wait_ms
        parts[waits] = core_wait_ms - parts["decoding"]
    others = sorted(ms for number, ms in enumerate(own) if number != slowest)
    if others:
        parts["slow rank"] = scale * max(0.0, own[slowest] - others[(len(others) - 1) // 2])
    if others and alone_ms is not None:
        parts["communication"] = scale * max(0.0, evidence.computing_ms - alone_ms)
    parts["device"] = max(0.0, scale * evidence.computing_ms - math.fsum(parts.values()))
    if evidence.more_threads_ms is not None:
        parts["threads"] = parts["device"] * max(0.0, 1 - evidence.more_threads_ms / evidence.computing_ms)
        parts["device"] -= parts["threads"]
    return parts


def _give_to_slow_rank(parts: Dict[str, float], later_ms: float, beside_ms: float, exchange_ms: float) -> float:
    """Give the slow rank what its own marks say, `later_ms`, where the phases alone say less.

    Its marks include what it does for the exchange while it computes; at a window's end all wait for it. Return what it
    gets of `beside_ms`.
    """
    lacking_ms = max(0.0, later_ms - parts["slow rank"])
    of_beside_ms = min(lacking_ms, beside_ms)
    of_exchange_ms = min(lacking_ms - of_beside_ms, max(0.0, parts["communication"] - exchange_ms))
    of_end_ms = min(lacking_ms - of_beside_ms - of_exchange_ms, parts["other"])
    parts["slow rank"] += of_beside_ms + of_exchange_ms + of_end_ms
    parts["communication"] -= of_exchange_ms
    parts["other"] -= of_end_ms
    return of_beside_ms


def _parts_of_input(evidence: Evidence, beside_ms: float) -> Dict[str, float]:
    """Divide what the loop waits for batches and copies, and what computing loses beside and after that.

    The loader's own time bounds what it can explain.
    """
    loading = evidence.loading
    stall_ms = evidence.wait_ms + evidence.copy_ms
    if beside_ms > max(stall_ms, 0.0 if loading is None else 2 * loading.processor_ms):
        beside_ms = 0.0  # too much: why is not known
    of_copy = evidence.copy_ms / stall_ms if stall_ms else 0.0
    parts = {"copy": evidence.copy_ms + of_copy * beside_ms}
    if loading is not None and loading.occupied >= BUSY_WORKERS:
        input_ms = min(loading.step_ms, evidence.wait_ms + (1 - of_copy) * beside_ms)
        waits = _waits_for_core(evidence) if evidence.on_device else None
        if waits:
            parts[waits] = min(input_ms, loading.step_ms * loading.queued)
            input_ms -= parts[waits]
        blocked_ms = input_ms * loading.blocked
        parts["decoding"] = input_ms - blocked_ms
        if (loading.resident or 0.0) < WARM:  # else they wait for a lock
            parts["storage"] = blocked_ms
    return parts


def slowest_rank(evidence: Evidence) -> int:
    """Return the number of the rank whose own work takes longest."""
    own = _own_work(evidence)
    return max(range(len(own)), key=own.__getitem__)


def _own_work(evidence: Evidence) -> List[float]:
    """Return each rank's own work, without what it waits for a core. Equal if the ranks were not measured alone."""
    waits = _computing_waits(evidence) is not None
    return [
        (rank.alone_ms or evidence.computing_ms) - (rank.core_wait * evidence.step_ms if waits else 0.0)
        for rank in evidence.ranks
    ]


def _share_of_own_loader(evidence: Evidence) -> float:
    """Return for what share of the time in which threads wait for a core the job's own loader has it."""
    if evidence.loading is None:
        return 0.0
    cores = evidence.loading.processor_ms / evidence.step_ms
    return cores / (cores + evidence.neighbours)


def _computing_waits(evidence: Evidence) -> Optional[str]:
    """Return why computing waits for a core. A device goes on while threads of the host wait."""
    return None if evidence.on_device else _waits_for_core(evidence)


def _waits_for_core(evidence: Evidence) -> Optional[str]:
    """Return why threads wait for a core: the quota, or neighbours. None: it is the job's own loader, or nothing."""
    if evidence.quota is not None and evidence.throttled >= QUOTA_PERIODS:
        return "quota"
    return "neighbours" if evidence.neighbours else None


# --- in words ---------------------------------------------------------------------------------------------------------


def _sentence(
    bound: Optional[str], explains: float, parts: Dict[str, float], lost: Dict[str, float], evidence: Evidence
) -> str:
    step = f"a step takes {_ms(evidence.step_ms)}"
    lost_ms = math.fsum(lost.values())
    if bound == "device":
        text = f"bound by the device: {step}, {explains:.0%} of it its own computing"
        if evidence.elsewhere:
            text += (
                f", while others used {evidence.elsewhere:.1f} of the node's other cores, which share its memory and "
            )
            text += "clock; how much that takes cannot be told here"
        return text + _loader_alone(evidence)
    if bound is not None:
        return (
            f"bound by {_named(bound, evidence)}: {step}, and this explains {explains:.0%} of the {_ms(lost_ms)} lost"
        )
    if lost_ms < LITTLE * evidence.step_ms:
        share = parts["device"] / evidence.step_ms
        together = "computing or communication, which cannot be told apart: each rank has a part of the model"
        return f"{step}, {share:.0%} of it {together}"
    known = sorted((name for name in lost if name not in UNKNOWN), key=lambda name: -lost[name])
    shares = {name: lost[name] / lost_ms for name in known[:2]}
    shares["no known cause"] = math.fsum(lost.get(name, 0.0) for name in UNKNOWN) / lost_ms
    said = ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005)
    return f"{step}, and no cause explains {EXPLAINED:.0%} of the {_ms(lost_ms)} lost: {said}"


def _named(bound: str, evidence: Evidence) -> str:
    loading = evidence.loading
    if bound == "storage" and loading is not None:
        workers = _counted(loading.workers, "worker")
        text = f"storage (the loader alone: {_ms(loading.step_ms)} a step, {workers} waiting for it in "
        text += f"{loading.blocked:.0%} of their time"
        if evidence.again is not None:
            text += f"; the same samples again: {_ms(evidence.again.step_ms)}"
        return text + ")"
    if bound == "decoding" and loading is not None:
        return f"decoding on {_counted(loading.workers, 'worker')} (the loader alone: {_ms(loading.step_ms)} a step)"
    rank = evidence.ranks[slowest_rank(evidence)]
    if bound == "slow rank":
        later = f"takes {_ms(parts_of(evidence)['slow rank'])} a step longer than the others for its own work"
        return f"a slow rank: {rank.place} {later}"
    names = {
        "copy": f"copies to the device ({_ms(evidence.copy_ms)} a step)",
        "communication": "communication between the ranks (without it a step of "
        f"{_ms(evidence.computing_ms)} takes {_ms(rank.alone_ms or 0.0)})",
        "threads": f"{_counted(evidence.threads, 'thread')}: in {evidence.more_threads} a step of "
        f"{_ms(evidence.computing_ms)} takes {_ms(evidence.more_threads_ms or 0.0)}",
        "quota": f"a CPU quota of {evidence.quota or 0.0:.2g} core(s), used up in {evidence.throttled:.0%} of its "
        "periods",
        "neighbours": f"neighbours, who used {evidence.neighbours:.1f} of the job's cores",
    }
    return names[bound]


def _loader_alone(evidence: Evidence) -> str:
    if evidence.loading is None:
        return ""
    return f"; the loader alone gives {evidence.step_ms / evidence.loading.step_ms:.2g} times as many samples"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _disagreements(gap: float, parts: Dict[str, float], evidence: Evidence) -> str:
    """Say it if phases and windows do not agree to AGREES of a step, and nothing explains it."""
    said = ""
    unknown_ms = parts["unexplained"]
    if gap > AGREES:
        said = f"; computing by itself was {gap:.0%} of a step slower than in the windows, and why is not known"
    elif gap < -AGREES and unknown_ms > AGREES * evidence.step_ms:
        longer_ms = evidence.busy_ms - evidence.computing_ms
        said = f"; in the windows computing takes {_ms(longer_ms)} a step longer than by itself, and {_ms(unknown_ms)} "
        said += "of the step have no known cause"
    marked_ms = evidence.exchange_ms
    if marked_ms is not None and abs(marked_ms - parts["communication"]) > AGREES * evidence.step_ms:
        said += f"; timed in the windows, the exchange of gradients takes {_ms(marked_ms)} a step after computing, and "
        said += f"without it a step is {_ms(parts['communication'])} shorter"
    return said


def _next(bound: str, evidence: Evidence) -> str:
    """Return what to do next; "" where nothing is known that would help."""
    loading, again, more = evidence.loading, evidence.again, evidence.more
    if bound in ("storage", "decoding") and loading is not None:
        tried = ""
        if more is not None:
            times = loading.step_ms / more.step_ms
            tried = f"; {more.workers} workers read {times:.1f} times as fast as {loading.workers}"
        if bound == "storage" and again is not None and FASTER * again.step_ms < (more or loading).step_ms:
            return f"a faster file system for the set; --cache warm says what memory would give{tried}"
        if more is not None and FASTER * more.step_ms < loading.step_ms:
            return f"workers: {more.workers} in the platform's file{tried}"
        if bound == "decoding":
            return f"more cores for each rank, or a format that is cheaper to decode{tried}"
        return f"pytest catalogue/test_fio.py -m {PLATFORM}, which says what this file system gives{tried}"
    advice = {
        "copy": f"pytest catalogue/test_nvbandwidth.py -m {PLATFORM}, which says what the link to the device gives",
        "communication": "a larger batch for each rank, which hides more of it, or pytest catalogue/test_nccl.py -m "
        f"{PLATFORM} (CPUs: test_gloo.py), which says what the network gives",
        "slow rank": f"pytest -m {PLATFORM} --each-node=idle, which says whether its node is slow by itself",
        "threads": f"threads_per_rank: {evidence.more_threads} in the platform's file, and no OMP_NUM_THREADS",
        "quota": "a higher CPU limit for the job",
        "neighbours": "the same run where nobody else runs, as with Slurm's --exclusive",
    }
    return advice.get(bound, "")


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.3g} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.3g} s"
