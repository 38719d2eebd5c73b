"""Kueue: jobs that name a queue stay suspended until its quota has room for them.

If it serves API version v1beta2, its reasons are those of newer Kueues.
Else they are those of older ones: Pending and Inadmissible.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.controllers.event_loop import EventLoop
from tests.fake_kubernetes.controllers.event_recorder import EventRecorder
from tests.fake_kubernetes.kueue import workloads as kinds
from tests.fake_kubernetes.kueue.workloads import MANAGED, QUEUE, is_managed, is_true, set_suspended
from tests.fake_kubernetes.node.pod_status import set_condition
from tests.fake_kubernetes.store.quantities import quantity
from tests.fake_kubernetes.store.trees import Tree, is_older
from tests.fake_kubernetes.timings import Timings

if TYPE_CHECKING:
    from tests.fake_kubernetes.cluster import Kube

FLAVOR, CLUSTER_QUEUE = "default-flavor", "cluster-queue"
OLD = {"WaitingForQuota": "Pending", "ExceedsMaxQuota": "Pending", "Misconfigured": "Inadmissible"}
OVERTIME = "The workload is deactivated due to exceeding the maximum execution time"
EVICTIONS = {
    "Preempted": "Preempted to accommodate a workload (UID: 3f5b, JobUID: 77aa) due to prioritization in the "
    "ClusterQueue",
    "PodsReadyTimeout": "Exceeded the PodsReady timeout {workload}",
    "ClusterQueueStopped": "The ClusterQueue is stopped",
    "LocalQueueStopped": "The LocalQueue is stopped",
    "NodeFailures": "Workload eviction triggered by more than one node failure",
    "MaximumExecutionTimeExceeded": OVERTIME,
    "Deactivated": "The workload is deactivated",
}


class Kueue:
    """One ClusterQueue. set_quota() changes its quota, pause() stops admission, evict() takes a quota back."""

    def __init__(
        self,
        kube: Kube,
        timings: Timings,
        failures: list[BaseException],
        versions: tuple[str, ...],
        *,
        mandatory: bool,
    ) -> None:
        self._store, self._timings, self._mandatory = kube.store, timings, mandatory
        self._old = "v1beta2" not in versions
        self._recorder = EventRecorder(self._store, "kueue-job-controller")
        self._jobs: dict[str, tuple[str, Tree]] = {}  # uid -> (plural, object)
        self._workloads: dict[str, Tree] = {}  # by the uid of the job
        self._quota: dict[str, Fraction] = {}
        self._paused = False
        self._lock = threading.RLock()  # an admission or an eviction is complete before the next one starts
        for kind in kinds.served(versions):
            kube.custom_kinds.serve(kind)
        self._store.admission.append(self._admit)
        watched = [plural for plural in MANAGED if plural in self._store.kinds]
        subscription = self._store.subscribe(*watched, "pods", "workloads", "localqueues", "clusterqueues")
        self._loop = EventLoop("kueue", subscription, self._handle, failures)
        kube.custom_kinds.served.append(
            lambda kind: setattr(subscription, "plurals", subscription.plurals | ({kind.plural} & set(MANAGED)))
        )

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.close()

    def _admit(self, plural: str, obj: Tree) -> None:
        """The webhook: what names a queue is created suspended."""
        if is_managed(plural, obj):
            set_suspended(plural, obj, on=True)
        elif plural == "jobs" and self._mandatory and not obj["metadata"].get("ownerReferences"):
            why = f"admission webhook denied the request: the label '{QUEUE}' is missing from {obj['metadata']['name']}"
            raise KubeError(403, why)

    def add_queue(self, name: str, namespace: str, quota: Mapping[str, str]) -> None:
        """A LocalQueue of the one ClusterQueue; the first call makes that, too."""
        active = [{"type": "Active", "status": "True", "reason": "Ready", "message": "Can admit new workloads"}]
        if not self._store.list("clusterqueues")[0]:
            self._store.create("resourceflavors", "", {"metadata": {"name": FLAVOR}, "spec": {}})
            queue = {"metadata": {"name": CLUSTER_QUEUE}, "spec": _spec(quota), "status": {"conditions": active}}
            self._store.create("clusterqueues", "", queue)
            self._quota = {name: quantity(text) for name, text in quota.items()}
        local: Tree = {"metadata": {"name": name}, "spec": {"clusterQueue": CLUSTER_QUEUE}}
        self._store.create("localqueues", namespace, local | {"status": {"conditions": active}})

    def set_quota(self, quota: Mapping[str, str]) -> None:
        """Change the quota. Admitted workloads stay."""
        self._quota = {name: quantity(text) for name, text in quota.items()}
        self._store.change("clusterqueues", "", CLUSTER_QUEUE, lambda queue: queue.update(spec=_spec(quota)))

    def pause(self, *, on: bool = True) -> None:
        """Stop or resume admission."""
        with self._lock:
            self._paused = on
        self._loop.after(0.0, self._admit_all)

    def workload(self, job: str, namespace: str = "default") -> Tree:
        """Return the workload of a job. Raises KeyError."""
        found = [
            w for w in self._store.list("workloads", namespace)[0] if w["metadata"]["ownerReferences"][0]["name"] == job
        ]
        if not found:
            raise KeyError(job)
        return found[-1]

    def evict(self, job: str, reason: str, namespace: str = "default", *, message: str = "") -> None:
        """Evict a job for a reason of EVICTIONS.

        MaximumExecutionTimeExceeded and Deactivated are final; after the others the job is queued again.
        """
        with self._lock:
            workload = self.workload(job, namespace)
            self._evict(workload, reason, message or EVICTIONS[reason].format(workload=kinds.name_of(workload)))

    def _handle(self, event: str, plural: str, obj: Tree) -> None:
        with self._lock:
            self._handle_event(event, plural, obj)

    def _handle_event(self, event: str, plural: str, obj: Tree) -> None:
        uid = obj["metadata"]["uid"]
        if plural == "workloads":
            owner = obj["metadata"]["ownerReferences"][0]["uid"]
            if event == "DELETED":
                self._workloads.pop(owner, None)
            elif not is_older(obj, self._workloads.get(owner)):
                self._workloads[owner] = obj
        elif is_managed(plural, obj):
            if event == "DELETED":
                self._jobs.pop(uid, None)
            else:
                self._jobs[uid] = (plural, obj)
                self._job(plural, obj)
        elif plural == "pods":
            self._pods_ready(obj)
            return
        self._admit_all()

    def _job(self, plural: str, job: Tree) -> None:
        meta = job["metadata"]
        if meta["uid"] not in self._workloads and not kinds.ended(plural, job):
            made = self._store.create("workloads", meta["namespace"], kinds.workload_of(plural, job))
            self._workloads[meta["uid"]] = made
            name = kinds.name_of(made)
            self._recorder.record(job, "Normal", "CreatedWorkload", f"Created Workload: {name}")
        workload = self._workloads.get(meta["uid"])
        end = kinds.ended(plural, job)
        if workload and end and not is_true(workload, "Finished"):
            self._write(workload, ("Finished", "True", *end))
            self._recorder.record(
                job, "Normal", "FinishedWorkload", f"Workload '{kinds.name_of(workload)}' is declared finished"
            )

    def _pods_ready(self, pod: Tree) -> None:
        owner = next((o["uid"] for o in pod["metadata"].get("ownerReferences", []) if o.get("controller")), "")
        workload = self._workloads.get(owner)
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", []))
        if workload and ready and is_true(workload, "Admitted") and not is_true(workload, "PodsReady"):
            message = "All pods reached readiness and the workload is running"
            self._write(workload, ("PodsReady", "True", "Started", message))

    def _write(self, workload: Tree, *rows: tuple[str, str, str, str], **spec: Any) -> Tree:
        meta = workload["metadata"]

        def change(new: Tree) -> None:
            new["spec"] |= spec
            for row in rows:
                set_condition(new.setdefault("status", {}), *row)

        new = self._store.change("workloads", meta["namespace"], meta["name"], change)
        self._workloads[meta["ownerReferences"][0]["uid"]] = new
        return new

    def _admit_all(self) -> None:
        with self._lock:
            for workload in _waiting(self._workloads.values()):
                if workload["metadata"]["ownerReferences"][0]["uid"] in self._jobs and not self._paused:
                    self._try_to_admit(workload)

    def _used(self) -> dict[str, Fraction]:
        used: dict[str, Fraction] = {}
        for workload in self._workloads.values():
            if is_true(workload, "QuotaReserved") and not is_true(workload, "Finished"):
                for name, amount in kinds.needs(workload).items():
                    used[name] = used.get(name, Fraction()) + amount
        return used

    def _try_to_admit(self, workload: Tree) -> None:
        namespace, queue = workload["metadata"]["namespace"], workload["spec"]["queueName"]
        queues = {one["metadata"]["name"] for one in self._store.list("localqueues", namespace)[0]}
        reason, message = kinds.shortage(kinds.needs(workload), self._used(), self._quota, FLAVOR)
        if queue not in queues:
            reason, message = "Misconfigured", f"LocalQueue {queue} doesn't exist"
        if reason:
            word = OLD[reason] if self._old else reason
            before = next((c for c in kinds.conditions(workload) if c["type"] == "QuotaReserved"), {})
            if before.get("message") != message:
                new = self._write(workload, ("QuotaReserved", "False", word, message))
                self._recorder.record(new, "Warning", "Pending", message)
            return
        self._admit_workload(workload)

    def _admit_workload(self, workload: Tree) -> None:
        plural, job = self._jobs[workload["metadata"]["ownerReferences"][0]["uid"]]
        rows = [("QuotaReserved", "True", "QuotaReserved", f"Quota reserved in ClusterQueue {CLUSTER_QUEUE}")]
        if is_true(workload, "Evicted"):
            old = next(c for c in kinds.conditions(workload) if c["type"] == "Evicted")
            rows.append(("Evicted", "False", "QuotaReserved", f"Previously: {old['message']}"))
        rows.append(("Admitted", "True", "Admitted", "The workload is admitted"))
        rows.append(("PodsReady", "False", "WaitForStart", "Not all pods are ready or succeeded"))
        new = self._write(workload, *rows)
        meta = job["metadata"]
        self._recorder.record(job, "Normal", "Started", f"Admitted by clusterQueue {CLUSTER_QUEUE}")
        self._store.change(plural, meta["namespace"], meta["name"], lambda one: set_suspended(plural, one, on=False))
        limit, uid = new["spec"].get("maximumExecutionTimeSeconds"), new["metadata"]["ownerReferences"][0]["uid"]
        if limit:
            given = time.monotonic()
            self._loop.after(limit, lambda: self._overtime(uid, limit, given))

    def _overtime(self, uid: str, limit: float, given: float) -> None:
        with self._lock:
            workload = self._workloads.get(uid)
            overdue = time.monotonic() - given >= limit - 0.01
            if workload and overdue and is_true(workload, "Admitted") and not is_true(workload, "Finished"):
                self._evict(workload, "MaximumExecutionTimeExceeded", OVERTIME)

    def _evict(self, workload: Tree, reason: str, message: str) -> None:
        final = reason in ("MaximumExecutionTimeExceeded", "Deactivated")
        word = f"DeactivatedDueTo{reason}" if self._old and reason.startswith("Max") else reason
        waits = "Pending" if self._old else "WaitingForQuota"
        self._write(
            workload,
            ("Evicted", "True", word, message),
            ("QuotaReserved", "False", waits, message),
            ("Admitted", "False", "NoReservation", "The workload has no reservation"),
            ("PodsReady", "False", "WaitForStart", "Not all pods are ready or succeeded"),
            ("Requeued", "False" if final else "True", word, message),
            **({"active": False} if final else {}),
        )
        plural, job = self._jobs[workload["metadata"]["ownerReferences"][0]["uid"]]
        meta = job["metadata"]
        self._recorder.record(job, "Normal", "Stopped", message)
        if plural == "pods":  # which cannot be suspended
            self._store.delete("pods", meta["namespace"], meta["name"])
        else:
            self._store.change(plural, meta["namespace"], meta["name"], lambda one: set_suspended(plural, one, on=True))


def _spec(quota: Mapping[str, str]) -> Tree:
    rows = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
    group = {"coveredResources": list(quota), "flavors": [{"name": FLAVOR, "resources": rows}]}
    return {"namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO", "resourceGroups": [group] if quota else []}


def _waiting(workloads: Iterable[Tree]) -> list[Tree]:
    """Return the pending workloads in their order: by priority, then as given, which is oldest first."""
    found = [one for one in workloads if one["spec"]["active"] and not is_true(one, "QuotaReserved", "Finished")]
    return sorted(found, key=lambda one: -int(one["spec"].get("priority") or 0))
