"""How many of a Job's pods are active, have succeeded, have failed."""

from __future__ import annotations

import time

from tests.fake_kubernetes.controllers.job_pods import OVER, index_of, phase_of, ranges, ready
from tests.fake_kubernetes.store.trees import Tree, is_older


class PodCounts:
    """The pods of one Job by their outcome, including deleted pods."""

    def __init__(self) -> None:
        self.pods: dict[str, Tree] = {}
        self.succeeded: dict[str, int | None] = {}  # uid -> index
        self.failed: set[str] = set()
        self.last_failure = 0.0

    def take(self, job: Tree, event: str, pod: Tree) -> None:
        """Record an event of a pod. An ended or deleted pod is counted once."""
        uid, phase = pod["metadata"]["uid"], phase_of(pod)
        if is_older(pod, self.pods.get(uid)):
            return
        if event == "DELETED":
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = pod
        if phase == "Succeeded" and uid not in self.failed:
            self.succeeded[uid] = index_of(pod)
        elif event == "DELETED" or phase == "Failed":
            self._fail(job, pod)

    def _fail(self, job: Tree, pod: Tree) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self.failed or uid in self.succeeded:
            return
        if not job["spec"].get("suspend"):
            self.failed.add(uid)
            self.last_failure = time.monotonic()

    @property
    def active(self) -> list[Tree]:
        return [p for p in self.pods.values() if phase_of(p) not in OVER and "deletionTimestamp" not in p["metadata"]]

    @property
    def terminating(self) -> list[Tree]:
        return [p for p in self.pods.values() if phase_of(p) not in OVER and "deletionTimestamp" in p["metadata"]]

    def free_index(self) -> int:
        taken = {index_of(pod) for pod in (*self.active, *self.terminating)} | set(self.succeeded.values())
        return next(index for index in range(10**6) if index not in taken)


def set_counts(status: Tree, counts: PodCounts) -> None:
    """Set the counters of a status. Zero counters are left out, except `ready` and `terminating`."""
    totals = {"active": len(counts.active), "succeeded": len(counts.succeeded), "failed": len(counts.failed)}
    for name, count in totals.items():
        status.pop(name, None)
        if count:
            status[name] = count
    indices = [index for index in counts.succeeded.values() if index is not None]
    if indices:
        status["completedIndexes"] = ranges(indices)
    status |= {"ready": sum(map(ready, counts.active)), "terminating": len(counts.terminating)}
    status["uncountedTerminatedPods"] = {}
