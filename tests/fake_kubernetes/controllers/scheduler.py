"""The scheduler: binds pods to nodes by requests and free resources. It knows no priorities."""

from __future__ import annotations

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.controllers.event_loop import EventLoop
from tests.fake_kubernetes.controllers.event_recorder import EventRecorder
from tests.fake_kubernetes.controllers.fitting import (
    exclusion_reason,
    free_resources,
    insufficient,
    unschedulable_message,
)
from tests.fake_kubernetes.node.environment import missing
from tests.fake_kubernetes.node.pod_status import OF_POD, set_condition
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree, is_older

OURSELVES = "default-scheduler"  # value of spec.schedulerName; pods of other schedulers are not bound
OVER = ("Succeeded", "Failed")


class Scheduler:
    """An event-driven scheduler. It tries a pod that fits nowhere again when something changes."""

    def __init__(self, store: Store, failures: list[BaseException]) -> None:
        self._store = store
        self._recorder = EventRecorder(store, "default-scheduler")
        self._nodes: dict[str, Tree] = {}
        self._placed: dict[str, dict[str, Tree]] = {}  # node -> uid -> pod that uses resources of it
        self._waiting: dict[str, Tree] = {}
        watched = store.subscribe("pods", "nodes", "persistentvolumeclaims")
        self._loop = EventLoop("scheduler", watched, self._handle, failures)

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.close()

    def _handle(self, event: str, plural: str, obj: Tree) -> None:
        meta = obj["metadata"]
        if plural == "pods":
            self._pod(event, obj)
            return
        if plural == "nodes":
            self._nodes.pop(meta["name"], None)
            if event != "DELETED":
                self._nodes[meta["name"]] = obj
        self._try_all()

    def _pod(self, event: str, pod: Tree) -> None:
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        known = self._waiting.get(uid) or self._placed.get(spec.get("nodeName", ""), {}).get(uid)
        if known is None and "nodeName" not in spec and any(uid in placed for placed in self._placed.values()):
            return  # an event from before we bound the pod
        if is_older(pod, known):
            return
        over = event == "DELETED" or pod.get("status", {}).get("phase") in OVER
        waited = self._waiting.pop(uid, None)
        if "nodeName" in spec:
            placed = self._placed.setdefault(spec["nodeName"], {})
            if not over:
                placed[uid] = pod
            elif placed.pop(uid, None):
                self._try_all()
        elif spec.get("schedulerName", OURSELVES) != OURSELVES or spec.get("schedulingGates"):
            return
        elif not over and "deletionTimestamp" not in pod["metadata"]:
            self._waiting[uid] = pod
            if waited is None or waited["spec"] != spec:
                self._try(pod)

    def _try_all(self) -> None:
        for pod in sorted(self._waiting.values(), key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
            self._try(pod)

    def _try(self, pod: Tree) -> None:
        try:
            self._place(pod)
        except KubeError as error:
            if error.code != 404:
                raise
            self._waiting.pop(pod["metadata"]["uid"], None)  # deleted meanwhile

    def _place(self, pod: Tree) -> None:
        if why := self._claims(pod):
            self._not_now(pod, f"0/{len(self._nodes)} nodes are available: {why}. not found")
            return
        reasons = []
        for name, node in sorted(self._nodes.items()):
            why = exclusion_reason(pod, node)
            lacks = [] if why else insufficient(pod, free_resources(node, self._placed.get(name, {}).values()))
            if not why and not lacks:
                self._bind(pod, name)
                return
            reasons.append([why] if why else lacks)
        self._not_now(pod, unschedulable_message(reasons))

    def _claims(self, pod: Tree) -> str:
        """Return which claim of the pod is missing, "" if none is."""
        for volume in pod["spec"].get("volumes", []):
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if name and not self._store.exists("persistentvolumeclaims", pod["metadata"]["namespace"], name):
                return missing("persistentvolumeclaims", name)
        return ""

    def _not_now(self, pod: Tree, why: str) -> None:
        meta = pod["metadata"]

        def note(new: Tree) -> None:
            status = new.setdefault("status", {})
            status.setdefault("phase", "Pending")
            set_condition(status, "PodScheduled", "False", "Unschedulable", why, **OF_POD)

        old = pod.get("status", {}).get("conditions", [])
        self._waiting[meta["uid"]] = self._store.change("pods", meta["namespace"], meta["name"], note)
        if not any(c["type"] == "PodScheduled" and c.get("message") == why for c in old):
            self._recorder.record(pod, "Warning", "FailedScheduling", why)

    def _bind(self, pod: Tree, node: str) -> None:
        meta = pod["metadata"]

        def bind(new: Tree) -> None:
            if new["metadata"]["uid"] != meta["uid"] or "deletionTimestamp" in new["metadata"]:
                raise KubeError(404, "not the pod that was to be bound")
            new["spec"]["nodeName"] = node
            status = new.setdefault("status", {})
            status.setdefault("phase", "Pending")
            set_condition(status, "PodScheduled", "True", "", "", **OF_POD)

        # before the write: the kubelet's events may arrive before the event of our own write
        self._waiting.pop(meta["uid"], None)
        bound = self._store.change("pods", meta["namespace"], meta["name"], bind)
        self._placed.setdefault(node, {})[meta["uid"]] = bound
        where = f"{meta['namespace']}/{meta['name']} to {node}"
        self._recorder.record(pod, "Normal", "Scheduled", f"Successfully assigned {where}")
