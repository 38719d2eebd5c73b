"""Claims of storage: binds them, and keeps a deleted one while a pod uses it."""

from __future__ import annotations

from tests.fake_kubernetes.controllers.event_loop import EventLoop
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree

PROTECTION = "kubernetes.io/pvc-protection"


class ClaimController:
    """Binds claims whose storage class exists, and claims that name none."""

    def __init__(self, store: Store, failures: list[BaseException]) -> None:
        self._store = store
        subscription = store.subscribe("persistentvolumeclaims", "storageclasses", "persistentvolumes", "pods")
        self._loop = EventLoop("claims", subscription, self._handle, failures)

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.close()

    def _handle(self, event: str, plural: str, obj: Tree) -> None:
        if plural == "pods":
            over = event == "DELETED" or obj.get("status", {}).get("phase") in ("Succeeded", "Failed")
            for name in _used(obj) if over else ():
                self._see(self._store.get("persistentvolumeclaims", obj["metadata"]["namespace"], name))
        elif event != "DELETED":
            for claim in [obj] if plural == "persistentvolumeclaims" else self._store.list("persistentvolumeclaims")[0]:
                self._see(claim)

    def _see(self, claim: Tree) -> None:
        if "deletionTimestamp" in claim["metadata"]:
            self._let_go(claim)
        elif claim.get("status", {}).get("phase") != "Bound":
            self._bind(claim)

    def _let_go(self, claim: Tree) -> None:
        meta = claim["metadata"]
        pods = self._store.list("pods", meta["namespace"])[0]
        alive = [pod for pod in pods if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
        if any(meta["name"] in _used(pod) for pod in alive):
            return

        def unguard(new: Tree) -> None:
            if PROTECTION in new["metadata"].get("finalizers", []):
                new["metadata"]["finalizers"].remove(PROTECTION)

        self._store.change("persistentvolumeclaims", meta["namespace"], meta["name"], unguard)

    def _bind(self, claim: Tree) -> None:
        meta, spec = claim["metadata"], claim["spec"]
        wanted = spec.get("storageClassName")
        volume = spec.get("volumeName")
        classes = {one["metadata"]["name"] for one in self._store.list("storageclasses")[0]}
        volumes = {one["metadata"]["name"] for one in self._store.list("persistentvolumes")[0]}
        possible = volume in volumes if volume else not wanted or wanted in classes

        def bind(new: Tree) -> None:
            status = new.setdefault("status", {})
            status["phase"] = "Bound" if possible else "Pending"
            if possible:
                new["spec"].setdefault("volumeName", f"pvc-{meta['uid']}")
                status["accessModes"] = spec.get("accessModes", [])
                status["capacity"] = dict(spec.get("resources", {}).get("requests", {}))

        self._store.change("persistentvolumeclaims", meta["namespace"], meta["name"], bind)


def _used(pod: Tree) -> list[str]:
    volumes = pod["spec"].get("volumes", [])
    return [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume]
