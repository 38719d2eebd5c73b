"""The scheduler: binds pods to nodes by requests, free resources and priorities."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.controllers.event_loop import EventLoop
from tests.fake_kubernetes.controllers.event_recorder import SchedulerEventRecorder
from tests.fake_kubernetes.controllers.fitting import (
    exclusion_reason,
    free_resources,
    insufficient,
    preference,
    unschedulable_message,
)
from tests.fake_kubernetes.node.environment import missing
from tests.fake_kubernetes.node.pod_status import OF_POD, set_condition
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree, is_older

PREEMPTED = "default-scheduler: preempting to accommodate a higher priority pod"
OVER = ("Succeeded", "Failed")


class Scheduler:
    """An event-driven scheduler. It tries a pod that fits nowhere again when something changes."""

    def __init__(self, store: Store, failures: list[BaseException]) -> None:
        self._store = store
        self._recorder = SchedulerEventRecorder(store, "default-scheduler")
        self._nodes: dict[str, Tree] = {}
        self._placed: dict[str, dict[str, Tree]] = {}  # node -> uid -> pod that uses resources of it
        self._waiting: dict[str, Tree] = {}
        plurals = ("pods", "nodes", "persistentvolumeclaims", "priorityclasses")
        self._loop = EventLoop("scheduler", store.subscribe(*plurals), self._handle, failures)

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
        elif not over and not spec.get("schedulingGates") and "deletionTimestamp" not in pod["metadata"]:
            self._waiting[uid] = pod
            if waited is None or waited["spec"] != spec:
                self._try(pod)

    def _try_all(self) -> None:
        ahead = sorted(
            self._waiting.values(), key=lambda pod: (-self._priority(pod), pod["metadata"]["creationTimestamp"])
        )
        for pod in ahead:
            self._try(pod)

    def _priority(self, pod: Tree) -> int:
        spec = pod["spec"]
        if "priority" in spec or not spec.get("priorityClassName"):
            return int(spec.get("priority") or 0)
        with contextlib.suppress(KubeError):
            return int(self._store.get("priorityclasses", "", spec["priorityClassName"])["value"])
        return 0

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
        reasons, helpful = [], []
        for name, node in sorted(self._nodes.items(), key=lambda each: -preference(pod, each[1])):
            why = exclusion_reason(pod, node)
            lacks = [] if why else insufficient(pod, free_resources(node, self._placed.get(name, {}).values()))
            if not why and not lacks:
                self._bind(pod, name)
                return
            reasons.append([why] if why else lacks)
            helpful.append(bool(lacks) and not insufficient(pod, free_resources(node, [])))
        if not self._preempt(pod):
            self._not_now(pod, unschedulable_message(reasons, helpful))

    def _claims(self, pod: Tree) -> str:
        """Return the problem with the pod's claims, "" if there is none."""
        for volume in pod["spec"].get("volumes", []):
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if not name:
                continue
            try:
                claim = self._store.get("persistentvolumeclaims", pod["metadata"]["namespace"], name)
            except KubeError:
                return missing("persistentvolumeclaims", name)
            if claim.get("status", {}).get("phase") != "Bound":
                return "pod has unbound immediate PersistentVolumeClaims"
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
            status.pop("nominatedNodeName", None)
            set_condition(status, "PodScheduled", "True", "", "", **OF_POD)

        # before the write: the kubelet's events may arrive before the event of our own write
        self._waiting.pop(meta["uid"], None)
        bound = self._store.change("pods", meta["namespace"], meta["name"], bind)
        self._placed.setdefault(node, {})[meta["uid"]] = bound
        where = f"{meta['namespace']}/{meta['name']} to {node}"
        self._recorder.record(pod, "Normal", "Scheduled", f"Successfully assigned {where}")

    def _preempt(self, pod: Tree) -> bool:
        """Delete pods of lower priority if that makes room. Returns True if a pod is deleted, or is being deleted."""
        priority = self._priority(pod)
        for name, node in self._nodes.items():
            if exclusion_reason(pod, node):
                continue
            placed = self._placed.get(name, {})
            going = [one for one in placed.values() if "deletionTimestamp" in one["metadata"]]
            less = sorted((one for one in placed.values() if self._priority(one) < priority), key=self._priority)
            victims: list[Tree] = []
            for victim in [one for one in less if one not in going]:
                left = [one for one in placed.values() if one not in victims and one not in going]
                if not insufficient(pod, free_resources(node, left)):
                    break
                victims.append(victim)
            left = [one for one in placed.values() if one not in victims and one not in going]
            if (victims or going) and less and not insufficient(pod, free_resources(node, left)):
                self._expel(pod, name, self._needed(pod, node, victims, left))
                return True
        return False

    def _needed(self, pod: Tree, node: Tree, victims: list[Tree], left: list[Tree]) -> list[Tree]:
        """Return the victims that must go to make room. Pods of higher priority are spared first."""
        for victim in sorted(victims, key=self._priority, reverse=True):
            if not insufficient(pod, free_resources(node, [*left, victim])):
                left = [*left, victim]
        return [victim for victim in victims if victim not in left]

    def _expel(self, pod: Tree, node: str, victims: Iterable[Tree]) -> None:
        for victim in victims:
            try:
                mark_disrupted(self._store, victim, "PreemptionByScheduler", PREEMPTED)
                told = f"Preempted by pod {pod['metadata']['uid']} on node {node}"
                self._recorder.record(victim, "Normal", "Preempted", told)
                self._store.delete("pods", victim["metadata"]["namespace"], victim["metadata"]["name"])
            except KubeError as error:
                if error.code != 404:  # the pod is gone, and its event comes
                    raise


def mark_disrupted(store: Store, pod: Tree, reason: str, message: str) -> None:
    """Set the condition that says that a pod ends through no fault of its own."""
    meta = pod["metadata"]

    def note(new: Tree) -> None:
        set_condition(new.setdefault("status", {}), "DisruptionTarget", "True", reason, message, **OF_POD)

    store.change("pods", meta["namespace"], meta["name"], note)


def evict(store: Store, pod: Tree, grace_s: int | None = None) -> None:
    """Evict a pod, as a POST of an Eviction does."""
    mark_disrupted(store, pod, "EvictionByEvictionAPI", "Eviction API: evicting")
    store.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"], grace_s=grace_s)
