"""`python -m platforms init NAME --context CTX`: what a cluster says of itself becomes a file that loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from platforms.__main__ import main
from platforms.config import draft, schema
from platforms.config.draft import DraftLine, DraftRequest
from platforms.config.schema import Platform
from platforms.job import ConfigError, Layout
from platforms.schedulers import FILE_KEYS
from platforms.schedulers.kubernetes.draft import draft as cluster_draft
from platforms.schedulers.kubernetes.draft import inventory
from platforms.schedulers.kubernetes.draft.inventory import ClusterInventory
from platforms.schedulers.kubernetes.objects import capacity
from platforms.schedulers.kubernetes.objects.capacity import Taint, node_of
from tests.fake_kubernetes import Kube

PRODUCT = "nvidia.com/gpu.product"
A100, H100 = "NVIDIA-A100-SXM4-40GB", "NVIDIA-H100-80GB-HBM3"
OURS = "hpc-ml-bench"
Object = dict[str, Any]


def node(
    name: str,
    allocatable: Mapping[str, str],
    labels: Mapping[str, str] | None = None,
    taints: tuple[Object, ...] = (),
    *,
    ready: str = "True",
    cordoned: bool = False,
) -> Object:
    """A Node object, as its kubelet keeps it, shortened."""
    conditions = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}]
    spec: Object = {"podCIDR": "10.244.0.0/24", "taints": list(taints)} if taints else {"podCIDR": "10.244.0.0/24"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {**spec, "unschedulable": True} if cordoned else spec,
        "status": {"allocatable": {"pods": "110", **allocatable}, "conditions": conditions},
    }


def gpus(name: str, product: str, count: int, *taints: Object, cpu: str = "96", memory: str = "960Gi") -> Object:
    allocatable = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": str(count), "ephemeral-storage": "1Ti"}
    return node(name, allocatable, {PRODUCT: product, "nvidia.com/gpu.count": str(count)}, taints)


CONTROL = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
SERVICE = (  # a shared service, with Kueue, several kinds of GPUs, and nodes that are not for everybody
    node("control-1", {"cpu": "8", "memory": "16Gi"}, taints=(CONTROL,)),
    node("cpu-1", {"cpu": "128", "memory": "500Gi"}),
    gpus("a-1", A100, 8), gpus("a-2", A100, 8, memory="950Gi"), gpus("a-3", A100, 4), gpus("h-1", H100, 8),
    gpus("a-4", A100, 8, {"key": "broken", "value": "yes", "effect": "PreferNoSchedule"}),
    node("a-5", {"cpu": "96", "memory": "960Gi", "nvidia.com/gpu": "8"}, {PRODUCT: A100}, ready="Unknown"),
    node("a-6", {"cpu": "96", "memory": "960Gi", "nvidia.com/gpu": "8"}, {PRODUCT: A100}, cordoned=True),
)  # fmt: skip


def cluster_of(*nodes: Object, **told: Any) -> ClusterInventory:
    known = {"version": "v1.36.2", **told}
    return ClusterInventory(
        "cluster it, namespace mine", "it", "mine", pools=inventory.pools(map(node_of, nodes)), **known
    )


def lines_of(seen: ClusterInventory, taken: tuple[str, ...] = (), **wish: str) -> list[DraftLine]:
    return cluster_draft.lines(seen, DraftRequest("it", wish, taken_marks=taken))


def loaded(folder: Path, lines: list[DraftLine]) -> Platform:
    (folder / "it.yaml").write_text(draft.text("head\nlines", lines), encoding="utf-8")
    return schema.load_platforms([folder], schedulers=FILE_KEYS)["it"]


def origins(lines: list[DraftLine]) -> dict[str, str]:
    return {line.path: line.origin for line in lines}


# --- what a cluster says becomes a file ------------------------------------------------------------------------------


def test_the_most_common_nodes_with_devices(tmp_path: Path) -> None:
    queues = {"mine-user-queue": "team"}
    seen = cluster_of(*SERVICE, queues=queues, kueue="v1beta1")
    lines = lines_of(seen, context="it")
    it = loaded(tmp_path, lines)
    assert (it.scheduler, it.device, it.layouts) == ("kubernetes", "gpu", {"default": (Layout(1, 8, "gpu"),)})
    assert (it.marks, it.data_dir) == (("a100", "nvidia", "kubernetes"), "/data")
    assert (it.time_limit_s, it.max_running) == (3600, 8)
    keys = it.kubernetes
    assert (keys.context, keys.namespace, keys.queue, keys.kind) == ("it", "mine", "mine-user-queue", None)
    assert (keys.node_selector, keys.tolerations, keys.resource) == ({PRODUCT: A100}, (), None)
    assert (keys.cpu, keys.memory, keys.shm) == (None, None, None)
    assert (keys.cpu_per_device, keys.memory_per_device, keys.shm_per_device) == ("10", "106Gi", "26Gi")
    assert it.threads_per_rank == 10
    (volume,) = keys.volumes
    assert (volume.mount, volume.pvc) == ("/data", OURS)
    assert (volume.size, volume.access_mode) == ("100Gi", "ReadWriteMany")
    assert volume.storage_class is None
    said = origins(lines)
    assert said["scheduler"] == "Kubernetes v1.36.2, Kueue v1beta1"
    assert said["device"] == f"nodes: 8 x {A100} on 3 nodes"
    assert said["kubernetes.node_selector"] == (
        f"nodes: 8 x {A100} on 3 nodes; others: 8 x {H100} on 1 node, 4 x {A100} on 1 node (--product names one)"
    )
    assert said["kubernetes.memory_per_device"] == "90% of a node, among 8"
    assert said["kubernetes.queue"] == "Kueue: LocalQueue of ClusterQueue team"
    assert "TODO `prepare` makes this claim" in said["kubernetes.volumes"]
    assert [line.path for line in lines if line.todo] == ["kubernetes.image"]
    assert "nvcr.io/nvidia/pytorch" in next(line.value for line in lines if line.todo)


def test_another_product(tmp_path: Path) -> None:
    lines = lines_of(cluster_of(*SERVICE), product=H100)
    it = loaded(tmp_path, lines)
    assert (it.kubernetes.node_selector, it.marks[0]) == ({PRODUCT: H100}, "h100")
    with pytest.raises(ConfigError, match=rf"no node has the product 'NVIDIA-H100' \(did you mean '{H100}'\?\)"):
        lines_of(cluster_of(*SERVICE), product="NVIDIA-H100")


def test_nodes_that_may_not_be_seen(tmp_path: Path) -> None:
    why = 'nodes is forbidden: User "me" cannot list resource "nodes" in API group "" at the cluster scope'
    seen = cluster_of(hidden={"nodes": why, "localqueues": "forbidden"}, kueue="v1beta2")
    lines = lines_of(seen)
    it = loaded(tmp_path, lines)
    assert (it.device, it.layouts, it.kubernetes.cpu) == ("cpu", {"default": (Layout(1, 1, "cpu"),)}, None)
    said = origins(lines)
    assert said["device"] == f"TODO nodes may not be seen ({why})"
    assert why in said["kubernetes.cpu"]
    assert said["kubernetes.queue"] == "TODO Kueue is there: forbidden"
    assert {line.path for line in lines if line.todo} == {
        "kubernetes.queue", "kubernetes.image", "kubernetes.node_selector", "kubernetes.cpu", "kubernetes.memory",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "allocatable", "resource", "selector", "marks"),
    [
        ({PRODUCT: f"{A100}-MIG-1g.5gb"}, {"nvidia.com/gpu": "56"}, None, {PRODUCT: f"{A100}-MIG-1g.5gb"}, "mig"),
        ({PRODUCT: A100}, {"nvidia.com/mig-3g.20gb": "16"}, "nvidia.com/mig-3g.20gb", {PRODUCT: A100}, "mig"),
    ],
    ids=["single", "mixed"],
)
def test_a_process_uses_one_part_of_a_mig_device(
    labels: Mapping[str, str],
    allocatable: Mapping[str, str],
    resource: str | None,
    selector: Mapping[str, str],
    marks: str,
    tmp_path: Path,
) -> None:
    lines = lines_of(cluster_of(node("m-1", {"cpu": "112", "memory": "1120Gi", **allocatable}, labels)))
    it = loaded(tmp_path, lines)
    assert (it.device, it.layouts) == ("gpu", {"default": (Layout(1, 1, "gpu"),)})
    assert (it.kubernetes.resource, it.kubernetes.node_selector) == (resource, selector)
    assert it.marks == ("a100", marks, "nvidia", "kubernetes")
    assert "one part of a MIG device" in origins(lines)["layouts.default"]


def test_amd_and_taints_that_all_of_its_nodes_have(tmp_path: Path) -> None:
    devices = {"key": "amd.com/gpu", "value": "present", "effect": "NoSchedule"}
    passing = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
    team = {"key": "team", "value": "5", "effect": "NoExecute"}
    nodes = [
        node(f"m-{number}", {"cpu": "128", "memory": "1Ti", "amd.com/gpu": "8"},
             {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, (devices, *more))
        for number, more in enumerate([(passing,), (team,)])
    ]  # fmt: skip
    lines = lines_of(cluster_of(*nodes))
    it = loaded(tmp_path, lines)
    assert (it.kubernetes.resource, it.marks) == ("amd.com/gpu", ("mi300x", "amd", "kubernetes"))
    assert [toleration.content() for toleration in it.kubernetes.tolerations] == [
        {"key": "amd.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"},
    ]
    assert origins(lines)["kubernetes.tolerations"] == "nodes: taints of all of them"
    lines = lines_of(cluster_of(nodes[1]))
    assert [each.value for each in loaded(tmp_path, lines).kubernetes.tolerations] == ["present", "5"]
    assert "are they meant for you?" in origins(lines)["kubernetes.tolerations"]


def test_a_small_cluster_of_cpus(tmp_path: Path) -> None:
    only = node("kind-control-plane", {"cpu": "2", "memory": "2000Mi"}, taints=(CONTROL,))
    lines = lines_of(cluster_of(only))
    it = loaded(tmp_path, lines)
    assert (it.device, it.layouts, it.marks) == ("cpu", {"default": (Layout(1, 1, "cpu"),)}, ("cpu", "kubernetes"))
    assert (it.kubernetes.cpu, it.kubernetes.memory, it.kubernetes.shm) == ("1", "1000Mi", "250Mi")
    assert it.threads_per_rank == 1
    assert it.kubernetes.tolerations[0].operator == "Exists"


def test_a_cluster_with_ipu_jobs(tmp_path: Path) -> None:
    lines = lines_of(cluster_of(node("c-1", {"cpu": "64", "memory": "512Gi"}), ipu_jobs=True))
    it = loaded(tmp_path, lines)
    assert (it.device, it.kubernetes.kind, it.marks[0]) == ("ipu", "ipujob", "graphcore")
    assert it.layouts == {"default": (Layout(1, 4, "ipu"),)}


def test_queues_to_choose_from(tmp_path: Path) -> None:
    lines = lines_of(cluster_of(queues={"a": "one", "b": "two"}))
    assert loaded(tmp_path, lines).kubernetes.queue == "a"
    assert origins(lines)["kubernetes.queue"] == "TODO one of a, b; Kueue: LocalQueue of ClusterQueue one"


def test_marks_that_are_taken() -> None:
    line = next(line for line in lines_of(cluster_of(*SERVICE), taken=("a100", "kubernetes")) if line.path == "marks")
    assert line.value == "[nvidia]"


# --- what a cluster has room for -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"key": "team", "operator": "Equal", "value": "5", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "5"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "team", "value": "6"}, False),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "teams", "operator": "Exists"}, False),
        ({"key": "team"}, False),
    ],
)
def test_taints_are_tolerated_as_kube_scheduler_does(toleration: Object, expected: bool) -> None:
    assert Taint("team", "5", "NoSchedule").tolerated([{"key": "other"}, toleration]) == expected


def template(**limits: str) -> Object:
    requests = {name: value for name, value in limits.items() if name == "cpu"}
    each = {"name": "c", "resources": {"limits": {**limits, "nvidia.com/gpu": "4"}, "requests": requests}}
    return {"metadata": {}, "spec": {"containers": [each], "initContainers": [{"resources": {"limits": {"cpu": "9"}}}]}}


@pytest.mark.parametrize(
    ("root", "pods"),
    [
        ({"kind": "Pod", **template()}, 1),
        ({"kind": "Job", "spec": {"template": template(), "parallelism": 2, "completions": 2}}, 2),
        ({"kind": "IPUJob", "spec": {"jobInstances": 3, "workers": {"template": template()}}}, 3),
        ({"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "template": template()}, "Worker": {"replicas": 3, "template": template()}}}}, 4),
        ({"kind": "JobSet", "spec": {"replicatedJobs": [
            {"replicas": 2, "template": {"spec": {"parallelism": 4, "template": template()}}}]}}, 8),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else str(value),
)  # fmt: skip
def test_what_a_job_asks_for(root: Object, pods: int) -> None:
    found = list(capacity.demands(root))
    assert capacity.total(found, "pods") == pods
    assert capacity.total(found, "requests.nvidia.com/gpu") == 4 * pods
    assert capacity.total(found, "cpu") == 9 * pods  # of the container that initialises
    assert capacity.total(found, "limits.memory") == 0


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ["pods"]),
        ({"scopes": ["Terminating"]}, ["pods"]),
        ({"scopes": ["NotTerminating"]}, []),
        ({"scopes": ["BestEffort"]}, []),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}}, []),
    ],
)  # fmt: skip
def test_quotas_that_count_jobs_like_ours(spec: Object, expected: list[str]) -> None:
    quota = {"metadata": {"name": "q"}, "spec": spec, "status": {"hard": {"pods": "4"}, "used": {"pods": "1"}}}
    found = capacity.quota_limits([quota])
    assert [limit.key for limit in found] == expected
    assert all((limit.most, limit.of) == (4, "ResourceQuota q") for limit in found)


def test_what_a_queue_can_give() -> None:
    def resource(name: str, most: str, **more: str) -> Object:
        return {"name": name, "nominalQuota": most, **more}

    flavors = [
        {"name": "a", "resources": [resource("nvidia.com/gpu", "4"), resource("cpu", "100")]},
        {"name": "b", "resources": [resource("nvidia.com/gpu", "8", borrowingLimit="2"), resource("cpu", "10")]},
    ]
    queue: Object = {"metadata": {"name": "q"}, "spec": {"resourceGroups": [{"flavors": flavors}]}}
    assert {each.key: each.most for each in capacity.queue_limits(queue)} == {"nvidia.com/gpu": 8, "cpu": 100}
    queue["spec"]["cohort"] = "all"
    assert capacity.queue_limits(queue) == ()  # the first flavor may borrow without a limit
    del flavors[0]
    assert [(each.key, each.most) for each in capacity.queue_limits(queue)] == [("nvidia.com/gpu", 10)]


def test_a_queue_covers_what_it_has_or_may_borrow() -> None:
    none = {"name": "nvidia.com/gpu", "nominalQuota": "0"}
    flavors = [{"name": "a", "resources": [none, {"name": "cpu", "nominalQuota": 9}]}]
    queue: Object = {"metadata": {"name": "q"}, "spec": {"resourceGroups": [{"flavors": flavors}]}}
    assert capacity.covered(queue) == {"cpu"}
    queue["spec"]["cohortName"] = "all"
    assert capacity.covered(queue) == {"cpu", "nvidia.com/gpu"}
    none["borrowingLimit"] = "0"
    assert capacity.covered(queue) == {"cpu"}


# --- the command -----------------------------------------------------------------------------------------------------

KUEUE = "kueue.x-k8s.io"


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kube]:
    """An API server without nodes of its own."""
    with Kube(tmp_path / "kube", nodes=False) as kube:
        monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig))
        yield kube


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site").mkdir()
    return tmp_path / "site"


def put(kube: Kube, plural: str, name: str, namespace: str = "default", **keys: Any) -> None:
    """An object as it is, its status, too."""
    namespace = namespace if kube.store.kinds[plural].namespaced else ""
    metadata = {"name": name, **keys.pop("metadata", {})}
    status = keys.pop("status", None)
    kube.store.create(plural, namespace, {"metadata": metadata, **keys})
    if status is not None:
        kube.store.patch_status(plural, namespace, name, status)


def nodes(kube: Kube, *given: Object) -> None:
    for each in given:
        put(kube, "nodes", each["metadata"]["name"], **each)


def furnish(kube: Kube) -> None:
    """A namespace as a shared service gives it to a project."""
    nodes(kube, *SERVICE)
    kube.namespace("mine")
    kube.add_crd(KUEUE, "v1beta1", "LocalQueue", "localqueues", namespaced=True, also=("v1alpha1",))
    active = {"conditions": [{"type": "Active", "status": "True", "reason": "Ready", "message": "Can submit"}]}
    put(kube, "localqueues", "mine-user-queue", "mine", spec={"clusterQueue": "team"}, status=active)


def init(site: Path, *words: str) -> int:
    return main(["init", "gpus", "--site", str(site), *words])


def test_a_namespace_of_a_shared_service(kube: Kube, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    furnish(kube)
    assert init(site, "--context", "fake", "--namespace", "mine", "--enable") == 0
    it = schema.load_platforms([site / "platforms"], schedulers=FILE_KEYS)["gpus"]
    keys = it.kubernetes
    assert (it.device, it.layouts, it.marks[0]) == ("gpu", {"default": (Layout(1, 8, "gpu"),)}, "a100")
    assert (keys.context, keys.namespace, keys.queue, keys.cpu_per_device) == ("fake", "mine", "mine-user-queue", "10")
    assert (keys.node_selector, keys.kubeconfig) == ({PRODUCT: A100}, None)
    (volume,) = keys.volumes
    assert (volume.pvc, volume.size, volume.storage_class) == (OURS, "100Gi", None)
    text = (site / "platforms" / "gpus.yaml").read_text()
    assert "init gpus --site" in text
    assert "--context fake --namespace mine" in text
    assert schema.load_site(site).enabled == ("gpus",)
    printed = capsys.readouterr().out
    todo = [number for number, line in enumerate(text.splitlines(), 1) if "# TODO" in line and number > 3]
    assert f"what only you know: line {', '.join(map(str, todo))} (TODO)" in printed
    assert "python -m platforms doctor gpus" in printed
    assert not any(request.method != "GET" for request in kube.requests)


def test_only_a_kubeconfig(kube: Kube, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    nodes(kube, node("n-1", {"cpu": "4", "memory": "8Gi"}))
    assert init(site, "--kubeconfig", str(kube.kubeconfig)) == 0
    keys = schema.load_platforms([site / "platforms"], schedulers=FILE_KEYS)["gpus"].kubernetes
    assert (keys.kubeconfig, keys.context, keys.namespace) == (str(kube.kubeconfig), "fake", "default")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--context", "fakes"], "there is no context 'fakes'"),
        (["--context", "fake", "--namespace", "mien"], "no namespace 'mien' (did you mean 'mine'?); --namespace names"),
        (["--context", "fake", "--namespace", "mine", "--product", "H100"], "no node has the product 'H100'"),
        (["--context", "fake", "--partition", "gpu"], "no scheduler takes --partition with --context: slurm takes"),
        (["--context", "fake", "--ssh-config", "x"], "no scheduler takes --ssh-config with --context"),
        (["--product", "H100", "--scheduler", "slurm"], "no scheduler takes --product: slurm takes --ssh"),
        (["--kubeconfig", "/no/such/file"], "/no/such/file"),
    ],
)
def test_a_request_that_makes_no_sense(
    words: list[str], message: str, kube: Kube, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    furnish(kube)
    assert init(site, *words) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert list(site.iterdir()) == []


def test_a_server_that_is_away(kube: Kube, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kube.fault("GET", ".*", None, code=401)
    assert init(site, "--context", "fake") == 2
    assert "kubectl" in capsys.readouterr().err
