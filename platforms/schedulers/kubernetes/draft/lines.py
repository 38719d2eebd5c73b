"""The lines of a platform's file for a cluster. What only a person knows is commented out and marked with TODO."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from platforms.config.draft import DraftLine, written
from platforms.config.values import RESERVED_MARKS, clock
from platforms.schedulers.kubernetes.draft import volumes
from platforms.schedulers.kubernetes.draft.inventory import ClusterInventory, Pool, unit_of
from platforms.schedulers.kubernetes.draft.share import PodShare, amount, choose, share_of
from platforms.schedulers.kubernetes.objects.capacity import Limit, Taint, amounts
from platforms.schedulers.machine_draft.lines import AMD, HOUR_S, MOST_RUNNING, NVIDIA

DEFAULT_RESOURCES = ("", "nvidia.com/gpu", "graphcore.ai/ipu")
# Proposals by the vendor of a resource; a person must decide.
IMAGES = {
    "nvidia.com": "nvcr.io/nvidia/pytorch:26.05-py3",
    "amd.com": "rocm/pytorch:latest",
    "graphcore.ai": "graphcore/pytorch:3.3.0",
    "": "pytorch/pytorch:latest",
}
_FAMILIES = re.compile(r"nvidia|tesla|gtx|rtx", re.IGNORECASE)
_PAIR = re.compile(r"([\w./-]+): \"?([^,{}\"]+)")
GIB = 2**30


@dataclass(frozen=True)
class ClusterChoices:
    """The choices of the command line: the cluster, as the file names it, and the devices."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    product: str | None = None
    replaces: bool = False


def lines(cluster: ClusterInventory, choices: ClusterChoices, taken_marks: Collection[str]) -> list[DraftLine]:
    """Every line of the file, in its order. Raises ConfigError when no node has the chosen product.

    Args:
        taken_marks: the names of other platforms, which no mark may be.
    """
    pool = choose(cluster, choices.product)
    share = share_of(cluster, pool)
    marks = ", ".join(_marks(pool, taken_marks))
    return [
        *_scheduler(cluster, choices),
        *_hardware(cluster, pool, share),
        DraftLine(("marks",), f"[{marks}]", "for -m, beside the platform's own name"),
        DraftLine(("time_limit",), clock(HOUR_S)),
        *_max_running(cluster, pool, share),
        DraftLine(("data_dir",), volumes.MOUNT, "where the pods see the volume of the data sets"),
        *_namespace(cluster, choices, pool),
        *_queue(cluster, pool),
        *_image(pool),
        *_nodes(cluster, pool),
        *_pod_size(cluster, pool, share),
        *volumes.lines(cluster),
        *_policy(cluster),
    ]


def pairs(text: str) -> dict[str, str]:
    """The pairs of `{a: b, c: d}`, as it stands in one line of a file."""
    return dict(_PAIR.findall(text))


# --- the lines -------------------------------------------------------------------------------------------------------


def _scheduler(cluster: ClusterInventory, choices: ClusterChoices) -> Iterator[DraftLine]:
    if choices.replaces:
        yield DraftLine(("replaces",), "true", "the suite ships a file of this name")
    origin = f"Kubernetes {cluster.version}"
    if cluster.kueue:
        origin += f", Kueue {cluster.kueue}"
    yield DraftLine(("scheduler",), "kubernetes", origin)


def _hardware(cluster: ClusterInventory, pool: Pool, share: PodShare) -> Iterator[DraftLine]:
    same_device = [
        other.count for other in cluster.pools if (other.resource, other.product) == (pool.resource, pool.product)
    ]
    most_per_node = max(1, pool.count, *same_device)
    quota = cluster.limit(pool.resource) if pool.count else None

    def device_fits(value: str) -> bool:
        return value == pool.unit

    def layout_fits(value: str) -> bool:
        for nodes, devices in re.findall(r"(\d+)x(\d+)", value):
            if int(devices) > most_per_node:
                return False
            if quota and int(nodes) * int(devices) > quota.most:
                return False
        return True

    origin = f"nodes x {'devices' if pool.count else 'sockets'} a node"
    if share.count < pool.count and quota:
        origin += f"; {quota.of} allows {quota.most:.0f} of {pool.count}"
    elif share.count < pool.count:
        origin += "; a process can use one part of a MIG device"
    layouts = f"[1x{max(1, share.count)}]"
    if pool.nodes:
        yield DraftLine(("device",), pool.unit, f"nodes: {pool}", fits=device_fits)
        yield DraftLine(("layouts", "default"), layouts, origin, fits=layout_fits)
    else:
        yield DraftLine(("device",), pool.unit, f"TODO {_why_unseen(cluster)}")
        yield DraftLine(("layouts", "default"), layouts, origin)
    if share.threads:
        origin = f"cores of a pod, among {max(1, share.count)}; torch sees those of the whole node"
        yield DraftLine(("threads_per_rank",), str(share.threads), origin)


def _why_unseen(cluster: ClusterInventory) -> str:
    """Explain why nothing is known about the nodes."""
    refusal = cluster.hidden.get("nodes")
    return f"nodes may not be seen ({refusal})" if refusal else "no node is ready"


def _marks(pool: Pool, taken: Collection[str]) -> list[str]:
    """Words that -m can name: the device, its vendor, Kubernetes."""
    words = []
    for part in re.findall(r"[A-Za-z0-9]+", pool.product):
        is_model = NVIDIA.fullmatch(part) or AMD.fullmatch(part)
        if is_model and not _FAMILIES.match(part):
            words.append(part.lower())
            break
    if "MIG" in pool.product or "/mig-" in pool.resource:
        words.append("mig")
    words.append(pool.resource.partition(".")[0].lower() if pool.count else "cpu")
    words.append("kubernetes")
    return [word for word in dict.fromkeys(words) if word not in RESERVED_MARKS and word not in taken]


def _max_running(cluster: ClusterInventory, pool: Pool, share: PodShare) -> Iterator[DraftLine]:
    """Compute how many jobs ResourceQuotas admit: they refuse pods beyond that, while Kueue lets them wait."""
    needs = {"pods": 1.0, "count/jobs.batch": 1.0, pool.resource: float(share.count)}
    if share.cpu:
        needs["cpu"] = share.cpu[0]
    if share.memory:
        needs["memory"] = share.memory[0]
    jobs_by_limit: list[tuple[int, Limit]] = []
    for limit in cluster.limits:
        need = needs.get(limit.resource)
        if need and limit.of.startswith("ResourceQuota"):
            jobs_by_limit.append((max(1, int(limit.most // need)), limit))
    if not jobs_by_limit:
        return
    most, limit = min(jobs_by_limit, key=lambda entry: entry[0])
    if most < MOST_RUNNING:
        origin = f"{limit.of}: {limit.key} {amount(limit.resource, limit.most)}"
        yield DraftLine(("max_running",), str(most), origin, fits=lambda value: value.isdigit() and int(value) <= most)


def _namespace(cluster: ClusterInventory, choices: ClusterChoices, pool: Pool) -> Iterator[DraftLine]:
    if choices.kubeconfig:
        yield DraftLine(("kubernetes", "kubeconfig"), written(choices.kubeconfig), "--kubeconfig")
    origin = "--context" if choices.context else "kubeconfig: the current one"
    yield DraftLine(("kubernetes", "context"), written(cluster.context), origin)
    origin = "--namespace" if choices.namespace else "kubeconfig: the context's"
    if cluster.security:
        origin += f"; it enforces the Pod Security Standard {cluster.security}"
    yield DraftLine(("kubernetes", "namespace"), written(cluster.namespace), origin)
    if pool.unit == "ipu":
        origin = "the cluster has IPUJobs; IPUs come by powers of two"
        if cluster.security in ("restricted", "baseline"):
            origin = f"TODO they need hostIPC, which the namespace's Pod Security Standard forbids; {origin}"
        yield DraftLine(("kubernetes", "kind"), "ipujob", origin)


def _queue(cluster: ClusterInventory, pool: Pool) -> Iterator[DraftLine]:
    key = ("kubernetes", "queue")
    names = [queue.name for queue in cluster.queues]
    if cluster.queues:
        queue = min(cluster.queues, key=lambda queue: bool(queue.away))
        origin = f"Kueue: LocalQueue of ClusterQueue {queue.cluster_queue}"
        needed = [resource for resource in (pool.resource, "cpu", "memory") if resource]
        missing = [resource for resource in needed if queue.covers is not None and resource not in queue.covers]
        if missing:
            said = f"ClusterQueue {queue.cluster_queue} does not cover {', '.join(missing)}"
            origin = f"TODO {said}, so Kueue never admits such a job; {origin}"
        if queue.away:
            origin = f"TODO it takes no jobs now ({queue.away}); {origin}"
        if len(names) > 1:
            origin += f"; others: {', '.join(name for name in names if name != queue.name)}"
        yield DraftLine(key, written(queue.name), origin, fits=lambda value: value in names)
    elif "localqueues" in cluster.hidden:
        yield DraftLine(key, "default", f"TODO Kueue is there: {cluster.hidden['localqueues']}", todo=True)
    if cluster.priorities:
        ordered = sorted(cluster.priorities, key=lambda name: (cluster.priorities[name], name))
        classes = ", ".join(f"{name} ({cluster.priorities[name]})" for name in ordered)
        origin = f"TODO if it matters, one of {classes}"
        if cluster.default_priority:
            origin += f"; without it {cluster.default_priority}"
        yield DraftLine(("kubernetes", "priority_class"), written(ordered[0]), origin, todo=True)


def _image(pool: Pool) -> Iterator[DraftLine]:
    vendor = pool.resource.partition("/")[0]
    needs = "Python 3.8 or newer, torch 2, numpy, h5py and Pillow"
    origin = f"TODO an image that has {needs}; best by its digest: NAME@sha256:…"
    yield DraftLine(("kubernetes", "image"), IMAGES.get(vendor, IMAGES[""]), origin, todo=True)
    if pool.resource not in DEFAULT_RESOURCES:
        yield DraftLine(
            ("kubernetes", "resource"), pool.resource, f"nodes: {pool}", fits=lambda value: value == pool.resource
        )


def _nodes(cluster: ClusterInventory, pool: Pool) -> Iterator[DraftLine]:
    key = ("kubernetes", "node_selector")
    if pool.product:
        origin = f"nodes: {pool.nodes} {'has' if pool.nodes == 1 else 'have'} it"
        others = [str(other) for other in cluster.pools if other is not pool and other.count]
        if others:
            origin += f"; others: {', '.join(others[:12])} (--product names one)"
        value = f"{{{pool.label}: {written(pool.product)}}}"
        products = {other.product for other in cluster.pools}
        yield DraftLine(key, value, origin, fits=_selects_one_of(products, pool.label))
    elif pool.unit == "gpu" and not pool.nodes:
        label = "amd.com/gpu.product-name" if pool.resource.startswith("amd.") else "nvidia.com/gpu.product"
        yield DraftLine(key, f"{{{label}: NAME}}", f"TODO which device: {_why_unseen(cluster)}", todo=True)
    if pool.taints:
        yield _tolerations(pool.taints)


def _selects_one_of(products: Collection[str], label: str) -> Callable[[str], bool]:
    """A check whether a file's selector names one of these products, or no product at all."""

    def fits(value: str) -> bool:
        product = pairs(value).get(label)
        return product is None or product in products

    return fits


def _tolerations(taints: Collection[Taint]) -> DraftLine:
    tolerations = []
    for taint in taints:
        operator = "operator: Exists"
        if taint.value:
            operator = f"operator: Equal, value: {written(taint.value)}"
        tolerations.append(f"{{key: {taint.key}, {operator}, effect: {taint.effect}}}")
    origin = "nodes: taints of all of them"
    if not all(unit_of(taint.key) for taint in taints):
        origin += "; TODO are they meant for you?"

    def fits(value: str) -> bool:
        return "key:" not in value or all(f"key: {taint.key}" in value for taint in taints)

    return DraftLine(("kubernetes", "tolerations"), f"[{', '.join(tolerations)}]", origin, fits=fits)


def _pod_size(cluster: ClusterInventory, pool: Pool, share: PodShare) -> Iterator[DraftLine]:
    for resource, part, of_node, example in (
        ("cpu", share.cpu, pool.cpu, 8.0),
        ("memory", share.memory, pool.memory, 8.0 * GIB),
    ):
        if part is None:
            origin = f"TODO how much of a node: {_why_unseen(cluster)}"
            yield DraftLine(("kubernetes", resource), amount(resource, example), origin, todo=True)
            continue
        limits = [limit.most for limit in (cluster.limit(resource), cluster.largest_of(resource)) if limit]
        if of_node:
            limits.append(of_node)
        size, origin = part
        yield _sized(resource, resource, size, origin, share.count, min(limits))
    memory = share.memory[0] if share.memory else 64 * GIB
    shared = min(64 * GIB, memory / 4)
    yield _sized("shm", "memory", shared, "part of memory; loaders need it", share.count, None)


def _sized(key: str, resource: str, size: float, origin: str, devices: int, limit: float | None) -> DraftLine:
    """Write a pod's share. On nodes with devices the line gives it for each device, so it holds for every layout."""
    fits = None if limit is None else _at_most(limit)
    whole = DraftLine(("kubernetes", key), amount(resource, size), origin, fits=fits)
    if not devices:
        return whole
    if devices > 1:
        origin += f", among {devices}"
    # How many devices a layout takes is a person's choice, so only the share of one device must fit.
    per_device = amount(resource, size / devices)
    return DraftLine(("kubernetes", f"{key}_per_device"), per_device, origin, fits=fits, instead=whole)


def _at_most(limit: float) -> Callable[[str], bool]:
    """A check whether a quantity in a file is at most `limit`."""
    return lambda value: amounts({"it": value}).get("it", float("inf")) <= limit


def _policy(cluster: ClusterInventory) -> Iterator[DraftLine]:
    tightest: dict[str, Limit] = {}
    for limit in cluster.largest:
        if limit.key not in tightest or limit.most < tightest[limit.key].most:
            tightest[limit.key] = limit
    if not tightest:
        return
    value = ", ".join(f"{key}: {amount(key, limit.most)}" for key, limit in tightest.items())
    expected = amounts(pairs(value))
    origin = ", ".join(dict.fromkeys(limit.of for limit in tightest.values()))
    yield DraftLine(("policy", "most"), f"{{{value}}}", origin, fits=lambda text: amounts(pairs(text)) == expected)
