"""A pod's life on its node: volumes, init containers, containers, restarts, deadline, grace, end."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.node.container_start import Start
from tests.fake_kubernetes.node.pod_status import HAD_RUN, Box, conditions, container_status, missing, phase_of, qos
from tests.fake_kubernetes.node.volumes import STORAGE, NotMounted, Volumes, limited, storage_limit
from tests.fake_kubernetes.store.trees import Tree, timestamp

if TYPE_CHECKING:
    from tests.fake_kubernetes.node.kubelet import Kubelet

OVERDUE = "Pod was active on the node longer than the specified deadline"
HOST_IP = "127.0.0.1"
DEFAULT_GRACE_S = 30


class Life:
    """All methods run in the node's thread."""

    def __init__(self, node: Kubelet, pod: Tree) -> None:
        self.node, self.pod = node, pod
        meta, spec = pod["metadata"], pod["spec"]
        self.uid = meta["uid"]
        self.folder = node.shop.folder / "pods" / self.uid
        self.boxes = [Box(each, initial=True) for each in spec.get("initContainers", [])]
        self.boxes += [Box(each) for each in spec["containers"]]
        for box in self.boxes if spec.get("initContainers") else ():
            box.wait("PodInitializing")
        self.volumes = Volumes(self.folder / "volumes", node.shop.folder / "claims", node.shop.containers)
        self.limited = limited(pod)
        self.policy = spec.get("restartPolicy", "Always")
        self.over = False
        self.stopping = False
        self._kill_at = float("inf")
        self._why: Tree = {}
        self._forgotten = False  # the node has nothing left of its containers when it looks for how they ended
        self._phase = "Pending"
        self._attempts = 0
        self._limit: int | None = None  # activeDeadlineSeconds that is kept
        self._began = time.time()
        self._address = HOST_IP if spec.get("hostNetwork") else node.shop.address()

    def tell(self, kind: str, reason: str, message: str, box: Box | None = None) -> None:
        self.node.recorder.tell(self.pod, kind, reason, message, box.name if box else "")

    def begin(self) -> None:
        if "deletionTimestamp" in self.pod["metadata"]:
            self.see(self.pod)
            return
        self.publish()
        self.node.shop.names.serve(self.pod, self.folder / "names")
        self._set_deadline()
        if self.limited:
            self.node.watch_volumes()
        self.advance()

    def publish(self) -> None:
        """Writes the status as it is now."""
        meta = self.pod["metadata"]
        with contextlib.suppress(KubeError):  # it is gone: the event of that comes
            self.pod = self.node.shop.store.change("pods", meta["namespace"], meta["name"], self._write)

    def _write(self, pod: Tree) -> None:
        if pod["metadata"]["uid"] != self.uid:
            raise KubeError(404, "another pod of that name")
        if not self.over:  # the last phase is only told when all is cleaned up
            phase = phase_of(self.boxes, self.policy)
            self._phase = self._phase if phase in ("Succeeded", "Failed") else phase
        status: Tree = {"observedGeneration": pod["metadata"].get("generation", 1), "phase": self._phase}
        status["conditions"] = conditions(self.boxes, self._phase, pod.get("status", {}).get("conditions", []))
        status |= self._why if self.over else {}
        status |= {"hostIP": HOST_IP, "hostIPs": [{"ip": HOST_IP}]}
        status |= {"podIP": self._address, "podIPs": [{"ip": self._address}], "startTime": timestamp(self._began)}
        initial = [container_status(box) for box in self.boxes if box.initial]
        if initial:
            status["initContainerStatuses"] = initial
        status["containerStatuses"] = [container_status(box) for box in self.boxes if not box.initial]
        pod["status"] = status | {"qosClass": qos(pod["spec"]), "resources": {}}

    def see(self, pod: Tree) -> None:
        """The pod as somebody has written it."""
        if int(pod["metadata"]["resourceVersion"]) > int(self.pod["metadata"]["resourceVersion"]):
            self.pod = pod
        if self.pod["spec"].get("activeDeadlineSeconds") != self._limit:  # it may have come with a write of ours
            self._set_deadline()
        if "deletionTimestamp" in pod["metadata"]:
            self.stop(pod["metadata"].get("deletionGracePeriodSeconds", 0))

    def advance(self) -> None:
        """Begins what can be begun now."""
        if self.stopping or self.over:
            return
        try:
            self.volumes.set_up(self.pod, lambda plural, name: self.node.get(self.pod, plural, name))
        except NotMounted as error:
            self._attempts += 1
            self.tell("Warning", "FailedMount", str(error))
            self.later(self._attempts, self.advance)
            return
        for box in self.boxes:
            if box.initial and box.exit_code == 0:
                continue
            if not box.busy and box.exit_code is None:
                box.busy = True
                Start(self, box).begin()
            if box.initial:
                return

    def later(self, attempt: int, action: Any) -> None:
        """What did not work is tried again, if the pod still wants it."""
        pace = self.node.shop.pace
        self.node.after(pace.backoff(pace.retry_s, attempt), lambda: None if self.stopping or self.over else action())

    def hear(self, message: dict[str, Any]) -> None:
        """Of the runtime, about one of the containers."""
        for box in self.boxes:
            if box.run is not None and box.run.id == message["id"]:
                if box.run.hear(message):
                    self._ended(box)
                return

    def _ended(self, box: Box) -> None:
        box.run, box.busy = None, False
        if self.stopping and not any(other.run for other in self.boxes):
            self.finish()
            return
        self.publish()
        if self.stopping:
            return
        if self._restarts(box):
            self._restart(box)
        elif box.initial and box.exit_code == 0:
            self.node.after(0, self.advance)
        elif box.initial or not any(other.exit_code is None or other.busy for other in self.boxes):
            self.node.after(self.node.shop.pace.settle_s, self.finish)

    def _restarts(self, box: Box) -> bool:
        if box.exit_code == 0 and (box.initial or self.policy == "OnFailure"):
            return False
        return bool(self.policy != "Never")

    def _restart(self, box: Box) -> None:
        """The first time at once, then after longer and longer times."""
        box.crashes, box.busy = box.crashes + 1, True
        pace = self.node.shop.pace
        if box.crashes == 1:
            self.node.after(pace.settle_s, lambda: self._again(box, box.state))
        else:
            self.node.after(pace.settle_s, lambda: self._back_off(box))

    def _back_off(self, box: Box) -> None:
        if self.stopping or self.over:
            return
        meta, pace, ended = self.pod["metadata"], self.node.shop.pace, box.state
        name = f"{meta['name']}_{meta['namespace']}({self.uid})"
        pause = ("10s", "20s", "40s", "1m20s", "2m40s", "5m0s")[min(box.crashes - 2, 5)]
        box.last = ended
        box.wait("CrashLoopBackOff", f"back-off {pause} restarting failed container={box.name} pod={name}")
        self.tell("Warning", "BackOff", f"Back-off restarting failed container {box.name} in pod {name}", box)
        self.publish()
        self.node.after(pace.backoff(pace.crash_backoff_s, box.crashes - 1), lambda: self._again(box, ended))

    def _again(self, box: Box, ended: Tree) -> None:
        if not (self.stopping or self.over):
            box.last, box.restarts = ended, box.restarts + 1
            Start(self, box).begin()

    def _set_deadline(self) -> None:
        limit = self._limit = self.pod["spec"].get("activeDeadlineSeconds")
        if limit is not None:
            self.node.after(max(0.0, self._began + limit - time.time()), self._deadline)

    def _deadline(self) -> None:
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        if limit is None or time.time() < self._began + limit - 0.01 or self.over or self.stopping:
            return
        self.tell("Normal", "DeadlineExceeded", OVERDUE)
        self._why = {"reason": "DeadlineExceeded", "message": OVERDUE}
        self.stop(self.pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_S))

    def check_volumes(self) -> None:
        if self.stopping or self.over:
            return
        beyond = self.volumes.beyond_limit(self.pod)
        if beyond:
            self._forgotten = True
            self.evict(f'Usage of EmptyDir volume "{beyond[0]}" exceeds the limit "{beyond[1]}". ')
            return
        written = self.volumes.used() + sum(box.run.written() for box in self.boxes if box.run)
        if written > storage_limit(self.pod):
            limit = self.pod["spec"]["containers"][0]["resources"]["limits"][STORAGE]
            self.evict(f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. ")

    def evict(self, message: str) -> None:
        """By the node: at once."""
        if not (self.stopping or self.over):
            self.tell("Warning", "Evicted", message)
            self._why = {"reason": "Evicted", "message": message}
            self.stop(0)

    def stop(self, grace_s: float) -> None:
        """SIGTERM, after the grace SIGKILL, then the end. Asked again it can only become quicker."""
        if not self.stopping and not self.over:
            self.stopping = True
            self.publish()  # that it knows of its deletion
            for box in self.boxes:
                if box.run:
                    self.tell("Normal", "Killing", f"Stopping container {box.name}", box)
                    if grace_s:
                        box.run.signal(signal.SIGTERM)
        if self.over or not any(box.run for box in self.boxes):
            self.finish()
            return
        kill_at = time.monotonic() + grace_s
        if kill_at < self._kill_at:
            self._kill_at = kill_at
            self.node.after(grace_s, self._kill)

    def _kill(self) -> None:
        for box in self.boxes:
            if box.run:
                box.run.signal(signal.SIGKILL)

    def finish(self) -> None:
        """Nothing of it runs any more. A pod that is being deleted is removed."""
        if not self.over:
            self.over = True
            phase = phase_of(self.boxes, self.policy)
            self._phase = phase if phase in ("Succeeded", "Failed") and not self._why else "Failed"
            self.node.shop.names.forget(self.pod)
            if self._forgotten:
                self._forget_ends()
            self.publish()
            self._tidy()
            if self._why:
                self.node.after(self.node.shop.pace.settle_s, self._miss_containers)
        meta = self.pod["metadata"]
        if "deletionTimestamp" in meta:
            self.node.shop.store.remove("pods", meta["namespace"], meta["name"], uid=self.uid)

    def _forget_ends(self) -> None:
        """For a moment they are as if they were to begin again."""
        for box in self.boxes:
            if box.id:
                box.wait("ContainerCreating")
                box.id, box.restarts, box.last = "", box.restarts + 1, missing(HAD_RUN)

    def _miss_containers(self) -> None:
        """Of those that never began, or of which nothing is left, it then says that it cannot find them."""
        waiting = [box for box in self.boxes if "waiting" in box.state]
        for box in waiting:
            box.state = missing("The container could not be located when the pod was terminated")
        if waiting:
            self.publish()

    def vanish(self) -> None:
        """The object is gone: what still runs is killed."""
        self.stopping = self.over = True
        self._kill()
        self.node.shop.names.forget(self.pod)
        self._tidy()

    def _tidy(self) -> None:
        self.volumes.tear_down()
        shutil.rmtree(self.folder, ignore_errors=True)
