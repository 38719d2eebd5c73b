"""Node objects, and what the loss of a node does to them and their pods."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.controllers.event_recorder import EventRecorder
from tests.fake_kubernetes.node.pod_status import set_condition
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree, timestamp

CAPACITY = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "500"}
UNREACHABLE = "node.kubernetes.io/unreachable"
HEALTHY = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
}


def node_object(name: str, labels: Mapping[str, str], capacity: Mapping[str, str]) -> Tree:
    """Return a ready node with the fields that a kubelet reports."""
    amounts = {**CAPACITY, **capacity}
    own = {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    status: Tree = {"capacity": amounts, "allocatable": amounts, "addresses": []}
    status["addresses"] = [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}]
    status["nodeInfo"] = {"kubeletVersion": "v1.36.2", "operatingSystem": "linux", "architecture": "amd64"}
    mark_healthy(status)
    return {"metadata": {"name": name, "labels": {**own, **labels}}, "spec": {}, "status": status}


def mark_healthy(status: Tree) -> None:
    for kind, (value, reason, message) in HEALTHY.items():
        set_condition(status, kind, value, reason, message)


def mark_node_lost(store: Store, name: str) -> None:
    """Mark a node as Unknown and its pods as not Ready, as the node controller does for a silent kubelet."""

    def lost(node: Tree) -> None:
        for kind in HEALTHY:
            set_condition(node["status"], kind, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        taints = [{"key": UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        node["spec"]["taints"] = [*node["spec"].get("taints", []), *taints]

    store.change("nodes", "", name, lost)
    recorder = EventRecorder(store, "node-controller")
    for pod in store.list("pods", fields=f"spec.nodeName={name}")[0]:
        recorder.record(pod, "Warning", "NodeNotReady", "Node is not ready")
        try:
            store.change("pods", pod["metadata"]["namespace"], pod["metadata"]["name"], _not_ready)
        except KubeError as error:
            if error.code != 404:
                raise


def mark_node_found(store: Store, name: str) -> None:
    """Mark a node as ready again."""

    def found(node: Tree) -> None:
        mark_healthy(node["status"])
        kept = [taint for taint in node["spec"].get("taints", []) if taint["key"] != UNREACHABLE]
        node["spec"].pop("taints", None)
        if kept:
            node["spec"]["taints"] = kept

    store.change("nodes", "", name, found)


def _not_ready(pod: Tree) -> None:
    for condition in pod.get("status", {}).get("conditions", []):
        if condition["type"] == "Ready" and condition["status"] == "True":
            condition |= {"status": "False", "lastTransitionTime": timestamp()}
