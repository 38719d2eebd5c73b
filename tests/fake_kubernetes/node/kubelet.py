"""The kubelet: runs the pods of its node and reports their status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.controllers.event_loop import EventLoop
from tests.fake_kubernetes.controllers.event_recorder import EventRecorder
from tests.fake_kubernetes.node.container_runtime import ContainerRuntime
from tests.fake_kubernetes.node.logs import LogSource
from tests.fake_kubernetes.node.pod_lifecycle import PodLifecycle
from tests.fake_kubernetes.node.pod_names import PodNames
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree
from tests.fake_kubernetes.timings import Timings


@dataclass
class SharedByNodes:
    """What the nodes of a cluster share."""

    store: Store
    folder: Path
    logs: LogSource
    runtime: ContainerRuntime
    names: PodNames
    images: dict[str, dict[str, str]]  # those that nodes have, with their environments
    timings: Timings
    environment: dict[str, str]  # of every container
    failures: list[BaseException]


class Kubelet:
    """The kubelet of one node. Containers belong to the shared runtime and run on while the kubelet is down."""

    def __init__(self, shared: SharedByNodes, name: str) -> None:
        self.shared, self.name = shared, name
        self.recorder = EventRecorder(shared.store, "kubelet", name)
        self.lifecycles: dict[str, PodLifecycle] = {}  # by uid
        self._loop = EventLoop(f"kubelet {name}", shared.store.subscribe("pods"), self._handle, shared.failures)
        self._loop.start()

    @property
    def down(self) -> bool:
        return self._loop.paused

    def stop(self) -> None:
        """Stop as if killed: containers run on, nothing is written, and logs cannot be read."""
        self._loop.pause()

    def go_on(self) -> None:
        self._loop.resume()

    def close(self) -> None:
        self._loop.close()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` in this node's thread after so many seconds."""
        self._loop.after(seconds, action)

    def get(self, pod: Tree, plural: str, name: str) -> Tree | None:
        """Return an object that a pod refers to, None if there is none."""
        namespace = pod["metadata"]["namespace"] if self.shared.store.kinds[plural].namespaced else ""
        try:
            return self.shared.store.get(plural, namespace, name)
        except KubeError:
            return None

    def runtime_listener(self, uid: str) -> Callable[[dict[str, Any]], None]:
        """Return a function that passes the runtime's messages about a pod to this node's thread."""
        return lambda message: self._loop.subscription.put("RUNTIME", uid, message)

    def _handle(self, event: str, subject: str, obj: Tree) -> None:
        if event == "RUNTIME":
            if subject in self.lifecycles:
                self.lifecycles[subject].handle_runtime_message(obj)
            return
        uid = obj["metadata"]["uid"]
        if obj["spec"].get("nodeName") != self.name:
            return
        if event == "DELETED":
            lifecycle = self.lifecycles.pop(uid, None)
            if lifecycle:
                lifecycle.vanish()
        elif uid in self.lifecycles:
            self.lifecycles[uid].handle_update(obj)
        elif obj.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            self.lifecycles[uid] = PodLifecycle(self, obj)
            self.lifecycles[uid].begin()
