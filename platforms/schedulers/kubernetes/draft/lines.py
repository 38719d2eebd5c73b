"""What a cluster says of itself as lines of a platform's file; what only a person knows is commented out, as TODO."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from platforms.config.draft import DraftLine, written
from platforms.config.values import RESERVED_MARKS, clock
from platforms.schedulers.kubernetes.draft import volumes
from platforms.schedulers.kubernetes.draft.cluster import Cluster, Pool, unit_of
from platforms.schedulers.kubernetes.draft.share import Share, amount, choose, share_of
from platforms.schedulers.kubernetes.objects.capacity import Limit, Taint, amounts
from platforms.schedulers.machine_draft.lines import AMD, HOUR_S, MOST_RUNNING, NVIDIA

DEFAULT_RESOURCES = ("", "nvidia.com/gpu", "graphcore.ai/ipu")
# By a resource's vendor; a person must decide.
IMAGES = {
    "nvidia.com": "nvcr.io/nvidia/pytorch:26.05-py3",
    "amd.com": "rocm/pytorch:latest",
    "graphcore.ai": "graphcore/pytorch:3.3.0",
    "": "pytorch/pytorch:latest",
}
_FAMILIES = re.compile(r"nvidia|tesla|gtx|rtx", re.IGNORECASE)
_PAIR = re.compile(r"([\w./-]+): \"?([^,{}\"]+)")


@dataclass(frozen=True)
class ClusterWish:
    """What the command line decides: which cluster, as it is to be written down, and which devices."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    product: str | None = None
    replaces: bool = False


def lines(cluster: Cluster, wish: ClusterWish, taken_marks: Collection[str]) -> list[DraftLine]:
    """Every line of the file, in its order. Raises ConfigError when no node has such a product.

    `taken_marks` are names of other platforms, which no mark may be.
    """
    pool = choose(cluster, wish.product)
    share = share_of(cluster, pool)
    return [
        *_what(cluster, wish),
        *_hardware(cluster, pool, share),
        DraftLine(("marks",), f"[{', '.join(_marks(pool, taken_marks))}]", "for -m, beside the platform's own name"),
        DraftLine(("time_limit",), clock(HOUR_S)),
        *_running(cluster, pool, share),
        DraftLine(("data_dir",), volumes.MOUNT, "where the pods see the volume of the data sets"),
        *_where(cluster, wish, pool),
        *_queue(cluster),
        *_image(pool),
        *_nodes(cluster, pool),
        *_size(cluster, pool, share),
        *volumes.lines(cluster),
        *_most(cluster),
    ]


def pairs(text: str) -> dict[str, str]:
    """`{a: b, c: d}`, as it stands in one line of a file."""
    return dict(_PAIR.findall(text))


# --- the lines -------------------------------------------------------------------------------------------------------


def _what(cluster: Cluster, wish: ClusterWish) -> Iterator[DraftLine]:
    if wish.replaces:
        yield DraftLine(("replaces",), "true", "the suite ships a file of this name")
    kueue = f", Kueue {cluster.kueue}" if cluster.kueue else ""
    yield DraftLine(("scheduler",), "kubernetes", f"Kubernetes {cluster.version}{kueue}")


def _hardware(cluster: Cluster, pool: Pool, share: Share) -> Iterator[DraftLine]:
    alike = [one.count for one in cluster.pools if (one.resource, one.product) == (pool.resource, pool.product)]
    each, quota = max(1, pool.count, *alike), cluster.limit(pool.resource) if pool.count else None
    seen = f"nodes: {pool}" if pool.nodes else f"TODO {_unseen(cluster)}"
    yield DraftLine(("device",), pool.unit, seen, fits=(lambda said: said == pool.unit) if pool.nodes else None)

    def fits(said: str) -> bool:
        found = [(int(nodes), int(devices)) for nodes, devices in re.findall(r"(\d+)x(\d+)", said)]
        most = quota.most if quota else float("inf")
        return all(devices <= each and nodes * devices <= most for nodes, devices in found)

    origin = f"nodes x {'devices' if pool.count else 'sockets'} a node"
    if quota and share.count < pool.count:
        origin += f"; {quota.of} allows {quota.most:.0f} of {pool.count}"
    elif share.count < pool.count:
        origin += "; a process can use one part of a MIG device"
    yield DraftLine(("layouts", "default"), f"[1x{max(1, share.count)}]", origin, fits=fits if pool.nodes else None)
    if share.threads:
        origin = f"cores of a pod, among {max(1, share.count)}; torch sees those of the whole node"
        yield DraftLine(("threads_per_rank",), str(share.threads), origin)


def _unseen(cluster: Cluster) -> str:
    """Why nothing is known of the nodes."""
    why = cluster.hidden.get("nodes")
    return f"nodes may not be seen ({why})" if why else "no node is ready"


def _marks(pool: Pool, taken: Collection[str]) -> list[str]:
    """Words that -m can name: the device, its vendor, Kubernetes."""
    parts = re.findall(r"[A-Za-z0-9]+", pool.product)
    models = [part for part in parts if (NVIDIA.fullmatch(part) or AMD.fullmatch(part)) and not _FAMILIES.match(part)]
    mig = ["mig"] if "MIG" in pool.product or "/mig-" in pool.resource else []
    vendor = [pool.resource.partition(".")[0]] if pool.count else ["cpu"]
    words = [word.lower() for word in (*models[:1], *mig, *vendor, "kubernetes")]
    return [word for word in dict.fromkeys(words) if word not in RESERVED_MARKS and word not in taken]


def _running(cluster: Cluster, pool: Pool, share: Share) -> Iterator[DraftLine]:
    """Beyond a ResourceQuota pods are refused; Kueue lets them wait."""
    needs = {"pods": 1.0, "count/jobs.batch": 1.0, pool.resource: float(share.count)}
    needs |= {name: one[0] for name, one in (("cpu", share.cpu), ("memory", share.memory)) if one}
    limits = [limit for limit in cluster.limits if limit.of.startswith("ResourceQuota") and needs.get(limit.resource)]
    found = [(max(1, int(limit.most // needs[limit.resource])), limit) for limit in limits]
    if found:
        most, limit = min(found, key=lambda one: one[0])
        if most < MOST_RUNNING:
            origin = f"{limit.of}: {limit.key} {amount(limit.resource, limit.most)}"
            yield DraftLine(("max_running",), str(most), origin, fits=lambda said: said.isdigit() and int(said) <= most)


def _where(cluster: Cluster, wish: ClusterWish, pool: Pool) -> Iterator[DraftLine]:
    if wish.kubeconfig:
        yield DraftLine(("kubernetes", "kubeconfig"), written(wish.kubeconfig), "--kubeconfig")
    origin = "--context" if wish.context else "kubeconfig: the current one"
    yield DraftLine(("kubernetes", "context"), written(cluster.context), origin)
    origin = "--namespace" if wish.namespace else "kubeconfig: the context's"
    if cluster.security:
        origin += f"; it enforces the Pod Security Standard {cluster.security}"
    yield DraftLine(("kubernetes", "namespace"), written(cluster.namespace), origin)
    if pool.unit == "ipu":
        ipus = "the cluster has IPUJobs; IPUs come by powers of two"
        forbidden = cluster.security in ("restricted", "baseline")
        barred = "TODO they need hostIPC, which the namespace's Pod Security Standard forbids; " if forbidden else ""
        yield DraftLine(("kubernetes", "kind"), "ipujob", barred + ipus)


def _queue(cluster: Cluster) -> Iterator[DraftLine]:
    key, names = ("kubernetes", "queue"), [queue.name for queue in cluster.queues]
    if cluster.queues:
        queue = min(cluster.queues, key=lambda one: bool(one.away))
        others = f"; others: {', '.join(name for name in names if name != queue.name)}" if len(names) > 1 else ""
        away = f"TODO it takes no jobs now ({queue.away}); " if queue.away else ""
        origin = f"{away}Kueue: LocalQueue of ClusterQueue {queue.cluster_queue}{others}"
        yield DraftLine(key, written(queue.name), origin, fits=lambda said: said in names)
    elif "localqueues" in cluster.hidden:
        yield DraftLine(key, "default", f"TODO Kueue is there: {cluster.hidden['localqueues']}", todo=True)
    if cluster.priorities:
        ordered = sorted(cluster.priorities, key=lambda name: (cluster.priorities[name], name))
        shown = ", ".join(f"{name} ({cluster.priorities[name]})" for name in ordered)
        default = f"; without it {cluster.default_priority}" if cluster.default_priority else ""
        origin = f"TODO if it matters, one of {shown}{default}"
        yield DraftLine(("kubernetes", "priority_class"), written(ordered[0]), origin, todo=True)


def _image(pool: Pool) -> Iterator[DraftLine]:
    needs = "Python 3.8 or newer, torch 2, numpy, h5py and Pillow"
    origin = f"TODO an image that has {needs}; best by its digest: NAME@sha256:…"
    yield DraftLine(("kubernetes", "image"), IMAGES.get(pool.resource.partition("/")[0], IMAGES[""]), origin, todo=True)
    if pool.resource not in DEFAULT_RESOURCES:
        origin, same = f"nodes: {pool}", pool.resource
        yield DraftLine(("kubernetes", "resource"), same, origin, fits=lambda said: said == same)


def _nodes(cluster: Cluster, pool: Pool) -> Iterator[DraftLine]:
    key = ("kubernetes", "node_selector")
    if pool.product:
        others = [str(other) for other in cluster.pools if other is not pool and other.count]
        more = f"; others: {', '.join(others[:12])} (--product names one)" if others else ""
        origin = f"nodes: {pool.nodes} {'has' if pool.nodes == 1 else 'have'} it{more}"
        value = f"{{{pool.label}: {written(pool.product)}}}"
        yield DraftLine(key, value, origin, fits=_selects({one.product for one in cluster.pools}, pool.label))
    elif pool.unit == "gpu" and not pool.nodes:
        label = "amd.com/gpu.product-name" if pool.resource.startswith("amd.") else "nvidia.com/gpu.product"
        yield DraftLine(key, f"{{{label}: NAME}}", f"TODO which device: {_unseen(cluster)}", todo=True)
    if pool.taints:
        value = ", ".join(map(_toleration, pool.taints))
        mine = all(unit_of(taint.key) for taint in pool.taints)
        origin = "nodes: taints of all of them" + ("" if mine else "; TODO are they meant for you?")
        keys = {taint.key for taint in pool.taints}
        yield DraftLine(
            ("kubernetes", "tolerations"),
            f"[{value}]",
            origin,
            fits=lambda said: all(f"key: {each}" in said for each in keys) or "key:" not in said,
        )


def _selects(products: Collection[str], label: str) -> Callable[[str], bool]:
    """Whether a file's selector names a product that nodes have, or none."""

    def fits(said: str) -> bool:
        named = pairs(said).get(label)
        return named is None or named in products

    return fits


def _toleration(taint: Taint) -> str:
    value = f"operator: Equal, value: {written(taint.value)}" if taint.value else "operator: Exists"
    return f"{{key: {taint.key}, {value}, effect: {taint.effect}}}"


def _size(cluster: Cluster, pool: Pool, share: Share) -> Iterator[DraftLine]:
    for what, one, there in (("cpu", share.cpu, pool.cpu), ("memory", share.memory, pool.memory)):
        if one is None:
            example = amount(what, 8 * 2**30 if what == "memory" else 8)
            yield DraftLine(("kubernetes", what), example, f"TODO how much of a node: {_unseen(cluster)}", todo=True)
            continue
        tops = [limit.most for limit in (cluster.limit(what), cluster.largest_of(what)) if limit]
        most = min([*tops, *([there] if there else [])])
        yield _part(what, what, one[0], one[1], share.count, most)
    memory = share.memory[0] if share.memory else 64 * 2**30
    yield _part("shm", "memory", min(64 * 2**30, memory / 4), "part of memory; loaders need it", share.count, None)


def _part(key: str, what: str, most: float, origin: str, devices: int, limit: float | None) -> DraftLine:
    """What a pod gets; where nodes have devices, so much for each of them, whatever the layout."""
    whole = DraftLine(("kubernetes", key), amount(what, most), origin, fits=_at_most(limit) if limit else None)
    if not devices:
        return whole
    origin = f"{origin}, among {devices}" if devices > 1 else origin
    each = amount(what, most / devices)
    # how many of them a layout takes is a choice: one device's share is what must fit
    return DraftLine(("kubernetes", f"{key}_per_device"), each, origin, fits=whole.fits, instead=whole)


def _at_most(most: float) -> Callable[[str], bool]:
    return lambda said: amounts({"it": said}).get("it", float("inf")) <= most


def _most(cluster: Cluster) -> Iterator[DraftLine]:
    least: dict[str, Limit] = {}
    for limit in cluster.largest:
        if limit.key not in least or limit.most < least[limit.key].most:
            least[limit.key] = limit
    if least:
        shown = ", ".join(f"{key}: {amount(key, limit.most)}" for key, limit in least.items())
        wanted = amounts(pairs(shown))
        origin = ", ".join(dict.fromkeys(limit.of for limit in least.values()))
        fits = lambda said: amounts(pairs(said)) == wanted  # noqa: E731
        yield DraftLine(("policy", "most"), f"{{{shown}}}", origin, fits=fits)
