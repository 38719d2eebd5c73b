"""A node's agent: runs the pods that are bound to its node, and says how they are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.controllers.event_loop import EventLoop
from tests.fake_kubernetes.controllers.event_recorder import EventRecorder
from tests.fake_kubernetes.node.container_runtime import ContainerRuntime
from tests.fake_kubernetes.node.hosts_files import HostsFiles
from tests.fake_kubernetes.node.images import Images
from tests.fake_kubernetes.node.logs import LogSource
from tests.fake_kubernetes.node.pod_lifecycle import PodLifecycle
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree
from tests.fake_kubernetes.timings import Timings


@dataclass
class SharedByNodes:
    """What all nodes of a cluster share."""

    store: Store
    folder: Path
    logs: LogSource
    runtime: ContainerRuntime
    hosts_files: HostsFiles
    images: Images
    timings: Timings
    environment: dict[str, str]  # of every container: where the API is
    log_max: int  # bytes after which a container's log is rotated
    log_every_s: float  # but no sooner than that after the last time
    failures: list[BaseException]
    addresses: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def address(self) -> str:
        """For a pod: this machine answers to all of 127/8, so that pods find each other by name and address."""
        number = next(self.addresses)
        return f"127.77.{number // 250}.{number % 250 + 1}"


class Kubelet:
    """One node. Its containers are the workshop's: they go on without it."""

    def __init__(self, shared: SharedByNodes, name: str) -> None:
        self.shared, self.name = shared, name
        self.recorder = EventRecorder(shared.store, "kubelet", name)
        self.lifecycles: dict[str, PodLifecycle] = {}  # by uid
        self._looking = False
        self._loop = EventLoop(f"kubelet {name}", shared.store.subscribe("pods"), self._handle, shared.failures)
        self._loop.start()

    @property
    def down(self) -> bool:
        return self._loop.paused

    def stop(self) -> None:
        """As if it were killed: containers go on, nothing is written, logs cannot be read."""
        self._loop.pause()

    def go_on(self) -> None:
        self._loop.resume()

    def close(self) -> None:
        self._loop.close()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """In this node's thread."""
        self._loop.after(seconds, action)

    def get(self, pod: Tree, plural: str, name: str) -> Tree | None:
        """What a pod refers to, in its namespace."""
        namespace = pod["metadata"]["namespace"] if self.shared.store.kinds[plural].namespaced else ""
        try:
            return self.shared.store.get(plural, namespace, name)
        except KubeError:
            return None

    def runtime_listener(self, uid: str) -> Callable[[dict[str, Any]], None]:
        """Takes what the runtime says of a pod's containers, to be handled in this node's thread."""
        return lambda message: self._loop.subscription.put("RUNTIME", uid, message)

    def _handle(self, event: str, subject: str, obj: Tree) -> None:
        if event == "RUNTIME":
            if subject in self.lifecycles:
                self.lifecycles[subject].hear(obj)
            return
        uid = obj["metadata"]["uid"]
        if obj["spec"].get("nodeName") != self.name:
            return
        if event == "DELETED":
            lifecycle = self.lifecycles.pop(uid, None)
            if lifecycle:
                lifecycle.vanish()
        elif uid in self.lifecycles:
            self.lifecycles[uid].see(obj)
        elif obj.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            self.lifecycles[uid] = PodLifecycle(self, obj)
            self.lifecycles[uid].begin()

    def watch_volumes(self) -> None:
        """From now on, as long as pods need it."""
        if not self._looking:
            self._looking = True
            self.after(self.shared.timings.eviction_s, self._look)

    def _look(self) -> None:
        watched = [lifecycle for lifecycle in self.lifecycles.values() if lifecycle.limited and not lifecycle.over]
        for lifecycle in watched:
            lifecycle.check_volumes()
        self._looking = False
        if watched:
            self.watch_volumes()
