"""The Job controller. It leaves finished Jobs, whatever their TTL is."""

from __future__ import annotations

import time
from typing import Any

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.controllers.event_loop import EventLoop
from tests.fake_kubernetes.controllers.event_recorder import EventRecorder
from tests.fake_kubernetes.controllers.job_pod_counts import PodCounts, set_counts
from tests.fake_kubernetes.controllers.job_pods import job_pod
from tests.fake_kubernetes.node.pod_status import set_condition
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree, is_older, timestamp, unix
from tests.fake_kubernetes.timings import Timings

OURSELVES = "kubernetes.io/job-controller"  # value of spec.managedBy; Jobs of other controllers are ignored
REACHED = ("CompletionsReached", "Reached expected number of succeeded pods")
BACKOFF = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
DEADLINE = ("DeadlineExceeded", "Job was active longer than specified deadline")


class JobController:
    """One event-driven thread for all Jobs."""

    def __init__(self, store: Store, timings: Timings, failures: list[BaseException]) -> None:
        self._store, self._timings = store, timings
        self._recorder = EventRecorder(store, "job-controller")
        self._jobs: dict[str, Tree] = {}
        self._counts: dict[str, PodCounts] = {}
        self._refusals: dict[str, int] = {}
        self._loop = EventLoop("jobs", store.subscribe("jobs", "pods"), self._handle, failures)

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.close()

    def _handle(self, event: str, plural: str, obj: Tree) -> None:
        uid = obj["metadata"]["uid"]
        if plural == "jobs" and obj["spec"].get("managedBy", OURSELVES) != OURSELVES:
            return
        if plural == "pods":
            uid = next((o["uid"] for o in obj["metadata"].get("ownerReferences", []) if o["kind"] == "Job"), "")
            if uid in self._jobs:
                self._counts[uid].take(self._jobs[uid], event, obj)
        elif event == "DELETED":
            self._jobs.pop(uid, None)
        elif is_older(obj, self._jobs.get(uid)):
            return
        else:
            if self._limit(obj) != self._limit(self._jobs.get(uid)):
                self._deadlines(obj)
            self._counts.setdefault(uid, PodCounts())
            self._jobs[uid] = obj
        self._sync(uid)

    def _later(self, seconds: float, uid: str) -> None:
        self._loop.after(max(0.0, seconds), lambda: self._sync(uid))

    @staticmethod
    def _limit(job: Tree | None) -> Any:
        return job and job["spec"].get("activeDeadlineSeconds")

    def _deadlines(self, job: Tree) -> None:
        limit, started = job["spec"].get("activeDeadlineSeconds"), job.get("status", {}).get("startTime")
        if limit is not None:
            self._later((unix(started) if started else time.time()) + limit - time.time(), job["metadata"]["uid"])

    def _tell(self, job: Tree, kind: str, reason: str, message: str) -> None:
        self._recorder.record(job, kind, reason, message)

    def _write(self, job: Tree, change: Any) -> Tree:
        meta = job["metadata"]

        def write(one: Tree) -> None:
            if one["metadata"]["uid"] != meta["uid"]:
                raise KubeError(404, "another job of that name")
            change(one["status"])

        new = self._store.change("jobs", meta["namespace"], meta["name"], write)
        self._jobs[meta["uid"]] = new
        return new

    def _sync(self, uid: str) -> None:
        job = self._jobs.get(uid)
        if job is None or "deletionTimestamp" in job["metadata"]:
            return
        if _is(job, "Complete") or _is(job, "Failed"):
            return
        if "status" not in job:
            job = self._store.change(
                "jobs", job["metadata"]["namespace"], job["metadata"]["name"], lambda one: one.setdefault("status", {})
            )
        counts = self._counts[uid]
        if job["spec"].get("suspend"):
            self._suspend(job, counts)
            return
        if "startTime" not in job["status"]:
            job = self._resume(job)
        ending = self._ending(job, counts)
        if ending:
            self._end(job, counts, *ending)
        else:
            self._fill(job, counts)
            self._write_counts(self._jobs[uid], counts)

    def _suspend(self, job: Tree, counts: PodCounts) -> None:
        self._stop(job, counts)

        def suspended(status: Tree) -> None:
            set_condition(status, "Suspended", "True", "JobSuspended", "Job suspended", lastProbeTime=timestamp())
            status.pop("startTime", None)
            set_counts(status, counts)

        if not _is(job, "Suspended"):
            self._tell(job, "Normal", "Suspended", "Job suspended")
        self._write(job, suspended)

    def _resume(self, job: Tree) -> Tree:
        was = any(c["type"] == "Suspended" for c in job["status"].get("conditions", []))

        def begin(status: Tree) -> None:
            status["startTime"] = timestamp()
            if was:
                set_condition(status, "Suspended", "False", "JobResumed", "Job resumed", lastProbeTime=timestamp())

        if was:
            self._tell(job, "Normal", "Resumed", "Job resumed")
        new = self._write(job, begin)
        self._deadlines(new)
        return new

    def _ending(self, job: Tree, counts: PodCounts) -> tuple[str, str, str, str] | None:
        """Return (first condition, last condition, reason, message) if the Job has ended, else None."""
        spec = job["spec"]
        failed = _condition(job, "FailureTarget")
        if failed:
            return "FailureTarget", "Failed", failed["reason"], failed["message"]
        over_limit = len(counts.failed) > spec.get("backoffLimit", 6)
        started = unix(job["status"]["startTime"])
        overdue = time.time() - started >= spec.get("activeDeadlineSeconds", float("inf"))
        if over_limit or overdue:
            return "FailureTarget", "Failed", *(BACKOFF if over_limit else DEADLINE)
        if self._reached(job, counts):
            return "SuccessCriteriaMet", "Complete", *REACHED
        return None

    def _reached(self, job: Tree, counts: PodCounts) -> bool:
        wanted = job["spec"].get("completions")
        if wanted is None:  # a work queue: complete once one pod has succeeded and none is active
            return bool(counts.succeeded) and not counts.active
        return bool(len(counts.succeeded) >= wanted)

    def _end(self, job: Tree, counts: PodCounts, first: str, last: str, reason: str, message: str) -> None:
        self._stop(job, counts)
        counts.failed |= {pod["metadata"]["uid"] for pod in counts.terminating} if first == "FailureTarget" else set()
        if not _is(job, first):
            job = self._write(job, lambda status: self._conclude(status, counts, first, reason, message))
        if counts.active or any("deletionTimestamp" in pod["metadata"] for pod in counts.pods.values()):
            self._write_counts(job, counts)
            return
        job = self._write(job, lambda status: self._conclude(status, counts, last, reason, message))
        if last == "Complete":
            self._tell(job, "Normal", "Completed", "Job completed")
        else:
            self._tell(job, "Warning", reason, message)

    def _conclude(self, status: Tree, counts: PodCounts, name: str, reason: str, message: str) -> None:
        set_condition(status, name, "True", reason, message, lastProbeTime=timestamp())
        set_counts(status, counts)
        if name == "Complete":
            status["completionTime"] = timestamp()

    def _stop(self, job: Tree, counts: PodCounts) -> None:
        for pod in counts.active:
            name = pod["metadata"]["name"]
            try:
                gone = self._store.delete("pods", pod["metadata"]["namespace"], name)
            except KubeError:
                gone = pod
                counts.pods.pop(pod["metadata"]["uid"], None)
            else:
                counts.pods[pod["metadata"]["uid"]] = gone
                self._tell(job, "Normal", "SuccessfulDelete", f"Deleted pod: {name}")

    def _fill(self, job: Tree, counts: PodCounts) -> None:
        spec = job["spec"]
        parallel, wanted = spec.get("parallelism", 1), spec.get("completions")
        left = parallel if wanted is None else min(parallel, wanted - len(counts.succeeded))
        if wanted is None and counts.succeeded:
            left = 0
        missing = left - len(counts.active) - len(counts.terminating)
        pause = self._timings.backoff(self._timings.job_backoff_s, len(counts.failed)) if counts.failed else 0.0
        rest = counts.last_failure + pause - time.monotonic()
        if missing > 0 and counts.failed and rest > 0.001:
            self._later(rest, job["metadata"]["uid"])
            return
        for _ in range(missing):
            if not self._create(job, counts):
                return

    def _create(self, job: Tree, counts: PodCounts) -> bool:
        uid, indexed = job["metadata"]["uid"], job["spec"].get("completionMode") == "Indexed"
        pod = job_pod(job, counts.free_index() if indexed else None)
        try:
            made = self._store.create("pods", job["metadata"]["namespace"], pod)
        except KubeError as error:
            self._tell(job, "Warning", "FailedCreate", f"Error creating: {error.message}")
            self._refusals[uid] = self._refusals.get(uid, 0) + 1
            self._later(self._timings.backoff(self._timings.retry_s, self._refusals[uid]), uid)
            return False
        counts.pods[made["metadata"]["uid"]] = made
        self._tell(job, "Normal", "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        return True

    def _write_counts(self, job: Tree, counts: PodCounts) -> None:
        self._write(job, lambda status: set_counts(status, counts))


def _condition(job: Tree, name: str) -> Tree | None:
    listed: list[Tree] = job.get("status", {}).get("conditions", [])
    return next((c for c in listed if c["type"] == name and c["status"] == "True"), None)


def _is(job: Tree, name: str) -> bool:
    return _condition(job, name) is not None
