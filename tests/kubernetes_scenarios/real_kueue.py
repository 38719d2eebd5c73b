"""A real Kueue's queue of a test's own, which the test pauses, and from which it takes back what was given."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from tests.fake_kubernetes.api.errors import KubeError
from tests.kubernetes_scenarios.cluster_admin import ClusterAdmin, Tree

GROUP = "kueue.x-k8s.io"
EVICTIONS = {
    "Preempted": "Preempted to accommodate a workload (UID: 3f5b) due to prioritization in the ClusterQueue",
    "PodsReadyTimeout": "Exceeded the PodsReady timeout {workload}",
    "MaximumExecutionTimeExceeded": "The workload is deactivated due to exceeding the maximum execution time",
    "Deactivated": "The workload is deactivated",
}
PATIENCE_S = 120.0


class RealKueue:
    """ClusterQueue and flavor are named after the session, the LocalQueue is `name` in its namespace."""

    def __init__(self, admin: ClusterAdmin, key: str, name: str, quota: dict[str, str]) -> None:
        """Raises KubeError, AssertionError."""
        self._admin, self._name = admin, f"bench-{key}"
        self._version = admin.ask("GET", f"/apis/{GROUP}")["preferredVersion"]["groupVersion"]
        amounts = [{"name": each, "nominalQuota": amount} for each, amount in quota.items()]
        group = {"coveredResources": list(quota), "flavors": [{"name": self._name, "resources": amounts}]}
        self._create("ResourceFlavor", self._name, {})
        self._create("ClusterQueue", self._name, {"namespaceSelector": {}, "resourceGroups": [group]})
        self._create("LocalQueue", name, {"clusterQueue": self._name})

    def _kind(self, plural: str) -> str:
        return f"{plural}.{self._version}"

    def _create(self, kind: str, name: str, spec: Tree) -> None:
        made = {"apiVersion": self._version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        self._admin.create(self._kind(f"{kind.lower()}s"), made)

    def pause(self, *, on: bool = True) -> None:
        """Nothing is admitted."""
        policy = {"spec": {"stopPolicy": "Hold" if on else "None"}}
        self._admin.patch(self._kind("clusterqueues"), self._name, policy)

    def workload(self, job: str) -> Tree:
        """Of a job by its name. KeyError."""
        for each in self._admin.list(self._kind("workloads")):
            if any(owner["name"] == job for owner in each["metadata"].get("ownerReferences", ())):
                return each
        raise KeyError(job)

    def evict(self, job: str, reason: str) -> None:
        """A key of EVICTIONS: Kueue acts on the condition, whoever has written it."""
        name = self.workload(job)["metadata"]["name"]
        message = EVICTIONS[reason].format(workload=f"{self._admin.namespace}/{name}")
        if reason == "Deactivated":
            return self._admin.patch(self._kind("workloads"), name, {"spec": {"active": False}})
        kind = "DeactivationTarget" if reason == "MaximumExecutionTimeExceeded" else "Evicted"
        return self._say(job, name, kind, reason, message)

    def _say(self, job: str, name: str, kind: str, reason: str, message: str) -> None:
        when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        row: dict[str, Any] = {"type": kind, "status": "True", "reason": reason, "message": message}
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            known = self.workload(job)
            others = [each for each in known["status"].get("conditions", ()) if each["type"] != kind]
            rows = [*others, {**row, "lastTransitionTime": when}]
            version = {"resourceVersion": known["metadata"]["resourceVersion"]}
            try:
                change = {"metadata": version, "status": {"conditions": rows}}
                return self._admin.patch(self._kind("workloads"), name, change, "status")
            except KubeError as error:
                if error.code != 409:  # Kueue has changed it since
                    raise
        raise AssertionError(f"workload {name} changes all the time")
