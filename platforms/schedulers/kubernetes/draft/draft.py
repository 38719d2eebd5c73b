"""Drafts a platform's file for a cluster. What only a person knows is commented out and marked with TODO."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from platforms.config.draft import DraftLine, DraftRequest, written
from platforms.config.durations import clock
from platforms.config.loading import nearest
from platforms.job import ConfigError
from platforms.schedulers import machine_draft
from platforms.schedulers.kubernetes.api.client import Client
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget
from platforms.schedulers.kubernetes.draft import inventory
from platforms.schedulers.kubernetes.draft.inventory import ClusterInventory, Pool, unit_of
from platforms.schedulers.kubernetes.objects.capacity import Taint
from platforms.schedulers.machine_draft import AMD, HOUR_S, NVIDIA

GIB = 2**30
SHARE = 0.9  # of a node whose devices are all asked for: the system pods of the node need the rest
SOCKET = 0.5  # of a node without devices: most have two sockets
IPUS = 4  # of one machine; they come by powers of two
DEFAULT_RESOURCES = ("", "nvidia.com/gpu", "graphcore.ai/ipu")
# Proposals by the vendor of a resource; a person must decide.
IMAGES = {
    "nvidia.com": "nvcr.io/nvidia/pytorch:26.05-py3",
    "amd.com": "rocm/pytorch:latest",
    "graphcore.ai": "graphcore/pytorch:3.3.0",
    "": "pytorch/pytorch:latest",
}
MOUNT = "/data"
OUR_CLAIM = "hpc-ml-bench"
CLAIM_SIZE = "100Gi"  # every data set of the sizes smoke, quick and subset, with room
_FAMILIES = re.compile(r"nvidia|tesla|gtx|rtx", re.IGNORECASE)


def draft(request: DraftRequest) -> list[DraftLine]:
    """Ask the cluster that the command line names. Raises BenchError."""
    options = request.options
    target = ClusterTarget(request.path_of("kubeconfig"), options.get("context"), (), options.get("namespace"))
    return lines(inventory.ask(Client(target)), request)


def lines(cluster: ClusterInventory, request: DraftRequest) -> list[DraftLine]:
    """Every line of the file, in its order. Raises ConfigError when no node has the chosen product."""
    pool = choose(cluster, request.options.get("product"))
    return [
        *_scheduler(cluster, request.replaces),
        *_hardware(cluster, pool),
        machine_draft.marks(_mark_words(pool), request.taken_marks),
        DraftLine(("time_limit",), clock(HOUR_S)),
        DraftLine(("data_dir",), MOUNT, "where the pods see the volume of the data sets"),
        *_namespace(cluster, request, pool),
        *_queue(cluster),
        *_image(pool),
        *_nodes(cluster, pool),
        *_pod_size(cluster, pool),
        _volume(),
    ]


def choose(cluster: ClusterInventory, product: str | None) -> Pool:
    """Choose the nodes of the requested product, else the most common ones with devices."""
    if product is not None:
        by_product = {pool.product or pool.resource: pool for pool in reversed(cluster.pools) if pool.count}
        if product not in by_product:
            hint = nearest(product, by_product)
            raise ConfigError([f"{cluster.where}: no node has the product {product!r} {hint}"])
        return by_product[product]
    if cluster.pools and (cluster.pools[0].count or not cluster.ipu_jobs):
        return cluster.pools[0]
    if cluster.ipu_jobs:
        return Pool("graphcore.ai/ipu", count=IPUS)
    return Pool()


# --- the lines -------------------------------------------------------------------------------------------------------


def _scheduler(cluster: ClusterInventory, replaces: bool) -> Iterator[DraftLine]:
    if replaces:
        yield DraftLine(("replaces",), "true", "the suite ships a file of this name")
    origin = f"Kubernetes {cluster.version}"
    if cluster.kueue:
        origin += f", Kueue {cluster.kueue}"
    yield DraftLine(("scheduler",), "kubernetes", origin)


def _hardware(cluster: ClusterInventory, pool: Pool) -> Iterator[DraftLine]:
    origin = f"nodes: {pool}"
    if not pool.nodes:
        origin = f"TODO {_why_unseen(cluster)}"
    yield DraftLine(("device",), pool.unit, origin)
    count, origin = max(1, pool.count), "nodes x sockets a node"
    if pool.is_mig:
        count, origin = 1, "a process can use one part of a MIG device"
    elif pool.count:
        origin = "nodes x devices a node"
    yield DraftLine(("layouts", "default"), f"[1x{count}]", origin)
    if pool.cpu:
        threads = max(1, int(_share(pool, pool.cpu)))
        origin = "cores of a pod for each of its devices; torch sees those of the whole node"
        yield DraftLine(("threads_per_rank",), str(threads), origin)


def _why_unseen(cluster: ClusterInventory) -> str:
    """Explain why nothing is known about the nodes."""
    refusal = cluster.hidden.get("nodes")
    return f"nodes may not be seen ({refusal})" if refusal else "no node is ready"


def _share(pool: Pool, amount: float) -> float:
    """The part of a node's cores or bytes for each of its devices; on nodes without devices, for one socket."""
    if pool.count:
        return amount * SHARE / pool.count
    return amount * SOCKET


def _mark_words(pool: Pool) -> Iterator[str]:
    """The device, its vendor, Kubernetes."""
    for part in re.findall(r"[A-Za-z0-9]+", pool.product):
        is_model = NVIDIA.fullmatch(part) or AMD.fullmatch(part)
        if is_model and not _FAMILIES.match(part):
            yield part
            break
    if pool.is_mig:
        yield "mig"
    yield pool.resource.partition(".")[0] if pool.count else "cpu"
    yield "kubernetes"


def _namespace(cluster: ClusterInventory, request: DraftRequest, pool: Pool) -> Iterator[DraftLine]:
    kubeconfig = request.path_of("kubeconfig")
    if kubeconfig:
        yield DraftLine(("kubernetes", "kubeconfig"), written(kubeconfig), "--kubeconfig")
    origin = "--context" if "context" in request.options else "kubeconfig: the current one"
    yield DraftLine(("kubernetes", "context"), written(cluster.context), origin)
    origin = "--namespace" if "namespace" in request.options else "kubeconfig: the context's"
    yield DraftLine(("kubernetes", "namespace"), written(cluster.namespace), origin)
    if pool.unit == "ipu":
        yield DraftLine(("kubernetes", "kind"), "ipujob", "the cluster has IPUJobs; IPUs come by powers of two")


def _queue(cluster: ClusterInventory) -> Iterator[DraftLine]:
    key = ("kubernetes", "queue")
    if cluster.queues:
        name, *others = cluster.queues
        origin = f"Kueue: LocalQueue of ClusterQueue {cluster.queues[name]}"
        if others:
            origin = f"TODO one of {', '.join(cluster.queues)}; {origin}"
        yield DraftLine(key, written(name), origin)
    elif "localqueues" in cluster.hidden:
        yield DraftLine(key, "default", f"TODO Kueue is there: {cluster.hidden['localqueues']}", todo=True)


def _image(pool: Pool) -> Iterator[DraftLine]:
    vendor = pool.resource.partition("/")[0]
    needs = "Python 3.8 or newer, torch 2, numpy, h5py and Pillow"
    origin = f"TODO an image that has {needs}; best by its digest: NAME@sha256:…"
    yield DraftLine(("kubernetes", "image"), IMAGES.get(vendor, IMAGES[""]), origin, todo=True)
    if pool.resource not in DEFAULT_RESOURCES:
        yield DraftLine(("kubernetes", "resource"), pool.resource, f"nodes: {pool}")


def _nodes(cluster: ClusterInventory, pool: Pool) -> Iterator[DraftLine]:
    key = ("kubernetes", "node_selector")
    if pool.product:
        origin = f"nodes: {pool}"
        others = [str(other) for other in cluster.pools if other is not pool and other.count]
        if others:
            origin += f"; others: {', '.join(others[:12])} (--product names one)"
        yield DraftLine(key, f"{{{pool.label}: {written(pool.product)}}}", origin)
    elif not pool.nodes and not cluster.ipu_jobs:
        origin = f"TODO which device: {_why_unseen(cluster)}"
        yield DraftLine(key, "{nvidia.com/gpu.product: NAME}", origin, todo=True)
    if pool.taints:
        yield _tolerations(pool.taints)


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
    return DraftLine(("kubernetes", "tolerations"), f"[{', '.join(tolerations)}]", origin)


def _pod_size(cluster: ClusterInventory, pool: Pool) -> Iterator[DraftLine]:
    """A pod's share of a node. On nodes with devices it stands for each device, so that it holds for every layout."""
    if not pool.nodes:
        origin = f"TODO how much of a node: {_why_unseen(cluster)}"
        yield DraftLine(("kubernetes", "cpu"), "8", origin, todo=True)
        yield DraftLine(("kubernetes", "memory"), "8Gi", origin, todo=True)
        return
    suffix, origin = "", f"{SOCKET:.0%} of a node"
    if pool.count:
        suffix, origin = "_per_device", f"{SHARE:.0%} of a node, among {pool.count}"
    memory = _share(pool, pool.memory)
    yield DraftLine(("kubernetes", f"cpu{suffix}"), _cores(_share(pool, pool.cpu)), origin)
    yield DraftLine(("kubernetes", f"memory{suffix}"), _bytes(memory), origin)
    yield DraftLine(("kubernetes", f"shm{suffix}"), _bytes(memory / 4), "part of memory; loaders need it")


def _cores(amount: float) -> str:
    return f"{int(amount)}" if amount >= 1 else f"{int(amount * 1000)}m"


def _bytes(amount: float) -> str:
    return f"{int(amount // GIB)}Gi" if amount >= GIB else f"{int(amount // 2**20)}Mi"


def _volume() -> DraftLine:
    """The claim that `prepare` makes; a person may name one that is there."""
    origin = "TODO `prepare` makes this claim; name yours without `size:` if there is one that many nodes can write"
    volume = f"{{mount: {MOUNT}, pvc: {OUR_CLAIM}, size: {CLAIM_SIZE}}}"
    return DraftLine(("kubernetes", "volumes"), f"[{volume}]", origin)
