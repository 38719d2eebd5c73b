"""Is each node of a job as good as its siblings? `vet job` runs once on each node, before the job's own command.

Memory, cores, room and clock of the nodes, matrix products and copies of their devices, and what each pair of nodes
exchanges, beside the median of all: nothing else says what is usual here. Who is unfit stands in a file that the job's
script reads (slurm_templates/job.sh), and with all numbers in the log, as the part `vet` of hpcml_node (docs/wire.md).
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from models import host, node, vet
from models.errors import CommandError, first_line
from models.meter import Wire
from models.world import World, detect

PAIRS_UNTIL_S = 40.0  # from the start to the last exchange of a pair
GIVE_UP_S = 50.0
PRODUCT_S = 1.0  # of each device
COPY_S = 0.5
COPY_BYTES = 256 << 20  # more than the caches hold
PAIR_BYTES = 1 << 20
PAIR_TIMES = 4  # the first one is not timed
ALONE_TIMES = 12  # when a pair that was slow exchanges again
PAIRS_ALONE = 8  # at most
PAIR_SHARE = 1 / 3  # of what both do with others; where a process runs on its node makes a half
CLOCK_S = 2.0  # of two clocks; when ranks leave a barrier differs by less
FEWEST = 3  # of two nodes nothing says which one is wrong
LEAKS = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL", "OMP_NUM_THREADS", "OMP_PROC_BIND")
LEAK_PREFIX = "NCCL_"
FIRST_LINE = 10**9  # of the wire; the job's own command numbers its lines from 0

Look = Dict[str, Any]  # what one node is and measured
Pairs = Mapping[Tuple[int, int], float]  # GB/s of two ranks, the lower one first


class Trait(NamedTuple):
    """A number of a node, or of each of its devices, that is about the same on all nodes of a job."""

    words: str
    share: float  # of the median; a node that has less is unfit
    unit: str = ""
    scale: float = 1.0  # of the unit
    enough: float = math.inf  # more counts as much


TRAITS: Mapping[str, Trait] = {
    "main_memory_bytes": Trait("memory", 0.98, " GiB", 2.0**30),
    "node_cores": Trait("cores", 0.999),
    "clock_cap_mhz": Trait("cap of the clock", 0.98, " MHz"),
    "product_gflop_s": Trait("matrix products", 0.8, " GFLOP/s"),
    "copy_gb_s": Trait("copies in memory", 0.7, " GB/s"),
    "link_gb_s": Trait("its fastest exchange with another node", 0.5, " GB/s"),
    "shm_free_bytes": Trait("room in /dev/shm", 0.1, " GiB", 2.0**30, enough=10.0),
    "disk_free_bytes": Trait("room in its temporary folder", 0.1, " GiB", 2.0**30, enough=10.0),
}


class Verdict(NamedTuple):
    """Why each unfit node is that, by its name, and what is wrong without saying which node is."""

    unfit: Dict[str, str]
    warnings: List[str]


def main(arguments: Sequence[str]) -> int:
    """Vet the nodes of this job. Returns 0, also where that did not work; UNFIT without --unfit, on the first rank."""
    parser = argparse.ArgumentParser(prog="vet job", description=__doc__)
    parser.add_argument("--unfit", metavar="FILE", help="where the first rank writes which nodes are unfit")
    parser.add_argument("--known", default="", metavar="NAMES", help="variables that are meant to be set, with commas")
    options = parser.parse_args(list(arguments))
    began_s = time.monotonic()
    look = facts(os.environ, options.known.split(","))
    late = threading.Timer(GIVE_UP_S, _give_up, [look])
    late.daemon = True
    late.start()
    try:
        world = detect(os.environ)
        looks, slow = _measure(look, world, began_s + PAIRS_UNTIL_S)
    except Exception as error:  # a job must not fail because of this
        _not_vetted(look, first_line(error))
        return 0
    finally:
        late.cancel()
    verdict = judged(looks, slow)
    is_first = world.rank == 0
    _write(look, verdict.unfit.get(look["node"], ""), verdict.warnings if is_first else ())
    if not is_first:
        return 0
    _tell(looks, verdict, time.monotonic() - began_s)
    if not options.unfit:
        return vet.UNFIT if verdict.unfit else 0
    if verdict.unfit:
        try:
            with open(options.unfit, "w", encoding="utf-8") as file:
                file.write(one_word(verdict.unfit))
        except OSError as error:
            print(f"vet: the job goes on, since {options.unfit} cannot be written: {error.strerror}", flush=True)
    return 0


def _give_up(look: Look) -> None:
    """End this process from the timer's thread: an exception would not reach one that waits in a collective.

    Nothing is imported here, since what this process waits for may be its own import of torch.
    """
    _not_vetted(look, f"not all nodes have answered after {GIVE_UP_S:.0f} s")
    os._exit(0)


def _not_vetted(look: Look, why: str) -> None:
    _write(look, "", [f"not vetted: {why}"])
    print(f"vet: {look['node']} is not vetted: {why}", flush=True)


def _measure(look: Look, world: World, deadline_s: float) -> Tuple[List[Look], Pairs]:
    """Measure on all nodes at once. Returns the looks of all, in order of rank, and the slow pairs."""
    from models.ranks import Ranks  # imported late, because torch takes seconds to import

    ranks = Ranks(world)
    try:
        ranks.connect("gloo", None, lambda failure: print(f"vet: {failure.text}", flush=True))
        _measure_devices(look)
        ranks.barrier()
        look["clock_s"] = round(time.time(), 3)
        suspects = judged(ranks.gather(look), {}).unfit  # the same on all ranks
        if suspects:
            if look["node"] in suspects:
                _measure_devices(look)
            ranks.barrier()
        pairs, slow = pair_rates(ranks, deadline_s)
        own = [rate for pair, rate in pairs.items() if world.rank in pair]
        if len(own) > 1:  # of one pair nothing says which of the two is slow
            look["link_gb_s"] = max(own)
        looks: List[Look] = ranks.gather(look)
        ranks.part()
    except RuntimeError as error:  # of torch, as where another rank has ended
        raise CommandError(f"the nodes do not reach each other: {first_line(error)}") from None
    looks[world.rank] = look
    return looks, slow


def _measure_devices(look: Look) -> None:
    """Measure the devices of this node. Of two times the better one counts: another process may have had a moment."""
    try:
        rates = device_rates()
    except RuntimeError as error:  # of a device; the other ranks go on
        look["device_error"] = first_line(error)
        return
    for key, found in rates.items():
        is_again = key in look and isinstance(found, list)
        look[key] = [max(pair) for pair in zip(look[key], found)] if is_again else found


def _write(look: Look, unfit: str, warnings: Sequence[str]) -> None:
    wire = Wire(node.node_number(os.environ))
    wire.lines = FIRST_LINE
    found = {**look, "unfit": unfit, "warnings": list(warnings)}
    known = {name: value for name, value in found.items() if value not in (None, "", []) and name != "node"}
    wire.emit("hpcml_node", {"node": look["node"], "part": "vet", "facts": known}, file=node.WRITER)


def _tell(looks: Sequence[Look], verdict: Verdict, seconds: float) -> None:
    """Print for people, and for tests of one node, what was found."""
    for name, why in verdict.unfit.items():
        print(f"vet: {name} is unfit: {why}")
    for text in verdict.warnings:
        print(f"vet: {text}")
    if len(looks) == 1:
        rates = zip(looks[0].get("product_gflop_s", ()), looks[0].get("copy_gb_s", ()))
        for number, (product, copied) in enumerate(rates):
            print(f"vet: device {number}: matrix products {product:.3f} GFLOP/s, copies {copied:.3f} GB/s")
    print(f"vet: {len(looks) - len(verdict.unfit)} of {len(looks)} nodes fit, after {seconds:.1f} s", flush=True)


def one_word(unfit: Mapping[str, str]) -> str:
    """Return the nodes and reasons as one word of a file, as `n07:memory_128_GiB;n09:…`."""
    return ";".join(f"{name}:{why}".replace(";", ",").replace(" ", "_") for name, why in unfit.items())


# --- one node ---------------------------------------------------------------------------------------------------------


def facts(environ: Mapping[str, str], known: Sequence[str] = (), root: str = "/") -> Look:
    """What is known of this node without measuring. A fact that cannot be read is None.

    leaked: variables that slow a job down or change its network, without those that are `known` to be meant.
    """
    meant = {*known, *node.VERSION_VARIABLES.values()}
    names = {name for name in environ if name in LEAKS or name.startswith(LEAK_PREFIX)} - meant
    return {
        "node": node.node_name(environ),
        "leaked": [f"{name}={environ[name][:60]}" for name in sorted(names)],
        "main_memory_bytes": host.main_memory_bytes(root),
        "node_cores": host.node_cores(root),
        "clock_cap_mhz": host.health(root)["clock_cap_mhz"],
        "shm_free_bytes": _free("/dev/shm"),
        "disk_free_bytes": _free(environ.get("TMPDIR", "/tmp")),
    }


def _free(folder: str) -> Optional[int]:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def device_rates() -> Look:
    """Measure products and copies on each GPU that torch sees, one after the other; without GPUs on the processor."""
    import torch

    from models import accelerators
    from models.dtypes import TORCH_DTYPES

    accelerator = accelerators.choose("auto")
    if accelerator.type == "cpu":
        threads = host.physical_cores(host.AFFINITY) or host.own_cores()
        torch.set_num_threads(threads)
        rates = [_rates(accelerator, torch.float32, 1024 if threads < 16 else 4096)]
    else:
        rates = []
        count = torch.cuda.device_count()
        for number in range(count):
            accelerator.select(World(rank=number, size=count, local_rank=number, local_size=count))
            rates.append(_rates(accelerator, TORCH_DTYPES[accelerator.dtypes()[0]], 8192))
    products = [product for product, _ in rates]
    return {"devices": len(rates), "product_gflop_s": products, "copy_gb_s": [copied for _, copied in rates]}


def _rates(accelerator: Any, dtype: Any, rows: int) -> Tuple[float, float]:
    """Return the GFLOP/s of products of square matrices and the GB/s that a copy reads and writes, on one device."""
    import torch

    with torch.no_grad():
        matrix = torch.rand((rows, rows), device=accelerator.device).to(dtype)
        product_s = seconds_of(lambda: torch.mm(matrix, matrix), accelerator.synchronize, PRODUCT_S)
        source = torch.ones(COPY_BYTES, dtype=torch.uint8, device=accelerator.device)
        target = torch.zeros_like(source)
        copy_s = seconds_of(lambda: target.copy_(source), accelerator.synchronize, COPY_S)
    return round(2.0 * rows**3 / product_s / 1e9, 3), round(2.0 * COPY_BYTES / copy_s / 1e9, 3)


def seconds_of(work: Callable[[], Any], synchronize: Callable[[], None], longest_s: float) -> float:
    """Return the median time of one call, of as many as take `longest_s`, at least three; the first is not timed."""
    work()
    synchronize()
    times = [time.perf_counter()]
    while len(times) < 4 or times[-1] - times[0] < longest_s:
        work()
        synchronize()
        times.append(time.perf_counter())
    return statistics.median(after - before for before, after in zip(times, times[1:]))


# --- pairs of nodes ---------------------------------------------------------------------------------------------------


def rounds(size: int) -> List[List[Tuple[int, int]]]:
    """Return the rounds of a tournament in which each rank meets each other one once, and one rank at a time.

    The first place stays, and the others go round. Of an odd number one rests in each round.
    """
    places = list(range(size + size % 2))
    found = []
    for _ in range(len(places) - 1):
        facing = zip(places[: len(places) // 2], reversed(places))
        found.append([(min(pair), max(pair)) for pair in facing if max(pair) < size])
        places = [places[0], places[-1], *places[1:-1]]
    return found


def pair_rates(ranks: Any, deadline_s: float) -> Tuple[Pairs, Pairs]:
    """Exchange data between all pairs of ranks, as far as there is time. Returns all and the slow ones, on all ranks.

    Each round has half as many pairs as there are ranks, so that all links are busy, as in a collective. The slowest
    pairs then exchange again, one after the other: only what is slow alone, too, or too slow for that, is a bad link.
    """
    own: Dict[Tuple[int, int], float] = {}
    for pairs in rounds(ranks.size):
        begin_s = time.monotonic()
        own.update({pair: _exchange(ranks.rank, pair, PAIR_TIMES) for pair in pairs if ranks.rank in pair})
        end_s = time.monotonic()
        said = ranks.gather((end_s - begin_s, deadline_s - end_s))  # all must decide the same
        if max(round_s for round_s, _ in said) > min(left_s for _, left_s in said):
            break
    found = _merged(ranks.gather(own))
    suspects = slow_pairs(found)
    for pair in suspects:
        needed_s = 2 * PAIR_BYTES * ALONE_TIMES / found[pair] / 1e9
        if min(ranks.gather(deadline_s - time.monotonic())) > needed_s and ranks.rank in pair:
            own[pair] = max(own[pair], _exchange(ranks.rank, pair, ALONE_TIMES))
    found = _merged(ranks.gather(own))
    return found, {pair: found[pair] for pair in slow_pairs(found) if pair in suspects}


def _merged(rates: Sequence[Pairs]) -> Pairs:
    return {pair: rate for of_rank in rates for pair, rate in of_rank.items()}


def slow_pairs(pairs: Pairs) -> List[Tuple[int, int]]:
    """Return some pairs that are slow while both are fast with others: a cable or a switch between them, or a route."""
    best: Dict[int, float] = {}
    for pair, rate in pairs.items():
        for rank in pair:
            best[rank] = max(rate, best.get(rank, 0.0))
    slow = [pair for pair, rate in pairs.items() if rate < PAIR_SHARE * min(best[rank] for rank in pair)]
    return sorted(slow, key=lambda pair: pairs[pair])[:PAIRS_ALONE]


def _exchange(rank: int, pair: Tuple[int, int], times: int) -> float:
    """Return the GB/s of the fastest of some exchanges: there, and then back. A link that is slow one way is slow."""
    import torch
    import torch.distributed as dist

    data = torch.zeros(PAIR_BYTES, dtype=torch.uint8)
    seconds = []
    for _ in range(times):
        begin_s = time.perf_counter()
        for sender in pair:
            if rank == sender:
                dist.send(data, sum(pair) - rank)
            else:
                dist.recv(data, sender)
        seconds.append(time.perf_counter() - begin_s)
    return round(2 * PAIR_BYTES / min(seconds[1:]) / 1e9, 4)


# --- all nodes beside each other --------------------------------------------------------------------------------------


def judged(looks: Sequence[Look], slow: Pairs) -> Verdict:
    """Say which nodes are far below the median of the job, and what is wrong of which no node can be named.

    slow: pairs, and their GB/s.
    """
    reasons: Dict[str, List[str]] = {}
    for key in TRAITS:
        for name, text in _low(looks, key):
            reasons.setdefault(name, []).append(text)
    errors = {look["node"]: f"its device fails: {look['device_error']}" for look in looks if "device_error" in look}
    warnings = []
    if len(looks) >= FEWEST and len(errors) < len(looks) / 2:
        for name, text in errors.items():
            reasons.setdefault(name, []).append(text)
    else:  # if most or only few nodes have one, it may come from the torch, or from what the job asked for
        warnings = [f"{name}: {text}" for name, text in errors.items()]
    unfit = {name: ", ".join(texts) for name, texts in reasons.items()}
    of_fit = {pair: rate for pair, rate in slow.items() if not any(looks[rank]["node"] in unfit for rank in pair)}
    return Verdict(unfit, [*warnings, *_clocks(looks), *_leaks(looks), *_slow_links(looks, of_fit)])


def _low(looks: Sequence[Look], key: str) -> List[Tuple[str, str]]:
    """Return the nodes with a value far below the median of all nodes, or of all devices, and a text."""
    trait = TRAITS[key]
    values: List[Tuple[str, str, float]] = []
    for look in looks:
        found = look.get(key)
        of_devices = found if isinstance(found, list) else [found]
        for number, value in enumerate(of_devices):
            if value is not None:
                words = trait.words if len(of_devices) == 1 else f"{trait.words} of device {number}"
                values.append((look["node"], words, min(value / trait.scale, trait.enough)))
    if len(values) < FEWEST:
        return []
    usual = statistics.median(value for _, _, value in values)
    return [
        (name, f"{words} {value:.4g}{trait.unit} (usual {usual:.4g})")
        for name, words, value in values
        if value < trait.share * usual
    ]


def _clocks(looks: Sequence[Look]) -> List[str]:
    usual_s = statistics.median(look["clock_s"] for look in looks)
    ahead_s = {look["node"]: look["clock_s"] - usual_s for look in looks}
    return [f"the clock of {name} is {s:+.1f} s off" for name, s in ahead_s.items() if abs(s) > CLOCK_S]


def _leaks(looks: Sequence[Look]) -> List[str]:
    nodes: Dict[str, List[str]] = {}
    for look in looks:
        for variable in look["leaked"]:
            nodes.setdefault(variable, []).append(look["node"])
    if not nodes:
        return []
    listed = ", ".join(f"{variable} on {len(names)} of {len(looks)} nodes" for variable, names in nodes.items())
    return [f"leaked: {listed}; `env:` of the platform does not set that"]


def _slow_links(looks: Sequence[Look], slow: Pairs) -> List[str]:
    texts = []
    for (low, high), rate in slow.items():
        names = f"{looks[low]['node']} and {looks[high]['node']}"
        least = min(looks[rank]["link_gb_s"] for rank in (low, high))
        texts.append(f"slow link: {names} exchange {rate:.3g} GB/s, and each of them {least:.3g} with others")
    return texts
