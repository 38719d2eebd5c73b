"""What runs beside the API server: container runtime, kubelets, scheduler and controllers."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from tests.fake_kubernetes.controllers.custom_jobs import CustomJobKind, CustomJobs
from tests.fake_kubernetes.controllers.garbage_collector import GarbageCollector
from tests.fake_kubernetes.controllers.jobs import JobController
from tests.fake_kubernetes.controllers.namespaces import NamespaceController
from tests.fake_kubernetes.controllers.nodes import mark_node_found, mark_node_lost, node_object
from tests.fake_kubernetes.controllers.scheduler import Scheduler
from tests.fake_kubernetes.node.container_runtime import ContainerRuntime
from tests.fake_kubernetes.node.container_start import IMAGES
from tests.fake_kubernetes.node.kubelet import Kubelet, SharedByNodes
from tests.fake_kubernetes.node.pod_names import PodNames
from tests.fake_kubernetes.recorded import Player
from tests.fake_kubernetes.store.kinds import Kind
from tests.fake_kubernetes.store.trees import Tree
from tests.fake_kubernetes.timings import Timings

if TYPE_CHECKING:
    from tests.fake_kubernetes.cluster import Kube


class _Controller(Protocol):
    def start(self) -> None: ...

    def close(self) -> None: ...


class Components:
    """A test may set `images` and `timings` before start()."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self.images: dict[str, dict[str, str]] = {image: {} for image in IMAGES}
        self.timings = Timings()
        self.failures: list[BaseException] = []  # of all threads
        self.kubelets: dict[str, Kubelet] = {}

    def start(self) -> None:
        """Start all threads. This takes milliseconds and waits for nothing."""
        kube, store, failures = self._kube, self._kube.store, self.failures
        self.runtime = ContainerRuntime()
        host, _, port = kube.url.partition("://")[2].partition(":")
        names = PodNames(kube.folder)
        environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "PATH": names.path}
        self._shared = SharedByNodes(
            store,
            kube.folder,
            kube.logs,
            self.runtime,
            names,
            self.images,
            self.timings,
            environment,
            failures,
        )
        self.player = Player(store, kube.logs, failures)
        self._garbage_collector = GarbageCollector(store, failures)
        self._custom_jobs = CustomJobs(store, failures)
        self._controllers: list[_Controller] = [
            Scheduler(store, failures),
            JobController(store, self.timings, failures),
            self.player,
            NamespaceController(store, failures),
            self._garbage_collector,
            self._custom_jobs,
        ]
        for controller in self._controllers:
            controller.start()

    def close(self) -> None:
        """End every process and every thread."""
        for controller in self._controllers:
            controller.close()
        for kubelet in self.kubelets.values():
            kubelet.close()
        self.runtime.close()

    def follow(self, key: str, kind: Kind) -> None:
        """Let the garbage collector follow a new kind, and its controller, if it has one, make pods."""
        self._garbage_collector.follow(key)
        if isinstance(kind.controller, CustomJobKind):
            self._custom_jobs.follow(key, kind.controller)

    def node(self, name: str, labels: Mapping[str, str], capacity: Mapping[str, str]) -> None:
        """Create a ready node, or give these labels and this capacity to an existing one."""
        store, new = self._kube.store, node_object(name, labels, capacity)
        if name not in self.kubelets:
            store.create("nodes", "", new)
            self.kubelets[name] = Kubelet(self._shared, name)
            return

        def change(node: Tree) -> None:
            node["metadata"]["labels"] = new["metadata"]["labels"]
            node["status"] |= {field: new["status"][field] for field in ("capacity", "allocatable")}

        store.change("nodes", "", name, change)

    def cordon(self, name: str, *, on: bool = True) -> None:
        """Let the scheduler put no new pods on a node."""
        self._kube.store.change("nodes", "", name, lambda node: node["spec"].update(unschedulable=on))

    def kubelet_down(self, name: str) -> None:
        """Stop a kubelet: containers run on, the statuses of its pods freeze, and their logs cannot be read."""
        self.kubelets[name].stop()
        self._kube.logs.disconnect(name)

    def kubelet_up(self, name: str) -> None:
        """Start a kubelet again. It reports what has happened meanwhile; a lost node becomes ready."""
        self._kube.logs.connect(name)
        self.kubelets[name].go_on()
        conditions = self._kube.store.get("nodes", "", name)["status"]["conditions"]
        if any(condition["status"] == "Unknown" for condition in conditions):
            mark_node_found(self._kube.store, name)

    def lose(self, name: str) -> None:
        """Stop a kubelet. After `timings.lost_s` its node becomes Ready=Unknown and its pods Ready=False."""
        self.kubelet_down(name)

        def notice() -> None:
            if self.kubelets[name].down:  # it may have come back
                mark_node_lost(self._kube.store, name)

        self._custom_jobs.after(self.timings.lost_s, notice)

    def _kubelet_of(self, name: str, namespace: str) -> tuple[Kubelet, Tree]:
        pod = self._kube.store.get("pods", namespace, name)
        return self.kubelets[pod["spec"]["nodeName"]], pod

    def kill(self, pod: str, namespace: str = "default", *, number: int = signal.SIGKILL) -> None:
        """Send a signal to the first process of every container of a pod."""
        kubelet, found = self._kubelet_of(pod, namespace)
        for run in [container.process for container in kubelet.lifecycles[found["metadata"]["uid"]].containers]:
            if run:
                run.signal(number)
