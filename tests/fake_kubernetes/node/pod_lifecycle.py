"""The life of a pod on its node: volumes, init containers, containers, restarts, deadline, grace period, end."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.node.container_start import ContainerStart
from tests.fake_kubernetes.node.pod_status import (
    PodContainer,
    conditions,
    container_status,
    missing,
    phase_of,
)
from tests.fake_kubernetes.node.volumes import NotMounted, Volumes
from tests.fake_kubernetes.store.trees import Tree, timestamp

if TYPE_CHECKING:
    from tests.fake_kubernetes.node.kubelet import Kubelet

OVERDUE = "Pod was active on the node longer than the specified deadline"
HOST_IP = "127.0.0.1"
DEFAULT_GRACE_S = 30


class PodLifecycle:
    """One pod on its node. All methods run in the node's thread."""

    def __init__(self, node: Kubelet, pod: Tree) -> None:
        self.node, self.pod = node, pod
        meta, spec = pod["metadata"], pod["spec"]
        self.uid = meta["uid"]
        self.folder = node.shared.folder / "pods" / self.uid
        self.containers = [PodContainer(each, initial=True) for each in spec.get("initContainers", [])]
        self.containers += [PodContainer(each) for each in spec["containers"]]
        for container in self.containers if spec.get("initContainers") else ():
            container.wait("PodInitializing")
        self.volumes = Volumes(self.folder / "volumes", node.shared.folder / "claims")
        self.policy = spec.get("restartPolicy", "Always")
        self.over = False
        self.stopping = False
        self._kill_at = float("inf")
        self._end_reason: Tree = {}
        self._phase = "Pending"
        self._attempts = 0
        self._limit: int | None = None  # the activeDeadlineSeconds that has a timer
        self._began = time.time()

    def record_event(self, kind: str, reason: str, message: str, container: PodContainer | None = None) -> None:
        self.node.recorder.record(self.pod, kind, reason, message, container.name if container else "")

    def begin(self) -> None:
        if "deletionTimestamp" in self.pod["metadata"]:
            self.handle_update(self.pod)
            return
        self.publish()
        self.node.shared.names.add(self.pod)
        self._set_deadline()
        self.advance()

    def publish(self) -> None:
        """Write the current status."""
        meta = self.pod["metadata"]
        with contextlib.suppress(KubeError):  # the pod is gone, and its event comes
            self.pod = self.node.shared.store.change("pods", meta["namespace"], meta["name"], self._write)

    def _write(self, pod: Tree) -> None:
        if pod["metadata"]["uid"] != self.uid:
            raise KubeError(404, "another pod of that name")
        if not self.over:  # the final phase is written only after cleaning up
            phase = phase_of(self.containers, self.policy)
            self._phase = self._phase if phase in ("Succeeded", "Failed") else phase
        status: Tree = {"observedGeneration": pod["metadata"].get("generation", 1), "phase": self._phase}
        status["conditions"] = conditions(self.containers, self._phase, pod.get("status", {}).get("conditions", []))
        status |= self._end_reason if self.over else {}
        status |= {"hostIP": HOST_IP, "hostIPs": [{"ip": HOST_IP}]}
        status |= {"podIP": HOST_IP, "podIPs": [{"ip": HOST_IP}], "startTime": timestamp(self._began)}
        initial = [container_status(container) for container in self.containers if container.initial]
        if initial:
            status["initContainerStatuses"] = initial
        status["containerStatuses"] = [
            container_status(container) for container in self.containers if not container.initial
        ]
        pod["status"] = status

    def handle_update(self, pod: Tree) -> None:
        """Handle a new version of the pod."""
        if int(pod["metadata"]["resourceVersion"]) > int(self.pod["metadata"]["resourceVersion"]):
            self.pod = pod
        if self.pod["spec"].get("activeDeadlineSeconds") != self._limit:  # the change may have come with our own write
            self._set_deadline()
        if "deletionTimestamp" in pod["metadata"]:
            self.stop(pod["metadata"].get("deletionGracePeriodSeconds", 0))

    def advance(self) -> None:
        """Start what can start now."""
        if self.stopping or self.over:
            return
        try:
            self.volumes.set_up(self.pod, lambda plural, name: self.node.get(self.pod, plural, name))
        except NotMounted as error:
            self._attempts += 1
            self.record_event("Warning", "FailedMount", str(error))
            self.later(self._attempts, self.advance)
            return
        for container in self.containers:
            if container.initial and container.exit_code == 0:
                continue
            if not container.busy and container.exit_code is None:
                container.busy = True
                ContainerStart(self, container).begin()
            if container.initial:
                return

    def later(self, attempt: int, action: Any) -> None:
        """Call `action` again after a pause, unless the pod has ended by then."""
        timings = self.node.shared.timings
        self.node.after(
            timings.backoff(timings.retry_s, attempt), lambda: None if self.stopping or self.over else action()
        )

    def handle_runtime_message(self, message: dict[str, Any]) -> None:
        """Handle a message of the runtime about one of the containers."""
        for container in self.containers:
            if container.process is not None and container.process.id == message["id"]:
                if container.process.handle_message(message):
                    self._ended(container)
                return

    def _ended(self, container: PodContainer) -> None:
        container.process, container.busy = None, False
        if self.stopping and not any(other.process for other in self.containers):
            self.finish()
            return
        self.publish()
        if self.stopping:
            return
        if container.initial and container.exit_code == 0:
            self.node.after(0, self.advance)
        elif container.initial or not any(other.exit_code is None or other.busy for other in self.containers):
            self.node.after(self.node.shared.timings.settle_s, self.finish)

    def _set_deadline(self) -> None:
        limit = self._limit = self.pod["spec"].get("activeDeadlineSeconds")
        if limit is not None:
            self.node.after(max(0.0, self._began + limit - time.time()), self._deadline)

    def _deadline(self) -> None:
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        if limit is None or time.time() < self._began + limit - 0.01 or self.over or self.stopping:
            return
        self.record_event("Normal", "DeadlineExceeded", OVERDUE)
        self._end_reason = {"reason": "DeadlineExceeded", "message": OVERDUE}
        self.stop(self.pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_S))

    def stop(self, grace_s: float) -> None:
        """Send SIGTERM, and SIGKILL after the grace period. A second call can only shorten that period."""
        if not self.stopping and not self.over:
            self.stopping = True
            self.publish()  # shows that the kubelet knows of the deletion
            for container in self.containers:
                if container.process:
                    self.record_event("Normal", "Killing", f"Stopping container {container.name}", container)
                    if grace_s:
                        container.process.signal(signal.SIGTERM)
        if self.over or not any(container.process for container in self.containers):
            self.finish()
            return
        kill_at = time.monotonic() + grace_s
        if kill_at < self._kill_at:
            self._kill_at = kill_at
            self.node.after(grace_s, self._kill)

    def _kill(self) -> None:
        for container in self.containers:
            if container.process:
                container.process.signal(signal.SIGKILL)

    def finish(self) -> None:
        """Finish a pod whose containers have ended. A pod that is being deleted is removed."""
        if not self.over:
            self.over = True
            phase = phase_of(self.containers, self.policy)
            self._phase = phase if phase in ("Succeeded", "Failed") and not self._end_reason else "Failed"
            self.publish()
            self._tidy()
            if self._end_reason:
                self.node.after(self.node.shared.timings.settle_s, self._miss_containers)
        meta = self.pod["metadata"]
        if "deletionTimestamp" in meta:
            self.node.shared.store.remove("pods", meta["namespace"], meta["name"], uid=self.uid)

    def _miss_containers(self) -> None:
        """Report containers that never started as not located."""
        waiting = [container for container in self.containers if "waiting" in container.state]
        for container in waiting:
            container.state = missing("The container could not be located when the pod was terminated")
        if waiting:
            self.publish()

    def vanish(self) -> None:
        """Kill what still runs, because the object is gone."""
        self.stopping = self.over = True
        self._kill()
        self._tidy()

    def _tidy(self) -> None:
        self.node.shared.names.remove(self.pod)
        self.volumes.tear_down()
        shutil.rmtree(self.folder, ignore_errors=True)
