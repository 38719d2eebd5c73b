"""The defaults that the API server adds to a new object, and refusals of its admission controllers."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable

from tests.fake_kubernetes.api.errors import forbidden
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree

UNHEALTHY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
SYSTEM_PRIORITIES = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}


class Defaults:
    """An admission function of the store: called with (plural, object) at each creation."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._addresses = itertools.count(10)
        self._by_kind: dict[str, Callable[[Tree], None]] = {
            "pods": self._pod,
            "jobs": _job,
            "services": self._service,
            "secrets": _secret,
            "namespaces": _namespace,
            "persistentvolumeclaims": self._claim,
            "events": _event,
        }

    def __call__(self, plural: str, obj: Tree) -> None:
        if plural in self._by_kind:
            self._by_kind[plural](obj)

    def _pod(self, pod: Tree) -> None:
        spec = pod.setdefault("spec", {})
        pod_spec(spec)
        self._priority(pod, spec)
        account, home = spec.setdefault("serviceAccountName", "default"), pod["metadata"]["namespace"]
        spec["serviceAccount"] = account
        if account != "default" and not self._store.exists("serviceaccounts", home, account):
            why = f'error looking up service account {home}/{account}: serviceaccount "{account}" not found'
            raise forbidden("pods", pod["metadata"]["name"], why)
        tolerations = spec.setdefault("tolerations", [])
        for key in UNHEALTHY:
            if not any(one.get("key") in (key, None) for one in tolerations):
                tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
        pod.setdefault("status", {}).setdefault("phase", "Pending")
        pod["status"].setdefault("qosClass", quality(spec))

    def _priority(self, pod: Tree, spec: Tree) -> None:
        name, value = spec.get("priorityClassName", ""), 0
        if name in SYSTEM_PRIORITIES:
            value = SYSTEM_PRIORITIES[name]
        elif name:
            if not self._store.exists("priorityclasses", "", name):
                raise forbidden("pods", pod["metadata"]["name"], f"no PriorityClass with name {name} was found")
            value = self._store.get("priorityclasses", "", name)["value"]
        spec["priority"] = value
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def _service(self, service: Tree) -> None:
        spec = service.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        spec.setdefault("clusterIP", f"10.96.0.{next(self._addresses) % 250}")
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        for port in spec.get("ports", []):
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))
        service["status"] = {"loadBalancer": {}}

    def _claim(self, claim: Tree) -> None:
        """It is bound at once, unless nobody knows its class."""
        spec, wanted = claim["spec"], claim["spec"].get("storageClassName")
        spec.setdefault("volumeMode", "Filesystem")
        claim["status"] = {"phase": "Pending"}
        if not wanted or self._store.exists("storageclasses", "", wanted):
            spec.setdefault("volumeName", f"pvc-{claim['metadata']['uid']}")
            capacity = dict(spec.get("resources", {}).get("requests", {}))
            claim["status"] = {"phase": "Bound", "accessModes": spec.get("accessModes", []), "capacity": capacity}


def pod_spec(spec: Tree) -> None:
    """Of a pod or a pod template."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("enableServiceLinks", True)
    for container in [*spec.get("initContainers", []), *spec.get("containers", [])]:
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        tag = container.get("image", "").rpartition("/")[2].partition(":")[2]
        latest = tag in {"", "latest"} and "@" not in container.get("image", "")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        resources = container.setdefault("resources", {})
        for name, text in resources.get("limits", {}).items():
            resources.setdefault("requests", {}).setdefault(name, text)
        for port in container.get("ports", []):
            port.setdefault("protocol", "TCP")
        for entry in container.get("env", []):
            if "fieldRef" in entry.get("valueFrom", {}):
                entry["valueFrom"]["fieldRef"].setdefault("apiVersion", "v1")
    for volume in spec.get("volumes", []):
        for source in ("configMap", "secret", "projected", "downwardAPI"):
            if source in volume:
                volume[source].setdefault("defaultMode", 0o644)
        if "hostPath" in volume:
            volume["hostPath"].setdefault("type", "")


def quality(spec: Tree) -> str:
    """qosClass: by the cpu and memory of all containers."""
    containers = [*spec.get("initContainers", []), *spec.get("containers", [])]
    rows = [container.get("resources", {}) for container in containers]
    counted = [
        {kind: {name: text for name, text in row.get(kind, {}).items() if name in {"cpu", "memory"}} for kind in row}
        for row in rows
    ]
    if not any(pairs for row in counted for pairs in row.values()):
        return "BestEffort"
    full = all(len(row.get("limits", {})) == 2 and row["limits"] == row.get("requests") for row in counted)
    return "Guaranteed" if full else "Burstable"


def _job(job: Tree) -> None:
    spec, meta = job.setdefault("spec", {}), job["metadata"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed" if "podFailurePolicy" not in spec else "Failed")
    spec.setdefault("manualSelector", False)
    template = spec.setdefault("template", {})
    pod_spec(template.setdefault("spec", {}))
    if not meta.get("labels") and template.get("metadata", {}).get("labels"):
        meta["labels"] = dict(template["metadata"]["labels"])
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    if not spec["manualSelector"]:
        for prefix in ("", "batch.kubernetes.io/"):
            labels |= {f"{prefix}controller-uid": meta["uid"], f"{prefix}job-name": meta["name"]}
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": meta["uid"]}}
    job.setdefault("status", {})


def _secret(secret: Tree) -> None:
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", {})
    if plain:
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in plain.items()}
        secret["data"] = {**secret.get("data", {}), **encoded}


def _namespace(namespace: Tree) -> None:
    meta = namespace["metadata"]
    meta.setdefault("labels", {})["kubernetes.io/metadata.name"] = meta["name"]
    namespace.setdefault("spec", {"finalizers": ["kubernetes"]})
    namespace["status"] = {"phase": "Active"}


def _event(event: Tree) -> None:
    event.setdefault("type", "Normal")
    event.setdefault("source", {})
    event.setdefault("reportingComponent", event["source"].get("component", ""))
    event.setdefault("reportingInstance", "")
