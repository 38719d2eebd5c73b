"""Jobs on Kubernetes that name their nodes, and what a cluster says of its nodes and of the nodes of a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, MachineError, RefusedError, State, Status, Submitted
from platforms.schedulers import backend_of
from platforms.schedulers.kubernetes.manifest import render
from platforms.schedulers.kubernetes.objects.node_states import named_nodes
from platforms.schedulers.kubernetes.objects.pod_templates import templates
from platforms.schedulers.kubernetes.scheduler import KubernetesScheduler
from platforms.schedulers.kubernetes.status.named_nodes import NOT_READY_S
from tests.fake_kubernetes import Kube
from tests.platforms.kubernetes_objects import job, look, pod, unscheduled

NODE_KEY = "requiredDuringSchedulingIgnoredDuringExecution"


def platform_of(kubeconfig: Path = Path("kubeconfig"), **keys: Any) -> Platform:
    cluster = {"kubeconfig": str(kubeconfig), "image": "i:1", "cpu": "1", "memory": "1Gi", **keys}
    known = {"name": "k", "source": Path("k.yaml"), "scheduler": "kubernetes", "device": "cpu"}
    return Platform.model_validate(known | {"layouts": {"default": ("1x1",)}, "kubernetes": cluster})


def spec_of(*names: str, nodes: int = 1, job_name: str = "it-1x1cpu-abcdefgh", **changes: Any) -> JobSpec:
    test = f"test_it.py::test_it[{job_name}]"
    spec = JobSpec(job_name, test, "k", Layout(nodes, 1, "cpu"), ("sh", "-c", "true"), run="rabcdefg")
    return replace(spec, nodes=names, **changes)


# --- what is rendered ------------------------------------------------------------------------------------------------


def pods_of(spec: JobSpec, **keys: Any) -> list[dict[str, Any]]:
    found = []
    for tree in render.parse(render.render(spec, platform_of(**keys))):
        found += [template for _path, template in templates(tree)]
    return found


@pytest.mark.parametrize("kind", ["pod", "job", "ipujob"])
def test_every_template_runs_its_pod_on_the_node_only(kind: str) -> None:
    spec = spec_of("n07")
    if kind == "ipujob":
        spec = replace(spec, layout=Layout(1, 1, "ipu"))
    (template,) = pods_of(spec, kind=kind)
    assert named_nodes(template) == ("n07",)
    assert pods_of(replace(spec, nodes=()), kind=kind)[0]["spec"].get("affinity") is None


def test_the_pods_of_several_nodes_share_none() -> None:
    (template,) = pods_of(spec_of("n07", "n09", nodes=2))
    assert named_nodes(template) == ("n07", "n09")
    (spread,) = template["spec"]["topologySpreadConstraints"]
    assert spread["whenUnsatisfiable"] == "DoNotSchedule"
    (free,) = pods_of(spec_of(nodes=2))
    assert free["spec"]["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "ScheduleAnyway"


def test_a_job_that_names_its_nodes_avoids_none() -> None:
    (template,) = pods_of(spec_of("n07", avoid_nodes=("n07",)))
    assert list(template["spec"]["affinity"]["nodeAffinity"]) == [NODE_KEY]


MPI_JOB = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "spec": {
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": {"spec": {"containers": [{"name": "l", "image": "i"}]}}},
            "Worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "w", "image": "i"}]}}},
        }
    },
}


def test_every_pod_of_an_own_manifest_runs_there() -> None:
    launcher, worker = pods_of(spec_of("n1", "n2", nodes=2, manifest=MPI_JOB))
    assert (named_nodes(launcher), named_nodes(worker)) == (("n1", "n2"), ("n1", "n2"))


def test_an_own_manifest_keeps_its_own_demands_on_nodes() -> None:
    zones = [{"key": "zone", "operator": "In", "values": [zone]} for zone in ("a", "b")]
    terms = [{"matchExpressions": [zone]} for zone in zones]
    soft = [{"weight": 1, "preference": {"matchExpressions": [zones[0]]}}]
    of_nodes = {
        NODE_KEY: {"nodeSelectorTerms": terms},
        "preferredDuringSchedulingIgnoredDuringExecution": soft,
    }
    own = {"containers": [{"name": "c", "image": "i"}], "affinity": {"nodeAffinity": of_nodes, "podAffinity": {"x": 1}}}
    (template,) = pods_of(spec_of("n1", manifest={"apiVersion": "v1", "kind": "Pod", "spec": own}))
    affinity = template["spec"]["affinity"]
    assert affinity["podAffinity"] == {"x": 1}
    assert affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == soft
    name = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert affinity["nodeAffinity"][NODE_KEY]["nodeSelectorTerms"] == [
        {"matchExpressions": [zone], "matchFields": [name]} for zone in zones
    ]
    assert of_nodes[NODE_KEY] == {"nodeSelectorTerms": terms}  # what the test returned is unchanged


def test_what_kubernetes_cannot_do_is_refused() -> None:
    with pytest.raises(RefusedError, match="asks for the reservation r, and Kubernetes has no reservations: leave"):
        pods_of(spec_of(reservation="r"))
    with pytest.raises(RefusedError, match="layout 2x1cpu has 2 nodes, and the job asks for 1 node "):
        pods_of(spec_of("n1", nodes=2))


# --- what is judged --------------------------------------------------------------------------------------------------


def node(name: str, *, ready: bool = True, cordoned: bool = False) -> dict[str, Any]:
    condition = {"type": "Ready", "status": str(ready), "reason": "KubeletNotReady", "message": "no network"}
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "2026-11-23T01:32:19Z"}
    spec = {"unschedulable": True, "taints": [taint]} if cordoned else {}
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [condition]}}


def waits_for(*names: str, message: str = "", name: str = "p", placed: str = "") -> dict[str, Any]:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [one]}]} for one in names]
    affinity = {"nodeAffinity": {NODE_KEY: {"nodeSelectorTerms": terms}}}
    status = {} if placed else unscheduled(message)
    return pod(status, name, node=placed, spec={"affinity": affinity})


def judged(*pods: dict[str, Any], waited: float = 0.0, **nodes: Any) -> Status:
    return look(job({"active": 1}), *pods, waited=waited, **nodes).status


BUSY = "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."


def test_a_cordoned_node_fails_the_job_at_once() -> None:
    status = judged(waits_for("n1", message=BUSY), nodes={"n1": node("n1", cordoned=True), "n2": node("n2")})
    assert status.state is State.NEVER_ADMISSIBLE
    assert status.reason.startswith("node n1 is cordoned since 2026-11-2")
    assert status.reason.endswith("(choose another node, or type: kubectl uncordon n1)")


def test_an_unknown_node_fails_the_job_at_once() -> None:
    status = judged(waits_for("n9"), nodes={"n1": node("n1")})
    assert status.state is State.NEVER_ADMISSIBLE
    assert status.reason == "the cluster has no node n9 (its nodes: kubectl get nodes)"


def test_a_node_that_is_not_ready_gets_a_minute() -> None:
    nodes = {"n1": node("n1", ready=False)}
    assert judged(waits_for("n1"), nodes=nodes).state is State.QUEUED
    status = judged(waits_for("n1"), nodes=nodes, waited=NOT_READY_S)
    assert status.state is State.NEVER_ADMISSIBLE
    assert status.reason.startswith("node n1 is not ready: KubeletNotReady: no network (look with: kubectl describe")


def test_a_busy_node_is_waited_for() -> None:
    nodes = {"n1": node("n1"), "n2": node("n2", cordoned=True)}
    assert judged(waits_for("n1", message=BUSY), nodes=nodes, waited=1e6).state is State.QUEUED


def test_a_node_that_is_cordoned_after_it_has_got_its_pod_keeps_it() -> None:
    first = waits_for("n1", "n2", name="p0", placed="n1")
    second = waits_for("n1", "n2", name="p1", message=BUSY)
    nodes = {"n1": node("n1", cordoned=True), "n2": node("n2")}
    assert judged(first, second, nodes=nodes, waited=100.0).state.live
    nodes["n2"] = node("n2", cordoned=True)
    assert "node n2 is cordoned" in judged(first, second, nodes=nodes).reason


NOT_ITS = "node(s) didn't satisfy plugin(s) [NodeAffinity]"


def test_where_nodes_may_not_be_seen_a_job_waits_as_for_a_busy_node() -> None:
    waiting = waits_for("n1", message=f"0/3 nodes are available: 1 node(s) were unschedulable, 2 {NOT_ITS}.")
    assert judged(waiting, waited=1e6).state is State.QUEUED


def test_the_pod_of_a_job_without_named_nodes_is_judged_as_before() -> None:
    one = pod(unscheduled(f"0/3 nodes are available: 3 {NOT_ITS}."), node="")
    assert judged(one, waited=1e6).state is State.QUEUED


# --- on a cluster ----------------------------------------------------------------------------------------------------


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Kube]:
    """Two nodes beside the first: n1 and n2, with a label."""
    with Kube(tmp_path / "kube") as kube:
        kube.images["i:1"] = {}
        for name in ("n1", "n2"):
            kube.node(name, {"rack": "r1"})
        yield kube


class Session:
    """One session on the cluster, with a clock that the test moves."""

    def __init__(self, kube: Kube, folder: Path) -> None:
        self.skipped_s, self._folder = 0.0, folder
        keys = {"node_selector": {"rack": "r1"}, "user": 1000}
        self.platform = platform_of(kube.kubeconfig, **keys)
        self.scheduler = KubernetesScheduler(self.platform, clock=lambda: time.monotonic() + self.skipped_s)

    def submit(self, spec: JobSpec) -> Submitted:
        folder = self._folder / spec.name
        folder.mkdir(exist_ok=True)
        text = self.scheduler.render(spec)
        (folder / self.scheduler.text_name).write_text(text)
        return Submitted(self.scheduler.submit(spec, text, folder), spec.name, time.time(), folder)

    def status(self, one: Submitted) -> Status:
        return self.scheduler.status([one])[one.job_id]

    def until(self, one: Submitted, true: Callable[[Status], object]) -> Status:
        deadline = time.monotonic() + 30
        while not true(status := self.status(one)):
            assert time.monotonic() < deadline, f"waited in vain: {status}"
            time.sleep(0.1)
        return status


def cordon(kube: Kube, name: str) -> None:
    kube.store.change("nodes", "", name, lambda node: node["spec"].update(unschedulable=True))


@pytest.mark.slow
def test_a_job_runs_on_its_node_and_says_where_it_ran(kube: Kube, tmp_path: Path) -> None:
    session = Session(kube, tmp_path)
    one = session.submit(spec_of("n2"))
    status = session.until(one, lambda status: not status.state.live)
    assert (status.state, status.nodes) == (State.SUCCEEDED, ("n2",)), status
    backend = backend_of(session.platform)
    (pod_there,) = kube.store.list("pods", "default")[0]
    for name in (one.job_id, one.name, pod_there["metadata"]["name"]):
        assert backend.nodes_of_job(session.platform, name) == ("n2",)
    with pytest.raises(RefusedError, match="there are no pods of a job nope in default"):
        backend.nodes_of_job(session.platform, "nope")


def test_the_nodes_of_a_platform_and_where_they_may_not_be_listed(kube: Kube, tmp_path: Path) -> None:
    session = Session(kube, tmp_path)
    cordon(kube, "n2")
    backend = backend_of(session.platform)
    found = backend.nodes(session.platform)
    assert [(one.name, one.state) for one in found] == [("n1", "idle"), ("n2", "drained")]
    kube.forbid("nodes")
    with pytest.raises(RefusedError, match=r"the nodes may not be listed: nodes is forbidden.*rbac.yaml"):
        backend.nodes(session.platform)
    assert backend.drain_command("n2", "slow") == "kubectl cordon n2"


@pytest.mark.parametrize(("name", "why"), [("n2", "node n2 is cordoned"), ("n9", "the cluster has no node n9")])
def test_a_node_out_of_service_is_refused_before_anything_is_made(
    kube: Kube, tmp_path: Path, name: str, why: str
) -> None:
    cordon(kube, "n2")
    with pytest.raises(MachineError, match=why) as refusal:
        Session(kube, tmp_path).submit(spec_of(name))
    assert refusal.value.status.state is State.NEVER_ADMISSIBLE
    assert kube.store.list("jobs", "default")[0] == []


def test_a_job_that_exists_is_found_although_its_node_is_cordoned_now(kube: Kube, tmp_path: Path) -> None:
    first = Session(kube, tmp_path / "first")
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    one = first.submit(spec_of("n2", arguments=("sleep", "60")))
    cordon(kube, "n2")
    assert Session(kube, tmp_path / "second").submit(spec_of("n2", arguments=("sleep", "60"))).job_id == one.job_id
