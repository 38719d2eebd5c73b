"""The defaults that the API server adds to a new object, and refusals of its admission controllers."""

from __future__ import annotations

import base64
from collections.abc import Callable

from tests.fake_kubernetes.api.errors import forbidden
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree


class Defaults:
    """An admission function of the store: called with (plural, object) at each creation."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_kind: dict[str, Callable[[Tree], None]] = {
            "pods": self._pod,
            "jobs": _job,
            "secrets": _secret,
            "namespaces": _namespace,
            "persistentvolumeclaims": self._claim,
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
        pod.setdefault("status", {}).setdefault("phase", "Pending")

    def _priority(self, pod: Tree, spec: Tree) -> None:
        name = spec.get("priorityClassName", "")
        if name and not self._store.exists("priorityclasses", "", name):
            raise forbidden("pods", pod["metadata"]["name"], f"no PriorityClass with name {name} was found")

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
    spec.setdefault("schedulerName", "default-scheduler")
    for container in [*spec.get("initContainers", []), *spec.get("containers", [])]:
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("imagePullPolicy", "IfNotPresent")
        resources = container.setdefault("resources", {})
        for name, text in resources.get("limits", {}).items():
            resources.setdefault("requests", {}).setdefault(name, text)


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
